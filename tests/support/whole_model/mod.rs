//! Whole models beside transformers': parameters by their Hugging Face names, and fixtures that hold tensors.

#![allow(dead_code)] // every test file takes what it needs

use crate::tolerance::values;
use burn::module::Param;
use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::{DType, Gradients};
use burn_bert::model::{BertForSequenceClassification, BertForTokenClassification, BertModel};
use burn_bert::{BertEmbeddingsInput, LayerNorm, PaddingMask};
use safetensors::{Dtype, SafeTensors};
use std::path::Path;

/// One of the model's parameters. PyTorch keeps a linear layer's weight as [out, in], Burn as [in, out].
pub enum Slot<'a> {
    Table(&'a mut Param<Tensor<2>>),
    Linear(&'a mut Param<Tensor<2>>),
    Vector(&'a mut Param<Tensor<1>>),
}

pub fn linear<'a>(name: String, linear: &'a mut Linear) -> [(String, Slot<'a>); 2] {
    let bias = linear.bias.as_mut().expect("BERT's linear layers have a bias");
    [
        (format!("{name}.weight"), Slot::Linear(&mut linear.weight)),
        (format!("{name}.bias"), Slot::Vector(bias)),
    ]
}

pub fn norm<'a>(name: String, norm: &'a mut LayerNorm) -> [(String, Slot<'a>); 2] {
    let beta = norm.beta.as_mut().expect("BERT's LayerNorm has a bias");
    [(format!("{name}.weight"), Slot::Vector(&mut norm.gamma)), (format!("{name}.bias"), Slot::Vector(beta))]
}

/// Embeddings, encoder and pooler by their Hugging Face names, which start with `prefix`.
pub fn bert<'a>(model: &'a mut BertModel, prefix: &str) -> Vec<(String, Slot<'a>)> {
    let BertModel { embeddings, encoder, pooler } = model;
    let name = |part: &str| format!("{prefix}.embeddings.{part}");
    let mut slots =
        vec![(name("word_embeddings.weight"), Slot::Table(&mut embeddings.word_embeddings.weight))];
    if let Some(table) = &mut embeddings.token_type_embeddings {
        slots.push((name("token_type_embeddings.weight"), Slot::Table(&mut table.weight)));
    }
    if let Some(table) = &mut embeddings.position_embeddings {
        slots.push((name("position_embeddings.weight"), Slot::Table(&mut table.weight)));
    }
    slots.extend(norm(name("LayerNorm"), &mut embeddings.layer_norm));
    for (i, layer) in encoder.layers.iter_mut().enumerate() {
        let name = |part: &str| format!("{}.encoder.layer.{i}.{part}", prefix);
        slots.extend(linear(name("attention.self.query"), &mut layer.attention.query));
        slots.extend(linear(name("attention.self.key"), &mut layer.attention.key));
        slots.extend(linear(name("attention.self.value"), &mut layer.attention.value));
        if let Some(positions) = &mut layer.attention.relative_positions {
            let table = &mut positions.distance_embedding.weight;
            slots.push((name("attention.self.distance_embedding.weight"), Slot::Table(table)));
        }
        slots.extend(linear(name("attention.output.dense"), &mut layer.attention_output));
        slots.extend(norm(name("attention.output.LayerNorm"), &mut layer.attention_layer_norm));
        slots.extend(linear(name("intermediate.dense"), &mut layer.intermediate));
        slots.extend(linear(name("output.dense"), &mut layer.output));
        slots.extend(norm(name("output.LayerNorm"), &mut layer.output_layer_norm));
    }
    if let Some(pooler) = pooler {
        slots.extend(linear(format!("{prefix}.pooler.dense"), &mut pooler.dense));
    }
    slots
}

/// A classifier of sequences, all of it, of the family `bert` or `roberta`.
pub fn sequence_classifier<'a>(
    model: &'a mut BertForSequenceClassification,
    family: &str,
) -> Vec<(String, Slot<'a>)> {
    let BertForSequenceClassification { bert: below, classifier, .. } = model;
    let mut slots = bert(below, family);
    let name = if family == "roberta" { "classifier.out_proj" } else { "classifier" };
    slots.extend(linear(name.into(), &mut classifier.out_proj));
    if let Some(dense) = &mut classifier.dense {
        slots.extend(linear("classifier.dense".into(), dense));
    }
    slots
}

/// A classifier of tokens, all of it.
pub fn token_classifier<'a>(
    model: &'a mut BertForTokenClassification,
    family: &str,
) -> Vec<(String, Slot<'a>)> {
    let BertForTokenClassification { bert: below, classifier, .. } = model;
    let mut slots = bert(below, family);
    slots.extend(linear("classifier".into(), classifier));
    slots
}

impl Slot<'_> {
    /// The values as PyTorch keeps them.
    pub fn values(&self) -> Vec<f64> {
        match self {
            Self::Table(param) => values(param.val()),
            Self::Linear(param) => values(param.val().transpose()),
            Self::Vector(param) => values(param.val()),
        }
    }

    pub fn gradient(&self, gradients: &Gradients) -> Vec<f64> {
        match self {
            Self::Table(param) => values(param.grad(gradients).unwrap()),
            Self::Linear(param) => values(param.grad(gradients).unwrap().transpose()),
            Self::Vector(param) => values(param.grad(gradients).unwrap()),
        }
    }
}

/// Where a tensor of the batch has what is looked for.
pub fn places(case: &File, name: &str, wanted: impl Fn(i64) -> bool) -> Vec<i32> {
    let all = case.data(name).iter::<i64>().collect::<Vec<_>>();
    (0..).zip(all).filter(|&(_, value)| wanted(value)).map(|(place, _)| place).collect()
}

/// A safetensors file, all of it.
pub struct File {
    bytes: Vec<u8>,
}

impl File {
    pub fn at(path: &Path) -> Self {
        Self { bytes: std::fs::read(path).unwrap() }
    }

    pub fn names(&self) -> Vec<String> {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        file.names().into_iter().map(String::from).collect()
    }

    pub fn has(&self, name: &str) -> bool {
        SafeTensors::deserialize(&self.bytes).unwrap().tensor(name).is_ok()
    }

    pub fn data(&self, name: &str) -> TensorData {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = file.tensor(name).unwrap_or_else(|_| panic!("no {name}"));
        let dtype = match view.dtype() {
            Dtype::F64 => DType::F64,
            Dtype::F32 => DType::F32,
            Dtype::I64 => DType::I64,
            other => panic!("{name} is of {other}"),
        };
        TensorData::from_bytes_vec(view.data().to_vec(), view.shape().to_vec(), dtype)
    }

    pub fn values(&self, name: &str) -> Vec<f64> {
        self.data(name).iter::<f64>().collect()
    }

    /// Where a word is to be guessed, and which.
    pub fn labels(&self, device: &Device) -> (Vec<i32>, Tensor<1, Int>) {
        let labels: Vec<i32> = self.data("labels").iter::<i32>().filter(|&label| label >= 0).collect();
        let labels = Tensor::from_data(labels.as_slice(), device);
        (places(self, "labels", |label| label >= 0), labels)
    }

    /// The case's tokens, and where there are none.
    pub fn batch(&self, device: &Device) -> (BertEmbeddingsInput, PaddingMask) {
        let ids = |name: &str| Tensor::<2, Int>::from_data(self.data(name), device);
        let input = BertEmbeddingsInput::from_ids(ids("input_ids")).unwrap();
        let input = if self.has("token_type_ids") {
            input.with_token_type_ids(ids("token_type_ids")).unwrap()
        } else {
            input
        };
        (input, ids("attention_mask").equal_elem(0).into())
    }
}
