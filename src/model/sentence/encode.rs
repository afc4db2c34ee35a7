//! Texts to vectors.

use crate::error::{Error, Result};
use crate::model::sentence::BertForSentenceEmbedding;
use crate::model::windows::not_finite;
use crate::text::{BertTokenizer, TextBatch};
use burn::config::Config;
use burn::prelude::*;

/// How [`BertForSentenceEmbedding::encode`] makes vectors.
#[derive(Config, Debug, PartialEq)]
pub struct EncodeConfig {
    /// The name of the model's prompt that is put before each text; by default that of its
    /// [`prompts`](crate::model::BertForSentenceEmbeddingConfig::prompts).
    pub prompt_name: Option<String>,
    /// A prompt that is none of the model's; instead of a name.
    pub prompt: Option<String>,
    /// The number of values that are kept of each vector; by default the model's
    /// [`truncate_dim`](crate::model::BertForSentenceEmbeddingConfig::truncate_dim).
    pub truncate_dim: Option<usize>,
    /// Texts that are read at once.
    #[config(default = 32)]
    pub batch_size: usize,
}

impl BertForSentenceEmbedding {
    /// One vector per text, [N, H]: the [embedding](Self::embed) of the prompt and the text, of which the first
    /// `truncate_dim` values are kept. Without dropout and gradients, also of a model in training.
    ///
    /// Texts are cut, and their case is changed, as by [`limit_tokenizer`](Self::limit_tokenizer).
    ///
    /// ```
    /// use burn::prelude::*;
    /// use burn_bert::BertEmbeddingsConfig;
    /// use burn_bert::model::{BertForSentenceEmbeddingConfig, BertModelConfig, EncodeConfig, Prompts};
    /// use burn_bert::text::BertTokenizer;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsun\nrain\nquery\n")?;
    /// let tokenizer = BertTokenizer::from_pretrained(dir.path())?;
    /// let bert = BertModelConfig::new(BertEmbeddingsConfig::new().with_vocab_size(8).with_hidden_size(8))
    ///     .with_num_hidden_layers(1)
    ///     .with_num_attention_heads(2)
    ///     .with_intermediate_size(16);
    /// let config = BertForSentenceEmbeddingConfig::new(bert).with_prompts(Prompts::new().with("query", "query "));
    /// let model = config.init(&Device::default());
    /// let texts = model.encode(&tokenizer, &["sun", "rain"], &EncodeConfig::new())?;
    /// let query = model.encode(&tokenizer, &["sun"], &EncodeConfig::new().with_prompt_name(Some("query".into())))?;
    /// assert_eq!((texts.dims(), query.dims()), ([2, 8], [1, 8]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there is no prompt of the name, a name is given beside a prompt, or a size is 0; those of
    /// [`BertTokenizer::encode_batch`] and [`embed`](Self::embed); [`Error::Data`] if a value is NaN or infinite.
    ///
    /// Source: `SentenceTransformer.encode` of sentence-transformers 6.2.
    pub fn encode<T: AsRef<str>>(
        &self,
        tokenizer: &BertTokenizer,
        texts: &[T],
        config: &EncodeConfig,
    ) -> Result<Tensor<2>> {
        // As in sentence-transformers, what the directory says of lengths and case needs no asking.
        let tokenizer = &self.limit_tokenizer(tokenizer.clone())?;
        let model = self.valid();
        let own = model.config();
        let truncate_dim = config.truncate_dim.or(own.truncate_dim);
        for (field, size) in [("truncate_dim", truncate_dim), ("batch_size", Some(config.batch_size))] {
            if size == Some(0) {
                return Err(Error::Config { field, problem: "is 0, but must be at least 1".into() });
            }
        }
        let prompt = match (&config.prompt, &config.prompt_name) {
            (Some(prompt), Some(name)) => {
                let problem = format!("is {name:?}, but the prompt {prompt:?} is given too; set one of them");
                return Err(Error::Config { field: "prompt_name", problem });
            }
            (Some(prompt), None) => prompt,
            (None, name) => own.prompts.text(name.as_deref())?,
        };
        let prompt_length = if own.include_prompt || prompt.is_empty() {
            0
        } else {
            let ids = tokenizer.encode(prompt)?;
            let ids = ids.input_ids();
            // The separator at the end stands after the text, not after the prompt.
            let ends_special = ids.last().is_some_and(|last| tokenizer.special_token_ids().contains(last));
            ids.len() - usize::from(ends_special)
        };
        let width = truncate_dim.map_or(model.width(), |dim| dim.min(model.width()));
        let words = &model.bert.embeddings.word_embeddings.weight;
        let (device, mut vectors) = (words.lazy_device(), Vec::new());
        for texts in texts.chunks(config.batch_size) {
            let texts: Vec<String> = texts.iter().map(|text| format!("{prompt}{}", text.as_ref())).collect();
            let TextBatch { input, padding } = tokenizer.batch(&tokenizer.encode_batch(&texts)?, &device)?;
            let embedded = model.embed_after(&input, padding.as_ref(), prompt_length)?;
            vectors.push(embedded.narrow(1, 0, width));
        }
        if vectors.is_empty() {
            return Ok(Tensor::zeros([0, width], (&device, words.val().dtype())));
        }
        let vectors = Tensor::cat(vectors, 0);
        // One read for all texts: each read waits for the device.
        let is_finite = vectors.clone().is_finite().all_dim(1).into_data();
        match is_finite.iter::<bool>().position(|is_finite| !is_finite) {
            Some(text) => Err(not_finite("values", text)),
            None => Ok(vectors),
        }
    }
}
