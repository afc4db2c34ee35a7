//! The rows of a batch in small tables: the same values, the same gradients, only for those rows.

use crate::tolerance::{F32, assert_close, values};
use burn::module::{Lora, Module, Param};
use burn::prelude::*;
use burn::tensor::{Distribution, FloatDType};
use burn_bert::sparse::{RowGradients, TouchedRows};
use burn_bert::{
    BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, EmbeddingTable, Error, PositionEmbeddingType,
    cast_module,
};

const HIDDEN: usize = 8;
const IDS: [[i32; 5]; 3] = [[4, 5, 6, 0, 0], [19, 5, 5, 6, 0], [0, 1, 0, 19, 4]];

fn device() -> Device {
    Device::default().autodiff()
}

fn config() -> BertEmbeddingsConfig {
    BertEmbeddingsConfig::new()
        .with_vocab_size(20)
        .with_hidden_size(HIDDEN)
        .with_max_position_embeddings(14)
        .with_type_vocab_size(3)
        .with_hidden_dropout_prob(0.0)
}

fn input() -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_rows(&IDS, &device()).unwrap()
}

fn vectors() -> Tensor<3> {
    Tensor::random([3, 5, HIDDEN], Distribution::Normal(0.0, 1.0), &device())
}

/// Every kind of batch that the layer takes, with the config it is for.
fn cases() -> Vec<(&'static str, BertEmbeddingsConfig, BertEmbeddingsInput)> {
    let after = || {
        config().with_pad_token_id(Some(5)).with_position_embedding_type(PositionEmbeddingType::AfterPadding)
    };
    let ids = || Tensor::<2, Int>::from_ints(IDS, &device());
    let types = [[0, 0, 1, 2, 2], [1; 5], [0; 5]];
    vec![
        ("default", config(), input()),
        ("without a padding row", config().with_pad_token_id(None), input()),
        ("token types", config(), input().with_token_type_ids(&types).unwrap()),
        ("past", config(), input().with_past_key_values_length(9)),
        ("shared positions", config(), input().with_position_ids(&[[3, 3, 13, 0, 1]]).unwrap()),
        (
            "positions",
            config(),
            input().with_position_ids(&[[3, 3, 13, 0, 1], [0; 5], [7, 6, 5, 4, 3]]).unwrap(),
        ),
        ("relative", config().with_position_embedding_type(PositionEmbeddingType::RelativeKey), input()),
        ("after padding", after(), input()),
        ("after padding, past", after(), input().with_past_key_values_length(3)),
        ("after padding, positions", after(), input().with_position_ids(&[[5, 5, 13, 0, 1]]).unwrap()),
        ("after padding, vectors", after(), BertEmbeddingsInput::from_embeds(vectors()).unwrap()),
        ("vectors", config(), BertEmbeddingsInput::from_embeds(vectors()).unwrap()),
        ("tensor ids", config(), BertEmbeddingsInput::from_ids(ids()).unwrap()),
        ("unchecked ids", config(), BertEmbeddingsInput::from_ids(ids()).unwrap().unchecked_ids()),
        (
            "unchecked ids after padding",
            after(),
            BertEmbeddingsInput::from_ids(ids()).unwrap().unchecked_ids(),
        ),
        ("padding alone", config(), BertEmbeddingsInput::from_rows(&[[0; 4], [0; 4]], &device()).unwrap()),
    ]
}

/// A module whose padding rows are not zero, so that leaving them out is noticed.
fn module(config: &BertEmbeddingsConfig) -> BertEmbeddings {
    let mut module = config.init(&device());
    let normal =
        |rows| Tensor::random([rows, HIDDEN], Distribution::Normal(0.0, 1.0), &device()).require_grad();
    module.word_embeddings.weight = Param::from_tensor(normal(20));
    if let Some(table) = &mut module.position_embeddings {
        table.weight = Param::from_tensor(normal(14));
    }
    module
}

#[test]
fn rows_give_the_values_of_the_whole_tables_bit_for_bit() {
    for (name, config, input) in cases() {
        let module = module(&config);
        let rows = module.touched_rows(&input).unwrap();
        assert_eq!(values(rows.forward()), values(module.forward(&input)), "{name}");
        assert_eq!(values(rows.embeddings().forward(rows.input())), values(module.forward(&input)), "{name}");
    }
}

/// The gradient of a table, all rows, from the gradients of some.
fn spread(gradients: &RowGradients, table: EmbeddingTable, rows: usize) -> Vec<f64> {
    let mut dense = vec![0.0; rows * HIDDEN];
    if let Some((ids, gradient)) = gradients.get(table) {
        for (&id, row) in ids.iter().zip(values(gradient).chunks(HIDDEN)) {
            dense[id * HIDDEN..][..HIDDEN].copy_from_slice(row);
        }
    }
    dense
}

#[test]
fn gradients_of_rows_are_those_of_dense_training_and_no_table_gets_a_dense_one() {
    for (name, config, input) in cases() {
        let module = module(&config);
        let [batch, seq] = input.dims();
        let weights = Tensor::random([batch, seq, HIDDEN], Distribution::Normal(0.0, 1.0), &device());
        let dense = (module.forward(&input) * weights.clone()).sum().backward();
        let touched = module.touched_rows(&input).unwrap();
        let mut sparse = (touched.forward() * weights).sum().backward();
        let gradients = RowGradients::from_grads(&mut sparse, touched, &module).unwrap();

        let zeros = |rows: usize| vec![0.0; rows * HIDDEN];
        let word = module.word_embeddings.weight.grad(&dense).map_or(zeros(20), values);
        assert_close(&spread(&gradients, EmbeddingTable::Word, 20), &word, F32);
        assert!(module.word_embeddings.weight.grad(&sparse).is_none(), "{name}");
        if let Some(table) = &module.position_embeddings {
            let position = table.weight.grad(&dense).map_or(zeros(14), values);
            assert_close(&spread(&gradients, EmbeddingTable::Position, 14), &position, F32);
            assert!(table.weight.grad(&sparse).is_none(), "{name}");
        }
        let rest = |gradients: &burn::tensor::Gradients| {
            let mut all =
                values(module.token_type_embeddings.as_ref().unwrap().weight.grad(gradients).unwrap());
            all.extend(values(module.layer_norm.gamma.grad(gradients).unwrap()));
            all.extend(values(module.layer_norm.beta.as_ref().unwrap().grad(gradients).unwrap()));
            all
        };
        assert_close(&rest(&sparse), &rest(&dense), F32);
    }
}

#[test]
fn the_touched_rows_are_those_looked_up_without_the_padding_row() {
    let ids = |rows: &TouchedRows| {
        (rows.ids(EmbeddingTable::Word).to_vec(), rows.ids(EmbeddingTable::Position).to_vec())
    };
    let absolute = module(&config());
    assert_eq!(ids(&absolute.touched_rows(&input()).unwrap()), (vec![1, 4, 5, 6, 19], vec![0, 1, 2, 3, 4]));
    let past = input().with_past_key_values_length(9);
    assert_eq!(ids(&absolute.touched_rows(&past).unwrap()).1, [9, 10, 11, 12, 13]);
    let after =
        config().with_pad_token_id(Some(1)).with_position_embedding_type(PositionEmbeddingType::AfterPadding);
    let rows = module(&after).touched_rows(&input()).unwrap();
    assert_eq!(ids(&rows), (vec![0, 4, 5, 6, 19], vec![2, 3, 4, 5, 6]));
    assert!(rows.ids(EmbeddingTable::TokenType).is_empty());
}

#[test]
fn the_padding_row_and_rows_of_padding_alone_have_no_gradient() {
    let module = module(&config());
    let only_padding = BertEmbeddingsInput::from_rows(&[[0; 4], [0; 4]], &device()).unwrap();
    for input in [input(), only_padding] {
        let touched = module.touched_rows(&input).unwrap();
        let mut gradients = touched.forward().powi_scalar(3).sum().backward();
        let gradients = RowGradients::from_grads(&mut gradients, touched, &module).unwrap();
        let words = gradients.get(EmbeddingTable::Word).map_or(vec![], |(ids, _)| ids.to_vec());
        assert!(!words.contains(&0), "{words:?}");
        assert!(gradients.get(EmbeddingTable::Position).is_some());
    }
}

#[test]
fn on_a_plain_device_rows_are_plain_inference() {
    let module = config().init(&Device::default());
    let input = BertEmbeddingsInput::from_rows(&IDS, &Device::default()).unwrap();
    let output = module.touched_rows(&input).unwrap().forward();
    assert!(!output.is_autodiff());
    assert_eq!(values(output), values(module.forward(&input)));
}

#[test]
fn rows_keep_the_dtype_of_the_tables() {
    let module = cast_module(module(&config()), FloatDType::F64);
    let output = module.touched_rows(&input()).unwrap().forward();
    assert_eq!(output.dtype(), burn::tensor::DType::F64);
    assert_eq!(values(output), values(module.forward(&input())));
}

#[test]
fn rows_keep_the_checkpointing_strategy_of_the_tables() {
    let device = Device::default().autodiff().gradient_checkpointing();
    let mut module = config().init(&device);
    let input = BertEmbeddingsInput::from_rows(&IDS, &device).unwrap();
    for _ in 0..2 {
        let touched = module.touched_rows(&input).unwrap();
        let mut gradients = touched.forward().powi_scalar(3).sum().backward();
        let gradients = RowGradients::from_grads(&mut gradients, touched, &module).unwrap();
        let mut optimizer = burn_bert::sparse::RowSgdConfig::new().init();
        optimizer.step(0.1, &mut module, gradients).unwrap();
        let strategy = module.word_embeddings.weight.val().gradient_checkpointing_strategy();
        assert_eq!(strategy, device.gradient_checkpointing_strategy());
    }
}

#[test]
fn what_forward_refuses_is_refused_in_the_same_words() {
    let module = module(&config());
    let after = self::module(
        &config()
            .with_pad_token_id(Some(1))
            .with_position_embedding_type(PositionEmbeddingType::AfterPadding),
    );
    let id = |id: i32| BertEmbeddingsInput::from_rows(&[[1, id]], &device()).unwrap();
    for (module, input) in [
        (&module, id(20)),
        (&module, id(-1)),
        (&module, id(3).with_position_ids(&[[0, 14]]).unwrap()),
        (&module, id(3).with_past_key_values_length(13)),
        (&after, id(3).with_past_key_values_length(12)),
        (&module, id(3).with_token_type_ids(&[[0, 3]]).unwrap()),
    ] {
        let dense = module.try_forward(&input).unwrap_err().to_string();
        let sparse = module.touched_rows(&input).and_then(|rows| rows.try_forward());
        assert_eq!(sparse.unwrap_err().to_string(), dense);
    }
}

#[test]
fn ids_that_were_not_checked_are_still_refused() {
    let ids = Tensor::<2, Int>::from_ints([[1, 20]], &device());
    let input = BertEmbeddingsInput::from_ids(ids).unwrap().unchecked_ids();
    let error = module(&config()).touched_rows(&input).unwrap_err();
    assert!(matches!(error, Error::IdOutOfRange { id: 20, table: EmbeddingTable::Word, .. }), "{error}");
}

#[test]
fn a_table_with_an_adapter_is_refused() {
    let module = module(&config());
    let mut adapted = module.clone().apply_lora(Lora::new(2, 2.0));
    let error = adapted.touched_rows(&input()).unwrap_err();
    assert!(matches!(error, Error::NotRowSparse { table: EmbeddingTable::Word, .. }), "{error}");
    assert!(error.to_string().contains("LoRA"), "{error}");
    adapted.word_embeddings = module.word_embeddings;
    let error = adapted.touched_rows(&input()).unwrap_err();
    assert!(matches!(error, Error::NotRowSparse { table: EmbeddingTable::Position, .. }), "{error}");
}

#[test]
fn a_word_table_with_an_adapter_does_not_matter_to_vectors() {
    let module = module(&config());
    let mut adapted = module.clone().apply_lora(Lora::new(2, 2.0));
    adapted.position_embeddings = module.position_embeddings.clone();
    let input = BertEmbeddingsInput::from_embeds(vectors()).unwrap();
    let rows = adapted.touched_rows(&input).unwrap();
    assert_eq!(values(rows.forward()), values(adapted.forward(&input)));
}
