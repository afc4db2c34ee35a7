//! Training the layer: which rows move, freezing, LoRA, records, resuming.

use crate::tolerance::{F32, assert_close, parameters, values};
use burn::module::{Lora, Module, Param, ParamGroup};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn::tensor::Distribution;
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};

const HIDDEN: usize = 8;

fn config() -> BertEmbeddingsConfig {
    BertEmbeddingsConfig::new()
        .with_vocab_size(20)
        .with_hidden_size(HIDDEN)
        .with_max_position_embeddings(12)
        .with_hidden_dropout_prob(0.0)
}

fn device() -> Device {
    Device::default().autodiff()
}

/// Two sequences of five tokens, some of them padding: positions 5..12 are never used.
fn input() -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_rows(&[[4, 5, 6, 0, 0], [9, 8, 7, 6, 0]], &device()).unwrap()
}

/// Weights of the loss, so that no gradient vanishes by symmetry.
fn loss_weights() -> Tensor<3> {
    Tensor::random([2, 5, HIDDEN], Distribution::Normal(0.0, 1.0), &device())
}

fn step(
    module: BertEmbeddings,
    optimizer: &mut ModuleOptimizer,
    loss_weights: &Tensor<3>,
) -> (BertEmbeddings, f32) {
    let loss = (module.forward(&input()) * loss_weights.clone()).mean();
    let gradients = GradientsParams::from_grads(loss.backward(), &module);
    (optimizer.step(1e-2, module, gradients), loss.into_scalar())
}

fn row(table: &Param<Tensor<2>>, row: usize) -> Vec<f64> {
    values(table.val().narrow(0, row, 1))
}

#[test]
fn unused_rows_of_every_table_get_exactly_no_gradient() {
    let module = config().init(&device());
    let input = input().with_token_type_ids(&[[1; 5], [1; 5]]).unwrap();
    let gradients = (module.forward(&input) * loss_weights()).sum().backward();
    let used = |table: &Param<Tensor<2>>| -> Vec<usize> {
        let gradient = values(table.grad(&gradients).unwrap());
        let rows = gradient.chunks(HIDDEN).enumerate();
        rows.filter(|(_, row)| row.iter().any(|&value| value != 0.0)).map(|(row, _)| row).collect()
    };
    assert_eq!(used(&module.word_embeddings.weight), [4, 5, 6, 7, 8, 9]);
    assert_eq!(used(&module.position_embeddings.as_ref().unwrap().weight), [0, 1, 2, 3, 4]);
    assert_eq!(used(&module.token_type_embeddings.as_ref().unwrap().weight), [1]);
}

#[test]
fn a_filled_padding_row_decays_as_in_pytorch_unless_its_group_says_otherwise() {
    let filled = || {
        let mut module = config().init(&device());
        module.word_embeddings.weight =
            Param::from_tensor(Tensor::ones([20, HIDDEN], &device())).set_require_grad(true);
        module
    };
    let weights = loss_weights();

    let mut module = filled();
    let mut optimizer = AdamWConfig::new().with_weight_decay(0.1).init();
    for _ in 0..100 {
        module = step(module, &mut optimizer, &weights).0;
    }
    // (1 − 10⁻²·0.1)¹⁰⁰ = 0.904792…, in f32 after 100 roundings; torch 2.15 gives 0.90479.
    let decayed = row(&module.word_embeddings.weight, 0);
    assert_close(&decayed, &[0.999f64.powi(100); HIDDEN], F32);

    let mut module = filled();
    let word_table = ParamGroup::from_predicate("word_embeddings.weight");
    let no_decay = AdamWConfig::new().with_weight_decay(0.0).build();
    let mut optimizer =
        AdamWConfig::new().with_weight_decay(0.1).init().with_group(word_table, no_decay, None);
    for _ in 0..100 {
        module = step(module, &mut optimizer, &weights).0;
    }
    assert_eq!(row(&module.word_embeddings.weight, 0), [1.0; HIDDEN]);
}

#[test]
fn lora_on_the_word_table_trains_its_factors_and_keeps_the_padding_row() {
    let module = config().init(&device());
    let plain = values(module.forward(&input()));
    let base = values(module.word_embeddings.weight.val());
    let words = ParamGroup::from_predicate("word_embeddings.weight");
    let mut module = module.apply_lora(Lora::new(2, 2.0).set_param_group(words));
    assert_close(&values(module.forward(&input())), &plain, F32);

    let mut optimizer = AdamWConfig::new().init();
    let weights = loss_weights();
    let (trained, first) = step(module, &mut optimizer, &weights);
    module = trained;
    let mut last = first;
    for _ in 0..20 {
        (module, last) = step(module, &mut optimizer, &weights);
    }
    assert!(last < first, "the loss falls from {first} to {last}");
    assert_eq!(values(module.word_embeddings.weight.base()), base, "the base is frozen");
    // The adapted table is base + scale·A·B. The lookup sends nothing to the padding row of A·B, and a row of
    // A that gets no gradient keeps its first value; the module still reads base + scale·A·B there.
    let adapter = module.word_embeddings.weight.adapter().expect("the adapter is attached");
    let gradients = (module.forward(&input()) * weights).sum().backward();
    let a = values(adapter.a.val().grad(&gradients).unwrap());
    let rank = a.len() / 20;
    assert_eq!(a[..rank], vec![0.0; rank][..], "the padding row of A");
    assert!(a[4 * rank..5 * rank].iter().all(|&value| value != 0.0), "a row of A that was looked up");
}

#[test]
fn a_record_restores_every_value_and_holds_nothing_else() {
    let module = config().init(&device());
    let paths: Vec<String> = parameters(&module, None).into_keys().collect();
    assert_eq!(
        paths,
        [
            "layer_norm.beta",
            "layer_norm.gamma",
            "position_embeddings.weight",
            "token_type_embeddings.weight",
            "word_embeddings.weight",
        ]
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("embeddings.bpk");
    module.clone().save_file(&file).unwrap();
    assert_eq!(module.clone().into_record().len(), paths.len());
    let loaded = config().init(&device()).load_file(&file);
    loaded.forward(&input()).into_data().assert_eq(&module.forward(&input()).into_data(), true);
}
