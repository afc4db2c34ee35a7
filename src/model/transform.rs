//! What classifiers read in a family whose heads have a transform.

use crate::checkpoint::{ModelKeys, StoredParam};
use crate::encoder::config::BertModelConfig;
use crate::error::Result;
use crate::layers::{LayerNorm, ParameterCheck, linear_activation};
use crate::model::stored::Part;
use burn::module::Module;
use burn::nn::Linear;
use burn::prelude::*;
use burn_fused::Activation;

/// `LayerNorm(GELU(x·P))`, between ModernBERT and the last linear layer of its classifiers. Source: `ModernBertPredictionHead`
/// of transformers 5.23. [`BertForTokenClassification`](super::BertForTokenClassification) has an example.
#[derive(Module, Debug)]
pub struct ClassifierTransform {
    /// P, [H, H].
    pub dense: Linear,
    /// Of H values.
    pub layer_norm: LayerNorm,
}

impl ClassifierTransform {
    /// `None` in a family without.
    pub(super) fn new(bert: &BertModelConfig, device: &Device) -> Option<Self> {
        let embeddings = &bert.embeddings;
        embeddings.family.architecture().heads.classifiers_have_transform.then(|| Self {
            dense: bert.output_linear([embeddings.hidden_size; 2], device),
            layer_norm: embeddings.layer_norm(embeddings.hidden_size, device),
        })
    }

    pub(super) fn check(&self, check: &ParameterCheck, hidden_size: usize) -> Result<()> {
        check.linear("transform.dense", &self.dense, [hidden_size; 2])?;
        check.norm("transform.layer_norm", &self.layer_norm, hidden_size)
    }

    /// Of each vector in the last axis.
    pub(super) fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let dims = x.dims();
        let rows = x.reshape([-1, dims[D - 1] as i64]); // which the fused operators take
        self.layer_norm.forward(linear_activation(&self.dense, rows, Activation::Gelu)).reshape(dims)
    }

    pub(super) fn part(&self, keys: &ModelKeys) -> Part<'_> {
        let [dense, norm] = keys.family.transform.unwrap_or(["transform.dense", "transform.norm"]); // refused when it is saved
        let params = StoredParam::linear(dense, &self.dense);
        let params = params.into_iter().chain(StoredParam::norm(keys.norm(norm), &self.layer_norm));
        Part::new(keys.family.masked_lm.prefix, keys.stored_of(params))
    }
}
