//! Texts by their relevance for a query, from a classifier of pairs.

use super::classification::BertForSequenceClassification;
use super::windows::Windows;
use crate::encoder::Activation;
use crate::error::{Error, Result};
use crate::text::BertTokenizer;
use burn::prelude::*;
use burn_fused::bias_activation;

/// A text and its relevance. Returned by [`BertForSequenceClassification::rank`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The place of the text in the list that was ranked.
    pub index: usize,
    /// The score.
    pub score: f64,
}

impl BertForSequenceClassification {
    /// The texts by their relevance for a query, the most relevant first; of equal ones, the first of the list. Without
    /// dropout and gradients, also of a model in training.
    ///
    /// The model has one label and reads the query and a text as a pair (a cross-encoder); a pair that is too long is cut as
    /// by [`encode_pair`](BertTokenizer::encode_pair). Before the query is the default of the model's [`Prompts`](super::Prompts).
    /// The score is the [activation](Activation) of the logit, by
    /// default the sigmoid, as in sentence-transformers, whose directories
    /// [`from_pretrained`](super::PretrainedModel::from_pretrained) reads. To train one, give
    /// [`SequenceClassificationBatch::multi_label`](super::SequenceClassificationBatch::multi_label) a relevance in [0, 1]
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
