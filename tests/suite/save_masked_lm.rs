//! Whole models into Hugging Face directories and out of them: what is kept, what is refused, what is reported.

use crate::checkpoint_files::{Stored, keys_of, safetensors_bytes, tensors_of};
use crate::files;
use crate::prelude::*;
use crate::small_bert::small;
use crate::transformers::Python;

fn fixture(name: &str) -> PathBuf {
    files::fixture("masked_lm").join(name)
}

fn tiny() -> BertForMaskedLmConfig {
    let bert = small_bert(20, 8).with_num_hidden_layers(2).with_attention_probs_dropout_prob(0.2);
    BertForMaskedLmConfig::new(bert)
}

fn roberta() -> BertForMaskedLmConfig {
    BertForMaskedLmConfig::new(small(BertModelConfig::roberta_base(), 20, 8))
}

fn try_load(dir: &Path) -> Result<(BertForMaskedLm, LoadReport), Error> {
    BertForMaskedLm::from_pretrained(dir, &device())
}

fn load(dir: &Path) -> (BertForMaskedLm, LoadReport) {
    try_load(dir).unwrap()
}

fn copy_of(name: &str) -> TempDir {
    files::copy_of(fixture(name))
}

/// A copy of a fixture with fields of its config replaced.
fn with_fields(name: &str, fields: &[(&str, Value)]) -> TempDir {
    let dir = copy_of(name);
    set_fields(&dir, fields);
    dir
}

/// A copy of a fixture with tensors added, taken away or renamed.
fn with_tensors(name: &str, change: impl FnOnce(&mut Vec<Stored>)) -> TempDir {
    let dir = copy_of(name);
    let mut tensors = tensors_of(dir.path());
    change(&mut tensors);
    fs::write(dir.path().join("model.safetensors"), safetensors_bytes(&tensors)).unwrap();
    dir
}

// What is read and what is refused

#[test]
fn a_model_that_lacks_a_tensor_or_has_weights_of_other_sizes_is_refused_by_the_tensors_name() {
    for key in [
        "cls.predictions.transform.dense.weight",
        "cls.predictions.bias",
        "bert.encoder.layer.1.attention.self.key.bias",
        "bert.embeddings.LayerNorm.weight",
    ] {
        let dir = with_tensors("tiny_bert", |tensors| tensors.retain(|tensor| tensor.key != key));
        fails!(try_load(dir.path()), Error::MissingKey { key: missing, .. } if missing == key);
    }
    let pooler = "pooler.dense.bias";
    let dir = with_tensors("tiny_bert_encoder_only", |tensors| tensors.retain(|tensor| tensor.key != pooler));
    fails!(BertModel::from_pretrained(dir.path(), &device()), Error::MissingKey { key, .. } if key == pooler);
    let more_layers = with_fields("tiny_bert", &[("num_hidden_layers", json!(3))]);
    fails!(try_load(more_layers.path()), Error::MissingKey { key, .. } if key.starts_with("bert.encoder.layer.2."));
    let wider = with_fields("tiny_bert", &[("intermediate_size", json!(21))]);
    fails!(
        try_load(wider.path()),
        Error::CheckpointShape { .. },
        "has shape [20, 12], but the module expects [21, 12]"
    );
}

#[test]
fn a_directory_that_is_not_there_is_named_and_not_its_neighbour() {
    let dir = tempdir().unwrap();
    fs::copy(fixture("tiny_bert").join("config.json"), dir.path().join("config.json")).unwrap();
    for missing in [dir.path().join("nothing"), dir.path().join("model.safetensors")] {
        fails!(try_load(&missing), Error::Io { action: "read", path, .. } if *path == missing);
    }
}

// Saving

#[test]
fn a_saved_model_is_read_back_bit_for_bit_in_every_dtype_and_has_the_same_bytes_at_every_save() {
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

#[test]
fn what_else_a_directory_holds_is_kept() {
    let nsp = "cls.seq_relationship.weight";
    let dir = with_tensors("tiny_bert", |tensors| tensors.push(Stored::f32(nsp, &[2, 12])));
    fs::write(dir.path().join("tokenizer.json"), "{}").unwrap();
    set_fields(&dir, &[("custom", json!("kept"))]);

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
fn a_model_saved_over_an_encoder_becomes_whole_and_layers_that_it_lost_are_gone() {
    let dir = copy_of("tiny_bert_encoder_only");
    let (model, _) = load(dir.path());
    model.save_pretrained(dir.path()).unwrap();
    let (read, report) = load(dir.path());
    assert!(all_values(&read) == all_values(&model));
    assert_eq!(report.missing, Vec::<String>::new());
    assert_eq!(report.unused, ["bert.pooler.dense.bias", "bert.pooler.dense.weight"]);
    assert!(keys_of(dir.path()).iter().all(|key| key.starts_with("bert.") || key.starts_with("cls.")));
    assert_eq!(config_json(dir.path())["architectures"], json!(["BertForMaskedLM"]));
    let dir = copy_of("tiny_bert");
    let (mut model, _) = load(dir.path());
    model.bert.encoder.layers.truncate(1);
    model.save_pretrained(dir.path()).unwrap();
    assert!(keys_of(dir.path()).iter().all(|key| !key.contains("layer.1.")));
    assert_eq!(config_json(dir.path())["num_hidden_layers"], 1);
    assert_eq!(all_values(&load(dir.path()).0), all_values(&model));
}

/// A process that may write files of 1 kB alone stands for a full disk: both fail in the middle of a write.
#[test]
fn a_full_disk_is_an_error_and_the_old_model_stays() {
    const DIR: &str = "BURN_BERT_TEST_FULL_DISK";
    if let Ok(dir) = std::env::var(DIR) {
        let (model, _) = load(Path::new(&dir));
        fails!(model.save_pretrained(&dir), Error::Io { action: "write", .. });
        return;
    }
    let dir = copy_of("tiny_bert");
    let before = files_of(&dir);
    let run = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "save_masked_lm::a_full_disk_is_an_error_and_the_old_model_stays"])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && printed.contains("1 passed"), "{printed}");
    assert!(files_of(&dir) == before, "the old model stays, and nothing beside it");
}

// Heads that are not tied to the word embeddings, and files that contradict themselves

const WORDS: &str = "bert.embeddings.word_embeddings.weight";
const DECODER: &str = "cls.predictions.decoder.weight";
const BIASES: [&str; 2] = ["cls.predictions.bias", "cls.predictions.decoder.bias"];

/// A copy of the fixture with tensors added, and `tie_word_embeddings` as said.
fn with_head(tied: bool, added: Vec<Stored>) -> tempfile::TempDir {
    let dir = with_tensors("tiny_bert", |tensors| tensors.extend(added));
    set_fields(&dir, &[("tie_word_embeddings", json!(tied))]);
    dir
}

fn floats(key: &str, shape: &[usize], value: impl Fn(usize) -> f32) -> Stored {
    let count = shape.iter().product();
    let bytes = (0..count).flat_map(|index| value(index).to_le_bytes()).collect();
    Stored { bytes, ..Stored::f32(key, shape) }
}

fn stored(dir: &Path, key: &str) -> Option<Vec<u8>> {
    Some(tensors_of(dir).into_iter().find(|tensor| tensor.key == key)?.bytes)
}

#[test]
fn a_decoder_of_its_own_scores_words_and_is_saved_again() {
    let decoder = floats(DECODER, &[40, 12], |index| (index as f32 * 0.37).sin());
    let bias = floats(BIASES[1], &[40], |index| index as f32);
    let dir = with_head(false, vec![decoder, bias]);
    let model: BertForMaskedLm = loaded(&dir);
    assert!(!model.config().tie_word_embeddings);

    let hidden = Tensor::<2>::from_data([[0.3f32; 12]], &device());
    let found = values(model.scores(hidden.clone()).unwrap());
    // The same transform with the decoder in the place of the word embeddings, by hand.
    let (mut by_hand, _) = load(with_head(true, vec![]).path());
    let indices = |count: usize| Tensor::<1, Int>::arange(0..count as i64, &device()).float();
    let words = &mut by_hand.bert.embeddings.word_embeddings.weight;
    *words = words.clone().map(|_| indices(480).mul_scalar(0.37).sin().reshape([40, 12]));
    by_hand.head.bias = by_hand.head.bias.map(|bias| bias.map(|_| indices(40)));
    assert_close(&found, &values(by_hand.scores(hidden).unwrap()), F32);

    let saved = saved(&model);
    assert_eq!(stored(saved.path(), DECODER), stored(dir.path(), DECODER));
    for bias in BIASES {
        assert_eq!(stored(saved.path(), bias), stored(dir.path(), BIASES[1]), "{bias}");
    }
    assert_eq!(config_json(saved.path())["tie_word_embeddings"], false);
    model.save_pretrained(dir.path()).unwrap();
    let _: BertForMaskedLm = loaded(&dir);
}

#[test]
fn of_two_biases_the_decoders_counts_and_the_other_is_reported_as_unused() {
    let dir = with_head(true, vec![floats(BIASES[1], &[40], |index| index as f32)]);
    let (model, report) = BertForMaskedLm::from_pretrained(&dir, &device()).unwrap();
    assert_eq!(report.unused.iter().filter(|key| key.starts_with("cls.predictions")).count(), 1);
    assert!(report.unused.contains(&BIASES[0].to_string()), "{report}");
    assert_eq!(values(model.head.bias.unwrap().val()), (0..40).map(f64::from).collect::<Vec<_>>());
}

#[test]
fn copies_of_a_tied_head_are_saved_once_and_an_untied_one_without_a_decoder_is_refused() {
    let dir = with_head(true, vec![]);
    let (words, bias) = (stored(dir.path(), WORDS).unwrap(), stored(dir.path(), BIASES[0]).unwrap());
    let stored_as = |key, shape, bytes| Stored { bytes, ..Stored::f32(key, shape) };
    let dir = with_head(true, vec![stored_as(DECODER, &[40, 12], words), stored_as(BIASES[1], &[40], bias)]);
    let model: BertForMaskedLm = loaded(&dir);
    model.save_pretrained(dir.path()).unwrap();
    assert_eq!((stored(dir.path(), DECODER), stored(dir.path(), BIASES[1])), (None, None));
    fails!(try_load(with_head(false, vec![]).path()), Error::MissingKey { key, .. } if key == DECODER);
}
