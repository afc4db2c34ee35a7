//! Words for the masks of texts.

use super::{Pipeline, TextOptions, check_finite, largest, softmax};
use crate::error::{Error, Result};
use crate::model::BertForMaskedLm;

/// Masks whose logits are computed at once: each has as many as the vocabulary has words.
const MASKS_AT_ONCE: usize = 32;

/// A word in place of a mask. Returned by [`Pipeline::fill_mask`].
#[derive(Clone, Debug, PartialEq)]
pub struct FilledMask {
    /// The word; empty for a token without characters, and for a row of the model that the vocabulary lacks.
    pub word: String,
    /// The token.
    pub token_id: u32,
    /// Its probability among all tokens.
    pub score: f64,
    /// The text with the word in place of this mask, as the tokenizer decodes it: of a text with several masks, with the
    /// special tokens.
    pub text: String,
}

impl Pipeline<BertForMaskedLm> {
    /// Fills the masks of each text (`[MASK]` for BERT, `<mask>` for RoBERTa): for each mask, in their order, the most
    /// probable words, the best first. Several masks of a text are each filled on its own. Reads `top_k`, by default 5. Errors
    /// are those of [every method](Pipeline#errors), and [`Error::Data`] if a text has no mask in the tokens that are read.
    ///
    /// Source: `FillMaskPipeline` of transformers 5.23.
    pub fn fill_mask<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        options: &TextOptions,
    ) -> Result<Vec<Vec<Vec<FilledMask>>>> {
        options.check("fill_mask", &["top_k"])?;
        let (tokenizer, top_k) = (&self.tokenizer, options.top_k.unwrap_or(5));
        let mask = tokenizer.mask_token_id();
        let encode = |text: &T| Ok(vec![tokenizer.encode(text.as_ref())?]);
        let mut filled: Vec<Vec<Vec<FilledMask>>> = texts.iter().map(|_| Vec::new()).collect();
        self.in_batches(texts, options, encode, |of_text, encodings, batch| {
            let [_, seq] = batch.input.dims();
            // The text, the row of the batch and the place of each mask.
            let mut masks = Vec::new();
            for (row, (&text, encoding)) in of_text.iter().zip(encodings).enumerate() {
                let before = masks.len();
                let places = (0..).zip(encoding.input_ids()).filter(|&(_, &id)| id == mask);
                masks.extend(places.map(|(place, _): (usize, _)| (text, row, place)));
                if masks.len() == before {
                    let (mask, read) = (tokenizer.id_to_token(mask).unwrap_or_default(), encoding.len());
                    let problem = format!(
                        "has no {mask} in the {read} tokens that are read; add one, or shorten the text"
                    );
                    return Err(Error::data(format!("text {text}"), problem));
                }
            }
            // Once for all masks; the head, which costs a vocabulary a mask, runs on a few at a time.
            let hidden = self.model.bert.forward_packed(&batch.input, batch.padding.as_ref())?;
            for masks in masks.chunks(MASKS_AT_ONCE) {
                let rows: Vec<usize> = masks.iter().map(|(_, row, place)| row * seq + place).collect();
                let logits = self.model.scores(hidden.select(&rows))?; // [N, V]
                let [_, vocab_size] = logits.dims();
                let logits: Vec<f64> = logits.into_data().iter().collect();
                for (&(text, row, place), logits) in masks.iter().zip(logits.chunks(vocab_size)) {
                    check_finite("scores", text, logits)?;
                    let scores = softmax(logits);
                    let mut ids = encodings[row].input_ids().to_vec();
                    // The other masks are special tokens, too: without those they would be missing.
                    let is_only = ids.iter().filter(|&&id| id == mask).count() == 1;
                    let word = |token: usize| {
                        let token_id = token as u32;
                        ids[place] = token_id;
                        let word = tokenizer.decoded(&[token_id], false)?;
                        // As transformers does, also where [PAD] is the word.
                        let mut shown = ids.clone();
                        shown.retain(|&id| id != tokenizer.pad_token_id());
                        let text = tokenizer.decoded(&shown, is_only)?;
                        Ok(FilledMask { word, token_id, score: scores[token], text })
                    };
                    let words: Result<_> = largest(&scores, top_k).into_iter().map(word).collect();
                    filled[text].push(words?);
                }
            }
            Ok(())
        })?;
        Ok(filled)
    }
}
