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

fn to_f64<M: Module>(part: &mut M) {
    *part = cast_module(part.clone(), FloatDType::F64).unwrap();
}

#[test]
fn a_parameter_of_another_shape_or_dtype_is_named_with_both() {
    type Change = fn(&mut BertModel);
    let f64 = |name: &str, reference: &str| {
        format!("{name} is F64, but {reference} is F32; cast the whole model with cast_module")
    };
    let shape = |name: &str, found: &[usize], expected: &[usize]| {
        format!("{name} has shape {found:?}, but expected {expected:?}")
    };
    let needs = |table: &str, found: &str, positions: &str, needed: &str| {
        format!("invalid config: {table} is {found}, but bert with {positions} positions needs {needed}")
    };
    let words = "word_embeddings.weight";
    let query = "layers[1].attention.query.weight";
    let positions = "layers[1].attention.relative_positions.distance_embedding.weight";
    let changes: [(String, Change); 12] = [
        (shape("token_type_embeddings.weight", &[2, 5], &[2, 4]), |model| {
            model.embeddings.token_type_embeddings = Some(table(2, 5))
        }),
        (shape("layer_norm.gamma", &[5], &[4]), |model| {
            model.embeddings.layer_norm = config().with_hidden_size(5).init(&device()).layer_norm
        }),
        (shape("layer_norm.beta", &[1], &[4]), |model| {
            model.embeddings.layer_norm.as_mut().unwrap().beta = Some(ones(1))
        }),
        (f64("token_type_embeddings.weight", words), |model| {
            to_f64(model.embeddings.token_type_embeddings.as_mut().unwrap())
        }),
        (f64("layer_norm.gamma", words), |model| to_f64(model.embeddings.layer_norm.as_mut().unwrap())),
        (shape(query, &[8, 8], &[4, 4]), |model| {
            let mut wide = config().with_hidden_size(8);
            wide.position_embedding_type = PositionEmbeddingType::RelativeKey;
            let mut whole = self::model();
            whole.embeddings = wide;
            model.encoder.layers[1] = whole.init_encoder(&device()).unwrap().layers.remove(0);
        }),
        (shape("layers[1].output.bias", &[5], &[4]), |model| {
            model.encoder.layers[1].output.bias = linear(4, 5).bias
        }),
        (shape("layers[1].output_layer_norm.gamma", &[1], &[4]), |model| {
            model.encoder.layers[1].output_layer_norm.gamma = ones(1)
        }),
        (shape(positions, &[11, 3], &[11, 2]), |model| {
            let positions = model.encoder.layers[1].attention.relative_positions.as_mut().unwrap();
            positions.distance_embedding = table(11, 3);
        }),
        (f64(query, "hidden"), |model| to_f64(&mut model.encoder.layers[1])),
        (needs("token_type_embeddings", "None", "RelativeKey", "a table"), |model| {
            model.embeddings.token_type_embeddings = None
        }),
        (needs("position_embeddings", "a table", "RelativeKey", "None"), |model| {
            model.embeddings.position_embeddings = Some(table(6, 4))
        }),
    ];
    let mut relative = model();
    relative.embeddings.position_embedding_type = PositionEmbeddingType::RelativeKey;
    for (expected, change) in changes {
        let mut model = relative.init(&device());
        change(&mut model);
        assert_eq!(model.try_forward(&input(), None).unwrap_err().to_string(), expected);
        assert_eq!(model.forward_all(&input(), None).unwrap_err().to_string(), expected);
    }
    let mut absolute = config().init(&device());
    absolute.position_embeddings = None;
    let expected = needs("position_embeddings", "None", "Absolute", "a table");
    assert_eq!(absolute.try_forward(&input()).unwrap_err().to_string(), expected);
}

#[cfg(all(feature = "flex", feature = "ndarray"))]
#[test]
fn a_half_moved_model_names_the_parameter_and_both_devices() {
    type Move = fn(&mut BertModel, &Device);
    let moves: [(&str, Move); 4] = [
        ("layers[0].attention.query.weight", |model, there| {
            model.encoder = model.encoder.clone().to_device(there)
        }),
        ("layers[1].output.weight", |model, there| {
            model.encoder.layers[1].output = model.encoder.layers[1].output.clone().to_device(there)
        }),
        ("layer_norm.gamma", |model, there| {
            model.embeddings.layer_norm = model.embeddings.layer_norm.clone().to_device(there)
        }),
        ("pooler.dense.weight", |model, there| {
            model.pooler = model.pooler.take().map(|pooler| pooler.to_device(there))
        }),
    ];
    let (here, there) = (crate::devices::flex(), crate::devices::ndarray());
    let input = BertEmbeddingsInput::from_rows(&[[2, 3, 1]], &here).unwrap();
    for (name, change) in moves {
        let mut half = model().init(&here);
        change(&mut half, &there);
        let message = half.try_forward(&input, None).unwrap_err().to_string();
        let devices = ["Device<NdArray(Cpu)>", "Device<Flex(Cpu)>"];
        assert!(message.starts_with(name) && devices.iter().all(|d| message.contains(d)), "{message}");
    }
}

#[test]
fn a_head_that_does_not_fit_its_model_is_named() {
    /// Asserts what the error of a model is after a change.
    fn check<M>(mut model: M, expected: &str, change: fn(&mut M), run: impl Fn(&M) -> Option<Error>) {
        change(&mut model);
        assert_eq!(run(&model).unwrap().to_string(), expected);
    }
    let sequences = |expected, change| {
        let mut config = BertForSequenceClassificationConfig::new(model());
        config.bert.embeddings.position_embedding_type = PositionEmbeddingType::AfterPadding;
        check(config.init(&device()), expected, change, |model| model.logits(&input(), None).err())
    };
    let tokens = |expected, change| {
        let model = BertForTokenClassificationConfig::new(model()).init(&device());
        check(model, expected, change, |model| model.logits(&input(), None).err())
    };
    let questions = |expected, change| {
        let model = BertForQuestionAnsweringConfig::new(model()).init(&device());
        check(model, expected, change, |model| model.logits(&input(), None).err())
    };
    let masked = |expected, change| {
        let config = BertForMaskedLmConfig::new(model()).with_tie_word_embeddings(false);
        check(config.init(&device()), expected, change, |model| {
            model.scores(Tensor::ones([1, 4], &device())).err()
        })
    };
    sequences("classifier.out_proj.weight has shape [4, 3], but expected [4, 2]", |model| {
        model.classifier.out_proj = linear(4, 3)
    });
    sequences("classifier.dense.weight has shape [5, 4], but expected [4, 4]", |model| {
        model.classifier.dense = Some(linear(5, 4))
    });
    sequences("pooler.dense.bias has shape [5], but expected [4]", |model| {
        model.bert.pooler.as_mut().unwrap().dense.bias = linear(4, 5).bias
    });
    tokens("classifier.weight has shape [5, 2], but expected [4, 2]", |model| {
        model.classifier = linear(5, 2)
    });
    questions(
        "qa_outputs.weight is F64, but word_embeddings.weight is F32; cast the whole model with cast_module",
        |model| to_f64(&mut model.qa_outputs),
    );
    masked("head.transform.weight has shape [4, 3], but expected [4, 4]", |model| {
        model.head.transform = Some(linear(4, 3))
    });
    masked(
        "head.bias is F64, but word_embeddings.weight is F32; cast the whole model with cast_module",
        |model| to_f64(model.head.bias.as_mut().unwrap()),
    );
    masked("head.decoder.weight has shape [10, 5], but expected [10, 4]", |model| {
        model.head.decoder = Some(table(10, 5))
    });
    masked("head.layer_norm.beta has shape [5], but expected [4]", |model| {
        model.head.layer_norm.as_mut().unwrap().beta = Some(ones(5))
    });
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
