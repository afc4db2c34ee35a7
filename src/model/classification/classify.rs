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
    /// The place of the text in the list that was ranked.
    pub index: usize,
    /// The score.
    pub score: f64,
}

impl BertForSequenceClassification {
    /// The labels of each text or pair, the one with the highest score first. Without dropout and gradients, also of a
    /// model in training.
    ///
    /// The score is the softmax over the labels, or, if the model has one label or its `problem_type` is
    /// [`MultiLabelClassification`](ProblemType::MultiLabelClassification), the sigmoid of each. If it is
    /// [`Regression`](ProblemType::Regression), it is the number itself.
    ///
    /// ```
    /// use burn::prelude::*;
    /// use burn_bert::BertEmbeddingsConfig;
    /// use burn_bert::model::{BertForSequenceClassificationConfig, BertModelConfig};
    /// use burn_bert::text::BertTokenizer;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsun\nrain\n")?;
    /// let tokenizer = BertTokenizer::from_pretrained(dir.path())?;
    /// let bert = BertModelConfig::new(BertEmbeddingsConfig::new().with_vocab_size(7).with_hidden_size(8))
    ///     .with_num_hidden_layers(1)
    ///     .with_num_attention_heads(2)
    ///     .with_intermediate_size(16);
    /// let labels = ["bad", "good"].map(String::from);
    /// let config = BertForSequenceClassificationConfig::new(bert).with_id2label(labels.into());
    /// let model = config.init(&Device::default()); // not trained
    /// let found = model.classify(&tokenizer, &tokenizer.encode_batch(&["sun", "rain"])?)?;
    /// assert!(found[0][0].score >= 0.5 && ["bad", "good"].contains(&found[0][0].label.as_str()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`logits`](Self::logits); [`Error::Data`](crate::Error::Data) if a score is NaN or infinite.
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

    /// The texts by their relevance for a query, the most relevant first; of equal ones, the first of the list. Without
    /// dropout and gradients, also of a model in training.
    ///
    /// The model has one label and reads the query and a text as a pair (a cross-encoder); a pair that is too long is cut as
    /// by [`encode_pair`](BertTokenizer::encode_pair). Before the query is the default of the model's [`Prompts`](crate::model::Prompts).
    /// The score is the [activation](Activation) of the logit, by
    /// default the sigmoid, as in sentence-transformers, whose directories
    /// [`from_pretrained`](crate::model::PretrainedModel::from_pretrained) reads. To train one, give
    /// [`SequenceClassificationBatch::multi_label`](crate::model::SequenceClassificationBatch::multi_label) a relevance in [0, 1]
    /// for each pair; the loss is then binary cross-entropy.
    ///
    /// ```
    /// use burn::prelude::*;
    /// use burn_bert::BertEmbeddingsConfig;
    /// use burn_bert::model::{BertForSequenceClassificationConfig, BertModelConfig};
    /// use burn_bert::text::BertTokenizer;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsun\nrain\nwind\n")?;
    /// let tokenizer = BertTokenizer::from_pretrained(dir.path())?;
    /// let bert = BertModelConfig::new(BertEmbeddingsConfig::new().with_vocab_size(8).with_hidden_size(8))
    ///     .with_num_hidden_layers(1)
    ///     .with_num_attention_heads(2)
    ///     .with_intermediate_size(16);
    /// let config = BertForSequenceClassificationConfig::new(bert).with_num_labels(1);
    /// let model = config.init(&Device::default()); // not trained
    /// let ranked = model.rank(&tokenizer, "sun", &["rain", "sun", "wind"])?;
    /// assert!(ranked[0].score >= ranked[1].score && ranked[1].score >= ranked[2].score);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Error::Config`] if the model has not one label;
    /// - those of [`BertTokenizer::encode_pair`] and [`logits`](Self::logits); [`Error::Data`] if a score is NaN or
    ///   infinite.
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
            return Err(Error::Config { field: "id2label", problem });
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
