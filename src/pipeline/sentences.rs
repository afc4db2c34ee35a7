//! Texts to sentence embeddings, and the embeddings that are most similar.

use super::classify::Ranked;
use super::{Pipeline, Prefix, TextOptions, check_finite, largest, not_finite};
use crate::error::{Error, Result};
use crate::layers::check_sizes;
use crate::model::{BertForSentenceEmbedding, layer_normed, normalized};
use burn::prelude::*;

/// Queries that are compared at once, with [`CORPUS`] embeddings: 32 MiB of similarities.
const QUERIES: usize = 128;
/// Embeddings of a corpus that are compared at once, with [`QUERIES`] queries.
const CORPUS: usize = 1 << 16;

impl Pipeline<BertForSentenceEmbedding> {
    /// Sentence embeddings, [N, H]: the [embedding](BertForSentenceEmbedding::embed) of prompt and text, of which the first
    /// `truncate_dim` values are kept; a text that begins with the prompt gets no other. Reads the prompt, by default the model's
    /// default prompt, `layer_norm`, `truncate_dim` and `normalize`, and applies them in this order. Errors are
    /// those of [every method](Pipeline#errors), and [`Error::Config`] if there is no prompt of the name.
    ///
    /// Source: `SentenceTransformer.encode` of sentence-transformers 6.2.
    pub fn encode<T: AsRef<str> + Sync>(&self, texts: &[T], options: &TextOptions) -> Result<Tensor<2>> {
        self.embeddings("encode", texts, options, None)
    }

    /// [`encode`](Self::encode) for queries: the default is the prompt called `query`, or none.
    pub fn encode_query<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        options: &TextOptions,
    ) -> Result<Tensor<2>> {
        self.embeddings("encode_query", texts, options, Some("query"))
    }

    /// [`encode`](Self::encode) for the texts that are searched: the default is the prompt called `document`, or none. (As in
    /// sentence-transformers 6.2, whose documentation also names `passage` and `corpus`; ask for those by name.)
    pub fn encode_document<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        options: &TextOptions,
    ) -> Result<Tensor<2>> {
        self.embeddings("encode_document", texts, options, Some("document"))
    }

    fn embeddings<T: AsRef<str> + Sync>(
        &self,
        task: &str,
        texts: &[T],
        options: &TextOptions,
        role: Option<&str>,
    ) -> Result<Tensor<2>> {
        options.check(task, &["prompt", "layer_norm", "truncate_dim", "normalize"])?;
        let (model, tokenizer) = (&self.model, &self.tokenizer);
        let own = model.config();
        // A role may have none; the default is there, as the config was checked.
        let default = own.prompts.text(role).unwrap_or_default();
        let prompt = options.prompt(&own.prompts, default)?;
        let prefix = Prefix::new(prompt, own.include_prompt, tokenizer)?;
        let truncate_dim = options.truncate_dim.or(own.truncate_dim);
        let width = truncate_dim.map_or(model.width(), |dim| dim.min(model.width()));
        let mut parts = Vec::new();
        let encode = |text: &T| Ok(vec![tokenizer.encode(&prefix.text(text.as_ref()))?]);
        self.in_batches(texts, options, encode, |of_text, _, batch| {
            let prompt_lengths = vec![prefix.length; of_text.len()];
            let part = model.embed_after(&batch.input, batch.padding.as_ref(), &prompt_lengths)?;
            let part = if options.layer_norm == Some(true) { layer_normed(part) } else { part };
            let part = part.narrow(1, 0, width);
            parts.push(if options.normalize == Some(true) { normalized(part) } else { part });
            Ok(())
        })?;
        if parts.is_empty() {
            let words = &model.bert.embeddings.word_embeddings.weight;
            return Ok(Tensor::zeros([0, width], (&words.lazy_device(), words.val().dtype())));
        }
        let embeddings = Tensor::cat(parts, 0);
        // One read for all texts: each read waits for the device.
        let is_finite = embeddings.clone().is_finite().all_dim(1).into_data();
        match is_finite.iter::<bool>().position(|is_finite| !is_finite) {
            Some(text) => Err(not_finite("values", text)),
            None => Ok(embeddings),
        }
    }

    /// The similarity of each of N embeddings and each of M, [N, M]: the model's
    /// [`Similarity`](crate::model::Similarity). [`Error::ShapeMismatch`] if the embeddings differ in length.
    pub fn similarity(&self, a: &Tensor<2>, b: &Tensor<2>) -> Result<Tensor<2>> {
        let ([_, width], [rows, found]) = (a.dims(), b.dims());
        if width != found {
            let expected = format!("[M, {width}], as wide as the others");
            return Err(Error::shape("embeddings", [rows, found], expected));
        }
        // A corpus may have been embedded elsewhere, or stored in 16 bits.
        let b = b.clone().to_device(&a.device()).cast(a.dtype());
        Ok(self.model.config().similarity.between(a.clone(), b))
    }

    /// Semantic search: for each of N query embeddings the `top_k` embeddings of a corpus that are most similar to it, the most
    /// similar first; of equal ones, the first of the corpus. Errors are those of [`similarity`](Self::similarity),
    /// [`Error::Config`] if `top_k` is 0, and [`Error::Data`] if a similarity is NaN or infinite.
    ///
    /// Source: `semantic_search` of sentence-transformers 6.2.
    pub fn search(&self, queries: &Tensor<2>, corpus: &Tensor<2>, top_k: usize) -> Result<Vec<Vec<Ranked>>> {
        check_sizes([("top_k", top_k, usize::MAX)])?;
        let [num_queries, _] = queries.dims();
        let [rows, _] = corpus.dims();
        let mut found: Vec<Vec<Ranked>> = vec![Vec::new(); num_queries];
        for first in (0..rows).step_by(CORPUS) {
            let part = corpus.clone().narrow(0, first, CORPUS.min(rows - first));
            for query in (0..num_queries).step_by(QUERIES) {
                let queries = queries.clone().narrow(0, query, QUERIES.min(num_queries - query));
                let similarities: Vec<f64> = self.similarity(&queries, &part)?.into_data().iter().collect();
                for (query, scores) in (query..).zip(similarities.chunks(part.dims()[0])) {
                    check_finite("similarities", query, scores)?;
                    let best = largest(scores, top_k).into_iter();
                    let best = best.map(|row| Ranked { index: first + row, score: scores[row] });
                    found[query].extend(best);
                    // A stable sort: of equal similarities, the first of the corpus.
                    found[query].sort_by(|a, b| b.score.total_cmp(&a.score));
                    found[query].truncate(top_k);
                }
            }
        }
        Ok(found)
    }
}
