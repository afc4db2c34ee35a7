//! Gradients of the layer with a tied head, and of a large one, by central differences. `tests/backend` has those of the layer
//! in every position scheme.

use PositionEmbeddingType::{Absolute, AfterPadding, RelativeKey, RelativeKeyQuery};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::{
    BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, EmbeddingInitializer, PositionEmbeddingType,
};
use burn_gradcheck::{Coverage, GradCheck, Probe};

fn device() -> Device {
    Device::default().autodiff()
}

const IDS: [[i32; 5]; 3] = [[5, 0, 7, 5, 10], [1, 9, 0, 0, 0], [0, 3, 0, 5, 2]];
const TYPES: [[i32; 5]; 3] = [[0, 0, 1, 1, 0], [1, 0, 0, 1, 1], [0, 0, 0, 0, 1]];

fn module(scheme: PositionEmbeddingType) -> BertEmbeddings {
    BertEmbeddingsConfig::new()
        .with_vocab_size(11)
        .with_hidden_size(6)
        .with_max_position_embeddings(9)
        .with_type_vocab_size(2)
        .with_hidden_dropout_prob(0.0)
        .with_initializer(EmbeddingInitializer::Normal { std: 0.02 })
        .with_position_embedding_type(scheme)
        .init(&device())
}

fn input() -> BertEmbeddingsInput {
    let input = BertEmbeddingsInput::from_rows(&IDS, &device()).unwrap();
    input.with_token_type_ids(&TYPES).unwrap()
}

#[test]
fn without_its_exclusion_the_padding_row_disagrees_by_design() {
    let report = GradCheck::new()
        .run(&module(Absolute), |module, probe| probe.weighted_sum(module.forward(&input())))
        .unwrap();
    let failed: Vec<_> = report.parameters.iter().filter(|p| !p.passed).map(|p| p.path.as_str()).collect();
    assert_eq!(failed, ["word_embeddings.weight"], "{report}");
}

/// log-softmax of a tied head: logits = hidden · Wᵀ.
fn tied(module: &BertEmbeddings, hidden: Tensor<3>, probe: &Probe) -> Tensor<1> {
    let logits = hidden.matmul(module.word_embeddings.weight.val().transpose().unsqueeze());
    probe.weighted_sum(burn::tensor::activation::log_softmax(logits, 2))
}

#[test]
fn a_tied_head_passes_in_every_position_scheme() {
    for scheme in [Absolute, AfterPadding, RelativeKey, RelativeKeyQuery] {
        let input = BertEmbeddingsInput::from_rows(&[[5, 1, 7, 5], [10, 9, 2, 3]], &device()).unwrap();
        let check = match scheme {
            AfterPadding => GradCheck::new().exclude_row("position_embeddings.weight", 0, 0.0),
            _ => GradCheck::new(),
        };
        check
            .run(&module(scheme), |module, probe| tied(module, module.forward(&input), probe))
            .unwrap()
            .assert_passes();
    }
}

#[test]
fn a_tied_head_gives_the_padding_row_the_gradient_of_the_head_alone() {
    let module = module(Absolute);
    let head = GradCheck::new()
        .run(&module, |module, probe| tied(module, module.forward(&input()).detach(), probe))
        .unwrap();
    // With the lookup cut off, all that it should have sent is missing.
    assert!(!head.passes());
    let report = GradCheck::new()
        .exclude_row("word_embeddings.weight", 0, 0.0)
        .run(&module, |module, probe| tied(module, module.forward(&input()), probe))
        .unwrap();
    assert!(report.parameters.iter().all(|parameter| parameter.passed), "{report}");
    assert!(!report.excluded_rows[0].passed, "the head's gradient of row 0 is not 0: {report}");
    assert_eq!(report.excluded_rows[0].furthest, head_gradient_of_row_0(&module));
}

/// Where the gradient of the head alone is furthest from 0 in row 0, and its value there.
fn head_gradient_of_row_0(module: &BertEmbeddings) -> (usize, f64) {
    let module = burn_bert::cast_module(module.clone(), FloatDType::F64).unwrap();
    let report = GradCheck::new()
        .exclude_row("weight", 0, 0.0)
        .run(&module.word_embeddings, |table, probe| {
            let hidden = probe.constant(module.forward(&input()).detach());
            let logits = hidden.matmul(table.weight.val().transpose().unsqueeze());
            probe.weighted_sum(burn::tensor::activation::log_softmax(logits, 2))
        })
        .unwrap();
    report.excluded_rows[0].furthest
}

#[test]
fn a_large_word_table_passes_along_directions() {
    let module = BertEmbeddingsConfig::new()
        .with_vocab_size(2000)
        .with_hidden_size(32)
        .with_max_position_embeddings(64)
        .with_hidden_dropout_prob(0.0)
        .init(&device());
    let rows: Vec<Vec<i32>> = (0..4).map(|b| (0..48).map(|s| (b * 701 + s * 37) % 2000).collect()).collect();
    let input = BertEmbeddingsInput::from_rows(&rows, &device()).unwrap();
    let report = GradCheck::new()
        .exclude_row("word_embeddings.weight", 0, 0.0)
        .run(&module, |module, probe| probe.weighted_sum(module.forward(&input)))
        .unwrap();
    report.assert_passes();
    assert_eq!(report.parameter("word_embeddings.weight").unwrap().coverage, Coverage::Directions(8));
}
