use crate::checkpoint::Fields;
use crate::embeddings::BertEmbeddingsInput;
use crate::encoder::config::BertModelConfig;
use crate::error::{Error, Result};
use crate::family::Classified;
use crate::layers::{LayerNorm, PaddingMask, drop_out, linear};
use crate::model::bert::BertModel;
use crate::model::classifier::{ClassifierTransform, head_fields, numbered, read_dropout};
use crate::model::labels::{IGNORED, Labels, check_padding};
use crate::model::loss::labelled_cross_entropy;
use crate::model::stored::{Stored, stored_head};
use burn::nn::{Dropout, Linear};
use burn::prelude::*;
use serde_json::{Map, Value};

/// Configuration of [`BertForQuestionAnswering`].
#[derive(Config, Debug, PartialEq)]
#[non_exhaustive]
pub struct BertForQuestionAnsweringConfig {
    /// The model below the head.
    pub bert: BertModelConfig,
    /// Dropout of the head's input, in [0, 1); by default 0.1 in DistilBERT, and 0 in ModernBERT, whose `config.json` calls it
    /// `classifier_dropout`. The other families have none.
    pub qa_dropout: Option<f64>,
}

impl BertForQuestionAnsweringConfig {
    /// Checks that a model can be built from this config. Errors are those of [`BertModelConfig::validate`], and
    /// [`Error::Config`] if the dropout is not in [0, 1), or the family has none.
    pub fn validate(&self) -> Result<()> {
        self.bert.validate()?;
        self.bert.check_classifier_dropout(Classified::Answers, self.qa_dropout)
    }

    fn build(&self, device: &Device) -> BertForQuestionAnswering {
        BertForQuestionAnswering {
            bert: self.bert.build(false, device),
            dropout: self.bert.head_dropout(Classified::Answers, self.qa_dropout),
            transform: ClassifierTransform::new(&self.bert, device),
            qa_outputs: self.bert.classifier(2, device),
        }
    }
}

head!(
    BertForQuestionAnsweringConfig,
    BertForQuestionAnswering,
    QuestionAnsweringBatch,
    QuestionAnsweringOutput
);

/// A batch for [`BertForQuestionAnswering`]: questions with the texts that answer them, and the answers.
/// The answer of a question that the text does not answer is that of `[CLS]`, [0, 0].
#[derive(Clone, Debug)]
pub struct QuestionAnsweringBatch {
    /// The tokens, padded at the end to one length.
    pub input: BertEmbeddingsInput,
    /// The padding of the sequences, [B, S]; `None` if none is padded.
    pub padding: Option<PaddingMask>,
    /// The first and the last token of each answer.
    answers: [Labels; 2],
}

impl QuestionAnsweringBatch {
    /// Makes a batch with one answer per sequence: the index of its first and of its last token. An index outside the sequence, or in padding, is
    /// ignored, as in transformers. [`Error::ShapeMismatch`] if there is not one per sequence, or `padding` is not [B, S].
    pub fn new(
        input: BertEmbeddingsInput,
        padding: Option<PaddingMask>,
        answers: &[[usize; 2]],
    ) -> Result<Self> {
        let [batch, seq] = input.dims();
        check_padding(&input, padding.as_ref())?;
        if answers.len() != batch {
            let expected = format!("[{batch}], one answer per sequence");
            return Err(Error::shape("labels", [answers.len()], expected));
        }
        let rows: Vec<&[bool]> = padding.iter().flat_map(PaddingMask::rows).collect();
        let is_token =
            |row: usize, index: usize| index < seq && rows.get(row).is_none_or(|padding| !padding[index]);
        let labels = |which: usize| {
            let indices = answers.iter().enumerate().map(|(row, answer)| {
                if is_token(row, answer[which]) { answer[which] as i64 } else { IGNORED }
            });
            // A index is a class of its sequence, so the loss is the cross-entropy over the S tokens.
            Labels::for_sequences(&input, &indices.collect::<Vec<_>>())
        };
        let answers = [labels(0)?, labels(1)?];
        Ok(Self { input, padding, answers })
    }

    /// The logits of the N sequences that have an answer, [B, S] → [N, S], and its index, `[N]`: of the first and of the last
    /// token. `None` if there are none.
    pub fn labelled(&self, output: &QuestionAnsweringOutput) -> [Option<(Tensor<2>, Tensor<1, Int>)>; 2] {
        let [starts, ends] = &self.answers;
        [starts.labelled(output.start_logits.clone()), ends.labelled(output.end_logits.clone())]
    }

    /// The number of sequences that have an answer, whose first token is in the sequence.
    pub fn num_labelled(&self) -> usize {
        self.answers[0].positions.len()
    }
}

/// The logit of padding, f16's lowest number: its probability is 0 in every dtype.
const OF_PADDING: f64 = -65504.0;

/// BERT for extractive question answering: the logits of each token to be the first and the last of the answer,
/// `[start_logits, end_logits] = Dropout(last_hidden_state)·W + b`.
///
/// ```
/// # use burn_bert::{BertEmbeddingsInput, Result, model::{BertForQuestionAnswering, QuestionAnsweringBatch}};
/// # fn example(model: BertForQuestionAnswering, input: BertEmbeddingsInput) -> Result<()> {
/// let batch = QuestionAnsweringBatch::new(input, None, &[[3, 4]])?; // the answer's first and last token
/// let _gradients = model.forward(&batch).loss.backward();
/// # Ok(())
/// # }
/// ```
///
/// Padding has the logit −65504, so that neither loss nor answers depend on it; transformers' loss does.
///
/// Source: `BertForQuestionAnswering` of transformers 5.23 and its like in the other [families](crate::Family).
#[derive(Module, Debug)]
pub struct BertForQuestionAnswering {
    /// The model below the head; without a pooler.
    pub bert: BertModel,
    /// The layers before the dropout, in ModernBERT.
    pub transform: Option<ClassifierTransform>,
    pub(crate) dropout: Dropout,
    /// W and b, [H, 2].
    pub qa_outputs: Linear,
}

/// The output of [`BertForQuestionAnswering::forward`].
#[derive(Debug)]
pub struct QuestionAnsweringOutput {
    /// The mean of the cross-entropies of the first and of the last token, `[1]`.
    pub loss: Tensor<1>,
    /// The logit of each token to be the first of the answer, [B, S].
    pub start_logits: Tensor<2>,
    /// The logit of each token to be the last of the answer, [B, S].
    pub end_logits: Tensor<2>,
}

impl BertForQuestionAnswering {
    /// The config that builds a model of this shape.
    pub fn config(&self) -> BertForQuestionAnsweringConfig {
        let bert = self.bert.config();
        let qa_dropout = bert.stated_dropout(Classified::Answers, &self.dropout, None);
        BertForQuestionAnsweringConfig { bert, qa_dropout }
    }

    /// The start and end logits, each [B, S]. Errors are those of [`BertModel::try_forward`].
    pub fn logits(
        &self,
        input: &BertEmbeddingsInput,
        padding: Option<&PaddingMask>,
    ) -> Result<[Tensor<2>; 2]> {
        let hidden = self.bert.try_forward(input, padding)?.last_hidden_state;
        let hidden = self.transform.iter().fold(hidden, |hidden, transform| transform.forward(hidden));
        let hidden = drop_out(&self.dropout, &self.qa_outputs.weight, hidden);
        let logits = linear(&self.qa_outputs, hidden); // [B, S, 2]
        let padding = padding.map(|padding| padding.tensor(&logits.device()));
        Ok([0, 1].map(|which| {
            let logits = logits.clone().narrow(2, which, 1).squeeze_dim(2); // [B, S]
            padding.iter().fold(logits, |logits, mask| logits.mask_fill(mask.clone(), OF_PADDING))
        }))
    }

    /// The loss of a batch, and its logits. If no sequence contains its answer, the loss is 0, where transformers' is NaN.
    /// Errors are those of [`logits`](Self::logits), and another shape or device if `batch.input` was replaced.
    pub fn try_forward(&self, batch: &QuestionAnsweringBatch) -> Result<QuestionAnsweringOutput> {
        let [_, seq] = batch.input.dims();
        // An index is a class here, of which there are as many as tokens.
        batch.answers.iter().try_for_each(|labels| labels.check_classes(&batch.input, seq))?;
        let [start_logits, end_logits] = self.logits(&batch.input, batch.padding.as_ref())?;
        let [starts, ends] = &batch.answers;
        let loss = labelled_cross_entropy(start_logits.clone(), starts, None, 0.0)
            + labelled_cross_entropy(end_logits.clone(), ends, None, 0.0);
        let loss = loss.div_scalar(2.0); // the mean, as transformers
        Ok(QuestionAnsweringOutput { loss, start_logits, end_logits })
    }
}

impl Stored for BertForQuestionAnswering {
    stored_head!(BertForQuestionAnsweringConfig, Some("ForQuestionAnswering"), bert, heads);

    fn config_of(fields: &Fields) -> Result<BertForQuestionAnsweringConfig> {
        let qa_dropout = read_dropout(fields, Classified::Answers)?;
        let bert = BertModelConfig::from_fields(fields)?;
        Ok(BertForQuestionAnsweringConfig { bert, qa_dropout })
    }

    fn head_norms(&self) -> Vec<&LayerNorm> {
        self.transform.iter().map(|transform| &transform.layer_norm).collect()
    }

    fn head_fields(&self) -> Map<String, Value> {
        let config = self.config();
        // The head has two outputs, and transformers makes as many as there are labels.
        head_fields(&numbered(2), &config.bert, Classified::Answers, config.qa_dropout)
    }
}
