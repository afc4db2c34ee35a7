//! Checks that the public fields of a `BertEmbeddings` are consistent, and that a batch fits them.

use super::config::check_dropout;
use super::family::PositionEmbeddingType;
use super::input::{BertEmbeddingsInput, Words};
use super::layer_norm::{LayerNorm, check_epsilon};
use super::module::BertEmbeddings;
use crate::error::{Error, Result};
use crate::operator::dtype::computed_in;
use burn::module::Param;
use burn::prelude::*;
use burn::tensor::DType;

impl BertEmbeddings {
    /// Everything that can be checked without the ids. Initialises no table.
    pub(crate) fn check(&self, input: &BertEmbeddingsInput) -> Result<()> {
        let device = self.word_embeddings.weight.lazy_device();
        check_dropout("hidden_dropout_prob", self.dropout.prob)?;
        let tables = [&self.word_embeddings, &self.token_type_embeddings];
        for table in tables.into_iter().chain(&self.position_embeddings) {
            table.check_padding_idx()?;
        }
        self.check_positions()?;
        if input.device() != device {
            return Err(Error::device_mismatch(input.words().name(), input.device(), device));
        }
        let hidden = self.hidden_size();
        if let Words::Embeds(embeds) = input.words()
            && embeds.dims()[2] != hidden
        {
            return Err(Error::ShapeMismatch {
                input: "inputs_embeds",
                found: embeds.dims().to_vec(),
                expected: format!("[B, S, {hidden}]"),
            });
        }
        self.check_params(hidden, &device)?;
        let Words::Embeds(embeds) = input.words() else { return Ok(()) };
        let expected = dtype(&self.token_type_embeddings.weight);
        match embeds.dtype() {
            found if found == expected => Ok(()),
            found => Err(Error::DTypeMismatch { input: "inputs_embeds", found, expected }),
        }
    }

    /// Whether there is a position table if and only if the scheme needs one, with the padding row that it needs.
    fn check_positions(&self) -> Result<()> {
        let scheme = self.position_embedding_type();
        let invalid = |field, problem| Err(Error::Config { field, problem });
        let Some(table) = &self.position_embeddings else {
            if scheme.has_table() {
                let problem = format!("is None, but {scheme:?} positions are looked up in a table");
                return invalid("position_embeddings", problem);
            }
            return Ok(());
        };
        if !scheme.has_table() {
            let problem = format!("is a table, but {scheme:?} positions have none");
            return invalid("position_embeddings", problem);
        }
        match (scheme, table.padding_idx) {
            (PositionEmbeddingType::AfterPadding, None) => invalid(
                "position_embeddings.padding_idx",
                "is None, but AfterPadding counts positions from it".into(),
            ),
            (PositionEmbeddingType::Absolute, Some(pad)) => invalid(
                "position_embeddings.padding_idx",
                format!("is Some({pad}), but only AfterPadding has a padding row there"),
            ),
            _ => Ok(()),
        }
    }

    /// Whether all parameters are on `device`, have vectors of length `hidden`, and matching dtypes.
    fn check_params(&self, hidden: usize, device: &Device) -> Result<()> {
        let tables = [
            ("token_type_embeddings.weight", "T", Some(&self.token_type_embeddings)),
            ("position_embeddings.weight", "P", self.position_embeddings.as_ref()),
        ];
        let words = dtype(&self.word_embeddings.weight);
        for (name, rows, table) in tables {
            let Some(table) = table else { continue };
            let [_, width] = table.dims();
            if width != hidden {
                let expected = format!("[{rows}, {hidden}]");
                return Err(Error::ShapeMismatch { input: name, found: table.dims().to_vec(), expected });
            }
            check_param(name, &table.weight, device, &[words])?;
        }
        let statistics = computed_in(words);
        let LayerNorm { gamma, beta, .. } = &self.layer_norm;
        for (name, param) in [("layer_norm.gamma", Some(gamma)), ("layer_norm.beta", beta.as_ref())] {
            let Some(param) = param else { continue };
            let found = param.lazy_shape();
            if found[0] != hidden {
                let expected = format!("[{hidden}]");
                return Err(Error::ShapeMismatch { input: name, found: found.to_vec(), expected });
            }
            check_param(name, param, device, &[words, statistics])?;
        }
        check_epsilon(self.layer_norm_eps(), words)
    }
}

/// Whether a parameter is on `device` and of one of the dtypes; an error names the first.
fn check_param<const D: usize>(
    name: &'static str,
    param: &Param<Tensor<D>>,
    device: &Device,
    dtypes: &[DType],
) -> Result<()> {
    let (found_device, found) = (param.lazy_device(), dtype(param));
    if found_device != *device {
        return Err(Error::device_mismatch(name, found_device, device.clone()));
    }
    if !dtypes.contains(&found) {
        return Err(Error::DTypeMismatch { input: name, found, expected: dtypes[0] });
    }
    Ok(())
}

/// The dtype that a parameter is read in. Does not initialise it.
pub(crate) fn dtype<const D: usize>(param: &Param<Tensor<D>>) -> DType {
    let default = || param.lazy_device().settings().float_dtype.into();
    if !param.is_initialized() {
        return default();
    }
    match param.base().dtype() {
        DType::QFloat(_) => default(),
        dtype => dtype,
    }
}
