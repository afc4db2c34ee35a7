//! What `BertEmbeddings` computes, against values worked out by hand. `tests/backend` compares it with loops in f64.

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
fn vectors_take_the_place_of_the_word_table() {
    let module = module(&config());
    let ids = input([[5, 7, 0]]);
    let rows = module.word_embeddings.forward::<2, 3>(ids.input_ids().unwrap());
    let embeds = BertEmbeddingsInput::from_embeds(rows).unwrap();
    module.forward(&embeds).into_data().assert_eq(&module.forward(&ids).into_data(), true);
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
        let module = cast_module(module.clone(), dtype).unwrap();
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
