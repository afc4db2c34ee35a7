//! Whole models into Hugging Face directories and out of them: what is kept, what is refused, what is reported.

use crate::checkpoint_files::{Stored, safetensors_bytes};
use crate::transformers::Python;
use burn::module::{ModuleVisitor, Param};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::model::{
    BertForMaskedLm, BertForMaskedLmConfig, BertModel, BertModelConfig, LoadReport, PretrainedModel,
    mean_pooled,
};
use burn_bert::{BertEmbeddingsConfig, Error, PositionEmbeddingType, cast_module};
use safetensors::SafeTensors;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn device() -> Device {
    Device::default()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/masked_lm").join(name)
}

fn with_embeddings(embeddings: BertEmbeddingsConfig) -> BertForMaskedLmConfig {
    let bert = BertModelConfig::new(embeddings)
        .with_num_hidden_layers(2)
        .with_num_attention_heads(2)
        .with_intermediate_size(12)
        .with_attention_probs_dropout_prob(0.2);
    BertForMaskedLmConfig::new(bert)
}

fn tiny() -> BertForMaskedLmConfig {
    with_embeddings(BertEmbeddingsConfig::new().with_vocab_size(20).with_hidden_size(8))
}

/// Every value of a module, in the order of its fields.
fn all_values(model: &BertForMaskedLm) -> Vec<f64> {
    #[derive(Default)]
    struct Collect(Vec<f64>);
    impl ModuleVisitor for Collect {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.extend(param.val().into_data().iter::<f64>());
        }
    }
    let mut collect = Collect::default();
    model.visit(&mut collect);
    collect.0
}

fn load(dir: &Path) -> (BertForMaskedLm, LoadReport) {
    BertForMaskedLm::from_pretrained(dir, &device()).unwrap()
}

fn refused(dir: &Path) -> Error {
    BertForMaskedLm::from_pretrained(dir, &device()).map(|(_, report)| report).unwrap_err()
}

fn keys(dir: &Path) -> Vec<String> {
    let bytes = fs::read(dir.join("model.safetensors")).unwrap();
    let mut keys: Vec<String> =
        SafeTensors::deserialize(&bytes).unwrap().names().into_iter().map(String::from).collect();
    keys.sort();
    keys
}

fn config_json(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("config.json")).unwrap()).unwrap()
}

/// A copy of a fixture with fields of its config replaced.
fn with_fields(name: &str, fields: &[(&str, Value)]) -> tempfile::TempDir {
    let dir = copy_of(name);
    let mut config = config_json(dir.path());
    for (field, value) in fields {
        config[*field] = value.clone();
    }
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    dir
}

fn copy_of(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in fs::read_dir(fixture(name)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
    }
    dir
}

/// A copy of a fixture with tensors added, taken away or renamed.
fn with_tensors(name: &str, change: impl Fn(&mut Vec<Stored>)) -> tempfile::TempDir {
    let dir = copy_of(name);
    let path = dir.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let stored = |(key, view): (String, safetensors::tensor::TensorView)| Stored {
        key,
        dtype: view.dtype(),
        shape: view.shape().to_vec(),
        bytes: view.data().to_vec(),
    };
    let mut tensors: Vec<Stored> = file.tensors().into_iter().map(stored).collect();
    change(&mut tensors);
    fs::write(path, safetensors_bytes(&tensors)).unwrap();
    dir
}

#[test]
fn a_saved_model_is_read_back_bit_for_bit_in_every_dtype() {
    let roberta = BertEmbeddingsConfig::roberta_base().with_vocab_size(20).with_hidden_size(8);
    for config in [tiny(), with_embeddings(roberta)] {
        for dtype in [FloatDType::F32, FloatDType::F64, FloatDType::F16, FloatDType::BF16] {
            let model = cast_module(config.init(&device()), dtype);
            let dir = tempfile::tempdir().unwrap();
            model.save_pretrained(dir.path()).unwrap();
            let (read, report) = load(dir.path());
            assert_eq!(report, LoadReport::default());
            assert_eq!(read.config(), config);
            // The device's own dtype is f32, which loses some of f64 and nothing of the others.
            let model = cast_module(model, FloatDType::F32);
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
        let (written, theirs) = (config_json(dir.path()), config_json(&fixture(name)));
        for (field, value) in written.as_object().unwrap() {
            assert_eq!(*value, theirs[field], "{field}");
        }
        for field in ["num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"] {
            assert!(written.get(field).is_some(), "{field}");
        }
    }
}

#[test]
fn what_else_a_directory_holds_is_kept() {
    let nsp = "cls.seq_relationship.weight";
    let dir = with_tensors("tiny_bert", |tensors| {
        tensors.push(Stored::f32(nsp, &[2, 12]));
    });
    fs::write(dir.path().join("tokenizer.json"), "{}").unwrap();
    let mut config = config_json(dir.path());
    config["custom"] = json!("kept");
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();

    let (model, report) = load(dir.path());
    assert_eq!(report, LoadReport { unused: vec![nsp.into()], ..LoadReport::default() });
    assert_eq!(report.to_string(), "in the checkpoint, not used: cls.seq_relationship.weight\n");
    let (other, _) = load(&fixture("tiny_bert_encoder_only"));
    assert_ne!(all_values(&other), all_values(&model));
    other.save_pretrained(dir.path()).unwrap();
    let (read, report) = load(dir.path());
    assert_eq!(all_values(&read), all_values(&other));
    assert_eq!(report.unused, [nsp]);
    assert_eq!(config_json(dir.path())["custom"], "kept");
    assert_eq!(fs::read_to_string(dir.path().join("tokenizer.json")).unwrap(), "{}");
}

#[test]
fn an_encoder_saved_where_it_came_from_becomes_a_whole_model() {
    let dir = copy_of("tiny_bert_encoder_only");
    let (model, _) = load(dir.path());
    model.save_pretrained(dir.path()).unwrap();
    let (read, report) = load(dir.path());
    assert!(all_values(&read) == all_values(&model));
    assert_eq!(report.missing, Vec::<String>::new());
    assert_eq!(report.unused, ["bert.pooler.dense.bias", "bert.pooler.dense.weight"]);
    assert!(keys(dir.path()).iter().all(|key| key.starts_with("bert.") || key.starts_with("cls.")));
    assert_eq!(config_json(dir.path())["architectures"], json!(["BertForMaskedLM"]));
}

#[test]
fn layers_that_the_model_lost_are_gone_from_the_file() {
    let dir = copy_of("tiny_bert");
    let (mut model, _) = load(dir.path());
    model.bert.encoder.layers.truncate(1);
    model.save_pretrained(dir.path()).unwrap();
    assert!(keys(dir.path()).iter().all(|key| !key.contains("layer.1.")));
    assert_eq!(config_json(dir.path())["num_hidden_layers"], 1);
    assert_eq!(all_values(&load(dir.path()).0), all_values(&model));
}

#[test]
fn norms_called_gamma_and_beta_are_read_as_well() {
    let dir = with_tensors("tiny_bert", |tensors| {
        for tensor in tensors.iter_mut().filter(|tensor| tensor.key.contains("LayerNorm")) {
            tensor.key = tensor.key.replace("weight", "gamma").replace("bias", "beta");
        }
    });
    let (read, report) = load(dir.path());
    assert_eq!(report, LoadReport::default());
    assert_eq!(all_values(&read), all_values(&load(&fixture("tiny_bert")).0));
}

#[test]
fn a_head_whose_bias_has_the_decoders_name_is_whole() {
    let dir = with_tensors("tiny_bert", |tensors| {
        let bias = tensors.iter_mut().find(|tensor| tensor.key == "cls.predictions.bias").unwrap();
        bias.key = "cls.predictions.decoder.bias".into();
    });
    let (read, report) = load(dir.path());
    assert_eq!(report, LoadReport::default());
    assert_eq!(all_values(&read), all_values(&load(&fixture("tiny_bert")).0));
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
fn a_layer_that_stands_alone_is_no_model() {
    let dir = with_tensors("tiny_bert", |tensors| {
        tensors.retain(|tensor| tensor.key.contains("embeddings."));
        for tensor in tensors {
            tensor.key = tensor.key.replace("bert.embeddings.", "");
        }
    });
    let message = refused(dir.path()).to_string();
    assert!(message.contains("encoder.layer.0") && message.contains("BertEmbeddings"), "{message}");
}

#[test]
fn a_config_that_no_such_model_has_is_refused_by_its_field() {
    for (field, value) in [
        ("hidden_act", json!("gelu_new")),
        ("is_decoder", json!(true)),
        ("add_cross_attention", json!(true)),
        ("num_attention_heads", json!(5)),
        ("num_hidden_layers", json!(0)),
        ("num_hidden_layers", json!("two")),
        ("attention_probs_dropout_prob", json!(1.5)),
        ("tie_word_embeddings", json!("yes")),
    ] {
        match refused(with_fields("tiny_bert", &[(field, value)]).path()) {
            Error::ConfigFile { field: named, .. } => assert_eq!(named, field),
            other => panic!("{field}: {other}"),
        }
    }
    let error = refused(with_fields("tiny_bert", &[("num_hidden_layers", json!(3))]).path());
    assert!(matches!(error, Error::MissingKey { key, .. } if key.starts_with("bert.encoder.layer.2.")));
    let error = refused(with_fields("tiny_bert", &[("intermediate_size", json!(21))]).path());
    assert!(
        matches!(error, Error::CheckpointShape { found, expected, .. } if found == [20, 12] && expected == [21, 12])
    );
}

#[test]
fn families_with_another_encoder_are_refused_and_the_message_lists_those_that_are_not() {
    for model_type in ["electra", "splinter", "longformer", "luke", "xmod", "roberta-prelayernorm"] {
        let fields = [("model_type", json!(model_type)), ("embedding_size", json!(12))];
        let message = match refused(with_fields("tiny_bert", &fields).path()) {
            error @ Error::UnsupportedModel { .. } => error.to_string(),
            other => panic!("{model_type}: {other}"),
        };
        let listed = "supported: bert, ernie, roberta, xlm-roberta, camembert, data2vec-text";
        assert!(message.contains(model_type) && message.contains(listed), "{message}");
    }
}

#[test]
fn a_config_of_ones_own_takes_the_place_of_the_files() {
    let bert = BertModelConfig::from_pretrained(fixture("tiny_bert")).unwrap();
    let bert = bert.with_attention_probs_dropout_prob(0.3);
    let config = BertForMaskedLmConfig::new(bert.clone()).with_train_padding_row(false);
    let (model, _) = BertForMaskedLm::from_pretrained_with(&config, fixture("tiny_bert"), &device()).unwrap();
    assert_eq!(model.config(), config);
    let wrong = BertForMaskedLmConfig::new(bert.with_intermediate_size(7));
    let error = BertForMaskedLm::from_pretrained_with(&wrong, fixture("tiny_bert"), &device());
    assert!(matches!(error, Err(Error::CheckpointShape { .. })));
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
        let model = cast_module(model.clone(), dtype);
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
fn saving_over_a_model_of_another_kind_is_refused_and_leaves_it() {
    let dir = copy_of("tiny_roberta");
    let before = fs::read(dir.path().join("model.safetensors")).unwrap();
    let error = load(&fixture("tiny_bert")).0.save_pretrained(dir.path()).unwrap_err();
    assert!(matches!(error, Error::ConfigFile { .. }), "{error}");
    assert_eq!(fs::read(dir.path().join("model.safetensors")).unwrap(), before);
    let dir = with_fields("tiny_bert", &[("model_type", json!("longformer"))]);
    let error = load(&fixture("tiny_bert")).0.save_pretrained(dir.path()).unwrap_err();
    assert!(matches!(error, Error::UnsupportedModel { .. }), "{error}");
}

/// A process that may write files of 1 kB alone stands for a full disk: both fail in the middle of a write.
#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_and_the_old_model_stays() {
    const DIR: &str = "BURN_BERT_TEST_FULL_DISK";
    if let Ok(dir) = std::env::var(DIR) {
        let (model, _) = load(Path::new(&dir));
        let error = model.save_pretrained(&dir).unwrap_err();
        assert!(matches!(error, Error::Io { action: "write", .. }), "{error}");
        return;
    }
    let dir = copy_of("tiny_bert");
    let files =
        || fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path()).collect::<BTreeSet<_>>();
    let contents = || files().into_iter().map(|file| fs::read(file).unwrap()).collect::<Vec<_>>();
    let before = contents();
    let run = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "save_masked_lm::a_full_disk_is_an_error_and_the_old_model_stays"])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && printed.contains("1 passed"), "{printed}");
    assert!(contents() == before, "the old model stays, and nothing beside it");
}

#[test]
fn presets_have_as_many_parameters_as_transformers_models() {
    for (config, count) in [
        (BertForMaskedLmConfig::bert_base_uncased(), 109_514_298),
        (BertForMaskedLmConfig::bert_base_chinese(), 102_290_312),
        (BertForMaskedLmConfig::bert_large_uncased(), 335_174_458),
        (BertForMaskedLmConfig::roberta_base(), 124_697_433),
    ] {
        assert_eq!(config.init(&device()).num_params(), count);
    }
}

#[test]
fn a_family_is_kept_where_its_config_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config_json(&fixture("tiny_roberta"));
    config["model_type"] = json!("camembert");
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    let (model, _) = load(&fixture("tiny_roberta"));
    assert_eq!(model.bert.embeddings.config().position_embedding_type, PositionEmbeddingType::AfterPadding);
    model.save_pretrained(dir.path()).unwrap();
    let written = config_json(dir.path());
    assert_eq!(written["model_type"], "camembert");
    assert_eq!(written["architectures"], json!(["CamembertForMaskedLM"]));
    assert_eq!(all_values(&load(dir.path()).0), all_values(&model));
}

#[test]
fn a_row_of_nothing_but_padding_has_a_mean_of_zero() {
    let hidden = Tensor::<3>::from_data([[[1.0, 2.0], [3.0, 6.0]], [[5.0, 5.0], [7.0, f32::NAN]]], &device());
    let padding = Tensor::<2, Bool>::from_data([[false, true], [true, true]], &device());
    let mean: Vec<f32> = mean_pooled(hidden, Some(&padding.into())).into_data().iter().collect();
    assert_eq!(mean, [1.0, 2.0, 0.0, 0.0]);
}

#[test]
fn a_directory_that_is_not_there_is_named_and_not_its_neighbour() {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(fixture("tiny_bert").join("config.json"), dir.path().join("config.json")).unwrap();
    for missing in [dir.path().join("nothing"), dir.path().join("model.safetensors")] {
        let error = refused(&missing);
        assert!(matches!(&error, Error::Io { action: "read", path, .. } if *path == missing), "{error}");
    }
}

#[test]
#[ignore = "needs Python with transformers: BURN_BERT_PYTHON"]
fn transformers_reads_whole_models_and_gives_them_back_bit_for_bit() {
    let python = Python::named();
    let roberta = BertEmbeddingsConfig::roberta_base().with_vocab_size(20).with_hidden_size(8);
    let roberta = with_embeddings(roberta);
    let families = [
        (tiny(), None),
        (tiny(), Some("ernie")),
        (roberta.clone(), None),
        (roberta.clone(), Some("xlm-roberta")),
        (roberta.clone(), Some("camembert")),
        (roberta, Some("data2vec-text")),
    ];
    for (config, model_type) in families {
        for dtype in [FloatDType::F32, FloatDType::BF16] {
            let (dir, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let model = cast_module(config.init(&device()), dtype);
            model.save_pretrained(dir.path()).unwrap();
            if let Some(model_type) = model_type {
                let mut fields = config_json(dir.path());
                fields["model_type"] = json!(model_type);
                fs::remove_file(dir.path().join("model.safetensors")).unwrap();
                fs::write(dir.path().join("config.json"), fields.to_string()).unwrap();
                model.save_pretrained(dir.path()).unwrap();
            }
            python.check("saved_model", dir.path(), back.path());
            let (read, report) = load(back.path());
            assert_eq!(report, LoadReport::default());
            assert_eq!(all_values(&read), all_values(&cast_module(model, FloatDType::F32)));
        }
    }
}
