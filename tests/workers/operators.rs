//! A worker runs this crate's kernels: it computes what its device computes on its own machine, bit for bit.

#[cfg(feature = "wgpu")]
use crate::devices;
use crate::process::Worker;
use crate::tolerance::{self, all_values};
use crate::turn;
use burn::module::{Module, ModuleVisitor, Param, ParamGroup};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn_bert::functional::{
    Norm, Precision, Rows, Sequences, add_layer_norm, attention, autocast, embed_layer_norm,
    on_reference_path,
};
use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig, BertModelConfig};
use burn_bert::model::{
    BertForSequenceClassification, BertForSequenceClassificationConfig, SequenceClassificationBatch,
};
use burn_bert::training::{MaskedLmCollatorConfig, MaskedLmExample};
use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput, PaddingMask, PositionEmbeddingType};

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
fn step<M: Module>(model: &M, device: &Device, loss: impl FnOnce(&M, &Device) -> Tensor<1>) -> Vec<f64> {
    struct Collect<'a>(&'a GradientsParams, Vec<f64>);
    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let gradient = self.0.get::<D>(param.id);
            self.1.extend(gradient.into_iter().flat_map(tolerance::values));
        }
    }
    let device = device.clone().autodiff();
    let model = model.clone().fork(&device);
    device.seed(11);
    let loss = loss(&model, &device);
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    let mut collect = Collect(&gradients, tolerance::values(loss));
    model.visit(&mut collect);
    collect.1
}

const SENTENCES: [&[i32]; 3] = [&[1, 7, 4, 9, 8, 2], &[1, 5, 2], &[1, 6, 6, 19, 2]];

fn masked_lm_loss(model: &BertForMaskedLm, device: &Device) -> Tensor<1> {
    let collator =
        MaskedLmCollatorConfig::new(WORDS, 3, 0, vec![0, 1, 2, 3]).with_mlm_probability(0.4).init();
    let sentences = SENTENCES.map(|ids| MaskedLmExample::new(ids.iter().map(|&id| id as u32).collect()));
    model.try_forward(&collator.collate(&sentences, 3, device).unwrap()).unwrap().loss
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
        let here = step(model, &Device::flex(), masked_lm_loss);
        let reference = on_reference_path(|| step(model, &Device::flex(), masked_lm_loss));
        assert!(here != reference, "the kernels' last bits are their own");
        assert!(step(model, &remote, masked_lm_loss) == here);
        assert!(on_reference_path(|| step(model, &remote, masked_lm_loss)) == reference);
        for precision in [Precision::Bf16, Precision::F16] {
            let loss = |model: &BertForMaskedLm, device: &Device| {
                autocast(precision, || masked_lm_loss(model, device))
            };
            let rounded = step(model, &Device::flex(), loss);
            assert!(rounded != here, "{precision} rounds");
            assert!(step(model, &remote, loss) == rounded, "{precision}");
        }
    }
}

/// Its head has Burn's dropout.
#[test]
fn a_worker_drops_out_of_a_classifiers_head_what_its_device_drops_out_elsewhere() {
    let _turn = turn();
    let worker = Worker::start();
    let bert = model(PositionEmbeddingType::Absolute, Some(0)).bert.config();
    let classifier = BertForSequenceClassificationConfig::new(bert).with_classifier_dropout(Some(0.5));
    let classifier = classifier.init(&Device::flex().autodiff());
    all_values(&classifier);
    let loss = |model: &BertForSequenceClassification, device: &Device| {
        let rows = SENTENCES.map(|ids| [ids, &[0; 6][ids.len()..]].concat());
        let input = BertEmbeddingsInput::from_rows(&rows, device).unwrap();
        let padding = PaddingMask::from_lengths(&SENTENCES.map(<[i32]>::len), 6);
        let batch = SequenceClassificationBatch::single_label(input, Some(padding), &[0, 1, 1]).unwrap();
        model.try_forward(&batch).unwrap().loss
    };
    let here = step(&classifier, &Device::flex(), loss);
    assert!(step(&classifier, &worker.device(), loss) == here);
}

#[cfg(feature = "wgpu")]
#[test]
fn a_worker_with_a_gpu_computes_what_the_gpu_computes_elsewhere_with_dropout_too() {
    let _turn = turn();
    let worker = Worker::start_on_wgpu();
    let remote = worker.device();
    for model in &models() {
        let here = step(model, &devices::wgpu(), masked_lm_loss);
        tolerance::assert_close(&step(model, &remote, masked_lm_loss), &here, tolerance::F32);
    }
}
