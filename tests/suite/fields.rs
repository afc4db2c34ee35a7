//! A module's public fields, changed by the caller: what counts, and what is an error.

use crate::tolerance::values;
use burn::module::{Module, Param, Quantizer};
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::quantization::{Calibration, QuantScheme, QuantStore};
use burn::tensor::{DType, FloatDType};
use burn_bert::model::{
    BertForMaskedLm, BertForMaskedLmConfig, BertForQuestionAnswering, BertForQuestionAnsweringConfig,
    BertForSequenceClassification, BertForSequenceClassificationConfig, BertForTokenClassification,
    BertForTokenClassificationConfig, BertModelConfig, BertPooler, MaskedLmBatch, QuestionAnsweringBatch,
    SequenceClassificationBatch, TokenClassificationBatch,
};
use burn_bert::sparse::{RowGradients, RowSgdConfig};
use burn_bert::{
    BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, EmbeddingTable, Error, PositionEmbeddingType,
    TokenEmbeddingConfig, cast_module,
};

/// What a test does to a module.
type Change = fn(&mut BertEmbeddings);

fn device() -> Device {
    Device::default()
}

fn config() -> BertEmbeddingsConfig {
    BertEmbeddingsConfig::new()
        .with_vocab_size(10)
        .with_hidden_size(4)
        .with_max_position_embeddings(6)
        .with_hidden_dropout_prob(0.0)
}

fn roberta() -> BertEmbeddings {
    config()
        .with_pad_token_id(Some(1))
        .with_position_embedding_type(PositionEmbeddingType::AfterPadding)
        .init(&device())
}

fn input() -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_rows(&[[2, 3, 1]], &device()).unwrap()
}

fn embeds() -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_embeds(Tensor::ones([1, 3, 4], &device())).unwrap()
}

/// What ids, vectors and row-sparse training say about a module that is no layer.
fn errors(module: &BertEmbeddings) -> [Error; 3] {
    [
        module.try_forward(&input()).unwrap_err(),
        module.try_forward(&embeds()).unwrap_err(),
        module.touched_rows(&input()).unwrap_err(),
    ]
}

#[test]
fn a_table_or_layer_norm_of_another_width_is_named_with_both_shapes() {
    let changes: [(Change, &str); 5] = [
        (
            |module| module.token_type_embeddings = Some(TokenEmbeddingConfig::new(2, 5).init(&device())),
            "token_type_embeddings.weight has shape [2, 5], but expected [2, 4]",
        ),
        (
            |module| module.position_embeddings = Some(TokenEmbeddingConfig::new(6, 5).init(&device())),
            "position_embeddings.weight has shape [6, 5], but expected [6, 4]",
        ),
        (
            |module| module.layer_norm = config().with_hidden_size(5).init(&device()).layer_norm,
            "layer_norm.gamma has shape [5], but expected [4]",
        ),
        (
            |module| module.layer_norm.beta = Some(Param::from_tensor(Tensor::ones([5], &device()))),
            "layer_norm.beta has shape [5], but expected [4]",
        ),
        (
            |module| module.layer_norm.gamma = Param::from_tensor(Tensor::ones([1], &device())),
            "layer_norm.gamma has shape [1], but expected [4]",
        ),
    ];
    for (change, expected) in changes {
        let mut module = config().init(&device());
        change(&mut module);
        for error in errors(&module) {
            assert!(matches!(error, Error::ShapeMismatch { .. }), "{error}");
            assert!(error.to_string().starts_with(expected), "{error}");
        }
    }
}

#[test]
fn a_parameter_of_another_dtype_is_named_with_both_dtypes() {
    let changes: [(Change, &str); 4] = [
        (
            |module| {
                module.token_type_embeddings =
                    cast_module(module.token_type_embeddings.clone(), FloatDType::F64)
            },
            "token_type_embeddings.weight",
        ),
        (
            |module| {
                let table = module.position_embeddings.clone().unwrap();
                module.position_embeddings = Some(cast_module(table, FloatDType::F64));
            },
            "position_embeddings.weight",
        ),
        (
            |module| module.layer_norm = cast_module(module.layer_norm.clone(), FloatDType::F64),
            "layer_norm.gamma",
        ),
        (
            |module| {
                let beta = Tensor::<1>::zeros([4], (&device(), DType::F64));
                module.layer_norm.beta = Some(Param::from_tensor(beta));
            },
            "layer_norm.beta",
        ),
    ];
    for (change, name) in changes {
        let mut module = config().init(&device());
        change(&mut module);
        let error = module.try_forward(&input()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{name} is F64, but the module's tables are F32; cast one of them")
        );
        assert!(matches!(module.touched_rows(&input()).unwrap_err(), Error::DTypeMismatch { .. }));
    }
}

fn model() -> BertModelConfig {
    BertModelConfig::new(config())
        .with_num_hidden_layers(1)
        .with_num_attention_heads(2)
        .with_intermediate_size(4)
        .with_attention_probs_dropout_prob(0.0)
}

fn linear(inputs: usize, outputs: usize) -> Linear {
    LinearConfig::new(inputs, outputs).init(&device())
}

#[test]
fn a_head_that_does_not_fit_its_model_is_named() {
    let classes = SequenceClassificationBatch::single_label(input(), None, &[1]).unwrap();
    let tags = TokenClassificationBatch::new(input(), None, &[[0, -100, 1]]).unwrap();
    let words = MaskedLmBatch::new(input(), None, &[[0, 1]], &[7]).unwrap();
    let answers = QuestionAnsweringBatch::new(input(), None, &[[1, 2]]).unwrap();
    let sequences = |change: fn(&mut BertForSequenceClassification)| {
        let mut config = BertForSequenceClassificationConfig::new(model());
        config.bert.embeddings.position_embedding_type = PositionEmbeddingType::AfterPadding;
        let mut model = config.init(&device());
        change(&mut model);
        model.try_forward(&classes).unwrap_err().to_string()
    };
    let pooler = |change: fn(&mut BertPooler)| {
        let mut model = BertForSequenceClassificationConfig::new(model()).init(&device());
        change(model.bert.pooler.as_mut().unwrap());
        model.try_forward(&classes).unwrap_err().to_string()
    };
    let tokens = |change: fn(&mut BertForTokenClassification)| {
        let mut model = BertForTokenClassificationConfig::new(model()).init(&device());
        change(&mut model);
        model.try_forward(&tags).unwrap_err().to_string()
    };
    let questions = |change: fn(&mut BertForQuestionAnswering)| {
        let mut model = BertForQuestionAnsweringConfig::new(model()).init(&device());
        change(&mut model);
        model.try_forward(&answers).unwrap_err().to_string()
    };
    let masked = |change: fn(&mut BertForMaskedLm)| {
        let config = BertForMaskedLmConfig::new(model()).with_tie_word_embeddings(false);
        let mut model = config.init(&device());
        change(&mut model);
        model.try_forward(&words).unwrap_err().to_string()
    };
    let f64 = "is F64, but the module's tables are F32; cast one of them";
    let dropout = "invalid config: classifier_dropout is NaN, but must lie in [0, 1)";
    let beta = |length| Some(Param::from_tensor(Tensor::ones([length], &device())));
    for (found, expected) in [
        (
            sequences(|model| model.classifier.out_proj = linear(4, 3)),
            "classifier.out_proj has shape [4, 3], but expected [4, 2]".to_owned(),
        ),
        (
            sequences(|model| model.classifier.dense = Some(linear(5, 4))),
            "classifier.dense has shape [5, 4], but expected [4, 4]".to_owned(),
        ),
        (
            sequences(|model| {
                model.classifier.out_proj = cast_module(model.classifier.out_proj.clone(), FloatDType::F64)
            }),
            format!("classifier.out_proj {f64}"),
        ),
        (sequences(|model| model.classifier.dropout.prob = f64::NAN), dropout.to_owned()),
        (
            pooler(|pooler| pooler.dense = linear(4, 5)),
            "pooler.dense has shape [4, 5], but expected [4, 4]".to_owned(),
        ),
        (
            pooler(|pooler| pooler.dense.bias = linear(4, 5).bias),
            "pooler.dense has shape [5], but expected [4]".to_owned(),
        ),
        (
            tokens(|model| model.classifier = linear(5, 2)),
            "classifier has shape [5, 2], but expected [4, 2]".to_owned(),
        ),
        (tokens(|model| model.dropout.prob = f64::NAN), dropout.to_owned()),
        (
            questions(|model| model.qa_outputs = linear(4, 3)),
            "qa_outputs has shape [4, 3], but expected [4, 2]".to_owned(),
        ),
        (
            questions(|model| model.qa_outputs = cast_module(model.qa_outputs.clone(), FloatDType::F64)),
            format!("qa_outputs {f64}"),
        ),
        (
            masked(|model| model.head.transform = linear(4, 3)),
            "head.transform has shape [4, 3], but expected [4, 4]".to_owned(),
        ),
        (
            masked(|model| model.head.layer_norm = config().with_hidden_size(5).init(&device()).layer_norm),
            "head.layer_norm.gamma has shape [5], but expected [4]".to_owned(),
        ),
        (
            masked(|model| model.head.bias = cast_module(model.head.bias.clone(), FloatDType::F64)),
            format!("head.bias {f64}"),
        ),
        (
            masked(|model| model.head.decoder = Some(TokenEmbeddingConfig::new(10, 5).init(&device()))),
            "head.decoder has shape [10, 5], but expected [10, 4]".to_owned(),
        ),
        (
            masked(|model| model.head.decoder.as_mut().unwrap().padding_idx = Some(10)),
            "invalid config: padding_idx is 10, but num_embeddings is 10".to_owned(),
        ),
    ] {
        assert_eq!(found, expected);
    }
    let mut short = BertForMaskedLmConfig::new(model()).init(&device());
    short.head.layer_norm.beta = beta(5);
    let error = short.scores(Tensor::ones([1, 4], &device())).unwrap_err();
    assert_eq!(error.to_string(), "head.layer_norm.beta has shape [5], but expected [4]");
}

#[test]
fn vectors_of_another_dtype_are_refused_by_a_masked_lm_head() {
    let model = BertForMaskedLmConfig::new(model()).init(&device());
    let error = model.scores(Tensor::ones([1, 4], (&device(), DType::F64))).unwrap_err();
    assert_eq!(error.to_string(), "hidden is F64, but the module's tables are F32; cast one of them");
}

#[test]
fn a_layer_norm_in_f32_may_stand_over_tables_of_16_bits() {
    let mut module = cast_module(config().init(&device()), FloatDType::BF16);
    module.layer_norm = cast_module(module.layer_norm, FloatDType::F32);
    let output = module.try_forward(&input()).unwrap();
    assert_eq!(output.dtype(), DType::BF16);
}

#[test]
fn a_position_table_that_is_not_what_the_scheme_needs_is_an_error() {
    let mut without = config().init(&device());
    without.position_embeddings = None;
    let mut roberta_without = roberta();
    roberta_without.position_embeddings = None;
    let mut with = config().with_position_embedding_type(PositionEmbeddingType::RelativeKey).init(&device());
    with.position_embeddings = Some(TokenEmbeddingConfig::new(6, 4).init(&device()));
    for (module, expected) in [
        (&without, "position_embeddings is None, but Absolute positions are looked up in a table"),
        (
            &roberta_without,
            "position_embeddings is None, but AfterPadding positions are looked up in a table",
        ),
        (&with, "position_embeddings is a table, but RelativeKey positions have none"),
    ] {
        for error in errors(module) {
            assert_eq!(error.to_string(), format!("invalid config: {expected}"));
        }
    }
}

#[test]
fn the_padding_row_of_a_position_table_belongs_to_positions_after_padding_alone() {
    let mut roberta = roberta();
    roberta.position_embeddings.as_mut().unwrap().padding_idx = None;
    for error in errors(&roberta) {
        assert_eq!(
            error.to_string(),
            "invalid config: position_embeddings.padding_idx is None, but AfterPadding counts positions from it"
        );
    }
    let mut bert = config().init(&device());
    bert.position_embeddings.as_mut().unwrap().padding_idx = Some(0);
    for error in errors(&bert) {
        assert_eq!(
            error.to_string(),
            "invalid config: position_embeddings.padding_idx is Some(0), but only AfterPadding has a padding row there"
        );
    }
}

#[test]
fn a_module_whose_word_padding_was_removed_still_has_a_config_that_builds() {
    let mut module = roberta();
    module.word_embeddings.padding_idx = None;
    let config = module.config();
    assert_eq!(config.pad_token_id, Some(1), "positions are still counted from it");
    let rebuilt = config.try_init(&device()).unwrap().load_record(module.clone().into_record());
    assert_eq!(values(rebuilt.forward(&input())), values(module.forward(&input())));

    let mut bert = self::config().init(&device());
    bert.word_embeddings.padding_idx = None;
    assert_eq!(bert.config().pad_token_id, None);
}

#[test]
fn the_config_has_the_sizes_of_the_tables_that_are_there() {
    let mut module = config().init(&device());
    module.word_embeddings = TokenEmbeddingConfig::new(12, 4).init(&device());
    module.token_type_embeddings = Some(TokenEmbeddingConfig::new(3, 4).init(&device()));
    module.position_embeddings = Some(TokenEmbeddingConfig::new(7, 4).init(&device()));
    let found = module.config();
    assert_eq!((found.vocab_size, found.type_vocab_size, found.max_position_embeddings), (12, 3, 7));
}

#[test]
fn the_epsilon_of_the_layer_norm_field_counts() {
    for epsilon in [1e-12, 1e-5, 0.25, 3.0, 1.0 / 3.0] {
        let mut module = config().init(&device());
        module.layer_norm = config().with_layer_norm_eps(epsilon).init(&device()).layer_norm;
        assert_eq!(module.layer_norm.epsilon(), epsilon);
        assert_eq!(module.config().layer_norm_eps, epsilon);
        let input =
            BertEmbeddingsInput::from_embeds(Tensor::from_floats([[[1.0, 2.0, 4.0, 8.0]]], &device()))
                .unwrap();
        let zero = |rows| Param::from_tensor(Tensor::<2>::zeros([rows, 4], &device()));
        module.token_type_embeddings.as_mut().unwrap().weight = zero(2);
        module.position_embeddings.as_mut().unwrap().weight = zero(6);
        // mean 3.75, variance 7.1875
        let rstd = 1.0 / (7.1875 + epsilon).sqrt();
        for (found, x) in values(module.forward(&input)).into_iter().zip([1.0, 2.0, 4.0, 8.0]) {
            assert!((found - (x - 3.75) * rstd).abs() < 1e-6, "{found} with {epsilon}");
        }
    }
}

#[test]
fn an_epsilon_that_is_zero_in_the_dtype_of_the_statistics_is_refused() {
    // A constant row has the variance 0, and 0/0 is NaN.
    let error = config().with_layer_norm_eps(1e-300).try_init(&device()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid config: layer_norm_eps is 1e-300, but statistics are computed in F32, whose smallest normal number \
         is 1.2e-38"
    );
    let mut module = cast_module(config().with_layer_norm_eps(2e-38).init(&device()), FloatDType::F64);
    let constant = Tensor::<3>::zeros([1, 3, 4], (&device(), DType::F64));
    for table in
        [module.token_type_embeddings.as_mut().unwrap(), module.position_embeddings.as_mut().unwrap()]
    {
        let [rows, _] = table.weight.val().dims();
        table.weight = Param::from_tensor(Tensor::zeros([rows, 4], (&device(), DType::F64)));
    }
    let output = module.forward(&BertEmbeddingsInput::from_embeds(constant).unwrap());
    assert_eq!(values(output), [0.0; 12]);
}

fn quantized(module: BertEmbeddings) -> BertEmbeddings {
    let scheme = QuantScheme::default().with_store(QuantStore::Native);
    module.quantize_weights(&mut Quantizer::new(Calibration::MinMax, scheme))
}

#[test]
fn a_quantised_table_is_not_trained_row_by_row() {
    let device = Device::default().autodiff();
    let module = config().init(&device);
    let input = BertEmbeddingsInput::from_rows(&[[2, 3, 1]], &device).unwrap();
    let error = quantized(module.clone()).touched_rows(&input).unwrap_err();
    assert!(matches!(error, Error::NotRowSparse { table: EmbeddingTable::Word, .. }), "{error}");
    assert!(error.to_string().contains("quantised"), "{error}");

    // Quantised between the forward and the step.
    let rows = module.touched_rows(&input).unwrap();
    let mut gradients = rows.forward().powi_scalar(3).sum().backward();
    let gradients = RowGradients::from_grads(&mut gradients, rows, &module).unwrap();
    let mut module = quantized(module);
    let before = values(module.word_embeddings.weight.val().dequantize());
    let error = RowSgdConfig::new().init().step(0.1, &mut module, gradients).unwrap_err();
    assert!(matches!(error, Error::NotRowSparse { table: EmbeddingTable::Word, .. }), "{error}");
    assert_eq!(values(module.word_embeddings.weight.val().dequantize()), before);
}

#[test]
fn a_quantised_module_still_embeds() {
    assert_eq!(quantized(config().init(&device())).try_forward(&input()).unwrap().dims(), [1, 3, 4]);
}
