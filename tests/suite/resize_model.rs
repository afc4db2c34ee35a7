//! A whole model whose vocabulary or positions are resized.

use crate::families::{FAMILIES, ROTARY};
use crate::prelude::*;
use burn::module::{ParamId, list_param_ids};
use burn::optim::{AdamWConfig, ModuleOptimizer};
use burn_bert::NewRows;
use std::collections::{BTreeMap, BTreeSet};

fn config() -> BertForMaskedLmConfig {
    let mut bert = small_bert(20, 8);
    bert.embeddings.max_position_embeddings = 6;
    BertForMaskedLmConfig::new(bert)
}

fn model(config: &BertForMaskedLmConfig, device: &Device) -> BertForMaskedLm {
    let mut model = config.init(device);
    let bias: Vec<f32> = (0..20).map(|word| word as f32).collect();
    let bias = Tensor::from_data(bias.as_slice(), device);
    let of_device = |old: Tensor<1>| if old.device().is_autodiff() { bias.require_grad() } else { bias };
    model.head.bias = model.head.bias.map(|old| old.map(of_device));
    model
}

fn batch(last: u32, device: &Device) -> MaskedLmBatch {
    let input = BertEmbeddingsInput::from_rows(&[[2, 7, last, 3]], device).unwrap();
    MaskedLmBatch::new(input, None, &[[0, 1], [0, 2]], &[5, last]).unwrap()
}

#[test]
fn table_bias_and_decoder_grow_and_shrink_together_in_every_family_and_are_saved() {
    let device = device();
    let others = [Family::ModernBert, Family::DebertaV2];
    let families = FAMILIES.into_iter().chain(ROTARY).chain(others);
    let configs = families.map(crate::families::config).chain([config().bert]);
    for (bert, tied) in configs.flat_map(|bert| [(bert.clone(), true), (bert, false)]) {
        for (new_rows, expected) in [(NewRows::MeanCovariance, 9.5), (NewRows::Initializer, 0.0)] {
            let config = BertForMaskedLmConfig::new(bert.clone()).with_tie_word_embeddings(tied);
            let mut model = model(&config, &device);
            let words = |model: &BertForMaskedLm| values(model.bert.embeddings.word_embeddings.weight.val());
            let before = words(&model);
            model.resize_vocabulary(&VocabularyResize::new(24).with_new_rows(new_rows)).unwrap();
            let bias = values(model.head.bias.as_ref().unwrap().val());
            assert_eq!(bias[..20], (0..20).map(f64::from).collect::<Vec<_>>());
            assert_eq!(bias[20..], [expected; 4]);
            assert_eq!(
                (&words(&model)[..before.len()], words(&model).len() / 24),
                (&before[..], before.len() / 20)
            );
            let decoder = model.head.decoder.as_ref();
            assert_eq!(decoder.map(|table| table.num_embeddings()), (!tied).then_some(24));
            assert_eq!(model.config().bert.embeddings.vocab_size, 24);
            let logits = |model: &BertForMaskedLm, last| model.forward(&batch(last, &device)).logits.unwrap();
            assert_eq!(logits(&model, 23).dims(), [2, 24]);

            let dir = saved(&model);
            let read: BertForMaskedLm = loaded(&dir);
            assert_eq!(read.config(), model.config());
            assert_eq!(values(logits(&read, 23)), values(logits(&model, 23)));

            model.resize_vocabulary(&VocabularyResize::new(12)).unwrap();
            assert_eq!(values(model.head.bias.as_ref().unwrap().val()), bias[..12]);
            assert_eq!(logits(&model, 11).dims(), [2, 12]);
        }
    }
}

/// Ids and values of all parameters, those of adapters included.
fn all(model: &BertForMaskedLm) -> (Vec<ParamId>, BTreeMap<String, Vec<f64>>) {
    (list_param_ids(model), parameters(model, None))
}

#[test]
fn a_resize_that_fails_in_the_head_leaves_the_word_embeddings_as_they_were() {
    let device = autodiff();
    let config = config().with_tie_word_embeddings(false);
    let decoder = ParamGroup::from_predicate("head.decoder");
    let mut model = model(&config, &device).apply_lora(Lora::new(2, 2.0).set_param_group(decoder));
    let before = all(&model);
    let mut alone = model.bert.embeddings.clone();
    for rows in [24, 12] {
        alone.resize_vocabulary(&VocabularyResize::new(rows)).unwrap();
        says(model.resize_vocabulary(&VocabularyResize::new(rows)), "a LoRA adapter of the old size");
        assert_eq!(model.config(), config);
        assert_eq!(all(&model), before);
    }
}

#[test]
fn an_optimizer_goes_on_after_a_resize_and_starts_afresh_with_what_was_resized() {
    let device = autodiff();
    let step = |optimizer: &mut ModuleOptimizer, model: BertForMaskedLm, last| {
        let gradients = model.forward(&batch(last, &device)).loss.backward();
        let gradients = GradientsParams::from_grads(gradients, &model);
        optimizer.step(1e-2, model, gradients)
    };
    let mut optimizer = AdamWConfig::new().init();
    let mut model = step(&mut optimizer, model(&config(), &device), 9);
    let ids = |model: &BertForMaskedLm| BTreeSet::from_iter(list_param_ids(model));
    let before = ids(&model);
    model.resize_vocabulary(&VocabularyResize::new(24)).unwrap();
    model.extend_positions(12, PositionFill::Tile).unwrap();
    let [words, bias] =
        [model.bert.embeddings.word_embeddings.weight.id, model.head.bias.as_ref().unwrap().id];
    let positions = model.bert.embeddings.position_embeddings.as_ref().unwrap().weight.id;
    assert_eq!(&ids(&model) - &before, BTreeSet::from([words, bias, positions]));
    let before = values(model.head.bias.as_ref().unwrap().val());
    let afresh = step(&mut AdamWConfig::new().init(), model.clone(), 23);
    let model = step(&mut optimizer, model, 23);
    let after = values(model.head.bias.as_ref().unwrap().val());
    assert!(after[23] != before[23], "the new row is trained");
    let words = |model: &BertForMaskedLm| values(model.bert.embeddings.word_embeddings.weight.val());
    assert_eq!((after, words(&model)), (values(afresh.head.bias.as_ref().unwrap().val()), words(&afresh)));
    let transform = |model: &BertForMaskedLm| values(model.head.transform.as_ref().unwrap().weight.val());
    assert_ne!(transform(&model), transform(&afresh));
}
