//! `BertEmbeddingsConfig`: defaults, presets, JSON, and what it refuses.

use burn::config::Config;
use burn::module::{Module, ModuleVisitor, Param};
use burn::prelude::*;
use burn_bert::data::MaskedLmCollatorConfig;
use burn_bert::model::{BertForMaskedLmConfig, BertModelConfig};
use burn_bert::{
    BertEmbeddingsConfig, EmbeddingInitializer, Error, PositionEmbeddingType, TokenEmbeddingConfig,
};

fn tiny() -> BertEmbeddingsConfig {
    BertEmbeddingsConfig::new().with_vocab_size(10).with_hidden_size(4).with_max_position_embeddings(6)
}

#[test]
fn defaults_are_bert_base_uncased() {
    let config = BertEmbeddingsConfig::new();
    assert_eq!(config.vocab_size, 30522);
    assert_eq!(config.hidden_size, 768);
    assert_eq!(config.max_position_embeddings, 512);
    assert_eq!(config.type_vocab_size, 2);
    assert_eq!(config.pad_token_id, Some(0));
    assert_eq!(config.layer_norm_eps, 1e-12);
    assert_eq!(config.hidden_dropout_prob, 0.1);
    assert_eq!(config.initializer, EmbeddingInitializer::Normal { std: 0.02 });
    assert_eq!(config.position_embedding_type, PositionEmbeddingType::Absolute);
    assert_eq!(config, BertEmbeddingsConfig::bert_base_uncased());
    assert_eq!(config, BertEmbeddingsConfig::default());
}

#[test]
fn presets_have_the_parameter_counts_of_their_checkpoints() {
    for (config, expected) in [
        (BertEmbeddingsConfig::bert_base_uncased(), 23_837_184),
        (BertEmbeddingsConfig::bert_base_chinese(), 16_622_592),
        (BertEmbeddingsConfig::bert_large_uncased(), 31_782_912),
        (BertEmbeddingsConfig::roberta_base(), 39_000_576),
        (BertEmbeddingsConfig::distilbert_base_uncased(), 23_835_648),
        (BertEmbeddingsConfig::electra_small(), 3_972_864),
        (BertEmbeddingsConfig::electra_base(), 23_837_184),
        (BertEmbeddingsConfig::mpnet_base(), 23_841_024),
        (BertEmbeddingsConfig::albert_base_v2(), 3_906_048),
    ] {
        assert_eq!(config.num_params(), expected);
        assert_eq!(config.init(&Device::default()).num_params(), expected);
    }
}

#[test]
fn relative_positions_allocate_no_table() {
    for scheme in [PositionEmbeddingType::RelativeKey, PositionEmbeddingType::RelativeKeyQuery] {
        let config = tiny().with_position_embedding_type(scheme);
        let module = config.init(&Device::default());
        assert!(module.position_embeddings.is_none());
        assert_eq!(module.num_params(), (10 + 2 + 2) * 4);
        assert_eq!(config.num_params(), module.num_params());
    }
}

#[test]
fn every_config_survives_json() {
    let embeddings = tiny()
        .with_pad_token_id(None)
        .with_initializer(EmbeddingInitializer::TruncatedNormal { std: 0.02, bound: 2.0 })
        .with_position_embedding_type(PositionEmbeddingType::RelativeKeyQuery);
    let table = TokenEmbeddingConfig::new(7, 3).with_padding_idx(Some(2));
    let model =
        BertForMaskedLmConfig::new(BertModelConfig::new(embeddings.clone()).with_num_hidden_layers(3));
    let collator = MaskedLmCollatorConfig::new(10, 4, 0, vec![0, 1]).with_mlm_probability(0.3);

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.json");
    embeddings.save(&file).unwrap();
    assert_eq!(BertEmbeddingsConfig::load(&file).unwrap(), embeddings);
    table.save(&file).unwrap();
    assert_eq!(TokenEmbeddingConfig::load(&file).unwrap(), table);
    model.save(&file).unwrap();
    assert_eq!(BertForMaskedLmConfig::load(&file).unwrap(), model);
    collator.save(&file).unwrap();
    assert_eq!(MaskedLmCollatorConfig::load(&file).unwrap(), collator);
}

#[test]
fn an_invalid_config_names_the_field() {
    use PositionEmbeddingType::AfterPadding;
    let normal = |std| EmbeddingInitializer::Normal { std };
    let truncated = |bound| EmbeddingInitializer::TruncatedNormal { std: 0.02, bound };
    let cases = [
        ("hidden_size", tiny().with_hidden_size(0)),
        ("vocab_size", tiny().with_vocab_size(0)),
        ("vocab_size", tiny().with_vocab_size(usize::MAX)),
        ("max_position_embeddings", tiny().with_max_position_embeddings(0)),
        ("type_vocab_size", tiny().with_type_vocab_size(0)),
        ("pad_token_id", tiny().with_pad_token_id(Some(10))),
        ("layer_norm_eps", tiny().with_layer_norm_eps(0.0)),
        ("layer_norm_eps", tiny().with_layer_norm_eps(-1e-12)),
        ("layer_norm_eps", tiny().with_layer_norm_eps(f64::NAN)),
        ("layer_norm_eps", tiny().with_layer_norm_eps(1e-300)), // 0 in f32, in which statistics are computed
        ("layer_norm_eps", tiny().with_layer_norm_eps(f64::INFINITY)),
        ("hidden_dropout_prob", tiny().with_hidden_dropout_prob(1.0)),
        ("hidden_dropout_prob", tiny().with_hidden_dropout_prob(-0.1)),
        ("hidden_dropout_prob", tiny().with_hidden_dropout_prob(f64::NAN)),
        ("initializer", tiny().with_initializer(normal(f64::NAN))),
        ("initializer", tiny().with_initializer(normal(f64::INFINITY))),
        ("initializer", tiny().with_initializer(normal(-0.02))),
        ("initializer", tiny().with_initializer(truncated(0.0))),
        ("initializer", tiny().with_initializer(truncated(f64::NAN))),
        ("initializer", tiny().with_initializer(truncated(5.5))),
        ("pad_token_id", tiny().with_pad_token_id(None).with_position_embedding_type(AfterPadding)),
        (
            "max_position_embeddings",
            tiny().with_pad_token_id(Some(5)).with_position_embedding_type(AfterPadding),
        ),
    ];
    for (field, config) in cases {
        let error = config.try_init(&Device::default()).unwrap_err();
        assert!(
            matches!(&error, Error::Config { field: found, .. } if *found == field),
            "expected {field}, found: {error}"
        );
        assert!(error.to_string().contains(field), "{error}");
    }
}

#[test]
fn sizes_that_no_machine_holds_are_refused_before_anything_is_built() {
    let model = || BertModelConfig::new(tiny()).with_num_attention_heads(2);
    let wide = |hidden| BertModelConfig::new(tiny().with_hidden_size(hidden)).with_num_attention_heads(2);
    let albert = BertModelConfig::new(BertEmbeddingsConfig::albert_base_v2());
    let relative = tiny().with_position_embedding_type(PositionEmbeddingType::RelativeKey);
    let most_rows = i32::MAX as usize;
    for (field, config, problem) in [
        ("hidden_size", wide(1 << 33), "is 8589934592, but must be at most 1048576"),
        (
            "vocab_size",
            BertModelConfig::new(tiny().with_vocab_size(most_rows + 1)),
            "is 2147483648, but must be",
        ),
        (
            "vocab_size",
            BertModelConfig::new(tiny().with_vocab_size(most_rows).with_hidden_size(1 << 10)),
            "makes 2199023264768 parameters with the other sizes, but at most 1099511627776 are built",
        ),
        (
            "num_hidden_layers",
            model().with_num_hidden_layers(1 << 50),
            "is 1125899906842624, but must be at most",
        ),
        (
            "num_hidden_layers",
            albert.with_num_hidden_layers(1 << 53),
            "is 9007199254740992, but must be at most 4096",
        ),
        (
            "intermediate_size",
            model().with_intermediate_size(1 << 21),
            "is 2097152, but must be at most 1048576",
        ),
        ("hidden_size", wide(1 << 20).with_num_hidden_layers(1), "parameters with the other sizes"),
        (
            "max_position_embeddings",
            BertModelConfig::new(relative.with_max_position_embeddings(1 << 63)).with_num_attention_heads(2),
            "but must be at most 1073741823",
        ),
    ] {
        let error = config.try_init(&Device::default()).unwrap_err();
        assert!(matches!(&error, Error::Config { field: found, .. } if *found == field), "{field}: {error}");
        assert!(error.to_string().contains(problem), "{error}");
    }
    assert!(tiny().with_hidden_size(1 << 33).try_init(&Device::default()).is_err());
    let table = TokenEmbeddingConfig::new(1 << 31, 1).try_init(&Device::default());
    assert!(matches!(table, Err(Error::Config { field: "num_embeddings", .. })));
}

#[test]
fn the_largest_value_of_every_matrix_is_that_of_the_initializer() {
    let bound = 1.5;
    let embeddings = tiny()
        .with_initializer(EmbeddingInitializer::TruncatedNormal { std: 0.5, bound })
        .with_position_embedding_type(PositionEmbeddingType::RelativeKey)
        .with_hidden_size(32);
    let config = BertModelConfig::new(embeddings).with_num_hidden_layers(1).with_num_attention_heads(2);
    let model = BertForMaskedLmConfig::new(config.with_intermediate_size(64)).init(&Device::default());
    struct Largest(Vec<f64>);
    impl ModuleVisitor for Largest {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if D == 2 {
                self.0.push(param.val().abs().max().into_scalar());
            }
        }
    }
    let mut largest = Largest(Vec::new());
    model.visit(&mut largest);
    // Two tables, four matrices of attention and its distances, two of the feed-forward network, the head's.
    assert_eq!(largest.0.len(), 10);
    for largest in largest.0 {
        assert!((0.5..=0.5 * bound + 1e-6).contains(&largest), "{largest}");
    }
}

#[test]
fn a_position_table_that_is_not_there_may_have_any_size() {
    let config = tiny()
        .with_max_position_embeddings(0)
        .with_position_embedding_type(PositionEmbeddingType::RelativeKey);
    config.try_init(&Device::default()).unwrap();
}

#[test]
#[should_panic(expected = "invalid config: hidden_dropout_prob is 1, but must lie in [0, 1)")]
fn init_panics_with_the_message_of_the_error() {
    tiny().with_hidden_dropout_prob(1.0).init(&Device::default());
}

#[test]
fn an_invalid_model_config_names_the_field() {
    let model = || BertModelConfig::new(tiny()).with_num_attention_heads(2);
    let relative = tiny().with_position_embedding_type(PositionEmbeddingType::RelativeKey);
    let no_distances = relative.with_max_position_embeddings(0);
    let cases = [
        ("num_hidden_layers", model().with_num_hidden_layers(0)),
        ("num_attention_heads", model().with_num_attention_heads(0)),
        ("num_attention_heads", model().with_num_attention_heads(3)),
        ("intermediate_size", model().with_intermediate_size(0)),
        ("attention_probs_dropout_prob", model().with_attention_probs_dropout_prob(1.0)),
        ("layer_norm_eps", BertModelConfig::new(tiny().with_layer_norm_eps(0.0))),
        ("max_position_embeddings", BertModelConfig::new(no_distances).with_num_attention_heads(2)),
    ];
    for (field, config) in cases {
        let errors = [
            config.try_init(&Device::default()).unwrap_err(),
            BertForMaskedLmConfig::new(config).try_init(&Device::default()).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(&error, Error::Config { field: found, .. } if *found == field), "{error}");
        }
    }
}

#[test]
fn an_invalid_collator_config_names_the_field() {
    let collator = || MaskedLmCollatorConfig::new(10, 4, 0, vec![0, 4]);
    let cases = [
        ("mlm_probability", collator().with_mlm_probability(1.1)),
        ("mask_replace_prob", collator().with_mask_replace_prob(f64::NAN)),
        ("random_replace_prob", collator().with_random_replace_prob(0.3)),
        ("pad_token_id", MaskedLmCollatorConfig::new(10, 4, 10, vec![0])),
        ("special_token_ids", MaskedLmCollatorConfig::new(10, 4, 0, vec![0, 10])),
        ("mask_token_id", MaskedLmCollatorConfig::new(10, 10, 0, vec![0])),
    ];
    for (field, config) in cases {
        let error = config.try_init().unwrap_err();
        assert!(matches!(&error, Error::Config { field: found, .. } if *found == field), "{error}");
    }
}
