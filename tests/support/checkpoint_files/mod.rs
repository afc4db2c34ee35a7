//! The small checkpoints under `tests/fixtures/checkpoints`, and safetensors files made on the spot.
use super::files;
pub use super::files::folder;
use super::tolerance::parameters;
use burn::module::{Module, ModuleMapper, Param};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, cast_module};
use safetensors::tensor::{TensorView, serialize};
use safetensors::{Dtype, SafeTensors};
use std::path::{Path, PathBuf};

/// What `make_checkpoints.py` wrote.
pub fn fixture(name: &str) -> PathBuf {
    files::fixture("checkpoints").join(name)
}

/// The sizes of those checkpoints.
pub fn tiny() -> BertEmbeddingsConfig {
    BertEmbeddingsConfig::new().with_vocab_size(9).with_hidden_size(4).with_max_position_embeddings(6)
}

/// The values of those checkpoints: element i is (i mod 64)/8 − 4.
pub fn pattern(count: usize) -> Vec<f64> {
    (0..count).map(|i| (i % 64) as f64 / 8.0 - 4.0).collect()
}

/// The module in `dtype`; in f64 with values that f32 would round.
pub fn cast(module: BertEmbeddings, dtype: FloatDType) -> BertEmbeddings {
    let module = cast_module(module, dtype).unwrap();
    if dtype == FloatDType::F64 { module.map(&mut AddFractions) } else { module }
}

/// Adds 1/3 + i·2⁻⁴⁰ to element i.
struct AddFractions;

impl ModuleMapper for AddFractions {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| {
            let count = tensor.shape().num_elements();
            let fractions = (0..count).map(|i| 1.0 / 3.0 + i as f64 * 2f64.powi(-40)).collect();
            let data = TensorData::new::<f64, _>(fractions, tensor.shape());
            tensor.clone() + Tensor::from_data(data, (&tensor.device(), tensor.dtype()))
        })
    }
}

pub fn dtype(module: &BertEmbeddings) -> DType {
    module.word_embeddings.weight.val().dtype()
}

/// Whether every parameter holds the pattern.
pub fn holds_pattern(module: &BertEmbeddings) -> bool {
    parameters(module, None).values().all(|values| *values == pattern(values.len()))
}

/// One tensor of a file to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub key: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Stored {
    pub fn f32(key: impl Into<String>, shape: &[usize]) -> Self {
        let values = pattern(shape.iter().product());
        let bytes = values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect();
        Self { key: key.into(), dtype: Dtype::F32, shape: shape.to_vec(), bytes }
    }
}

/// The five tensors of [`tiny`], under a prefix.
pub fn tiny_tensors(prefix: &str) -> Vec<Stored> {
    [
        ("word_embeddings.weight", vec![9, 4]),
        ("position_embeddings.weight", vec![6, 4]),
        ("token_type_embeddings.weight", vec![2, 4]),
        ("LayerNorm.weight", vec![4]),
        ("LayerNorm.bias", vec![4]),
    ]
    .map(|(name, shape)| Stored::f32(format!("{prefix}{name}"), &shape))
    .into()
}

pub fn safetensors_bytes(tensors: &[Stored]) -> Vec<u8> {
    let views = tensors.iter().map(|tensor| {
        (&tensor.key, TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).unwrap())
    });
    serialize(views, None).unwrap()
}

/// A safetensors file in a folder of its own.
pub fn file_of(tensors: &[Stored]) -> (tempfile::TempDir, PathBuf) {
    let folder = folder(&[("some.safetensors", &safetensors_bytes(tensors))]);
    let path = folder.path().join("some.safetensors");
    (folder, path)
}

/// The tensors of a directory's `model.safetensors`, by their keys.
pub fn tensors_of(dir: &Path) -> Vec<Stored> {
    let bytes = std::fs::read(dir.join("model.safetensors")).unwrap();
    let stored = |(key, view): (String, TensorView)| Stored {
        key,
        dtype: view.dtype(),
        shape: view.shape().to_vec(),
        bytes: view.data().to_vec(),
    };
    let mut tensors: Vec<_> =
        SafeTensors::deserialize(&bytes).unwrap().tensors().into_iter().map(stored).collect();
    tensors.sort_by(|a, b| a.key.cmp(&b.key));
    tensors
}

pub fn keys_of(dir: &Path) -> Vec<String> {
    tensors_of(dir).into_iter().map(|tensor| tensor.key).collect()
}

/// A copy of a folder of these checkpoints.
pub fn copy_of(name: &str) -> tempfile::TempDir {
    files::copy_of(fixture(name))
}
