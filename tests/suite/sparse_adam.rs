//! Ten steps beside PyTorch: `nn.Embedding(sparse=True)` tables under `torch.optim.SparseAdam`.

use crate::devices::supported;
use crate::tolerance::{F32, F64, Tolerance, assert_close, values};
use burn::module::Param;
use burn::optim::{GradientsParams, SgdConfig};
use burn::prelude::*;
use burn::tensor::DType;
use burn_bert::sparse::{RowGradients, SparseAdamConfig, SparseOptimizer};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;
use std::path::Path;

const WORD: &str = "word_embeddings.weight";
const POSITION: &str = "position_embeddings.weight";

/// A fixture of `tests/fixtures/make_sparse_adam.py`.
struct Fixture {
    bytes: Vec<u8>,
    dtype: DType,
}

impl Fixture {
    fn open(name: &str, dtype: DType) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sparse_adam").join(name);
        Self { bytes: std::fs::read(path).unwrap(), dtype }
    }

    fn data(&self, name: &str) -> TensorData {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = tensors.tensor(name).unwrap();
        let dtype = match view.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::F64 => DType::F64,
            Dtype::I64 => DType::I64,
            other => panic!("{name} is {other:?}"),
        };
        TensorData::from_bytes_vec(view.data().to_vec(), view.shape().to_vec(), dtype)
    }

    fn values(&self, name: &str) -> Vec<f64> {
        self.data(name).iter::<f64>().collect()
    }

    fn metadata(&self, name: &str) -> serde_json::Value {
        let (_, metadata) = SafeTensors::read_metadata(&self.bytes).unwrap();
        serde_json::from_str(&metadata.metadata().as_ref().unwrap()[name]).unwrap()
    }

    fn param<const D: usize>(&self, name: &str, device: &Device) -> Param<Tensor<D>> {
        Param::from_tensor(Tensor::from_data(self.data(name), (device, self.dtype)).require_grad())
    }

    fn module(&self, device: &Device) -> BertEmbeddings {
        let config = self.metadata("config");
        let size = |name: &str| config[name].as_u64().unwrap() as usize;
        let mut module = BertEmbeddingsConfig::new()
            .with_vocab_size(size("vocab_size"))
            .with_hidden_size(size("hidden_size"))
            .with_max_position_embeddings(size("max_position_embeddings"))
            .with_pad_token_id(Some(size("pad_token_id")))
            .with_layer_norm_eps(config["layer_norm_eps"].as_f64().unwrap())
            .with_hidden_dropout_prob(0.0)
            .init(device);
        module.word_embeddings.weight = self.param(WORD, device);
        module.position_embeddings.as_mut().unwrap().weight = self.param(POSITION, device);
        module.token_type_embeddings.as_mut().unwrap().weight =
            self.param("token_type_embeddings.weight", device);
        module.layer_norm.gamma = self.param("LayerNorm.weight", device);
        module.layer_norm.beta = Some(self.param("LayerNorm.bias", device));
        module
    }

    /// The batches, one per step.
    fn inputs(&self, device: &Device) -> Vec<BertEmbeddingsInput> {
        let [ids, positions] = ["input_ids", "position_ids"].map(|name| self.data(name));
        let &[_, batch, seq] = ids.shape().as_slice() else { panic!("[steps, B, S]") };
        let [ids, positions] = [ids, positions].map(|data| data.iter::<i64>().collect::<Vec<_>>());
        let steps = ids.chunks(batch * seq).zip(positions.chunks(batch * seq));
        let rows = |ids: &[i64]| ids.chunks(seq).map(<[i64]>::to_vec).collect::<Vec<_>>();
        let input = |(ids, positions)| {
            let input = BertEmbeddingsInput::from_rows(&rows(ids), device).unwrap();
            input.with_position_ids(&rows(positions)).unwrap()
        };
        steps.map(input).collect()
    }

    /// Trains as the script did, and returns the losses too.
    fn train(&self) -> (Vec<f64>, BertEmbeddings, SparseOptimizer) {
        let device = Device::default().autodiff();
        let mut module = self.module(&device);
        let target = Tensor::<3>::from_data(self.data("target"), (&device, self.dtype));
        let learning_rates = self.metadata("learning_rates");
        let learning_rates = learning_rates.as_array().unwrap().iter().map(|lr| lr.as_f64().unwrap());
        let mut rows = SparseAdamConfig::new().init();
        let mut rest = SgdConfig::new().init();
        let mut losses = Vec::new();
        for (lr, input) in learning_rates.zip(self.inputs(&device)) {
            let touched = module.touched_rows(&input).unwrap();
            let loss = (touched.forward() - target.clone()).square().mean();
            let mut gradients = loss.backward();
            let row_gradients = RowGradients::from_grads(&mut gradients, touched, &module).unwrap();
            rows.step(lr, &mut module, row_gradients).unwrap();
            let gradients = GradientsParams::from_grads(gradients, &module);
            module = rest.step(lr, module, gradients);
            losses.extend(values(loss));
        }
        (losses, module, rows)
    }

    fn check(&self, tolerance: Tolerance) {
        let (losses, module, _) = self.train();
        assert_close(&losses, &self.values("losses"), tolerance);
        let after = |name: &str| self.values(&format!("after.{name}"));
        assert_close(&values(module.word_embeddings.weight.val()), &after(WORD), tolerance);
        let positions = module.position_embeddings.as_ref().unwrap().weight.val();
        assert_close(&values(positions), &after(POSITION), tolerance);
        let types = module.token_type_embeddings.as_ref().unwrap().weight.val();
        assert_close(&values(types), &after("token_type_embeddings.weight"), tolerance);
        assert_close(&values(module.layer_norm.gamma.val()), &after("LayerNorm.weight"), tolerance);
        assert_close(&values(module.layer_norm.beta.unwrap().val()), &after("LayerNorm.bias"), tolerance);
    }
}

#[test]
fn losses_and_parameters_of_ten_steps_are_pytorchs_in_f32() {
    Fixture::open("ten_steps_f32.safetensors", DType::F32).check(F32);
}

#[test]
fn losses_and_parameters_of_ten_steps_are_pytorchs_in_f64() {
    supported(&Device::default(), &[DType::F64]);
    Fixture::open("ten_steps_f64.safetensors", DType::F64).check(F64);
}

#[test]
fn moments_after_ten_steps_are_pytorchs() {
    let fixture = Fixture::open("ten_steps_f32.safetensors", DType::F32);
    let (_, _, rows) = fixture.train();
    let state = rows.to_bytes().unwrap();
    let saved = burn_pack::Reader::from_bytes(state).unwrap();
    let scalars = saved.scalars().clone();
    let data: HashMap<String, TensorData> = saved
        .into_tensors()
        .unwrap()
        .into_iter()
        .map(|tensor| tensor.into_parts().unwrap())
        .map(|(name, dtype, shape, _, bytes)| (name, TensorData::from_bytes(bytes, shape, dtype)))
        .collect();
    for (table, name) in [("words", WORD), ("positions", POSITION)] {
        assert_eq!(scalars[&format!("{table}.time")], 10u64.into());
        let data = |name: &str| &data[&format!("{table}.{name}")];
        let ids: Vec<usize> = data("ids").iter::<i64>().map(|id| id as usize).collect();
        for (ours, theirs) in [("mean", "exp_avg"), ("square", "exp_avg_sq")] {
            let theirs = fixture.values(&format!("{theirs}.{name}"));
            let hidden = data(ours).shape()[1];
            let mut all = vec![0.0; theirs.len()];
            let found: Vec<f64> = data(ours).iter::<f64>().collect();
            for (&id, row) in ids.iter().zip(found.chunks(hidden)) {
                all[id * hidden..][..hidden].copy_from_slice(row);
            }
            assert_close(&all, &theirs, F32);
        }
    }
}
