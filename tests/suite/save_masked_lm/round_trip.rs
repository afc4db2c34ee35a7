//! What is saved is read back, by this crate and by transformers.

use super::{device, fixture, load, roberta, tiny};
use crate::prelude::*;
use crate::transformers::Python;

#[test]
fn a_saved_model_is_read_back_bit_for_bit_in_every_dtype_and_its_config_names_the_dtype() {
    for config in [tiny(), roberta()] {
        for (dtype, name) in [
            (FloatDType::F32, "float32"),
            (FloatDType::F64, "float64"),
            (FloatDType::F16, "float16"),
            (FloatDType::BF16, "bfloat16"),
        ] {
            let model = cast_module(config.init(&device()), dtype).unwrap();
            let dir = saved(&model);
            let written = config_json(&dir);
            assert_eq!((&written["dtype"], written.get("torch_dtype")), (&json!(name), None));
            let read: BertForMaskedLm = loaded(&dir);
            assert_eq!(read.config(), config);
            // The device's own dtype is f32, which loses some of f64 and nothing of the others.
            let narrow = cast_module(model.clone(), FloatDType::F32).unwrap();
            assert_eq!(all_values(&read), all_values(&narrow), "{dtype:?}");
            // Another one that a config states is replaced, under the old name, too.
            set_fields(&dir, &[("dtype", json!("float8")), ("torch_dtype", json!("float8"))]);
            model.save_pretrained(dir.path()).unwrap();
            let written = config_json(&dir);
            assert_eq!([&written["dtype"], &written["torch_dtype"]], [name, name]);
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
        let read: BertForMaskedLm = loaded(back.path().join(name));
        assert_eq!(all_values(&read), all_values(&cast_module(model, FloatDType::F32).unwrap()));
    }
}
