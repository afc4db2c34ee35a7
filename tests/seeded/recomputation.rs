//! Layers that the backward computes again: on devices with gradient checkpointing.

use crate::{devices, turn};
use burn::module::{Lora, Module, ModuleVisitor, Param, ParamGroup};
use burn::prelude::*;
use burn::tensor::Gradients;
use burn_bert::encoder::{BertEncoder, BertEncoderConfig};
use burn_bert::functional::on_reference_path;
use burn_bert::{Family, PaddingMask, PositionEmbeddingType};

const H: usize = 16;

/// The values of a module's parameters, or of their gradients; empty where there is none.
struct Collect<'a>(Option<&'a Gradients>, Vec<Vec<f32>>);

impl ModuleVisitor for Collect<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = match self.0 {
            Some(gradients) => param.grad(gradients),
            None => Some(param.val()),
        };
        self.1.push(tensor.map_or_else(Vec::new, |tensor| tensor.into_data().iter().collect()));
    }
}

fn collect(module: &impl Module, gradients: Option<&Gradients>) -> Vec<Vec<f32>> {
    let mut collect = Collect(gradients, Vec::new());
    module.visit(&mut collect);
    collect.1
}

fn config(scheme: PositionEmbeddingType) -> BertEncoderConfig {
    let config = BertEncoderConfig::new().with_hidden_size(H).with_num_hidden_layers(3);
    let config = config.with_num_attention_heads(4).with_intermediate_size(24);
    config.with_max_position_embeddings(8).with_position_embedding_type(scheme)
}

/// The output of an encoder with dropout, and the gradients of its input and of its parameters. `path` calls the forward
/// alone.
fn run(
    device: &Device,
    config: &BertEncoderConfig,
    change: &dyn Fn(BertEncoder) -> BertEncoder,
    path: fn(&mut dyn FnMut()),
) -> Vec<Vec<f32>> {
    let _turn = turn();
    device.seed(3);
    let encoder = config.init(device);
    collect(&encoder, None); // draws the parameters
    let encoder = change(encoder);
    let mask = PaddingMask::from_lengths(&[7, 3, 5], 7);
    let tensor = |factor: f32| {
        let values: Vec<f32> = (0..3 * 7 * H).map(|i| (i as f32 * factor).sin()).collect();
        Tensor::<3>::from_data(TensorData::new(values, [3, 7, H]), device)
    };
    let hidden = tensor(0.7).require_grad();
    let mut output = None;
    path(&mut || output = Some(encoder.forward(hidden.clone(), Some(&mask))));
    let output = output.unwrap();
    // Draws between forward and backward are not those of the backward.
    encoder.forward(hidden.clone(), None);
    let gradients = (output.clone() * tensor(0.3)).sum().backward();
    let values = |tensor: Tensor<3>| tensor.into_data().iter().collect();
    let mut found = vec![values(output), values(hidden.grad(&gradients).unwrap())];
    found.extend(collect(&encoder, Some(&gradients)));
    found
}

fn assert_same_bits(
    devices: Vec<Device>,
    config: &BertEncoderConfig,
    change: &dyn Fn(BertEncoder) -> BertEncoder,
) {
    assert_same(devices, config, 0.0, change);
}

fn assert_same(
    devices: Vec<Device>,
    config: &BertEncoderConfig,
    tolerance: f32,
    change: &dyn Fn(BertEncoder) -> BertEncoder,
) {
    for device in devices {
        let device = device.autodiff();
        let kept = run(&device, config, change, |forward| forward());
        let again = run(&device.clone().gradient_checkpointing(), config, change, |forward| forward());
        assert!(kept.iter().flatten().any(|&value| value != 0.0));
        assert_eq!(kept.len(), again.len());
        for (i, (kept, again)) in kept.iter().zip(&again).enumerate() {
            let distance = kept.iter().zip(again).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            let largest = kept.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
            assert_eq!(kept.len(), again.len());
            assert!(
                distance <= tolerance * largest,
                "{device:?}, {:?}, {i}: {distance:e} apart",
                config.family
            );
        }
    }
}

#[test]
fn layers_that_are_computed_again_have_the_same_gradients_bit_for_bit() {
    assert_same_bits(devices::all(), &config(PositionEmbeddingType::Absolute), &|encoder| encoder);
    let host = vec![devices::flex()];
    assert_same_bits(host, &config(PositionEmbeddingType::RelativeKeyQuery), &|encoder| encoder);
}

/// One layer for all (ALBERT) gets the sum of what its rounds give, and MPNet's table that of its layers. Where nothing is
/// dropped between (DistilBERT, ALBERT), the gradients that meet are added in another order.
#[test]
fn layers_of_every_family_have_the_same_gradients_with_dropout_and_adapters() {
    for family in [Family::DistilBert, Family::Electra, Family::MpNet, Family::Albert] {
        let config = BertEncoderConfig { family, ..config(PositionEmbeddingType::Absolute) };
        let config = config.with_embedding_size((family == Family::Albert).then_some(H));
        assert_same(vec![devices::flex()], &config, 1e-6, &|encoder| encoder);
        assert_same(vec![devices::flex()], &config, 1e-6, &|encoder| {
            let group = ParamGroup::from_any_predicates(vec!["query.weight", "output.weight"]);
            let adapted = encoder.apply_lora(Lora::new(2, 2.0).set_param_group(group));
            collect(&adapted, None);
            adapted
        });
    }
}

#[test]
fn adapters_and_frozen_layers_are_computed_again_too() {
    assert_same_bits(vec![devices::flex()], &config(PositionEmbeddingType::Absolute), &|mut encoder| {
        encoder.layers[1] = encoder.layers[1].clone().freeze();
        encoder
    });
    assert_same_bits(vec![devices::flex()], &config(PositionEmbeddingType::Absolute), &|encoder| {
        let group = ParamGroup::from_any_predicates(vec!["query.weight", "value.weight"]);
        let adapted = encoder.apply_lora(Lora::new(2, 2.0).set_param_group(group));
        collect(&adapted, None);
        adapted
    });
}

/// The backward runs what the forward ran, wherever it is called.
#[test]
fn a_layer_on_the_reference_path_is_computed_again_on_it() {
    let device = devices::flex().autodiff();
    let config = config(PositionEmbeddingType::Absolute);
    let run = |device: &Device, path| run(device, &config, &|encoder| encoder, path);
    let reference: fn(&mut dyn FnMut()) = |forward| on_reference_path(forward);
    let kept = run(&device, reference);
    assert!(kept == run(&device.clone().gradient_checkpointing(), reference));
    assert!(kept != run(&device, |forward| forward()), "the kernels round otherwise");
}
