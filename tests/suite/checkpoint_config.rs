//! Reading `config.json`.

use crate::checkpoint_files::{fixture, tiny};
use crate::prelude::*;
use burn::config::Config;

fn config_of(json: &str) -> Result<BertEmbeddingsConfig, Error> {
    BertEmbeddingsConfig::from_pretrained(with_config(json).path())
}

#[test]
fn a_config_is_read_from_its_folder_or_by_its_own_name_and_without_fields_is_bert_base() {
    let config = config_of(r#"{"model_type": "bert"}"#).unwrap();
    assert_eq!(config, BertEmbeddingsConfig::bert_base_uncased());
    assert_eq!(config, BertEmbeddingsConfig::new());
    assert_eq!(config, BertEmbeddingsConfig::default());
    assert_eq!(config.initializer, EmbeddingInitializer::Normal { std: 0.02 });
    // The last of two equal keys counts, as in Python.
    let twice = config_of(r#"{"model_type": "bert", "layer_norm_eps": 0.5, "layer_norm_eps": 1e-12}"#);
    assert_eq!((twice.unwrap(), config.layer_norm_eps), (config, 1e-12));
    let path = fixture("bert");
    let config = BertEmbeddingsConfig::from_pretrained(&path).unwrap();
    assert_eq!(config, tiny());
    assert_eq!(BertEmbeddingsConfig::from_pretrained(path.join("config.json")).unwrap(), config);
}

#[test]
fn an_object_that_is_no_models_config_is_refused() {
    let (burns, path) = (BertModelConfig::bert_base_uncased(), tempdir().unwrap().keep().join("burns"));
    burns.save(&path).unwrap();
    for json in [
        "{}",
        r#"{"hidden_size": 8, "architectures": []}"#,
        r#"{"do_lower_case": true, "model_max_length": 512, "tokenizer_class": "BertTokenizer"}"#,
        &fs::read_to_string(path).unwrap(),
    ] {
        let error = fails!(config_of(json), Error::ConfigFile { field: "model_type", .. });
        let message = error.to_string();
        assert!(message.contains("model_type is missing") && message.contains("roberta"), "{message}");
    }
}

#[test]
fn every_field_that_the_layer_has_is_read_and_others_are_ignored() {
    let config = config_of(
        r#"{"model_type": "bert", "vocab_size": 11, "hidden_size": 6, "max_position_embeddings": 7,
            "type_vocab_size": 3, "pad_token_id": 4, "layer_norm_eps": 1e-5, "hidden_dropout_prob": 0,
            "initializer_range": 0.5, "position_embedding_type": "relative_key", "num_labels": 3,
            "id2label": {"0": "a"}, "task_specific_params": null, "gradient_checkpointing": "never"}"#,
    );
    let expected = BertEmbeddingsConfig::new()
        .with_vocab_size(11)
        .with_hidden_size(6)
        .with_max_position_embeddings(7)
        .with_type_vocab_size(3)
        .with_pad_token_id(Some(4))
        .with_layer_norm_eps(1e-5)
        .with_hidden_dropout_prob(0.0)
        .with_initializer(EmbeddingInitializer::Normal { std: 0.5 })
        .with_position_embedding_type(PositionEmbeddingType::RelativeKey);
    assert_eq!(config.unwrap(), expected);
    let without_padding = config_of(r#"{"model_type": "bert", "pad_token_id": null}"#);
    assert_eq!(without_padding.unwrap().pad_token_id, None);
}

#[test]
fn the_model_type_or_else_the_architecture_decides_how_positions_count() {
    use PositionEmbeddingType::*;
    for (model_type, word, expected) in [
        ("bert", "absolute", Absolute),
        ("bert", "relative_key_query", RelativeKeyQuery),
        ("ernie", "absolute", Absolute),
        ("roberta", "absolute", AfterPadding),
        ("roberta", "relative_key", RelativeKey),
        ("xlm-roberta", "absolute", AfterPadding),
        ("camembert", "absolute", AfterPadding),
        ("data2vec-text", "absolute", AfterPadding),
    ] {
        let json = format!(r#"{{"model_type": "{model_type}", "position_embedding_type": "{word}"}}"#);
        assert_eq!(config_of(&json).unwrap().position_embedding_type, expected, "{model_type} {word}");
    }
    let config = |class: &str| config_of(&format!(r#"{{"architectures": ["{class}"]}}"#));
    assert_eq!(config("BertForMaskedLM").unwrap(), BertEmbeddingsConfig::new());
    let roberta = config("XLMRobertaModel").unwrap();
    assert_eq!(roberta.position_embedding_type, PositionEmbeddingType::AfterPadding);
    let message = config("T5Model").unwrap_err().to_string();
    assert!(message.contains("T5Model") && message.contains("model_type"), "{message}");
}

#[test]
fn a_family_that_is_not_supported_is_refused_by_name_when_its_config_is_read() {
    let others = "deberta big_bird megatron-bert gpt2 splinter longformer luke xmod roberta-prelayernorm";
    for model_type in others.split(' ') {
        let dir = with_config(json!({ "model_type": model_type }));
        for error in [
            BertEmbeddingsConfig::from_pretrained(dir.path()).unwrap_err(),
            BertModelConfig::from_pretrained(dir.path()).unwrap_err(),
            BertForQuestionAnsweringConfig::from_pretrained(dir.path()).unwrap_err(),
        ] {
            assert!(matches!(error, Error::UnsupportedModel { .. }), "{error}");
            assert!(error.to_string().contains(model_type), "{error}");
        }
    }
}

#[test]
fn tables_of_another_width_than_the_model_are_those_of_electra_and_albert() {
    let sizes = |json: &str| {
        let config = config_of(json).unwrap();
        (config.hidden_size, config.embedding_size)
    };
    let wide = r#"{"model_type": "electra", "embedding_size": 1024, "hidden_size": 1024}"#;
    assert_eq!(sizes(wide), (1024, None));
    assert_eq!(sizes(r#"{"model_type": "electra"}"#), (256, Some(128)));
    assert_eq!(sizes(r#"{"model_type": "albert", "hidden_size": 128}"#), (128, Some(128)));
    assert_eq!(sizes(r#"{"model_type": "bert", "embedding_size": 128}"#), (768, None));
}

#[test]
fn distilberts_fields_have_their_own_names_and_berts_where_transformers_takes_them() {
    let config = config_of(
        r#"{"model_type": "distilbert", "dim": 12, "dropout": 0.3, "type_vocab_size": 2, "layer_norm_eps": 1e-5}"#,
    );
    let config = config.unwrap();
    assert_eq!((config.hidden_size, config.hidden_dropout_prob), (12, 0.3));
    assert_eq!((config.type_vocab_size, config.layer_norm_eps), (0, 1e-12), "it has neither");
    // What `DistilBertConfig` of transformers 5.23 makes of them: three names of BERT are its own names, too, and count before
    // them; others are none of its fields.
    let config = |fields: &str| {
        let json = format!(r#"{{"model_type": "distilbert", {fields}}}"#);
        BertModelConfig::from_pretrained(with_config(json).path()).unwrap()
    };
    let own = config(r#""hidden_act": "relu", "intermediate_size": 7, "hidden_dropout_prob": 0.5"#);
    assert_eq!(own, config(r#""activation": "gelu""#));
    let shared = config(r#""hidden_size": 24, "dim": 48, "num_hidden_layers": 5, "n_layers": 2"#);
    assert_eq!((shared.embeddings.hidden_size, shared.num_hidden_layers), (24, 5));
    assert_eq!(config(r#""num_attention_heads": 6"#), config(r#""n_heads": 6"#));
}

#[test]
fn what_a_family_does_not_compute_is_refused_by_its_field() {
    for (model_type, field, value, allowed) in [
        ("albert", "num_hidden_groups", "2", "is 2, but must be"),
        ("albert", "inner_group_num", "2", "is 2, but must be"),
        ("mpnet", "relative_attention_num_buckets", "64", "is 64, but must be"),
        ("mpnet", "pad_token_id", "0", "is 0, but must be"),
    ] {
        let json = format!(r#"{{"model_type": "{model_type}", "{field}": {value}}}"#);
        fails!(config_of(&json), Error::UnsupportedModel { .. }, &format!("{field} {allowed}"));
    }
}

/// Of another type, or none that a module can be built from: the values of each field, with a space between them.
#[test]
fn a_field_that_is_wrong_is_refused_by_its_name_in_the_file() {
    let of_layer = [
        ("vocab_size", r#""30522" -1 18446744073709551615"#),
        ("hidden_size", "768.5 9223372036854775807 0"),
        ("max_position_embeddings", "null 4611686018427387904"),
        ("type_vocab_size", "[2] 1099511627776"),
        ("pad_token_id", "-1 {} 30522"),
        ("layer_norm_eps", r#""1e-12" 0"#),
        ("hidden_dropout_prob", "true 1.0"),
        ("initializer_range", "{} -0.02"),
        ("position_embedding_type", r#"3 "rotary""#),
        ("model_type", "7"),
    ];
    let of_model = [
        ("hidden_act", r#""prelu""#),
        ("is_decoder", "true"),
        ("add_cross_attention", "true"),
        ("num_attention_heads", "0 5 18446744073709551615"),
        ("num_hidden_layers", r#"0 "two" 1099511627776"#),
        ("intermediate_size", "18446744073709551615 2305843009213693951"),
        ("attention_probs_dropout_prob", "1.5"),
        ("tie_word_embeddings", r#""yes""#),
    ];
    let of_classifier =
        [("id2label", "0"), ("num_labels", "1000000000000"), ("num_labels", "18446744073709551615")];
    let dir = |family: &str, field: &str, value: &str| {
        with_config(format!(r#"{{"model_type": "{family}", "{field}": {value}}}"#))
    };
    let layer = |dir: TempDir| BertEmbeddingsConfig::from_pretrained(dir.path()).unwrap_err();
    let model = |dir: TempDir| BertForMaskedLmConfig::from_pretrained(dir.path()).unwrap_err();
    let classifier =
        |dir: TempDir| BertForSequenceClassificationConfig::from_pretrained(dir.path()).unwrap_err();
    let mut errors = Vec::new();
    for (field, values) in of_layer {
        errors.extend(values.split(' ').map(|value| (field, layer(dir("bert", field, value)))));
    }
    for (field, values) in of_layer.into_iter().chain(of_model) {
        errors.extend(values.split(' ').map(|value| (field, model(dir("bert", field, value)))));
    }
    errors.extend(of_classifier.map(|(field, value)| (field, classifier(dir("bert", "num_labels", value)))));
    for (family, field, value) in
        [("roberta", "pad_token_id", "null"), ("distilbert", "dim", "0"), ("distilbert", "dropout", "\"a\"")]
    {
        errors.push((field, layer(dir(family, field, value))));
    }
    for (field, error) in errors {
        assert!(
            matches!(&error, Error::ConfigFile { field: named, .. } if *named == field),
            "{field}: {error}"
        );
        assert!(error.to_string().contains(&format!("config.json: {field} ")), "{error}");
    }
}
