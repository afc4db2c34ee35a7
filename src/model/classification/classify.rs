//! Texts to labels, and texts by their relevance for a query.

use crate::encoder::Activation;
use crate::error::{Error, Result};
use crate::model::classification::{BertForSequenceClassification, ProblemType};
use crate::model::windows::{Windows, sigmoid, softmax};
use crate::text::{BertTokenizer, Encoding};
use burn::module::Module;
use burn::prelude::*;
use burn_fused::bias_activation;

/// A label of a text and its score. Returned by [`BertForSequenceClassification::classify`].
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredLabel {
    /// The name of the label.
    pub label: String,
    /// Its probability; of a regression, the number.
    pub score: f64,
}

/// A text and its relevance. Returned by [`BertForSequenceClassification::rank`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The index of the text in the list that was ranked.
    pub index: usize,
    /// Its relevance.
    pub score: f64,
}

impl BertForSequenceClassification {
    /// The labels of each text or pair, the one with the highest score first. Always as inference, without dropout.
    ///
    /// The score is the softmax over the labels, or, if the model has one label or its `problem_type` is
    /// [`MultiLabelClassification`](ProblemType::MultiLabelClassification), the sigmoid of each. For a
    /// [`Regression`](ProblemType::Regression) it is the number itself.
    ///
    /// ```
    /// # use burn_bert::{model::BertForSequenceClassification, text::BertTokenizer};
    /// # fn example(model: BertForSequenceClassification, tokenizer: BertTokenizer) -> burn_bert::Result<()> {
    /// let found = model.classify(&tokenizer, &tokenizer.encode_batch(&["A film to remember.", "Dull."])?)?;
    /// println!("{} ({:.2})", found[0][0].label, found[0][0].score);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`logits`](Self::logits); [`Error::Data`] if a score is NaN or infinite.
    ///
    /// Source: `TextClassificationPipeline` of transformers 5.23 with `top_k=None`.
    pub fn classify(
        &self,
        tokenizer: &BertTokenizer,
        encodings: &[Encoding],
    ) -> Result<Vec<Vec<ScoredLabel>>> {
        let model = self.valid();
        let config = model.config();
        let windows = Windows::of(encodings.iter().map(|encoding| Ok(vec![encoding.clone()])))?;
        let mut found = Vec::with_capacity(encodings.len());
        windows.for_each(
            tokenizer,
            &model.classifier.out_proj.weight.lazy_device(),
            |batch| Ok(model.logits(&batch.input, batch.padding.as_ref())?.unsqueeze_dim(1)),
            |_, _, logits| {
                let scores = match config.problem_type {
                    Some(ProblemType::Regression) => logits.to_vec(),
                    Some(ProblemType::MultiLabelClassification) => {
                        logits.iter().copied().map(sigmoid).collect()
                    }
                    // The softmax of one label is 1, whatever its logit.
                    _ if logits.len() == 1 => vec![sigmoid(logits[0])],
                    Some(ProblemType::SingleLabelClassification) | None => softmax(logits),
                };
                let labels = config.id2label.iter().cloned().zip(scores);
                let mut labels: Vec<_> = labels.map(|(label, score)| ScoredLabel { label, score }).collect();
                labels.sort_by(|a, b| b.score.total_cmp(&a.score));
                found.push(labels);
            },
        )?;
        Ok(found)
    }

    /// Reranks texts by their relevance for a query (cross-encoder), the most relevant first; of equal ones, the first of the
    /// list. Always as inference, without dropout.
    ///
    /// The model has one label and reads the query and a text as a pair, which is cut as by
    /// [`encode_pair`](BertTokenizer::encode_pair). Before the query comes the default of the model's
    /// [`Prompts`](crate::model::Prompts). The score is the model's [activation](Activation) of the logit, by default the
    /// sigmoid. To train one, give [`multi_label`](crate::model::SequenceClassificationBatch::multi_label) a relevance in
    /// [0, 1] for each pair.
    ///
    /// ```
    /// # use burn_bert::{model::BertForSequenceClassification, text::BertTokenizer};
    /// # fn example(model: BertForSequenceClassification, tokenizer: BertTokenizer) -> burn_bert::Result<()> {
    /// let texts = ["Rain is expected in the evening.", "Bread needs flour, water and salt."];
    /// let ranked = model.rank(&tokenizer, "What will the weather be like?", &texts)?;
    /// println!("{}", texts[ranked[0].index]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the model has not one label; those of [`BertTokenizer::encode_pair`] and
    /// [`logits`](Self::logits); [`Error::Data`] if a score is NaN or infinite.
    ///
    /// Source: `CrossEncoder.rank` of sentence-transformers 6.2.
    pub fn rank<T: AsRef<str> + Sync>(
        &self,
        tokenizer: &BertTokenizer,
        query: &str,
        texts: &[T],
    ) -> Result<Vec<Ranked>> {
        let model = self.valid();
        let config = model.config();
        if config.num_labels() != 1 {
            let problem = format!("has {} labels, but a model that ranks has one", config.num_labels());
            return Err(Error::config("id2label", problem));
        }
        // Tokenised with the query, and not by itself: words may merge across the border.
        let query = format!("{}{query}", config.prompts.text(None)?);
        let pairs: Vec<(&str, &str)> = texts.iter().map(|text| (query.as_str(), text.as_ref())).collect();
        let windows = Windows::of(tokenizer.encode_pairs(&pairs)?.into_iter().map(|pair| Ok(vec![pair])))?;
        let activation = config.activation.unwrap_or(Activation::Sigmoid);
        let mut ranked = Vec::with_capacity(texts.len());
        windows.for_each(
            tokenizer,
            &model.classifier.out_proj.weight.lazy_device(),
            |batch| {
                let logits = model.logits(&batch.input, batch.padding.as_ref())?;
                // The operator that has all activations also adds a bias.
                let no_bias = Tensor::zeros([1], (&logits.device(), logits.dtype()));
                Ok(bias_activation(logits, no_bias, activation).unsqueeze_dim(1))
            },
            |index, _, scores| ranked.push(Ranked { index, score: scores[0] }),
        )?;
        // A stable sort: of equal scores, the first of the list.
        ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok(ranked)
    }
}
