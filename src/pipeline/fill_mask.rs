//! Words for the masks of texts.

use super::{Pipeline, TextOptions, check_finite, largest, softmax};
use crate::embeddings::BertEmbeddingsInput;
use crate::error::{Error, Result};
use crate::layers::ensure;
use crate::model::BertForMaskedLm;
use crate::text::Encoding;
use burn::prelude::*;
use std::iter::repeat;

/// Masks whose logits are computed at once: each has as many as the vocabulary has words.
const MASKS_AT_ONCE: usize = 32;

/// A word in place of a mask. Returned by [`Pipeline::fill_mask`].
#[derive(Clone, Debug, PartialEq)]
pub struct FilledMask {
    /// The word; empty for a token without characters, and for a row of the model that the vocabulary lacks.
    pub word: String,
    /// The token.
    pub token_id: u32,
    /// The word's probability among all tokens.
    pub score: f64,
    /// The text with the word in place of this mask, as the tokenizer decodes it: of a text with several masks, with the
    /// special tokens.
    pub text: String,
    /// The target of which this is only the first token, or that is unknown to the vocabulary; else `None`.
    pub replaced_target: Option<String>,
}

/// Words in place of all masks of a text. Returned by [`Pipeline::fill_masks`].
#[derive(Clone, Debug, PartialEq)]
pub struct FilledMasks {
    /// The words, in the order of the masks.
    pub words: Vec<String>,
    /// The tokens of the words.
    pub token_ids: Vec<u32>,
    /// The words' joint probability: the product of each one's probability with those before it in place of their masks.
    pub score: f64,
    /// The text with the words, as the tokenizer decodes it.
    pub text: String,
}

/// The tokens that are scored, each with the target that it replaces if that is not a single token; `None` for all tokens.
struct Candidates(Option<Vec<(u32, Option<String>)>>);

impl Candidates {
    /// The tokens with the largest scores, the largest first.
    fn best(&self, scores: &[f64], top_k: usize) -> Vec<(u32, Option<String>)> {
        let Some(targets) = &self.0 else {
            return largest(scores, top_k).into_iter().map(|id| (id as u32, None)).collect();
        };
        let of_targets: Vec<f64> = targets.iter().map(|(id, _)| scores[*id as usize]).collect();
        largest(&of_targets, top_k).into_iter().map(|position| targets[position].clone()).collect()
    }
}

impl Pipeline<BertForMaskedLm> {
    /// Fills the masks of each text (`[MASK]` for BERT, `<mask>` for RoBERTa): for each mask, in their order, the most
    /// probable words, the best first. Several masks of a text are each filled on its own; [`fill_masks`](Self::fill_masks) fills
    /// them together. Reads `targets` and `top_k`, by default 5 or all targets. Errors are those of
    /// [every method](Pipeline#errors), [`Error::Data`] if a text has no mask in the tokens that are read, and [`Error::Config`]
    /// if there are no targets or one has no token.
    ///
    /// Source: `FillMaskPipeline` of transformers 5.24.
    pub fn fill_mask<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        options: &TextOptions,
    ) -> Result<Vec<Vec<Vec<FilledMask>>>> {
        options.check("fill_mask", &["targets", "top_k"])?;
        let (tokenizer, mask) = (&self.tokenizer, self.tokenizer.mask_token_id());
        let (candidates, top_k) = self.candidates(options)?;
        let encode = |text: &T| Ok(vec![tokenizer.encode(text.as_ref())?]);
        let mut filled: Vec<Vec<Vec<FilledMask>>> = texts.iter().map(|_| Vec::new()).collect();
        self.in_batches(texts, options, encode, |indices, encodings, batch| {
            let [_, seq] = batch.input.dims();
            // The text, the row of the batch and the position of each mask.
            let mut masks = Vec::new();
            for (row, (&text, encoding)) in indices.iter().zip(encodings).enumerate() {
                masks.extend(self.masks(text, encoding)?.into_iter().map(|position| (text, row, position)));
            }
            // Once for all masks; the head, which costs a vocabulary a mask, runs on a few at a time.
            let hidden = self.model.bert.forward_packed(&batch.input, batch.padding.as_ref())?;
            for masks in masks.chunks(MASKS_AT_ONCE) {
                let rows: Vec<usize> = masks.iter().map(|(_, row, position)| row * seq + position).collect();
                let texts = masks.iter().map(|&(text, ..)| text);
                let scores = self.probabilities(hidden.select(&rows), texts)?;
                for (&(text, row, position), scores) in masks.iter().zip(scores) {
                    let mut ids = encodings[row].input_ids().to_vec();
                    // The other masks are special tokens, too: without those they would be missing.
                    let is_only = ids.iter().filter(|&&id| id == mask).count() == 1;
                    let word = |(token_id, replaced_target)| {
                        ids[position] = token_id;
                        let word = tokenizer.decoded(&[token_id], false)?;
                        // As transformers does, also where [PAD] is the word.
                        let mut shown = ids.clone();
                        shown.retain(|&id| id != tokenizer.pad_token_id());
                        let text = tokenizer.decoded(&shown, is_only)?;
                        Ok(FilledMask {
                            word,
                            token_id,
                            score: scores[token_id as usize],
                            text,
                            replaced_target,
                        })
                    };
                    let words: Result<_> = candidates.best(&scores, top_k).into_iter().map(word).collect();
                    filled[text].push(words?);
                }
            }
            Ok(())
        })?;
        Ok(filled)
    }

    /// Fills all masks of each text together: the most probable combinations of words, the best first. Reads and errors are those
    /// of [`fill_mask`](Self::fill_mask).
    ///
    /// The masks are filled from the first to the last by beam search, with as many beams as results, at least 5: each word is
    /// chosen with those before it in place of their masks.
    ///
    /// ```
    /// # use burn_bert::{Result, model::BertForMaskedLm, pipeline::*};
    /// # fn example(masked: Pipeline<BertForMaskedLm>) -> Result<()> {
    /// let best = &masked.fill_masks(&["She lives in [MASK] [MASK] City."], &TextOptions::new())?[0][0];
    /// println!("{} ({:.2})", best.words.join(" "), best.score);
    /// # Ok(())
    /// # }
    /// ```
    pub fn fill_masks<T: AsRef<str>>(
        &self,
        texts: &[T],
        options: &TextOptions,
    ) -> Result<Vec<Vec<FilledMasks>>> {
        options.check("fill_masks", &["targets", "top_k"])?;
        let (candidates, top_k) = self.candidates(options)?;
        let num_beams = top_k.max(5);
        let device = self.model.bert.embeddings.word_embeddings.weight.lazy_device();
        let mut cut = 0;
        let mut fill = |(text, content): (usize, &T)| {
            let encoding = self.tokenizer.encode(content.as_ref())?;
            cut += usize::from(encoding.is_truncated());
            let masks = self.masks(text, &encoding)?;
            let types = encoding.token_type_ids();
            // The tokens of each beam, and the logarithm of its probability.
            let mut beams = vec![(encoding.input_ids().to_vec(), 0.0)];
            for &position in &masks {
                let mut longer = Vec::new();
                for beams in beams.chunks(MASKS_AT_ONCE) {
                    let ids: Vec<&[u32]> = beams.iter().map(|(ids, _)| &ids[..]).collect();
                    let input = BertEmbeddingsInput::from_rows(&ids, &device)?;
                    let input = input.with_token_type_ids(&vec![types; ids.len()])?;
                    let rows: Vec<usize> = (0..ids.len()).map(|row| row * types.len() + position).collect();
                    let hidden = self.model.bert.forward_packed(&input, None)?.select(&rows);
                    for ((ids, log), scores) in beams.iter().zip(self.probabilities(hidden, repeat(text))?) {
                        longer.extend(candidates.best(&scores, num_beams).into_iter().map(|(id, _)| {
                            let mut ids = ids.clone();
                            ids[position] = id;
                            (ids, log + scores[id as usize].ln())
                        }));
                    }
                }
                longer.sort_by(|a, b| b.1.total_cmp(&a.1));
                longer.truncate(num_beams);
                beams = longer;
            }
            let filled = |(mut ids, log): (Vec<u32>, f64)| {
                let token_ids: Vec<u32> = masks.iter().map(|&position| ids[position]).collect();
                let words = token_ids.iter().map(|&id| self.tokenizer.decoded(&[id], false));
                let words = words.collect::<Result<_>>()?;
                ids.retain(|&id| id != self.tokenizer.pad_token_id());
                Ok(FilledMasks {
                    words,
                    token_ids,
                    score: log.exp(),
                    text: self.tokenizer.decoded(&ids, true)?,
                })
            };
            beams.into_iter().take(top_k).map(filled).collect()
        };
        let filled = texts.iter().enumerate().map(&mut fill).collect::<Result<_>>()?;
        self.warn_of_cut(cut, texts.len());
        Ok(filled)
    }

    /// The probabilities of all tokens at some positions, [N, H], each of a text.
    fn probabilities(&self, hidden: Tensor<2>, texts: impl Iterator<Item = usize>) -> Result<Vec<Vec<f64>>> {
        let logits = self.model.scores(hidden)?; // [N, V]
        let [_, vocab_size] = logits.dims();
        let logits: Vec<f64> = logits.into_data().iter().collect();
        let probabilities = |(text, logits)| check_finite("scores", text, logits).map(|()| softmax(logits));
        texts.zip(logits.chunks(vocab_size)).map(probabilities).collect()
    }

    /// The positions of the masks among the tokens of a text, of which there is at least one.
    fn masks(&self, text: usize, encoding: &Encoding) -> Result<Vec<usize>> {
        let mask = self.tokenizer.mask_token_id();
        let positions = (0..encoding.len()).filter(|&position| encoding.input_ids()[position] == mask);
        let positions: Vec<usize> = positions.collect();
        if positions.is_empty() {
            let (mask, read) = (self.tokenizer.id_to_token(mask).unwrap_or_default(), encoding.len());
            let problem =
                format!("has no {mask} in the {read} tokens that are read; add one, or shorten the text");
            return Err(Error::data(format!("text {text}"), problem));
        }
        Ok(positions)
    }

    /// The tokens that are scored, and how many results there are at most.
    fn candidates(&self, options: &TextOptions) -> Result<(Candidates, usize)> {
        let Some(targets) = &options.targets else {
            return Ok((Candidates(None), options.top_k.unwrap_or(5)));
        };
        let mut found: Vec<(u32, Option<String>)> = Vec::new();
        for target in targets {
            let candidate = match self.tokenizer.token_to_id(target) {
                Some(id) => (id, None),
                None => {
                    let tokens = self.tokenizer.tokenize(target.as_str())?;
                    let Some(&id) = tokens.get_ids().first() else {
                        return Err(Error::config("targets", format!("have {target:?}, which has no token")));
                    };
                    let is_whole = tokens.len() == 1 && Some(id) != self.tokenizer.unk_token_id();
                    (id, (!is_whole).then(|| target.clone()))
                }
            };
            // Two targets of one token are scored once.
            if found.iter().all(|(id, _)| *id != candidate.0) {
                found.push(candidate);
            }
        }
        ensure(!found.is_empty(), "targets", || "are none, but there must be one or more".into())?;
        let top_k = options.top_k.unwrap_or(found.len());
        Ok((Candidates(Some(found)), top_k))
    }
}
