//! Saving where something is already.

use super::{copy_of, fixture, load, with_tensors};
use crate::checkpoint_files::{Stored, keys_of};
use crate::prelude::*;

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
fn an_encoder_saved_where_it_came_from_becomes_a_whole_model() {
    let dir = copy_of("tiny_bert_encoder_only");
    let (model, _) = load(dir.path());
    model.save_pretrained(dir.path()).unwrap();
    let (read, report) = load(dir.path());
    assert!(all_values(&read) == all_values(&model));
    assert_eq!(report.missing, Vec::<String>::new());
    assert_eq!(report.unused, ["bert.pooler.dense.bias", "bert.pooler.dense.weight"]);
    assert!(keys_of(dir.path()).iter().all(|key| key.starts_with("bert.") || key.starts_with("cls.")));
    assert_eq!(config_json(dir.path())["architectures"], json!(["BertForMaskedLM"]));
}

#[test]
fn layers_that_the_model_lost_are_gone_from_the_file() {
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
        let error = model.save_pretrained(&dir).unwrap_err();
        assert!(matches!(error, Error::Io { action: "write", .. }), "{error}");
        return;
    }
    let dir = copy_of("tiny_bert");
    let before = files_of(&dir);
    let run = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "save_masked_lm::existing_directory::a_full_disk_is_an_error_and_the_old_model_stays",
        ])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && printed.contains("1 passed"), "{printed}");
    assert!(files_of(&dir) == before, "the old model stays, and nothing beside it");
}
