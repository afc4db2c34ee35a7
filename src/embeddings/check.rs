//! Checks that the public fields of a `BertEmbeddings` are consistent, and that a batch fits them.

use super::config::check_dropout;
use super::family::PositionEmbeddingType;
use super::input::{BertEmbeddingsInput, Words};
use super::layer_norm::{LayerNorm, check_epsilon};
use super::module::BertEmbeddings;
use super::token_embedding::TokenEmbedding;
use crate::error::{Error, Result};
use crate::operator::dtype::computed_in;
use burn::module::Param;
use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::DType;

impl BertEmbeddings {
    /// Everything that can be checked without the ids. Initialises no table.
    pub(crate) fn check(&self, input: &BertEmbeddingsInput) -> Result<()> {
        let device = self.word_embeddings.weight.lazy_device();
        check_dropout("hidden_dropout_prob", self.dropout.prob)?;
        let words = &self.word_embeddings;
        let others = self.token_type_embeddings.iter().chain(&self.position_embeddings);
        for table in others.chain([words]) {
            table.check_padding_idx()?;
        }
        self.check_positions()?;
        self.check_token_types()?;
        if input.device() != device {
            return Err(Error::device_mismatch(input.words().name(), input.device(), device));
        }
        let hidden = words.embedding_dim();
        if let Words::Embeds(embeds) = input.words()
            && embeds.dims()[2] != hidden
        {
            return Err(Error::ShapeMismatch {
                input: "inputs_embeds",
                found: embeds.dims().to_vec(),
                expected: format!("[B, S, {hidden}]"),
            });
        }
        self.check_params()?;
        let Words::Embeds(embeds) = input.words() else { return Ok(()) };
        check_beside("inputs_embeds", embeds.dtype(), device, &self.word_embeddings)
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

    /// Whether there is a table of token types if and only if the family has them.
    fn check_token_types(&self) -> Result<()> {
        let family = self.family();
        let problem = match (family.has_token_types(), &self.token_type_embeddings) {
            (true, None) => "is None, but has token types",
            (false, Some(_)) => "is a table, but has no token types",
            _ => return Ok(()),
        };
        let problem = problem.replace("but", &format!("but the family {}", family.model_type()));
        Err(Error::Config { field: "token_type_embeddings", problem })
    }

    /// Whether the parameters fit the word table.
    fn check_params(&self) -> Result<()> {
        let words = &self.word_embeddings;
        let tables = [
            ("token_type_embeddings.weight", self.token_type_embeddings.as_ref()),
            ("position_embeddings.weight", self.position_embeddings.as_ref()),
        ];
        for (name, table) in tables {
            let Some(table) = table else { continue };
            check_param(name, &table.weight, [table.num_embeddings(), words.embedding_dim()], words)?;
        }
        self.layer_norm.check(["layer_norm.gamma", "layer_norm.beta"], words)
    }
}

impl LayerNorm {
    /// Whether γ and β fit the word table, in its dtype or that of its statistics, and ε is above 0 there.
    pub(crate) fn check(&self, names: [&'static str; 2], words: &TokenEmbedding) -> Result<()> {
        let wide = computed_in(dtype(&words.weight));
        for (name, param) in names.into_iter().zip([&self.gamma].into_iter().chain(&self.beta)) {
            check_shape(name, param, [words.embedding_dim()])?;
            let found = dtype(param);
            let found = if found == wide { dtype(&words.weight) } else { found };
            check_beside(name, found, param.lazy_device(), words)?;
        }
        check_epsilon(self.epsilon(), dtype(&words.weight))
    }
}

/// Whether a linear layer fits the word table and has as many inputs and outputs.
pub(crate) fn check_linear(
    name: &'static str,
    linear: &Linear,
    shape: [usize; 2],
    words: &TokenEmbedding,
) -> Result<()> {
    check_param(name, &linear.weight, shape, words)?;
    linear.bias.iter().try_for_each(|bias| check_param(name, bias, [shape[1]], words))
}

/// Whether a parameter has this shape, the dtype of the word table, and its device.
pub(crate) fn check_param<const D: usize>(
    name: &'static str,
    param: &Param<Tensor<D>>,
    shape: [usize; D],
    words: &TokenEmbedding,
) -> Result<()> {
    check_shape(name, param, shape)?;
    check_beside(name, dtype(param), param.lazy_device(), words)
}

fn check_shape<const D: usize>(
    input: &'static str,
    param: &Param<Tensor<D>>,
    shape: [usize; D],
) -> Result<()> {
    let found = param.lazy_shape().to_vec();
    if found != shape {
        return Err(Error::ShapeMismatch { input, found, expected: format!("{shape:?}") });
    }
    Ok(())
}

/// Whether a tensor of this dtype and device can be computed with beside the word table.
pub(crate) fn check_beside(
    input: &'static str,
    found: DType,
    device: Device,
    words: &TokenEmbedding,
) -> Result<()> {
    let expected = words.weight.lazy_device();
    if device != expected {
        return Err(Error::device_mismatch(input, device, expected));
    }
    let expected = dtype(&words.weight);
    if found != expected {
        return Err(Error::DTypeMismatch { input, found, expected });
    }
    Ok(())
}

/// Whether a parameter holds quantised values. Does not initialise it.
pub(crate) fn is_quantized<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    param.is_initialized() && matches!(param.base().dtype(), DType::QFloat(_))
}

/// The dtype that a parameter is read in. Does not initialise it.
pub(crate) fn dtype<const D: usize>(param: &Param<Tensor<D>>) -> DType {
    if !param.is_initialized() || is_quantized(param) {
        return param.lazy_device().settings().float_dtype.into();
    }
    param.base().dtype()
}
