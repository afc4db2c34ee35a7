//! What is saved is read back, by this crate and by transformers.

use super::{config_json, device, fixture, keys, load, tiny, with_embeddings, with_fields};
use crate::tolerance::all_values;
use crate::transformers::Python;
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::model::{BertForMaskedLmConfig, BertModelConfig, LoadReport, PretrainedModel};
use burn_bert::{BertEmbeddingsConfig, Family, cast_module};
use serde_json::json;
use std::fs;

#[test]
fn a_saved_model_is_read_back_bit_for_bit_in_every_dtype() {
    let roberta = BertEmbeddingsConfig::roberta_base().with_vocab_size(20).with_hidden_size(8);
    for config in [tiny(), with_embeddings(roberta)] {
        for dtype in [FloatDType::F32, FloatDType::F64, FloatDType::F16, FloatDType::BF16] {
            let model = cast_module(config.init(&device()), dtype).unwrap();
            let dir = tempfile::tempdir().unwrap();
            model.save_pretrained(dir.path()).unwrap();
            let (read, report) = load(dir.path());
            assert_eq!(report, LoadReport::default());
            assert_eq!(read.config(), config);
            // The device's own dtype is f32, which loses some of f64 and nothing of the others.
            let model = cast_module(model, FloatDType::F32).unwrap();
            assert_eq!(all_values(&read), all_values(&model), "{dtype:?}");
        }
    }
}

#[test]
fn a_new_directory_has_the_keys_and_fields_that_transformers_writes() {
    for name in ["tiny_bert", "tiny_roberta"] {
        let (model, _) = load(&fixture(name));
        let dir = tempfile::tempdir().unwrap();
        model.save_pretrained(dir.path()).unwrap();
        assert_eq!(keys(dir.path()), keys(&fixture(name)));
        let (written, theirs) = (config_json(dir.path()), config_json(fixture(name)));
        for (field, value) in written.as_object().unwrap() {
            assert_eq!(*value, theirs[field], "{field}");
        }
        for field in ["num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"] {
            assert!(written.get(field).is_some(), "{field}");
        }
    }
}

#[test]
fn the_same_model_gives_the_same_bytes_at_every_save() {
    let (model, _) = load(&fixture("tiny_bert"));
    let saved = || {
        let dir = tempfile::tempdir().unwrap();
        model.save_pretrained(dir.path()).unwrap();
        ["model.safetensors", "config.json"].map(|name| fs::read(dir.path().join(name)).unwrap())
    };
    let first = saved();
    assert!((0..16).all(|_| saved() == first));
}

#[test]
fn the_config_names_the_dtype_that_the_weights_have() {
    let half = json!("float16");
    let dir = with_fields("tiny_bert", &[("dtype", half.clone()), ("torch_dtype", half)]);
    let (model, _) = load(dir.path());
    for (dtype, name) in [
        (FloatDType::F32, "float32"),
        (FloatDType::F64, "float64"),
        (FloatDType::F16, "float16"),
        (FloatDType::BF16, "bfloat16"),
    ] {
        let model = cast_module(model.clone(), dtype).unwrap();
        model.save_pretrained(dir.path()).unwrap();
        let config = config_json(dir.path());
        assert_eq!([&config["dtype"], &config["torch_dtype"]], [name, name]);
        let fresh = tempfile::tempdir().unwrap();
        model.save_pretrained(fresh.path()).unwrap();
        let config = config_json(fresh.path());
        assert_eq!((&config["dtype"], config.get("torch_dtype")), (&json!(name), None));
    }
}

#[test]
fn presets_have_as_many_parameters_as_transformers_models() {
    for (config, count) in [
        (BertModelConfig::bert_base_uncased(), 109_514_298),
        (BertModelConfig::bert_base_chinese(), 102_290_312),
        (BertModelConfig::bert_large_uncased(), 335_174_458),
        (BertModelConfig::roberta_base(), 124_697_433),
        (BertModelConfig::distilbert_base_uncased(), 66_985_530),
        (BertModelConfig::electra_small(), 13_546_682),
        (BertModelConfig::electra_base(), 109_514_298),
        (BertModelConfig::mpnet_base(), 109_518_527),
        (BertModelConfig::albert_base_v2(), 11_221_680),
    ] {
        assert_eq!(BertForMaskedLmConfig::new(config).init(&device()).num_params(), count);
    }
}

#[test]
#[ignore = "needs Python with transformers: BURN_BERT_PYTHON"]
fn transformers_reads_whole_models_and_gives_them_back_bit_for_bit() {
    let python = Python::named();
    let roberta = BertEmbeddingsConfig::roberta_base().with_vocab_size(20).with_hidden_size(8);
    let roberta = with_embeddings(roberta);
    let families = [
        (Family::Bert, tiny()),
        (Family::Ernie, tiny()),
        (Family::Roberta, roberta.clone()),
        (Family::XlmRoberta, roberta.clone()),
        (Family::Camembert, roberta.clone()),
        (Family::Data2VecText, roberta),
    ];
    let (saved, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut models = Vec::new();
    for (family, mut config) in families {
        config.bert.embeddings.family = family;
        for dtype in [FloatDType::F32, FloatDType::BF16] {
            let name = models.len().to_string();
            let model = cast_module(config.init(&device()), dtype).unwrap();
            model.save_pretrained(saved.path().join(&name)).unwrap();
            models.push((name, model));
        }
    }
    python.check("saved_model", saved.path(), back.path());
    for (name, model) in models {
        let (read, report) = load(&back.path().join(name));
        assert_eq!(report, LoadReport::default());
        assert_eq!(all_values(&read), all_values(&cast_module(model, FloatDType::F32).unwrap()));
    }
}
