//! What is read and what is refused.

use super::{device, fixture, load, refused, with_fields, with_tensors};
use crate::prelude::*;

#[test]
fn tensors_under_their_other_names_are_read_as_well() {
    for names in [
        &[("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")][..],
        &[("cls.predictions.bias", "cls.predictions.decoder.bias")],
    ] {
        let dir = with_tensors("tiny_bert", |tensors| {
            for tensor in tensors.iter_mut() {
                names.iter().for_each(|(from, to)| tensor.key = tensor.key.replace(from, to));
            }
        });
        let read: BertForMaskedLm = loaded(&dir);
        assert_eq!(all_values(&read), all_values(&load(&fixture("tiny_bert")).0));
    }
}

#[test]
fn a_model_that_lacks_a_tensor_is_refused_by_the_tensors_name() {
    for key in [
        "cls.predictions.transform.dense.weight",
        "cls.predictions.bias",
        "bert.encoder.layer.1.attention.self.key.bias",
        "bert.embeddings.LayerNorm.weight",
    ] {
        let dir = with_tensors("tiny_bert", |tensors| tensors.retain(|tensor| tensor.key != key));
        match refused(dir.path()) {
            Error::MissingKey { key: missing, .. } => assert_eq!(missing, key),
            other => panic!("{other}"),
        }
    }
    let pooler = "pooler.dense.bias";
    let dir = with_tensors("tiny_bert_encoder_only", |tensors| tensors.retain(|tensor| tensor.key != pooler));
    let error = BertModel::from_pretrained(dir.path(), &device()).map(|(_, report)| report).unwrap_err();
    assert!(matches!(error, Error::MissingKey { key, .. } if key == pooler));
}

#[test]
fn weights_of_other_sizes_than_the_config_are_refused() {
    let error = refused(with_fields("tiny_bert", &[("num_hidden_layers", json!(3))]).path());
    assert!(matches!(error, Error::MissingKey { key, .. } if key.starts_with("bert.encoder.layer.2.")));
    let error = refused(with_fields("tiny_bert", &[("intermediate_size", json!(21))]).path());
    assert!(
        matches!(error, Error::CheckpointShape { found, expected, .. } if found == [20, 12] && expected == [21, 12])
    );
}

#[test]
fn a_directory_that_is_not_there_is_named_and_not_its_neighbour() {
    let dir = tempdir().unwrap();
    fs::copy(fixture("tiny_bert").join("config.json"), dir.path().join("config.json")).unwrap();
    for missing in [dir.path().join("nothing"), dir.path().join("model.safetensors")] {
        let error = refused(&missing);
        assert!(matches!(&error, Error::Io { action: "read", path, .. } if *path == missing), "{error}");
    }
}
