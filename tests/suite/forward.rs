//! What `BertEmbeddings` computes, against values worked out by hand and against a naive loop in f64.

use crate::tolerance::{F32, assert_close, values};
use burn::module::Param;
use burn::prelude::*;
use burn::tensor::{Distribution, FloatDType};
use burn_bert::{
    BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, PositionEmbeddingType, cast_module,
};

fn config() -> BertEmbeddingsConfig {
    BertEmbeddingsConfig::new()
        .with_vocab_size(20)
        .with_hidden_size(6)
        .with_max_position_embeddings(12)
        .with_type_vocab_size(3)
        .with_hidden_dropout_prob(0.0)
}

/// A module with weights of order 1, γ and β not trivial.
fn module(config: &BertEmbeddingsConfig) -> BertEmbeddings {
    let device = Device::default();
    let normal = |shape: [usize; 2]| Tensor::random(shape, Distribution::Normal(0.0, 1.0), &device);
    let mut module = config.init(&device);
    let hidden = config.hidden_size;
    module.word_embeddings.weight = Param::from_tensor(normal([config.vocab_size, hidden]));
    if let Some(table) = &mut module.position_embeddings {
        table.weight = Param::from_tensor(normal([config.max_position_embeddings, hidden]));
    }
    module.token_type_embeddings.as_mut().unwrap().weight =
        Param::from_tensor(normal([config.type_vocab_size, hidden]));
    module.layer_norm.gamma = Param::from_tensor(normal([1, hidden]).squeeze_dim::<1>(0).add_scalar(1.0));
    module.layer_norm.beta = Some(Param::from_tensor(normal([1, hidden]).squeeze_dim::<1>(0)));
    module
}

/// LayerNorm(W[word] + S[type] + P[position]) of one token, in f64, straight from the formula.
fn token(module: &BertEmbeddings, word: usize, kind: usize, position: Option<usize>) -> Vec<f64> {
    let hidden = module.hidden_size();
    let row = |table: &Tensor<2>, row: usize| values(table.clone().narrow(0, row, 1));
    let mut x = row(&module.word_embeddings.weight.val(), word);
    let types = row(&module.token_type_embeddings.as_ref().unwrap().weight.val(), kind);
    x.iter_mut().zip(types).for_each(|(x, s)| *x += s);
    if let (Some(table), Some(position)) = (&module.position_embeddings, position) {
        x.iter_mut().zip(row(&table.weight.val(), position)).for_each(|(x, p)| *x += p);
    }
    let mean = x.iter().sum::<f64>() / hidden as f64;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / hidden as f64;
    let gamma = values(module.layer_norm.gamma.val());
    let beta = values(module.layer_norm.beta.as_ref().unwrap().val());
    (0..hidden)
        .map(|i| (x[i] - mean) / (variance + module.layer_norm.epsilon()).sqrt() * gamma[i] + beta[i])
        .collect()
}

fn tokens(module: &BertEmbeddings, list: &[(usize, usize, Option<usize>)]) -> Vec<f64> {
    list.iter().flat_map(|&(word, kind, position)| token(module, word, kind, position)).collect()
}

fn input<const B: usize, const S: usize>(ids: [[i32; S]; B]) -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_rows(&ids, &Device::default()).unwrap()
}

/// Sets the single row that a one-token forward adds up, all others and β zero.
fn one_token_module(sum: [f32; 4]) -> BertEmbeddings {
    let device = Device::default();
    let mut module = BertEmbeddingsConfig::new()
        .with_vocab_size(1)
        .with_hidden_size(4)
        .with_max_position_embeddings(1)
        .with_type_vocab_size(1)
        .with_pad_token_id(None)
        .init(&device);
    let zeros = || Param::from_tensor(Tensor::zeros([1, 4], &device));
    module.word_embeddings.weight = Param::from_data([sum], &device);
    module.position_embeddings.as_mut().unwrap().weight = zeros();
    module.token_type_embeddings.as_mut().unwrap().weight = zeros();
    module
}

#[test]
fn layer_norm_of_the_sum_as_worked_out_by_hand() {
    // x = (0, 0, 0, 4): mean 1, variance (1 + 1 + 1 + 9)/4 = 3, x̂ = (−1, −1, −1, 3)/√3.
    let mut module = one_token_module([0.0, 0.0, 0.0, 4.0]);
    module.layer_norm.gamma = Param::from_data([1.0, 2.0, 3.0, 4.0], &Device::default());
    module.layer_norm.beta = Some(Param::from_data([0.5, 0.0, 0.0, -1.0], &Device::default()));
    let r = 3f64.sqrt();
    let expected = [-1.0 / r + 0.5, -2.0 / r, -3.0 / r, 12.0 / r - 1.0];
    assert_close(&values(module.forward(&input([[0]]))), &expected, F32);
}

#[test]
fn epsilon_is_added_to_the_variance() {
    // x = 10⁻⁶·(0, 0, 0, 4): variance 3·10⁻¹², and with ε = 10⁻¹² the root is 2·10⁻⁶.
    let module = one_token_module([0.0, 0.0, 0.0, 4e-6]);
    assert_close(&values(module.forward(&input([[0]]))), &[-0.5, -0.5, -0.5, 1.5], F32);
}

#[test]
fn the_three_tables_are_added() {
    let module = module(&config());
    let input = input([[5, 7], [3, 19]]).with_token_type_ids(&[[0, 2], [1, 1]]).unwrap();
    let expected = tokens(&module, &[(5, 0, Some(0)), (7, 2, Some(1)), (3, 1, Some(0)), (19, 1, Some(1))]);
    assert_close(&values(module.forward(&input)), &expected, F32);
}

#[test]
fn token_types_are_zero_unless_given() {
    let module = module(&config());
    let expected = tokens(&module, &[(5, 0, Some(0)), (7, 0, Some(1))]);
    assert_close(&values(module.forward(&input([[5, 7]]))), &expected, F32);
}

#[test]
fn given_positions_are_looked_up_for_each_row_or_for_all() {
    let module = module(&config());
    let each = input([[5, 7], [5, 7]]).with_position_ids(&[[11, 3], [0, 0]]).unwrap();
    let expected = tokens(&module, &[(5, 0, Some(11)), (7, 0, Some(3)), (5, 0, Some(0)), (7, 0, Some(0))]);
    assert_close(&values(module.forward(&each)), &expected, F32);

    let shared = input([[5, 7], [6, 8]]).with_position_ids(&[[11, 3]]).unwrap();
    let expected = tokens(&module, &[(5, 0, Some(11)), (7, 0, Some(3)), (6, 0, Some(11)), (8, 0, Some(3))]);
    assert_close(&values(module.forward(&shared)), &expected, F32);
}

#[test]
fn past_tokens_move_default_positions() {
    let module = module(&config());
    let expected = tokens(&module, &[(5, 0, Some(10)), (7, 0, Some(11))]);
    let moved = input([[5, 7]]).with_past_key_values_length(10);
    assert_close(&values(module.forward(&moved)), &expected, F32);
}

#[test]
fn chunks_with_past_equal_one_call() {
    let absolute = config();
    let after_padding =
        config().with_pad_token_id(Some(1)).with_position_embedding_type(PositionEmbeddingType::AfterPadding);
    for config in [absolute, after_padding] {
        let module = module(&config);
        let whole = module.forward(&input([[4, 5, 6, 7, 8]]));
        let first = module.forward(&input([[4, 5]]));
        let rest = module.forward(&input([[6, 7, 8]]).with_past_key_values_length(2));
        let chunks = Tensor::cat(vec![first, rest], 1);
        chunks.into_data().assert_eq(&whole.into_data(), true);

        // The same with vectors in the place of ids.
        let embeds = Tensor::random([1, 5, 6], Distribution::Normal(0.0, 1.0), &Device::default());
        let embed = |from, length, past| {
            let part = embeds.clone().narrow(1, from, length);
            let input = BertEmbeddingsInput::from_embeds(part).unwrap();
            module.forward(&input.with_past_key_values_length(past))
        };
        let chunks = Tensor::cat(vec![embed(0, 2, 0), embed(2, 3, 2)], 1);
        chunks.into_data().assert_eq(&embed(0, 5, 0).into_data(), true);
    }
}

#[test]
fn relative_schemes_add_no_position() {
    for scheme in [PositionEmbeddingType::RelativeKey, PositionEmbeddingType::RelativeKeyQuery] {
        let module = module(&config().with_position_embedding_type(scheme));
        let expected = tokens(&module, &[(5, 0, None), (7, 0, None)]);
        // Longer than any table, and past any table: there is none.
        let input = input([[5, 7]]).with_past_key_values_length(1000);
        assert_close(&values(module.forward(&input)), &expected, F32);
    }
}

#[test]
fn positions_after_padding_count_tokens_from_the_padding_id_on() {
    let config =
        config().with_pad_token_id(Some(1)).with_position_embedding_type(PositionEmbeddingType::AfterPadding);
    let module = module(&config);
    // Padding on the left, inside and on the right; positions worked out by hand.
    let batch = input([[1, 5, 6, 7], [5, 1, 1, 6], [8, 9, 1, 1]]);
    let positions = [[1, 2, 3, 4], [2, 1, 1, 3], [2, 3, 1, 1]];
    let explicit = batch.clone().with_position_ids(&positions).unwrap();
    let found = module.forward(&batch);
    found.to_data().assert_eq(&module.forward(&explicit).into_data(), true);
    let expected = tokens(&module, &[(1, 0, Some(1)), (5, 0, Some(2)), (6, 0, Some(3)), (7, 0, Some(4))]);
    assert_close(&values(found.narrow(0, 0, 1)), &expected, F32);

    // K moves tokens and leaves padding where it is.
    let positions = [[1, 5, 6, 7], [5, 1, 1, 6], [5, 6, 1, 1]];
    let moved = module.forward(&batch.clone().with_past_key_values_length(3));
    let explicit = module.forward(&batch.with_position_ids(&positions).unwrap());
    moved.into_data().assert_eq(&explicit.into_data(), true);
}

#[test]
fn positions_after_padding_of_vectors_are_consecutive() {
    let config =
        config().with_pad_token_id(Some(1)).with_position_embedding_type(PositionEmbeddingType::AfterPadding);
    let module = module(&config);
    let embeds = Tensor::random([2, 3, 6], Distribution::Normal(0.0, 1.0), &Device::default());
    let input = BertEmbeddingsInput::from_embeds(embeds).unwrap();
    let explicit = input.clone().with_position_ids(&[[2, 3, 4]]).unwrap();
    module.forward(&input).into_data().assert_eq(&module.forward(&explicit).into_data(), true);
}

#[test]
fn vectors_take_the_place_of_the_word_table() {
    let module = module(&config());
    let ids = input([[5, 7, 0]]);
    let rows = module.word_embeddings.forward::<2, 3>(ids.input_ids().unwrap());
    let embeds = BertEmbeddingsInput::from_embeds(rows).unwrap();
    module.forward(&embeds).into_data().assert_eq(&module.forward(&ids).into_data(), true);
}

#[test]
fn the_padding_row_is_read_as_it_is() {
    let module = module(&config()); // its row 0 is not zero
    let expected = tokens(&module, &[(0, 0, Some(0)), (5, 0, Some(1))]);
    assert_close(&values(module.forward(&input([[0, 5]]))), &expected, F32);
}

#[test]
fn the_longest_sequence_fits_exactly() {
    let module = module(&config());
    let ids: Vec<i32> = (0..12).collect();
    let full = BertEmbeddingsInput::from_rows(&[ids], &Device::default()).unwrap();
    let expected: Vec<_> = (0..12).map(|i| (i, 0, Some(i))).collect();
    assert_close(&values(module.forward(&full)), &tokens(&module, &expected), F32);
}

#[test]
fn sixteen_bit_floats_take_their_statistics_in_f32() {
    // 1024 values of 300 and 0: their squares overflow f16, and bf16 cannot sum them.
    let device = Device::default();
    let mut module = BertEmbeddingsConfig::new()
        .with_vocab_size(1)
        .with_hidden_size(1024)
        .with_max_position_embeddings(1)
        .with_pad_token_id(None)
        .with_initializer(burn_bert::EmbeddingInitializer::Normal { std: 0.0 })
        .init(&device);
    let row: Vec<f32> = (0..1024).map(|i| if i % 4 == 0 { 300.0 } else { 0.0 }).collect();
    module.word_embeddings.weight = Param::from_data(TensorData::new(row, [1, 1024]), &device);
    let exact = values(module.forward(&input([[0]])));
    // Half a unit in the last place at the largest output, √3: 2⁻¹¹ for f16, 2⁻⁸ for bf16.
    for (dtype, absolute) in [(FloatDType::F16, 4.9e-4), (FloatDType::BF16, 3.9e-3)] {
        assert!(device.supports_dtype(dtype), "flex computes in {dtype:?}");
        let module = cast_module(module.clone(), dtype);
        let tolerance = crate::tolerance::Tolerance { absolute, relative: 0.0 };
        assert_close(&values(module.forward(&input([[0]]))), &exact, tolerance);
    }
}

#[test]
fn the_display_names_every_part() {
    let text = config().init(&Device::default()).to_string();
    for part in [
        "word_embeddings",
        "position_embeddings",
        "token_type_embeddings",
        "padding_idx: 0",
        "layer_norm",
        "dropout",
        "position_embedding_type: Absolute",
        "params: 222",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let table = config().init(&Device::default()).token_type_embeddings.unwrap().to_string();
    assert_eq!(table.lines().count(), 1, "{table}");
}
