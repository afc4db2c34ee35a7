//! A worker runs this crate's kernels: it computes what its device computes on its own machine, bit for bit.

#[cfg(feature = "wgpu")]
use crate::devices;
use crate::process::Worker;
use crate::tolerance::{self, all_values};
use crate::turn;
use burn::module::{Module, ModuleVisitor, Param, ParamGroup};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::train::TrainStep;
use burn_bert::functional::{
    Norm, Precision, Rows, Sequences, add_layer_norm, attention, autocast, embed_layer_norm,
    on_reference_path,
};
use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig, BertModelConfig};
use burn_bert::training::{MaskedLmCollatorConfig, MaskedLmExample};
use burn_bert::{BertEmbeddingsConfig, PositionEmbeddingType};

const WORDS: usize = 20;

/// With dropout, and drawn on this machine.
fn model(positions: PositionEmbeddingType, padding: Option<usize>) -> BertForMaskedLm {
    let device = Device::flex().autodiff();
    device.seed(7);
    let embeddings = BertEmbeddingsConfig::new()
        .with_vocab_size(WORDS)
        .with_hidden_size(16)
        .with_max_position_embeddings(12)
        .with_pad_token_id(padding)
        .with_position_embedding_type(positions);
    let bert = BertModelConfig::new(embeddings)
        .with_num_hidden_layers(2)
        .with_num_attention_heads(2)
        .with_intermediate_size(32);
    let model = BertForMaskedLmConfig::new(bert).init(&device);
    all_values(&model);
    model
}

/// The loss on a device, and the gradients of all parameters.
fn step(model: &BertForMaskedLm, device: &Device) -> Vec<f64> {
    step_in(Precision::F32, model, device)
}

fn step_in(precision: Precision, model: &BertForMaskedLm, device: &Device) -> Vec<f64> {
    struct Collect<'a>(&'a GradientsParams, Vec<f64>);
    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let gradient = self.0.get::<D>(param.id);
            self.1.extend(gradient.into_iter().flat_map(tolerance::values));
        }
    }
    let device = device.clone().autodiff();
    let collator =
        MaskedLmCollatorConfig::new(WORDS, 3, 0, vec![0, 1, 2, 3]).with_mlm_probability(0.4).init();
    let sentences = [vec![1, 7, 4, 9, 8, 2], vec![1, 5, 2], vec![1, 6, 6, 19, 2]].map(MaskedLmExample::new);
    let batch = collator.collate(&sentences, 3, &device).unwrap();
    let model = model.clone().fork(&device);
    device.seed(11);
    let output = autocast(precision, || TrainStep::step(&model, batch));
    let mut collect = Collect(&output.grads, tolerance::values(output.item.loss));
    model.visit(&mut collect);
    collect.1
}

/// With every scheme of positions, and with some parameters frozen.
fn models() -> [BertForMaskedLm; 5] {
    let frozen = |pattern| ParamGroup::from_regex(pattern).unwrap();
    [
        model(PositionEmbeddingType::Absolute, Some(0)),
        model(PositionEmbeddingType::AfterPadding, Some(1)),
        model(PositionEmbeddingType::RelativeKey, None),
        model(PositionEmbeddingType::RelativeKeyQuery, Some(0)),
        model(PositionEmbeddingType::Absolute, Some(0))
            .set_require_grad_group(frozen(r"word_embeddings|layer_norm\.gamma|attention.*bias"), false),
    ]
}

/// The outputs of the operators with dropout, each from the same seed of the device.
fn dropped(device: &Device) -> Vec<Vec<f64>> {
    let device = device.clone().autodiff();
    let values: Vec<f32> = (0..24).map(|i| (i as f32 * 0.37).sin()).collect();
    let x = Tensor::<1>::from_floats(values.as_slice(), &device).reshape([6, 4]);
    let ones = Tensor::<1>::ones([4], &device);
    let sequences = Sequences::new(vec![4, 2], &device);
    let norm = || Norm { gamma: ones.clone(), beta: None, epsilon: 1e-5 };
    let rows = || [Rows::Values(x.clone().reshape([2, 3, 4])), Rows::Absent, Rows::Absent];
    let operators: [&dyn Fn() -> Tensor<2>; 3] = [
        &|| attention([x.clone(), x.clone(), x.clone()], &sequences, 2, None, 0.5),
        &|| add_layer_norm(x.clone(), None, x.clone(), norm(), 0.5),
        &|| embed_layer_norm([2, 3], rows(), norm(), 0.5).flatten(0, 1),
    ];
    let drop = |operator: &dyn Fn() -> Tensor<2>| {
        device.seed(11);
        tolerance::values(operator())
    };
    operators.map(drop).into()
}

#[test]
fn a_worker_drops_out_what_its_device_drops_out_elsewhere() {
    let _turn = turn();
    let worker = Worker::start();
    let here = dropped(&Device::flex());
    let there = dropped(&worker.device());
    assert_eq!(there, here);
    assert!(here[2].contains(&0.0), "{here:?}");
}

#[test]
fn a_worker_computes_what_its_device_computes_elsewhere_with_dropout_too() {
    let _turn = turn();
    let worker = Worker::start();
    let remote = worker.device();
    for model in &models() {
        let here = step(model, &Device::flex());
        let reference = on_reference_path(|| step(model, &Device::flex()));
        assert!(here != reference, "the kernels' last bits are their own");
        assert!(step(model, &remote) == here);
        assert!(on_reference_path(|| step(model, &remote)) == reference);
        for precision in [Precision::Bf16, Precision::F16] {
            let rounded = step_in(precision, model, &Device::flex());
            assert!(rounded != here, "{precision} rounds");
            assert!(step_in(precision, model, &remote) == rounded, "{precision}");
        }
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn a_worker_with_a_gpu_computes_what_the_gpu_computes_elsewhere_with_dropout_too() {
    let _turn = turn();
    let worker = Worker::start_on_wgpu();
    let remote = worker.device();
    for model in &models() {
        let here = step(model, &devices::wgpu());
        tolerance::assert_close(&step(model, &remote), &here, tolerance::F32);
    }
}
