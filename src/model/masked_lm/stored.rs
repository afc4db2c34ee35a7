//! How `BertForMaskedLm` is stored.

use crate::checkpoint::{Fields, ModelKeys, StoredParam};
use crate::encoder::config::BertModelConfig;
use crate::error::{EmbeddingTable, Result};
use crate::layers::{EmbeddingInitializer, NewRows, VocabularyResize};
use crate::model::masked_lm::head::MaskedLmHead;
use crate::model::masked_lm::{BertForMaskedLm, BertForMaskedLmConfig};
use crate::model::stored::{Part, Stored, stored_head};
use burn::module::ParamId;
use burn::prelude::*;
use serde_json::{Value, json};

impl MaskedLmHead {
    /// Makes bias and decoder fit a vocabulary of `words` rows.
    fn resize(
        &mut self,
        resize: &VocabularyResize,
        initializer: &EmbeddingInitializer,
        words: usize,
    ) -> Result<()> {
        if let Some(decoder) = &mut self.decoder {
            decoder.resize(EmbeddingTable::Embedding, resize, initializer)?;
        }
        let old = self.bias.val().detach();
        let [rows] = old.dims();
        // The resize of the word table may be to its own size.
        if rows == words {
            return Ok(());
        }
        let new = if words < rows {
            old.narrow(0, 0, words)
        } else {
            let mean = match resize.new_rows() {
                NewRows::MeanCovariance => old.clone().mean(),
                // As a new head's.
                NewRows::Initializer | NewRows::DrawnFrom(_) => old.zeros_like().narrow(0, 0, 1),
            };
            Tensor::cat(vec![old, mean.expand([words - rows])], 0)
        };
        // A new id: the optimizer's state has the old shape.
        self.bias = self.bias.clone().transform_for_load(new.detach(), ParamId::new());
        Ok(())
    }
}

impl Stored for BertForMaskedLm {
    stored_head!(BertForMaskedLmConfig);

    const CLASS: Option<&'static str> = Some("ForMaskedLM");

    fn config_of(fields: &Fields) -> Result<BertForMaskedLmConfig> {
        let bert = BertModelConfig::from_fields(fields)?;
        let tie_word_embeddings = fields.flag("tie_word_embeddings")?.unwrap_or(true);
        Ok(BertForMaskedLmConfig::new(bert).with_tie_word_embeddings(tie_word_embeddings))
    }

    fn parts<'a>(&'a self, keys: &ModelKeys) -> Vec<Part<'a>> {
        let names = &keys.family.masked_lm;
        let mut params = Vec::from(StoredParam::linear(names.transform, &self.head.transform));
        params.extend(StoredParam::norm(keys.norm(names.layer_norm), &self.head.layer_norm));
        let decoder = self.head.decoder.as_ref();
        params.extend(decoder.map(|table| StoredParam::table(names.decoder, &table.weight)));
        // transformers has two biases, which are one where the head is tied.
        let (bias, decoder_bias) = (names.bias[0], names.bias[names.bias.len() - 1]);
        let biases = match &keys.stored {
            Some(stored)
                if stored.contains(decoder_bias) && (decoder.is_some() || !stored.contains(bias)) =>
            {
                vec![decoder_bias]
            }
            None if decoder.is_some() => names.bias.to_vec(),
            _ => vec![bias],
        };
        params.extend(biases.into_iter().map(|name| StoredParam::vector(name, &self.head.bias)));
        // A tied head has one table and one bias, so what a file has under two names must be the same twice.
        let equal = match decoder {
            None => {
                let words = [keys.embeddings.word(), names.decoder];
                [words, [bias, decoder_bias]].map(|names| names.map(String::from)).into()
            }
            Some(_) => Vec::new(),
        };
        let copies = [names.decoder, bias, decoder_bias].map(String::from).into();
        vec![Part { equal, copies, ..Part::new(names.prefix, params) }]
    }

    fn head_fields(&self) -> Vec<(&'static str, Value)> {
        vec![("tie_word_embeddings", json!(self.head.decoder.is_none()))]
    }

    fn resize_head(&mut self, resize: &VocabularyResize) -> Result<()> {
        let initializer = self.bert.embeddings.config().initializer;
        self.head.resize(resize, &initializer, self.bert.embeddings.word_embeddings.num_embeddings())
    }
}
