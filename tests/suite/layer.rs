//! The embedding layer: inputs that are refused and those that are just right, which rows move in training, LoRA.
//! `tests/backend` compares it with Hugging Face's on every device, and has the errors of every device.

use crate::prelude::*;
use burn::optim::AdamWConfig;

const HIDDEN: usize = 8;

fn config() -> BertEmbeddingsConfig {
    BertEmbeddingsConfig::new()
        .with_vocab_size(20)
        .with_hidden_size(HIDDEN)
        .with_max_position_embeddings(12)
        .with_hidden_dropout_prob(0.0)
}

fn rows<const S: usize>(ids: &[[i64; S]]) -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_rows(ids, &device()).unwrap()
}

#[test]
fn explicit_positions_are_refused_where_positions_are_relative() {
    for scheme in [PositionEmbeddingType::RelativeKey, PositionEmbeddingType::RelativeKeyQuery] {
        let module = small_layer().with_position_embedding_type(scheme).init(&device());
        module.try_forward(&rows(&[[1, 2, 3]])).unwrap();
        let explicit = rows(&[[1, 2, 3]]).with_position_ids(&[[3, 4, 5]]).unwrap();
        let problem = format!("but {scheme:?} positions are distances between tokens; leave them out");
        says(module.try_forward(&explicit), &format!("position_ids are given, {problem}"));
    }
}

#[test]
fn positions_after_padding_must_fit_too() {
    let module = small_layer()
        .with_pad_token_id(Some(1))
        .with_position_embedding_type(PositionEmbeddingType::AfterPadding)
        .init(&device());
    // Positions start at 2 of 0..=5: four tokens fit, however much padding is between them.
    let fits = [[2, 1, 3, 1, 4, 1, 5, 1], [1; 8]];
    assert!(module.try_forward(&rows(&fits)).is_ok());
    let long = [[1, 1, 1, 1, 1], [2, 3, 4, 5, 6]];
    fails!(module.try_forward(&rows(&long)), Error::SequenceTooLong { needed: 6, rows: 6, .. });
    // All padding needs no position but the padding row, whatever the past.
    let padding = rows(&[[1, 1, 1]]).with_past_key_values_length(usize::MAX);
    assert!(module.try_forward(&padding).is_ok());
    let embeds = BertEmbeddingsInput::from_embeds(Tensor::zeros([1, 5, 4], &device())).unwrap();
    fails!(module.try_forward(&embeds), Error::SequenceTooLong { needed: 6, rows: 6, .. });
}

/// Beside that of the table of errors and that of `tests/backend`.
#[test]
fn an_empty_batch_is_refused() {
    let none: [[i32; 3]; 0] = [];
    let rows = [
        BertEmbeddingsInput::from_rows(&none, &device()).unwrap_err(),
        BertEmbeddingsInput::from_ids(Tensor::zeros([3, 0], &device())).unwrap_err(),
        BertEmbeddingsInput::from_embeds(Tensor::zeros([0, 3, 4], &device())).unwrap_err(),
        BertEmbeddingsInput::from_embeds(Tensor::zeros([1, 0, 4], &device())).unwrap_err(),
        TokenEmbeddingConfig::new(3, 2)
            .init(&device())
            .try_forward::<1, 2>(Tensor::zeros([0], &device()))
            .unwrap_err(),
    ];
    each(rows, |error| assert!(matches!(error, Error::Empty { .. }), "{error}"));
}

#[test]
fn ids_of_any_integer_type_are_taken_and_one_past_63_bits_is_an_error() {
    for input in [
        BertEmbeddingsInput::from_rows(&[[1u8, 2, 3]], &device()),
        BertEmbeddingsInput::from_rows(&[[1u32, 2, 3]], &device()),
        BertEmbeddingsInput::from_rows(&[vec![1usize, 2, 3]], &device()),
        BertEmbeddingsInput::from_rows(&[&[1i64, 2, 3][..]], &device()),
    ] {
        let ids = input.unwrap().input_ids().unwrap().into_data();
        assert_eq!(ids.iter::<i64>().collect::<Vec<_>>(), [1, 2, 3]);
    }
    let module = small_layer().init(&device());
    let ids = || {
        let data = TensorData::new(vec![1u64, 2, 3, u64::MAX], [2, 2]);
        Tensor::<2, Int>::from_data(data, (&device(), DType::U64))
    };
    let input = || rows(&[[1, 2], [3, 4]]);
    for (name, input) in [
        ("input_ids", BertEmbeddingsInput::from_ids(ids()).unwrap()),
        ("token_type_ids", input().with_token_type_ids(ids()).unwrap()),
        ("position_ids", input().with_position_ids(ids()).unwrap()),
    ] {
        let error = fails!(module.try_forward(&input), Error::IdOverflow { .. });
        assert!(error.to_string().starts_with(&format!("{name}[1][1] does not fit")), "{error}");
    }
    let error = BertEmbeddingsInput::from_rows(&[[u64::MAX]], &device()).unwrap_err();
    assert!(error.to_string().starts_with("input_ids[0][0] does not fit"), "{error}");
    let error = module.word_embeddings.try_forward::<2, 3>(ids()).unwrap_err();
    assert!(error.to_string().starts_with("ids[1][1] does not fit"), "{error}");
}

/// Of ids, the fixtures have such chunks.
#[test]
fn chunks_of_vectors_with_past_equal_one_call() {
    let absolute = config();
    let after_padding =
        config().with_pad_token_id(Some(1)).with_position_embedding_type(PositionEmbeddingType::AfterPadding);
    for config in [absolute, after_padding] {
        let initializer = EmbeddingInitializer::Normal { std: 1.0 };
        let module = config.with_initializer(initializer).init(&device());
        let embeds = Tensor::random([1, 5, HIDDEN], Distribution::Normal(0.0, 1.0), &device());
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
fn sixteen_bit_floats_take_their_statistics_in_f32() {
    // 1024 values of 300 and 0: their squares overflow f16, and bf16 cannot sum them.
    let device = device();
    let mut module = BertEmbeddingsConfig::new()
        .with_vocab_size(1)
        .with_hidden_size(1024)
        .with_max_position_embeddings(1)
        .with_pad_token_id(None)
        .with_initializer(EmbeddingInitializer::Normal { std: 0.0 })
        .init(&device);
    let row: Vec<f32> = (0..1024).map(|i| if i % 4 == 0 { 300.0 } else { 0.0 }).collect();
    module.word_embeddings.weight = Param::from_data(TensorData::new(row, [1, 1024]), &device);
    let exact = values(module.forward(&rows(&[[0]])));
    // Half a unit in the last place at the largest output, √3: 2⁻¹¹ for f16, 2⁻⁸ for bf16.
    for (dtype, absolute) in [(FloatDType::F16, 4.9e-4), (FloatDType::BF16, 3.9e-3)] {
        assert!(device.supports_dtype(dtype), "flex computes in {dtype:?}");
        let module = cast_module(module.clone(), dtype).unwrap();
        let tolerance = Tolerance { absolute, relative: 0.0 };
        assert_close(&values(module.forward(&rows(&[[0]]))), &exact, tolerance);
    }
}

#[test]
fn the_display_names_every_part() {
    let text = config().init(&device()).to_string();
    let parts = "word_embeddings,position_embeddings,token_type_embeddings,padding_idx: 0,layer_norm,dropout,\
                 position_embedding_type: Absolute,params: 288";
    for part in parts.split(',') {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let table = config().init(&device()).token_type_embeddings.unwrap().to_string();
    assert_eq!(table.lines().count(), 1, "{table}");
}

/// Two sequences of five tokens, some of them padding: positions 5..12 are never used.
fn input() -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_rows(&[[4, 5, 6, 0, 0], [9, 8, 7, 6, 0]], &autodiff()).unwrap()
}

#[test]
fn lora_on_the_word_embeddings_trains_its_factors_and_keeps_the_padding_row() {
    let module = config().init(&autodiff());
    let plain = values(module.forward(&input()));
    let base = values(module.word_embeddings.weight.val());
    let words = ParamGroup::from_predicate("word_embeddings.weight");
    let mut module = module.apply_lora(Lora::new(2, 2.0).set_param_group(words));
    assert_close(&values(module.forward(&input())), &plain, F32);

    // Weights of the loss, so that no gradient vanishes by symmetry.
    let weights = Tensor::<3>::random([2, 5, HIDDEN], Distribution::Normal(0.0, 1.0), &autodiff());
    let (mut optimizer, mut losses) = (AdamWConfig::new().init(), Vec::new());
    for _ in 0..20 {
        let loss = (module.forward(&input()) * weights.clone()).mean();
        losses.extend(values(loss.clone()));
        let gradients = GradientsParams::from_grads(loss.backward(), &module);
        module = optimizer.step(1e-2, module, gradients);
    }
    assert!(losses[19] < losses[0], "the loss falls: {losses:?}");
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
