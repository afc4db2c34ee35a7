//! `BertForMaskedLm` against transformers' `BertForMaskedLM` and `RobertaForMaskedLM`.

mod tolerance;

use burn::module::Param;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{LayerNorm, Linear};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType, Gradients};
use burn_bert::masked_lm::{BertForMaskedLm, BertForMaskedLmConfig};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, cast_module};
use safetensors::{Dtype, SafeTensors};
use std::path::PathBuf;
use tolerance::{F64, Tolerance, assert_close, values};

/// f32 through two layers: the fixtures themselves are 3e-6 from a f64 reference.
const MODEL_F32: Tolerance = Tolerance { absolute: 1e-5, relative: 1e-5 };

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/masked_lm")
}

/// How a family names what is in the fixtures.
struct Family {
    model: &'static str,
    cases: &'static str,
    prefix: &'static str,
    transform: &'static str,
    transform_norm: &'static str,
    bias: &'static str,
}

const BERT: Family = Family {
    model: "tiny_bert",
    cases: "cases",
    prefix: "bert",
    transform: "cls.predictions.transform.dense",
    transform_norm: "cls.predictions.transform.LayerNorm",
    bias: "cls.predictions.bias",
};

const ROBERTA: Family = Family {
    model: "tiny_roberta",
    cases: "roberta_cases",
    prefix: "roberta",
    transform: "lm_head.dense",
    transform_norm: "lm_head.layer_norm",
    bias: "lm_head.bias",
};

/// One of the model's parameters. PyTorch keeps a linear layer's weight as [out, in], Burn as [in, out].
enum Slot<'a> {
    Table(&'a mut Param<Tensor<2>>),
    Linear(&'a mut Param<Tensor<2>>),
    Vector(&'a mut Param<Tensor<1>>),
}

fn linear<'a>(name: String, linear: &'a mut Linear) -> [(String, Slot<'a>); 2] {
    let bias = linear.bias.as_mut().expect("BERT's linear layers have a bias");
    [
        (format!("{name}.weight"), Slot::Linear(&mut linear.weight)),
        (format!("{name}.bias"), Slot::Vector(bias)),
    ]
}

fn norm<'a>(name: String, norm: &'a mut LayerNorm) -> [(String, Slot<'a>); 2] {
    let beta = norm.beta.as_mut().expect("BERT's LayerNorm has a bias");
    [(format!("{name}.weight"), Slot::Vector(&mut norm.gamma)), (format!("{name}.bias"), Slot::Vector(beta))]
}

impl Family {
    /// Every parameter by its Hugging Face name.
    fn slots<'a>(&self, model: &'a mut BertForMaskedLm) -> Vec<(String, Slot<'a>)> {
        let BertForMaskedLm { embeddings, encoder, head } = model;
        let name = |part: &str| format!("{}.embeddings.{part}", self.prefix);
        let mut slots = vec![
            (name("word_embeddings.weight"), Slot::Table(&mut embeddings.word_embeddings.weight)),
            (name("token_type_embeddings.weight"), Slot::Table(&mut embeddings.token_type_embeddings.weight)),
        ];
        if let Some(table) = &mut embeddings.position_embeddings {
            slots.push((name("position_embeddings.weight"), Slot::Table(&mut table.weight)));
        }
        slots.extend(norm(name("LayerNorm"), &mut embeddings.layer_norm));
        for (i, layer) in encoder.layers.iter_mut().enumerate() {
            let name = |part: &str| format!("{}.encoder.layer.{i}.{part}", self.prefix);
            slots.extend(linear(name("attention.self.query"), &mut layer.mha.query));
            slots.extend(linear(name("attention.self.key"), &mut layer.mha.key));
            slots.extend(linear(name("attention.self.value"), &mut layer.mha.value));
            slots.extend(linear(name("attention.output.dense"), &mut layer.mha.output));
            slots.extend(norm(name("attention.output.LayerNorm"), &mut layer.norm_1));
            slots.extend(linear(name("intermediate.dense"), &mut layer.pwff.linear_inner));
            slots.extend(linear(name("output.dense"), &mut layer.pwff.linear_outer));
            slots.extend(norm(name("output.LayerNorm"), &mut layer.norm_2));
        }
        slots.extend(linear(self.transform.into(), &mut head.transform));
        slots.extend(norm(self.transform_norm.into(), &mut head.layer_norm));
        slots.push((self.bias.into(), Slot::Vector(&mut head.bias)));
        slots
    }

    /// The model with the fixture's weights, every one of its 42 tensors used.
    fn load(&self, dtype: FloatDType, device: &Device) -> BertForMaskedLm {
        let embeddings = BertEmbeddingsConfig::from_pretrained(folder().join(self.model)).unwrap();
        let config = BertForMaskedLmConfig::new(embeddings.with_hidden_dropout_prob(0.0))
            .with_num_hidden_layers(2)
            .with_num_attention_heads(3)
            .with_intermediate_size(20)
            .with_attention_probs_dropout_prob(0.0);
        let mut model = cast_module(config.init(device), dtype);
        let weights = File::read(format!("{}/model.safetensors", self.model));
        let slots = self.slots(&mut model);
        assert_eq!(slots.len(), 42);
        let options = (device, dtype.into());
        for (name, slot) in slots {
            let data = weights.data(&name);
            match slot {
                Slot::Table(param) => *param = Param::from_tensor(Tensor::from_data(data, options)),
                Slot::Linear(param) => {
                    let weight = Tensor::<2>::from_data(data, options).transpose();
                    *param = Param::from_tensor(weight.detach());
                }
                Slot::Vector(param) => *param = Param::from_tensor(Tensor::from_data(data, options)),
            }
        }
        model
    }

    fn assert_equal(&self, dtype: FloatDType, tolerance: Tolerance) {
        let device = Device::default().autodiff();
        let mut model = self.load(dtype, &device);
        let suffix = if dtype == FloatDType::F64 { "f64" } else { "f32" };
        let case = File::read(format!("{}_{suffix}.safetensors", self.cases));

        let ids = |name: &str| Tensor::<2, Int>::from_data(case.data(name), &device);
        let mut input = BertEmbeddingsInput::from_ids(ids("input_ids")).unwrap();
        if case.has("token_type_ids") {
            input = input.with_token_type_ids(ids("token_type_ids")).unwrap();
        }
        let [batch, seq] = input.dims();
        let hidden = model.encode(&input, Some(ids("attention_mask").equal_elem(0)));
        // What padding itself means in the encoder is nobody's business: tokens alone are compared.
        let tokens: Vec<i32> = places(&case, "attention_mask", |mask| mask == 1);
        let labelled: Vec<i32> = places(&case, "labels", |label| label >= 0);
        let pick =
            |rows: Tensor<2>, places: &[i32]| rows.select(0, Tensor::<1, Int>::from_data(places, &device));
        let expect = |name: &str, places: &[i32]| {
            let values = case.values(name);
            let width = values.len() / (batch * seq);
            places
                .iter()
                .flat_map(|&place| values[place as usize * width..][..width].to_vec())
                .collect::<Vec<_>>()
        };
        let hidden = hidden.reshape([batch * seq, model.embeddings.hidden_size()]);
        let found = values(pick(hidden.clone(), &tokens));
        assert_close(&found, &expect("last_hidden_state", &tokens), tolerance);
        let logits = model.logits(pick(hidden, &labelled));
        assert_close(&values(logits.clone()), &expect("logits", &labelled), tolerance);

        let labels = expect("labels", &labelled);
        let labels: Vec<i32> = labels.into_iter().map(|label| label as i32).collect();
        let labels = Tensor::<1, Int>::from_data(labels.as_slice(), &device);
        let loss = CrossEntropyLossConfig::new().init(&device).forward(logits, labels);
        assert_close(&values(loss.clone()), &case.values("loss"), tolerance);
        let gradients = loss.backward();
        for (name, slot) in self.slots(&mut model) {
            assert_close(&gradient(slot, &gradients), &case.values(&format!("grad.{name}")), tolerance);
        }
    }
}

fn gradient(slot: Slot, gradients: &Gradients) -> Vec<f64> {
    match slot {
        Slot::Table(param) => values(param.grad(gradients).unwrap()),
        Slot::Linear(param) => values(param.grad(gradients).unwrap().transpose()),
        Slot::Vector(param) => values(param.grad(gradients).unwrap()),
    }
}

/// Where a tensor of the batch has what is looked for.
fn places(case: &File, name: &str, wanted: impl Fn(i64) -> bool) -> Vec<i32> {
    let all = case.data(name).iter::<i64>().collect::<Vec<_>>();
    (0..).zip(all).filter(|&(_, value)| wanted(value)).map(|(place, _)| place).collect()
}

/// A safetensors file, all of it.
struct File {
    bytes: Vec<u8>,
}

impl File {
    fn read(name: String) -> Self {
        Self { bytes: std::fs::read(folder().join(name)).unwrap() }
    }

    fn has(&self, name: &str) -> bool {
        SafeTensors::deserialize(&self.bytes).unwrap().tensor(name).is_ok()
    }

    fn data(&self, name: &str) -> TensorData {
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

    fn values(&self, name: &str) -> Vec<f64> {
        self.data(name).iter::<f64>().collect()
    }
}

#[test]
fn bert_for_masked_lm_equals_transformers_in_every_value_and_gradient() {
    BERT.assert_equal(FloatDType::F32, MODEL_F32);
    BERT.assert_equal(FloatDType::F64, F64);
}

#[test]
fn roberta_for_masked_lm_equals_transformers_in_every_value_and_gradient() {
    ROBERTA.assert_equal(FloatDType::F32, MODEL_F32);
    ROBERTA.assert_equal(FloatDType::F64, F64);
}

#[test]
fn the_input_layer_of_a_whole_model_is_found_in_either_format() {
    let device = Device::default();
    let load = |name: &str| BertEmbeddings::from_pretrained(folder().join(name), &device).unwrap();
    let words = |name: &str| values(load(name).word_embeddings.weight.val());
    let expected =
        File::read("tiny_bert/model.safetensors".into()).values("bert.embeddings.word_embeddings.weight");
    assert_eq!(words("tiny_bert"), expected);
    assert_eq!(words("tiny_bert_bin"), expected);
    assert_eq!(words("tiny_bert_encoder_only").len(), expected.len());
    assert_ne!(words("tiny_bert_encoder_only"), expected);
}
