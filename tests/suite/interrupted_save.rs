//! A config and weights of two different saves, as a crash between the two renames leaves them.

use crate::checkpoint_files::*;
use burn::prelude::*;
use burn_bert::model::{
    BertForMaskedLm, BertForMaskedLmConfig, BertForSequenceClassification,
    BertForSequenceClassificationConfig, BertModelConfig, PretrainedModel, ProblemType,
};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, Error};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn device() -> Device {
    Device::default()
}

fn saved(config: &BertEmbeddingsConfig) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    config.init(&device()).save_pretrained(dir.path()).unwrap();
    dir
}

/// The config of one directory beside the weights of another.
fn mixed(config: &Path, weights: &Path) -> TempDir {
    let read = |path: &Path, name| fs::read(path.join(name)).unwrap();
    let (config, weights) = (read(config, "config.json"), read(weights, "model.safetensors"));
    folder(&[("config.json", &config), ("model.safetensors", &weights)])
}

fn set(dir: &Path, field: &str, value: serde_json::Value) {
    let path = dir.join("config.json");
    let mut fields: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    fields[field] = value;
    fs::write(path, fields.to_string()).unwrap();
}

/// Asserts that every reader refuses the pair and names the field.
fn refused(dir: &Path, field: &str) {
    let mut module = BertEmbeddingsConfig::from_pretrained(dir).unwrap().init(&device());
    for error in [
        BertEmbeddings::from_pretrained(dir, &device()).map(drop).unwrap_err(),
        BertEmbeddings::from_pretrained(dir.join("model.safetensors"), &device()).map(drop).unwrap_err(),
        module.load(dir).unwrap_err(),
        module.save_pretrained(dir).unwrap_err(),
    ] {
        let message = error.to_string();
        assert!(message.contains(field) && message.contains("config.json"), "{message}");
        assert!(message.contains("from_pretrained_with"), "{message}");
    }
}

#[test]
fn a_config_and_weights_of_two_saves_are_refused_by_the_field_that_differs() {
    let first = saved(&tiny());
    for (field, second) in [
        ("layer_norm_eps", tiny().with_layer_norm_eps(1e-5)),
        ("pad_token_id", tiny().with_pad_token_id(Some(2))),
        ("pad_token_id", tiny().with_pad_token_id(None)),
    ] {
        let second = saved(&second);
        refused(mixed(first.path(), second.path()).path(), field);
        refused(mixed(second.path(), first.path()).path(), field);
    }
}

#[test]
fn a_config_of_ones_own_reads_the_weights_of_an_interrupted_save() {
    let second = tiny().with_layer_norm_eps(1e-5).init(&device());
    let dir = saved(&tiny());
    let weights = tempfile::tempdir().unwrap();
    second.save_pretrained(weights.path()).unwrap();
    let dir = mixed(dir.path(), weights.path());
    let read = BertEmbeddings::from_pretrained_with(&second.config(), dir.path(), &device()).unwrap();
    assert_eq!(all_values(&read), all_values(&second));
}

#[test]
fn weights_of_a_save_that_changed_no_setting_go_with_the_config_of_the_one_before() {
    let (first, second) = (saved(&tiny()), saved(&tiny()));
    BertEmbeddings::from_pretrained(mixed(first.path(), second.path()).path(), &device()).unwrap();
}

#[test]
fn settings_that_the_weights_do_not_depend_on_may_be_edited() {
    let dir = saved(&tiny());
    set(dir.path(), "hidden_dropout_prob", serde_json::json!(0.5));
    set(dir.path(), "transformers_version", serde_json::json!("5.23.0"));
    let read = BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
    assert_eq!(read.config().hidden_dropout_prob, 0.5);
    // The same number in another notation, and a default that is left out, as transformers leaves it out.
    let path = dir.path().join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    let text = text.replace("1e-12", "0.000000000001").replace("\"pad_token_id\":0,", "");
    assert!(!text.contains("1e-12") && !text.contains("pad_token_id"), "{text}");
    fs::write(&path, text).unwrap();
    BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
}

#[test]
fn what_transformers_wrote_is_read_however_its_config_was_edited() {
    let dir = folder(&[]);
    for name in ["config.json", "model.safetensors"] {
        fs::copy(fixture("bert").join(name), dir.path().join(name)).unwrap();
    }
    set(dir.path(), "layer_norm_eps", serde_json::json!(1e-3));
    assert_eq!(BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap().layer_norm.epsilon(), 1e-3);
}

fn bert() -> BertModelConfig {
    BertModelConfig::new(BertEmbeddingsConfig::new().with_vocab_size(20).with_hidden_size(8))
        .with_num_hidden_layers(2)
        .with_num_attention_heads(2)
        .with_intermediate_size(12)
}

#[test]
fn labels_may_be_renamed_and_the_problem_type_changed_after_a_save() {
    let dir = tempfile::tempdir().unwrap();
    let config = BertForSequenceClassificationConfig::new(bert()).with_num_labels(3);
    let mut model = config.init(&device());
    model.save_pretrained(dir.path()).unwrap();
    set(dir.path(), "id2label", serde_json::json!({"0": "no", "1": "perhaps", "2": "yes"}));
    set(dir.path(), "problem_type", serde_json::json!("multi_label_classification"));
    let (read, report) = BertForSequenceClassification::from_pretrained(dir.path(), &device()).unwrap();
    assert!(report.is_complete(), "{report}");
    assert_eq!(read.id2label(), ["no", "perhaps", "yes"]);
    assert_eq!(read.config().problem_type, Some(ProblemType::MultiLabelClassification));
    assert_eq!(values(&read.classifier.out_proj.weight), values(&model.classifier.out_proj.weight));
    assert!(model.load(dir.path()).unwrap().is_complete());
    read.save_pretrained(dir.path()).unwrap();
}

#[test]
fn a_config_with_another_number_of_labels_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = BertForSequenceClassificationConfig::new(bert()).with_num_labels(3);
    config.init(&device()).save_pretrained(dir.path()).unwrap();
    set(dir.path(), "id2label", serde_json::json!({"0": "no", "1": "yes"}));
    let error = BertForSequenceClassification::from_pretrained(dir.path(), &device()).map(drop).unwrap_err();
    assert!(matches!(&error, Error::ConfigFile { field: "id2label", .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("is a list of 2 labels") && message.contains("with a list of 3"), "{message}");
}

#[test]
fn a_whole_models_config_and_weights_are_compared_as_well() {
    let config = bert();
    let save = |config: &BertModelConfig| {
        let dir = tempfile::tempdir().unwrap();
        BertForMaskedLmConfig::new(config.clone()).init(&device()).save_pretrained(dir.path()).unwrap();
        dir
    };
    let first = save(&config);
    for (field, second) in [
        ("num_attention_heads", config.clone().with_num_attention_heads(4)),
        ("num_hidden_layers", config.clone().with_num_hidden_layers(1)),
    ] {
        let second = save(&second);
        // More layers than weights are missing keys; fewer would be read in silence.
        let dir = mixed(second.path(), first.path());
        let error = BertForMaskedLm::from_pretrained(dir.path(), &device()).map(drop).unwrap_err();
        assert!(matches!(&error, Error::ConfigFile { field: named, .. } if *named == field), "{error}");
        let whole = BertForMaskedLmConfig::new(config.clone());
        let (_, report) = BertForMaskedLm::from_pretrained_with(&whole, dir.path(), &device()).unwrap();
        assert!(report.is_complete());
    }
}
