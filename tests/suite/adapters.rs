//! PEFT's adapters: alone and beside their base, as PEFT computes them.

use crate::files::copy_of;
use crate::prelude::*;

/// An adapter's files in a new directory: alone with the path of its base, or beside it.
fn placed(case: &str, is_alone: bool) -> TempDir {
    let adapter = fixture(&format!("adapters/{case}"));
    let config = json(adapter.join("adapter_config.json"));
    let base = fixture(config["base_model_name_or_path"].as_str().unwrap());
    let dir = if is_alone { tempdir().unwrap() } else { copy_of(&base) };
    for (name, bytes) in files_of(adapter) {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    if is_alone {
        set(&dir, "base_model_name_or_path", json!(base));
    }
    dir
}

fn set(dir: &TempDir, field: &str, value: Value) {
    edit(dir.path(), "adapter_config.json", |config| config[field] = value);
}

/// Asserts that a model computes what PEFT does, from both places of an adapter.
fn assert_equals_peft<M: PretrainedModel>(
    case: &str,
    missing: &[&str],
    run: impl Fn(&M, &BertEmbeddingsInput) -> Vec<f64>,
) {
    let expected = json(fixture(&format!("adapters/{case}/expected.json")));
    let ids: Vec<Vec<i32>> = list(&expected["ids"]);
    let rows: Vec<[i32; 5]> = ids.into_iter().map(|row| row.try_into().unwrap()).collect();
    let (input, expected) =
        (BertEmbeddingsInput::from_rows(&rows, &device()).unwrap(), list::<Vec<f64>>(&expected["output"]));
    for is_alone in [true, false] {
        let dir = placed(case, is_alone);
        let (model, report) = M::from_pretrained(dir.path(), &device()).unwrap();
        assert_eq!(report.adapter, Some(dir.path().join("adapter_config.json")), "{case}");
        assert_eq!(report.missing, missing, "{case}");
        assert_close(&run(&model, &input), &expected, F32);
        // Added in f64, whatever the files hold.
        let mut wide = cast_module(model, FloatDType::F64).unwrap();
        let _ = wide.load(dir.path()).unwrap();
        assert_close(&run(&wide, &input), &expected, F64);
    }
}

#[test]
fn adapters_compute_what_peft_does() {
    let logits = |model: &BertForSequenceClassification, input: &BertEmbeddingsInput| {
        values(model.logits(input, None).unwrap())
    };
    assert_equals_peft("classifier", &[], logits);
    assert_equals_peft("patterns", &[], logits);
    let hidden =
        |model: &BertModel, input: &BertEmbeddingsInput| values(model.forward(input, None).last_hidden_state);
    assert_equals_peft("encoder", &[], hidden);
    assert_equals_peft("fused", &[], hidden);
}

/// The silent case of before: a directory in which a base and its adapter lie gave the base's logits.
#[test]
fn an_adapter_beside_its_base_is_named_by_the_report_and_not_hidden_by_a_save() {
    let dir = placed("classifier", false);
    let (model, report) = BertForSequenceClassification::from_pretrained(dir.path(), &device()).unwrap();
    assert!(report.to_string().contains("adapter_config.json"), "{report}");
    says(model.save_pretrained(dir.path()), "it holds an adapter, which would be added to the saved model");
    // Elsewhere the merged model is one like any other.
    let merged: BertForSequenceClassification = loaded(saved(&model).path());
    let weight = |model: &BertForSequenceClassification| {
        values(model.bert.encoder.layers[0].attention.query.weight.val())
    };
    assert_eq!(weight(&merged), weight(&model));
}

#[test]
fn every_loader_finds_the_base_and_names_the_adapter() {
    fn assert_reported<M: PretrainedModel>(dir: &TempDir) {
        let (_, report) = M::from_pretrained(dir.path(), &device()).unwrap();
        assert!(report.adapter.is_some());
    }
    for is_alone in [true, false] {
        let dir = placed("classifier", is_alone);
        assert_reported::<BertForSentenceEmbedding>(&dir);
        assert_reported::<BertForTokenClassification>(&dir);
        assert_reported::<BertForMaskedLm>(&dir);
        let embeddings = BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
        let config = BertEmbeddingsConfig::from_pretrained(dir.path()).unwrap();
        assert_eq!(embeddings.config(), config);
    }
}

#[test]
fn an_adapter_that_is_not_plain_lora_or_does_not_fit_is_refused_by_name() {
    let fails = |field: &str, value: Value, part: &str| {
        let dir = placed("classifier", true);
        set(&dir, field, value);
        says(BertForSequenceClassification::from_pretrained(dir.path(), &device()), part);
    };
    fails("peft_type", json!("ADALORA"), "peft_type ADALORA, but only LORA");
    fails("use_dora", json!(true), "sets use_dora");
    fails("trainable_token_indices", json!([3]), "sets trainable_token_indices");
    fails("init_lora_weights", json!("pissa"), "init_lora_weights pissa, which changes the base");
    fails("lora_alpha", Value::Null, "no lora_alpha");
    fails("alpha_pattern", json!({"(": 1}), "has the alpha_pattern (");
    fails("alpha_pattern", json!({"query": 1, ".*query": 2}), "has two patterns of alpha_pattern");
    fails("base_model_name_or_path", Value::Null, "names no base_model_name_or_path");
    fails("base_model_name_or_path", json!("/nowhere"), "is an adapter of /nowhere");
    fails("base_model_name_or_path", json!(fixture("families/modernbert_masked_lm")), "bert.encoder.layer.0");
    let dir = placed("classifier", false);
    fs::remove_file(dir.path().join("adapter_model.safetensors")).unwrap();
    says(BertModel::from_pretrained(dir.path(), &device()), "is there without its weights");
}
