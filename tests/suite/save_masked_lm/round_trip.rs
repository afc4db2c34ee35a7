//! What is saved is read back, by this crate and by transformers.

use super::{device, fixture, load, roberta, tiny, with_fields};
use crate::prelude::*;
use crate::transformers::Python;

#[test]
fn a_saved_model_is_read_back_bit_for_bit_in_every_dtype() {
    for config in [tiny(), roberta()] {
        for dtype in [FloatDType::F32, FloatDType::F64, FloatDType::F16, FloatDType::BF16] {
            let model = cast_module(config.init(&device()), dtype).unwrap();
            let dir = saved(&model);
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
fn the_same_model_gives_the_same_bytes_at_every_save() {
    let (model, _) = load(&fixture("tiny_bert"));
    let saved = || {
        let dir = saved(&model);
        files_of(&dir)
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
        let fresh = tempdir().unwrap();
        model.save_pretrained(fresh.path()).unwrap();
        let config = config_json(fresh.path());
        assert_eq!((&config["dtype"], config.get("torch_dtype")), (&json!(name), None));
    }
}

#[test]
#[ignore = "needs Python with transformers: BURN_BERT_PYTHON"]
fn transformers_reads_whole_models_and_gives_them_back_bit_for_bit() {
    let python = Python::named();
    let families = [
        (Family::Bert, tiny()),
        (Family::Ernie, tiny()),
        (Family::Roberta, roberta()),
        (Family::XlmRoberta, roberta()),
        (Family::Camembert, roberta()),
        (Family::Data2VecText, roberta()),
    ];
    let (saved, back) = (tempdir().unwrap(), tempdir().unwrap());
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
