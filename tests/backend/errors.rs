//! What is wrong with an input is said in the same words on every device.

use crate::case::*;
use crate::devices;
use crate::refusals::{fails, panic_of};
use crate::small_bert::small_bert;
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::model::*;
use burn_bert::{BertEmbeddingsInput, Error, PositionEmbeddingType, TokenEmbeddingConfig, cast_module};

const IDS: [[i32; 3]; 2] = [[1, 2, 3], [4, 5, 0]];

/// Ids that lie on the device and were never seen by the host.
fn tensor<const S: usize>(ids: [[i32; S]; 2], device: &Device) -> Tensor<2, Int> {
    Tensor::from_ints(ids, device)
}

pub fn an_id_without_a_row_is_named_with_its_place(case: &Case) {
    let module = module(&config(), &case.device);
    let host = |ids: [[i32; 3]; 2]| BertEmbeddingsInput::from_rows(&ids, &case.device).unwrap();
    let word = "there are 12 word embeddings (valid ids: 0..=11); \
                is this the tokenizer that the model was made with?";
    let token_type = "there are 3 token type embeddings (valid ids: 0..=2); \
                      type_vocab_size is the number of segment kinds";
    let position = "there are 20 position embeddings (valid ids: 0..=19); \
                    shorten the sequence or extend max_position_embeddings";
    for (name, id, table) in [
        ("input_ids", 12, word),
        ("input_ids", -1, word),
        ("input_ids", -100, word),
        ("token_type_ids", 3, token_type),
        ("token_type_ids", -1, token_type),
        ("position_ids", 20, position),
        ("position_ids", -1, position),
    ] {
        let ids = [[1, 1, 1], [1, id, 1]];
        let there = tensor(ids, &case.device);
        let inputs = match name {
            "input_ids" => [Ok(host(ids)), BertEmbeddingsInput::from_ids(there)],
            "token_type_ids" => [host(IDS).with_token_type_ids(&ids), host(IDS).with_token_type_ids(there)],
            _ => [host(IDS).with_position_ids(&ids), host(IDS).with_position_ids(there)],
        };
        for input in inputs.map(Result::unwrap) {
            for input in [input.clone(), input.to_device(&case.device)] {
                let message = format!("{name}[1][1] is {id}, but {table}");
                assert_eq!(module.try_forward(&input).unwrap_err().to_string(), message);
                assert_eq!(panic_of(|| module.forward(&input)), message);
            }
        }
    }
    let _held = hold_random_numbers();
    let table = TokenEmbeddingConfig::new(5, 2).init(&case.device);
    let ids = Tensor::<3, Int>::from_ints([[[0, 1], [2, 3]], [[4, 5], [0, 0]]], &case.device);
    assert_eq!(
        table.try_forward::<3, 4>(ids).unwrap_err().to_string(),
        "ids[1][0][1] is 5, but there are 5 embeddings (valid ids: 0..=4); num_embeddings must exceed the largest id"
    );
}

pub fn a_sequence_past_the_position_table_is_an_error(case: &Case) {
    let input =
        |past| BertEmbeddingsInput::from_rows(&IDS, &case.device).unwrap().with_past_key_values_length(past);
    let absolute = module(&config(), &case.device);
    assert!(absolute.try_forward(&input(17)).is_ok());
    assert_eq!(
        absolute.try_forward(&input(18)).unwrap_err().to_string(),
        "the sequence needs position 20 (3 tokens from position 18 on), but there are 20 position embeddings \
         (valid ids: 0..=19); shorten the sequence or extend max_position_embeddings"
    );
    fails!(absolute.try_forward(&input(usize::MAX)), Error::SequenceTooLong { .. });
    let after = config().with_position_embedding_type(PositionEmbeddingType::AfterPadding);
    let after = module(&after, &case.device);
    assert!(after.try_forward(&input(16)).is_ok());
    fails!(after.try_forward(&input(17)), Error::SequenceTooLong { needed: 20, rows: 20, .. });
}

pub fn shapes_that_do_not_fit_are_errors(case: &Case) {
    let device = &case.device;
    let input = || BertEmbeddingsInput::from_rows(&IDS, device).unwrap();
    let zeros = |shape: [usize; 2]| Tensor::<2, Int>::zeros(shape, device);
    for (name, error) in [
        ("token_type_ids", input().with_token_type_ids(zeros([2, 2])).unwrap_err()),
        ("token_type_ids", input().with_token_type_ids(zeros([1, 3])).unwrap_err()),
        ("token_type_ids", input().with_token_type_ids(&[[0; 3]]).unwrap_err()),
        ("token_type_ids", input().with_token_type_ids(&[[0; 2]; 2]).unwrap_err()),
        ("position_ids", input().with_position_ids(zeros([2, 2])).unwrap_err()),
        ("position_ids", input().with_position_ids(zeros([3, 3])).unwrap_err()),
        ("position_ids", input().with_position_ids(&[[0; 3]; 3]).unwrap_err()),
        ("position_ids", input().with_position_ids(&[[0; 2]]).unwrap_err()),
    ] {
        assert!(matches!(error, Error::ShapeMismatch { input, .. } if input == name), "{error}");
    }
    let embeds = BertEmbeddingsInput::from_embeds(Tensor::zeros([2, 3, 7], device)).unwrap();
    let error = module(&config(), device).try_forward(&embeds).unwrap_err();
    assert_eq!(error.to_string(), "inputs_embeds has shape [2, 3, 7], but expected [B, S, 8]");
    fails!(BertEmbeddingsInput::from_ids(Tensor::zeros([0, 3], device)), Error::Empty { .. });
}

pub fn a_batch_on_another_device_is_an_error(case: &Case) {
    let _held = hold_random_numbers();
    let module = module(&config(), &case.device);
    let table = TokenEmbeddingConfig::new(5, 2).init(&case.device);
    let here = || BertEmbeddingsInput::from_rows(&IDS, &case.device).unwrap();
    for other in devices::others(&case.device) {
        let there = BertEmbeddingsInput::from_rows(&IDS, &other).unwrap();
        let embeds = BertEmbeddingsInput::from_embeds(Tensor::ones([2, 3, 8], &other)).unwrap();
        let ids = || tensor(IDS, &other);
        for (input, error) in [
            ("input_ids", module.try_forward(&there).unwrap_err()),
            ("input_ids", module.try_forward(&there.clone().unchecked_ids()).unwrap_err()),
            ("inputs_embeds", module.try_forward(&embeds).unwrap_err()),
            ("token_type_ids", here().with_token_type_ids(ids()).unwrap_err()),
            ("position_ids", here().with_position_ids(ids()).unwrap_err()),
            ("ids", table.try_forward::<2, 3>(ids()).unwrap_err()),
        ] {
            let text = format!(
                "{input} is on {other:?}, but {:?} is needed; move it there with to_device",
                case.device
            );
            assert!(matches!(error, Error::DeviceMismatch { .. }), "{error}");
            assert_eq!(error.to_string(), text);
        }
    }
}

pub fn labels_of_an_input_that_was_replaced_are_refused(case: &Case) {
    let _held = hold_random_numbers();
    let device = &case.device;
    let input = || BertEmbeddingsInput::from_rows(&IDS, device).unwrap();
    let mut sequences = [
        SequenceClassificationBatch::single_label(input(), None, &[1, 0]).unwrap(),
        SequenceClassificationBatch::multi_label(input(), None, &[[1.0, 0.0]; 2]).unwrap(),
        SequenceClassificationBatch::regression(input(), None, &[[1.0, 0.0]; 2]).unwrap(),
    ];
    let mut tokens = TokenClassificationBatch::new(input(), None, &[[0, 1, 0]; 2]).unwrap();
    let mut words = MaskedLmBatch::new(input(), None, &[[0, 1]], &[3]).unwrap();
    let mut refused = |other: BertEmbeddingsInput, device: &Device| -> Vec<Error> {
        let inputs = sequences.iter_mut().map(|batch| &mut batch.input);
        inputs.chain([&mut tokens.input, &mut words.input]).for_each(|input| *input = other.clone());
        // The models are where the new input is, so that the labels alone are elsewhere.
        let of_sequences = BertForSequenceClassificationConfig::new(small_bert(20, 8)).init(device);
        let of_tokens = BertForTokenClassificationConfig::new(small_bert(20, 8)).init(device);
        let masked_lm = BertForMaskedLmConfig::new(small_bert(20, 8)).init(device);
        let errors = sequences.iter().map(|batch| of_sequences.try_forward(batch).map(drop).unwrap_err());
        errors
            .chain([
                of_tokens.try_forward(&tokens).map(drop).unwrap_err(),
                masked_lm.try_forward(&words).map(drop).unwrap_err(),
            ])
            .collect()
    };
    for error in refused(BertEmbeddingsInput::from_rows(&IDS[..1], device).unwrap(), device) {
        assert!(matches!(error, Error::ShapeMismatch { input: "labels", .. }), "{error}");
    }
    for other in devices::all().into_iter().filter(|other| other != device) {
        for error in refused(input().to_device(&other), &other) {
            assert!(matches!(error, Error::DeviceMismatch { input: "labels", .. }), "{error}");
        }
    }
}

pub fn autodiff_makes_no_other_device(case: &Case) {
    let _held = hold_random_numbers();
    for (ours, theirs) in [(case.device.clone(), case.autodiff()), (case.autodiff(), case.device.clone())] {
        let module = module(&config(), &ours);
        let types = tensor([[0, 1, 2], [0, 0, 1]], &ours);
        let input = BertEmbeddingsInput::from_rows(&IDS, &theirs).unwrap();
        let input = input.with_token_type_ids(types.clone()).unwrap().with_position_ids(types).unwrap();
        assert!(module.try_forward(&input).is_ok());
        let embeds = BertEmbeddingsInput::from_embeds(Tensor::ones([2, 3, 8], &theirs)).unwrap();
        assert!(module.try_forward(&embeds).is_ok());
        let table = TokenEmbeddingConfig::new(6, 2).init(&ours);
        assert!(table.try_forward::<2, 3>(tensor(IDS, &theirs)).is_ok());
    }
}

pub fn an_id_that_is_not_checked_takes_the_nearest_row_of_a_table_of_its_own(case: &Case) {
    let _held = hold_random_numbers();
    let device = case.autodiff();
    let table = TokenEmbeddingConfig::new(5, 2).with_padding_idx(Some(1)).init(&device);
    let look_up = |ids: [i32; 4]| {
        let rows = table.forward_unchecked::<1, 2>(Tensor::from_ints(ids, &device));
        let gradients = rows.clone().powi_scalar(2).sum().backward();
        (host(rows), host(table.weight.grad(&gradients).unwrap()))
    };
    assert_eq!(look_up([i32::MIN, -1, 5, i32::MAX]), look_up([0, 0, 4, 4]));
}

pub fn a_dtype_that_the_device_does_not_compute_in_is_refused_by_name(case: &Case) {
    for dtype in [FloatDType::F64, FloatDType::F32, FloatDType::F16, FloatDType::BF16] {
        let module = module(&config(), &case.device);
        let cast = cast_module(module, dtype);
        if case.device.supports_dtype(dtype) {
            let input = BertEmbeddingsInput::from_rows(&IDS, &case.device).unwrap();
            let output = host(cast.unwrap().forward(&input));
            assert!(output.iter().all(|value| value.is_finite()), "{dtype:?}: {output:?}");
            continue;
        }
        let message = cast.expect_err("a module that nothing computes").to_string();
        assert!(message.contains(&format!("does not compute in {dtype:?}")), "{message}");
    }
}
