//! Fixtures that hold tensors.

use burn::prelude::*;
use burn::tensor::DType;
use burn_bert::{BertEmbeddingsInput, PaddingMask};
use safetensors::{Dtype, SafeTensors};
use std::path::Path;

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

    /// JSON that the script which made the file wrote into its header.
    pub fn metadata(&self, key: &str) -> serde_json::Value {
        let (_, header) = SafeTensors::read_metadata(&self.bytes).unwrap();
        serde_json::from_str(&header.metadata().as_ref().unwrap()[key]).unwrap()
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
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            Dtype::I64 => DType::I64,
            other => panic!("{name} is of {other}"),
        };
        TensorData::from_bytes_vec(view.data().to_vec(), view.shape().to_vec(), dtype)
    }

    pub fn values(&self, name: &str) -> Vec<f64> {
        self.data(name).iter::<f64>().collect()
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
