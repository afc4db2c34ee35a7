//! Padding, and tables that are frozen or computed.

use super::{Case, weights};
use crate::tolerance::{assert_close, values};
use crate::turn;
use burn::module::Module;
use burn::prelude::*;
use burn::tensor::Distribution;
use burn::tensor::module::{embedding, layer_norm};
use burn_bert::functional::{Norm, Rows, embed_layer_norm};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};

fn module(device: &Device) -> BertEmbeddings {
    device.seed(3);
    BertEmbeddingsConfig::new()
        .with_vocab_size(40)
        .with_hidden_size(13)
        .with_max_position_embeddings(16)
        .with_hidden_dropout_prob(0.0)
        .init(device)
}

pub(super) fn pad_row_gradient_is_exactly_zero_for_any_number_of_pads(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    let hidden = 5;
    let table = Tensor::random([7, hidden], Distribution::Default, &device).require_grad();
    for pads in [0, 1, 768, 769, 8192] {
        let ids: Vec<i32> = (0..pads + 3).map(|i| if i < pads { 2 } else { 4 }).collect();
        let shape = [1, ids.len()];
        let ids = Tensor::<1, Int>::from_ints(ids.as_slice(), &device).reshape(shape);
        let words = Rows::Lookup { table: table.clone(), ids, padding_idx: Some(2) };
        let norm = Norm { gamma: Tensor::ones([hidden], &device), beta: None, epsilon: 1e-12 };
        let y = embed_layer_norm(shape, [words, Rows::Absent, Rows::Absent], norm, 0.0);
        let gradients = (y * weights([1, pads + 3, hidden], &device)).sum().backward();
        let gradient = values(table.grad(&gradients).unwrap());
        let (pad, token) = (&gradient[2 * hidden..3 * hidden], &gradient[4 * hidden..5 * hidden]);
        assert!(pad.iter().all(|&value| value == 0.0), "{pads} pads: {pad:?}");
        assert!(token.iter().all(|&value| value != 0.0), "{pads} pads: {token:?}");
    }
}

pub(super) fn frozen_tables_get_no_gradient_and_change_nobody_elses(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    let module = module(&device);
    let input = BertEmbeddingsInput::from_rows(&[[5, 6, 5, 0], [9, 5, 0, 0]], &device).unwrap();
    let weights = weights([2, 4, 13], &device);
    let gradients = |module: &BertEmbeddings| {
        let gradients = (module.forward(&input) * weights.clone()).sum().backward();
        let positions = module.position_embeddings.as_ref().unwrap();
        [&module.word_embeddings, positions, module.token_type_embeddings.as_ref().unwrap()]
            .map(|table| table.weight.grad(&gradients).map(values))
    };
    let all = gradients(&module);
    assert!(all.iter().all(Option::is_some));
    let mut frozen = module;
    frozen.word_embeddings = frozen.word_embeddings.freeze();
    let [words, positions, types] = gradients(&frozen);
    assert_eq!(words, None);
    assert_eq!([positions, types], [all[1].clone(), all[2].clone()]);
    frozen.position_embeddings = frozen.position_embeddings.freeze();
    frozen.token_type_embeddings = frozen.token_type_embeddings.freeze();
    assert_eq!(gradients(&frozen), [None, None, None]);
}

pub(super) fn gradient_flows_through_a_table_that_is_computed(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    let base = Tensor::random([6, 4], Distribution::Default, &device);
    let [a, b] = [[6, 2], [2, 4]]
        .map(|shape| Tensor::<2>::random(shape, Distribution::Default, &device).require_grad());
    let ids = Tensor::<2, Int>::from_ints([[1, 0, 5, 1]], &device);
    let gamma = Tensor::<1>::random([4], Distribution::Default, &device);
    let weights = weights([1, 4, 4], &device);
    let gradients = |fused: bool| {
        let table = base.clone() + a.clone().matmul(b.clone()); // as LoRA adapts one
        let y = if fused {
            let words = Rows::Lookup { table, ids: ids.clone(), padding_idx: None };
            let norm = Norm { gamma: gamma.clone(), beta: None, epsilon: 1e-5 };
            embed_layer_norm([1, 4], [words, Rows::Absent, Rows::Absent], norm, 0.0)
        } else {
            layer_norm(embedding(table, ids.clone()), gamma.clone(), None, 1e-5)
        };
        let gradients = (y * weights.clone()).sum().backward();
        [&a, &b].map(|factor| values(factor.grad(&gradients).unwrap()))
    };
    let [fused, composed] = [true, false].map(gradients);
    for (fused, composed) in fused.iter().zip(&composed) {
        assert_close(fused, composed, case.tolerance);
    }
}

pub(super) fn gradients_are_the_same_under_checkpointing(case: &Case) {
    let _turn = turn();
    let run = |device: Device| {
        let module = module(&device);
        let input = BertEmbeddingsInput::from_rows(&[[5, 6, 7, 0]], &device).unwrap();
        let y = module.forward(&input);
        let gradients = y.clone().mul(y).mul_scalar(3.0).sum().backward();
        values(module.word_embeddings.weight.grad(&gradients).unwrap())
    };
    let plain = run(case.device.clone().autodiff());
    assert!(plain.iter().any(|&value| value != 0.0));
    assert_eq!(plain, run(case.device.clone().autodiff().gradient_checkpointing()));
}
