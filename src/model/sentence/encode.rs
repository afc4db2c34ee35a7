//! Texts to sentence embeddings.

use crate::error::{Error, Result};
use crate::layers::check_sizes;
use crate::model::sentence::BertForSentenceEmbedding;
use crate::model::windows::not_finite;
use crate::text::{BertTokenizer, TextBatch};
use burn::config::Config;
use burn::prelude::*;

/// Configuration of [`BertForSentenceEmbedding::encode`].
#[derive(Config, Debug, PartialEq)]
pub struct EncodeConfig {
    /// The model's prompt that is put before each text; by default that of its
    /// [`prompts`](crate::model::BertForSentenceEmbeddingConfig::prompts).
    pub prompt_name: Option<String>,
    /// Another prompt, instead of a name.
    pub prompt: Option<String>,
    /// How many values of each vector are kept; by default the model's
    /// [`truncate_dim`](crate::model::BertForSentenceEmbeddingConfig::truncate_dim).
    pub truncate_dim: Option<usize>,
    /// Texts that are read at once.
    #[config(default = 32)]
    pub batch_size: usize,
}

impl BertForSentenceEmbedding {
    /// Sentence embeddings, [N, H]: the [embedding](Self::embed) of prompt and text, of which the first `truncate_dim` values
    /// are kept. Texts are cut and lower-cased as by [`limit_tokenizer`](Self::limit_tokenizer). Always as inference,
    /// without dropout and gradients.
    ///
    /// ```
    /// # use burn_bert::{model::{BertForSentenceEmbedding, EncodeConfig}, text::BertTokenizer};
    /// # fn example(model: BertForSentenceEmbedding, tokenizer: BertTokenizer) -> burn_bert::Result<()> {
    /// let texts = model.encode(&tokenizer, &["It rains.", "The sun shines."], &EncodeConfig::new())?;
    /// let as_query = EncodeConfig::new().with_prompt_name(Some("query".into()));
    /// let query = model.encode(&tokenizer, &["What will the weather be like?"], &as_query)?;
    /// println!("{}", model.config().similarity.between(query, texts));
    /// # Ok(())
    /// # }
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
        check_sizes([
            ("truncate_dim", truncate_dim.unwrap_or(1), usize::MAX),
            ("batch_size", config.batch_size, usize::MAX),
        ])?;
        let prompt = match (&config.prompt, &config.prompt_name) {
            (Some(prompt), Some(name)) => {
                let problem = format!("is {name:?}, but the prompt {prompt:?} is given too; set one of them");
                return Err(Error::config("prompt_name", problem));
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
