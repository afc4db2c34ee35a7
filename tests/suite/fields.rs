//! Parameters that do not fit the others, settings, and tables that were taken away.

use crate::prelude::*;
use burn::nn::{Linear, LinearConfig};

fn config() -> BertEmbeddingsConfig {
    small_layer().with_hidden_dropout_prob(0.0)
}

fn input() -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_rows(&[[2, 3, 1]], &device()).unwrap()
}

fn model() -> BertModelConfig {
    let mut bert = small_bert(10, 4).with_num_hidden_layers(2).with_intermediate_size(4);
    bert.embeddings = config();
    bert
}

fn linear(inputs: usize, outputs: usize) -> Linear {
    LinearConfig::new(inputs, outputs).init(&device())
}

fn table(rows: usize, columns: usize) -> TokenEmbedding {
    TokenEmbeddingConfig::new(rows, columns).init(&device())
}

fn ones(count: usize) -> Param<Tensor<1>> {
    Param::from_tensor(Tensor::ones([count], &device()))
}

/// Asserts that a save names the key of a parameter that was replaced by one of another shape, and that no value is computed
/// with it.
fn refuses<M: PretrainedModel>(mut model: M, expected: &str, change: impl Fn(&mut M), run: impl Fn(&M)) {
    change(&mut model);
    let dir = tempdir().unwrap();
    says(model.save_pretrained(dir.path()), expected);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{expected}");
    assert!(!panic_of(|| run(&model)).is_empty(), "{expected}");
}

#[test]
fn a_parameter_of_another_shape_is_named_by_its_key_in_a_save() {
    type Change = fn(&mut BertModel);
    let changes: [(&str, Change); 7] = [
        ("embeddings.token_type_embeddings.weight has shape [2, 5]", |model| {
            model.embeddings.token_type_embeddings = Some(table(2, 5))
        }),
        ("embeddings.LayerNorm.weight has shape [5]", |model| {
            model.embeddings.layer_norm = config().with_hidden_size(5).init(&device()).layer_norm
        }),
        ("embeddings.LayerNorm.bias has shape [1]", |model| {
            model.embeddings.layer_norm.as_mut().unwrap().beta = Some(ones(1))
        }),
        ("encoder.layer.1.attention.self.query.weight has shape [8, 8]", |model| {
            let mut wide = config().with_hidden_size(8);
            wide.position_embedding_type = PositionEmbeddingType::RelativeKey;
            let mut whole = self::model();
            whole.embeddings = wide;
            model.encoder.layers[1] = whole.init_encoder(&device()).unwrap().layers.remove(0);
        }),
        ("encoder.layer.1.output.dense.bias has shape [5]", |model| {
            model.encoder.layers[1].output.bias = linear(4, 5).bias
        }),
        ("encoder.layer.1.output.LayerNorm.weight has shape [1]", |model| {
            model.encoder.layers[1].output_layer_norm.gamma = ones(1)
        }),
        ("encoder.layer.1.attention.self.distance_embedding.weight has shape [11, 3]", |model| {
            let positions = model.encoder.layers[1].attention.relative_positions.as_mut().unwrap();
            positions.distance_embedding = table(11, 3);
        }),
    ];
    let mut relative = model();
    relative.embeddings.position_embedding_type = PositionEmbeddingType::RelativeKey;
    for (expected, change) in changes {
        refuses(relative.init(&device()), expected, change, |model| drop(model.forward(&input(), None)));
    }
}

#[test]
fn a_table_that_the_positions_need_or_do_not_have_is_named() {
    let needs = |table: &str, found: &str, positions: &str, needed: &str| {
        format!("invalid config: {table} is {found}, but bert with {positions} positions needs {needed}")
    };
    let mut relative = config();
    relative.position_embedding_type = PositionEmbeddingType::RelativeKey;
    let says = |module: BertEmbeddings, expected: String| {
        assert_eq!(module.try_forward(&input()).unwrap_err().to_string(), expected);
    };
    let mut module = relative.init(&device());
    module.token_type_embeddings = None;
    says(module, needs("token_type_embeddings", "None", "RelativeKey", "a table"));
    let mut module = relative.init(&device());
    module.position_embeddings = Some(table(6, 4));
    says(module, needs("position_embeddings", "a table", "RelativeKey", "None"));
    let mut module = config().init(&device());
    module.position_embeddings = None;
    says(module, needs("position_embeddings", "None", "Absolute", "a table"));
}

#[test]
fn an_encoder_of_another_dtype_than_its_embeddings_is_an_error() {
    let mut half = model().init(&device());
    half.encoder = cast_module(half.encoder, FloatDType::F64).unwrap();
    says(half.try_forward(&input(), None), "hidden is F32, but the module is F64; cast one of them");
}

#[cfg(all(feature = "flex", feature = "ndarray"))]
#[test]
fn an_encoder_on_another_device_than_its_embeddings_names_both() {
    let (here, there) = (crate::devices::flex(), crate::devices::ndarray());
    let input = BertEmbeddingsInput::from_rows(&[[2, 3, 1]], &here).unwrap();
    let mut half = model().init(&here);
    half.encoder = half.encoder.to_device(&there);
    let message = half.try_forward(&input, None).unwrap_err().to_string();
    let expected = "hidden is on Device<Flex(Cpu)>, but Device<NdArray(Cpu)> is needed";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn a_head_that_does_not_fit_its_model_is_named() {
    let sequences = |expected, change: fn(&mut BertForSequenceClassification)| {
        let mut config = BertForSequenceClassificationConfig::new(model());
        config.bert.embeddings.family = Family::Electra;
        refuses(config.init(&device()), expected, change, |model| drop(model.logits(&input(), None)));
    };
    sequences("classifier.dense.weight has shape [4, 5]", |model| {
        model.classifier.dense = Some(linear(5, 4))
    });
    refuses(
        BertForSequenceClassificationConfig::new(model()).init(&device()),
        "bert.pooler.dense.bias has shape [5]",
        |model| model.bert.pooler.as_mut().unwrap().dense.bias = linear(4, 5).bias,
        |model| drop(model.logits(&input(), None)),
    );
    let masked = |expected, change: fn(&mut BertForMaskedLm)| {
        let config = BertForMaskedLmConfig::new(model()).with_tie_word_embeddings(false);
        refuses(config.init(&device()), expected, change, |model| {
            drop(model.scores(Tensor::ones([1, 4], &device())))
        });
    };
    masked("cls.predictions.transform.dense.weight has shape [3, 4]", |model| {
        model.head.transform = Some(linear(4, 3))
    });
    masked("cls.predictions.decoder.weight has shape [10, 5]", |model| {
        model.head.decoder = Some(table(10, 5))
    });
    masked("cls.predictions.transform.LayerNorm.bias has shape [5]", |model| {
        model.head.layer_norm.as_mut().unwrap().beta = Some(ones(5))
    });
    // Outputs that are not one for each label would be computed.
    let mut sequences = BertForSequenceClassificationConfig::new(model()).init(&device());
    sequences.classifier.out_proj = linear(4, 3);
    let expected = "classifier.out_proj.weight has shape [4, 3], but expected [4, 2]";
    says(sequences.logits(&input(), None), expected);
    let mut tokens = BertForTokenClassificationConfig::new(model()).init(&device());
    tokens.classifier = linear(4, 3);
    says(tokens.logits(&input(), None), "classifier.weight has shape [4, 3], but expected [4, 2]");
}

#[test]
fn a_layer_norm_in_f32_may_stand_over_tables_of_16_bits() {
    let mut module = cast_module(config().init(&device()), FloatDType::BF16).unwrap();
    module.layer_norm = cast_module(module.layer_norm, FloatDType::F32).unwrap();
    let output = module.try_forward(&input()).unwrap();
    assert_eq!(output.dtype(), DType::BF16);
}

#[test]
fn the_config_is_that_of_the_tables_and_settings_that_are_there() {
    let mut module = config().init(&device());
    module.word_embeddings = table(12, 4);
    module.token_type_embeddings = Some(table(3, 4));
    module.position_embeddings = Some(table(7, 4));
    module.layer_norm = config().with_layer_norm_eps(0.25).init(&device()).layer_norm;
    module.set_dropout(0.5).unwrap();
    for invalid in [-0.1, 1.0, f64::NAN] {
        let error = module.set_dropout(invalid).unwrap_err().to_string();
        let expected = format!("invalid config: hidden_dropout_prob is {invalid}, but must lie in [0, 1)");
        assert_eq!(error, expected);
    }
    let expected = config()
        .with_vocab_size(12)
        .with_type_vocab_size(3)
        .with_max_position_embeddings(7)
        .with_layer_norm_eps(0.25)
        .with_hidden_dropout_prob(0.5);
    assert_eq!(module.config(), expected);
}
