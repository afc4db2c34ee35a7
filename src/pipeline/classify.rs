//! Texts to labels, and texts by their relevance for a query.

use super::{Pipeline, Prefix, TextOptions, largest, softmax};
use crate::encoder::Activation;
use crate::error::{Error, Result};
use crate::layers::ensure;
use crate::model::{BertForSequenceClassification, ProblemType};
use crate::text::{BertTokenizer, Encoding};
use burn_fused::bias_activation;

/// A label of a text and its score. Returned by [`Pipeline::classify`].
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredLabel {
    /// The name of the label.
    pub label: String,
    /// The label's probability; of a regression, the number.
    pub score: f64,
    /// Whether it is predicted: where a text may have several labels, each whose probability reaches its threshold; else the best
    /// label, if it reaches the [threshold](TextOptions::with_threshold) of the options, if any.
    pub is_predicted: bool,
}

/// The labels with these scores, the one with the highest first; `own` is the threshold of each where there may be several.
pub(super) fn scored_labels(
    scores: &[f64],
    options: &TextOptions,
    name: impl Fn(usize) -> String,
    own: Option<impl Fn(usize) -> f64>,
) -> Vec<ScoredLabel> {
    let best = largest(scores, options.top_k.unwrap_or(usize::MAX));
    let label = |(rank, &id): (usize, &usize)| {
        let own_threshold = own.as_ref().map(|own| own(id));
        let threshold = options.threshold.or(own_threshold).unwrap_or(f64::NEG_INFINITY);
        let is_predicted = scores[id] >= threshold && (rank == 0 || own.is_some());
        ScoredLabel { label: name(id), score: scores[id], is_predicted }
    };
    best.iter().enumerate().map(label).collect()
}

/// A text of a list and its score. Returned by [`Pipeline::rank`] and [`Pipeline::search`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The index of the text in the list.
    pub index: usize,
    /// The text's relevance or similarity.
    pub score: f64,
}

/// What is classified. The module is private, which seals the trait.
pub trait TextOrPair: Sync {
    fn encoded(&self, tokenizer: &BertTokenizer) -> Result<Encoding>;
}

impl TextOrPair for &str {
    fn encoded(&self, tokenizer: &BertTokenizer) -> Result<Encoding> {
        tokenizer.encode(self)
    }
}

impl TextOrPair for String {
    fn encoded(&self, tokenizer: &BertTokenizer) -> Result<Encoding> {
        tokenizer.encode(self)
    }
}

impl TextOrPair for &String {
    fn encoded(&self, tokenizer: &BertTokenizer) -> Result<Encoding> {
        tokenizer.encode(self)
    }
}

impl<A: AsRef<str> + Sync, B: AsRef<str> + Sync> TextOrPair for (A, B) {
    fn encoded(&self, tokenizer: &BertTokenizer) -> Result<Encoding> {
        tokenizer.encode_pair(self.0.as_ref(), self.1.as_ref())
    }
}

impl Pipeline<BertForSequenceClassification> {
    /// The labels of each text (`&str`, `String`, `&String`) or pair of texts, the one with the highest score first.
    ///
    /// The score is the softmax over the labels, or, if the model has one label or its `problem_type` is
    /// [`MultiLabelClassification`](ProblemType::MultiLabelClassification), the sigmoid of each. For a
    /// [`Regression`](ProblemType::Regression) it is the number itself. A pair is cut as by
    /// [`encode_pair`](BertTokenizer::encode_pair). Reads `top_k`, by default all labels, and `threshold`, by default the model's
    /// [`label_thresholds`](crate::model::BertForSequenceClassificationConfig::label_thresholds). Errors are those of
    /// [every method](Pipeline#errors), and [`Error::Config`] for a threshold of a regression.
    ///
    /// Source: `TextClassificationPipeline` of transformers 5.23 with `top_k=None`.
    pub fn classify<T: TextOrPair>(
        &self,
        texts: &[T],
        options: &TextOptions,
    ) -> Result<Vec<Vec<ScoredLabel>>> {
        options.check("classify", &["top_k", "threshold"])?;
        let config = self.model.config();
        let is_regression = config.problem_type == Some(ProblemType::Regression);
        ensure(!is_regression || options.threshold.is_none(), "threshold", || {
            "is set, but the numbers of a regression have none".into()
        })?;
        let are_several = config.problem_type == Some(ProblemType::MultiLabelClassification);
        let thresholds = config.label_thresholds.as_ref();
        let threshold = |id: usize| match thresholds {
            _ if is_regression => f64::NEG_INFINITY,
            Some(thresholds) => thresholds[id],
            None => 0.5,
        };
        let found = self.map_windows(
            texts,
            options,
            |text| Ok(vec![text.encoded(&self.tokenizer)?]),
            |batch| Ok(self.model.logits(&batch.input, batch.padding.as_ref())?.unsqueeze_dim(1)),
            |_, _, logits| {
                let scores = match config.problem_type {
                    Some(ProblemType::Regression) => logits.to_vec(),
                    // The softmax of one label is 1, whatever its logit.
                    Some(ProblemType::SingleLabelClassification) | None if logits.len() > 1 => {
                        softmax(logits)
                    }
                    _ => logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect(), // sigmoid
                };
                let own = (are_several || is_regression).then_some(threshold);
                scored_labels(&scores, options, |id| config.id2label[id].clone(), own)
            },
        )?;
        Ok(found.concat())
    }

    /// Reranks texts by their relevance for a query (cross-encoder), the most relevant first; of equal ones, the first of the
    /// list.
    ///
    /// The model has one label and reads the query and a text as a pair, which is cut as by
    /// [`encode_pair`](BertTokenizer::encode_pair). Before the query comes a prompt, by default that of the model's
    /// [`Prompts`](crate::model::Prompts); a query that begins with it gets no other. The score is the model's
    /// [activation](Activation) of the logit, by default the sigmoid. To train one, give
    /// [`multi_label`](crate::model::SequenceClassificationBatch::multi_label) a relevance in [0, 1] for each pair. Reads `top_k`, by
    /// default all texts, and the prompt. Errors are those of [every method](Pipeline#errors), and [`Error::Config`] if the model has
    /// not one label, or there is no prompt of the name.
    ///
    /// Source: `CrossEncoder.rank` of sentence-transformers 6.2, which puts a prompt before a query that begins with it, too.
    pub fn rank<T: AsRef<str> + Sync>(
        &self,
        query: &str,
        texts: &[T],
        options: &TextOptions,
    ) -> Result<Vec<Ranked>> {
        options.check("rank", &["top_k", "prompt"])?;
        let config = self.model.config();
        if config.num_labels() != 1 {
            let problem = format!("has {} labels, but a model that ranks has one", config.num_labels());
            return Err(Error::config("id2label", problem));
        }
        // Tokenised with the query, and not by itself: words may merge across the border.
        let prompt = options.prompt(&config.prompts, config.prompts.text(None)?)?;
        let prefix = Prefix::new(prompt, true, &self.tokenizer)?;
        let query = prefix.text(query);
        let activation = config.activation.unwrap_or(Activation::Sigmoid);
        let scores = self.map_windows(
            texts,
            options,
            |text| Ok(vec![self.tokenizer.encode_pair(&query, text.as_ref())?]),
            |batch| {
                let logits = self.model.logits(&batch.input, batch.padding.as_ref())?;
                Ok(bias_activation(logits, None, activation).unsqueeze_dim(1))
            },
            |_, _, scores| scores[0],
        )?;
        let scores = scores.concat();
        let best = largest(&scores, options.top_k.unwrap_or(usize::MAX)).into_iter();
        Ok(best.map(|index| Ranked { index, score: scores[index] }).collect())
    }
}
