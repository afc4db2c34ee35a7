//! The cache of Python's huggingface_hub, from both sides.

use crate::served;
use crate::server::{Faults, NAME};
use crate::tiny::load;
use crate::user::{UNREACHABLE, User, tree};
use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

/// The interpreter that `BURN_BERT_PYTHON` names, which has huggingface_hub, runs a line for the user.
fn python(user: &User, line: &str) -> String {
    let python = env::var_os("BURN_BERT_PYTHON").expect("BURN_BERT_PYTHON names Python with huggingface_hub");
    let code = format!(
        "from huggingface_hub import hf_hub_download, snapshot_download, scan_cache_dir\nprint({line})"
    );
    let run = user.command(python).args(["-c", &code]).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap().trim().to_string()
}

/// Whether a model's folder is that of Python, but for two notes: which files a commit lacks, and which it has.
fn assert_same(user: &User, python: &BTreeMap<String, Vec<u8>>) {
    let files = |mut found: BTreeMap<String, Vec<u8>>| {
        found.retain(|name, _| !name.starts_with(".no_exist/") && !name.starts_with("trees/"));
        found
    };
    let (found, expected) = (files(tree(&user.model())), files(python.clone()));
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    assert!(found == expected);
}

#[test]
#[ignore = "needs Python with huggingface_hub"]
fn a_cache_of_python_is_read() {
    let (dir, hub, mut user) = served(Faults::default());
    python(&user, &format!("snapshot_download({NAME:?})"));
    let downloaded = tree(&user.model());
    user.endpoint = UNREACHABLE.into();
    let expected = load("sentences", dir.path()).unwrap();
    assert_eq!(user.load("sentences", NAME).unwrap(), expected);
    user.endpoint = hub.endpoint();
    hub.requests();
    assert_eq!(user.load("sentences", NAME).unwrap(), expected);
    let requests = hub.requests();
    assert!(requests.iter().all(|request| request.starts_with("GET /api/")), "{requests:?}");
    assert_same(&user, &downloaded);
}

#[test]
#[ignore = "needs Python with huggingface_hub"]
fn a_cache_is_that_of_python_and_python_reads_it() {
    let (dir, hub, ours) = served(Faults::default());
    let theirs = User::new(hub.endpoint());
    ours.load("sentences", NAME).unwrap();
    let ignored = "ignore_patterns=['README.md', 'pytorch_model.bin', 'onnx/*']";
    python(&theirs, &format!("snapshot_download({NAME:?}, {ignored})"));
    assert_same(&ours, &tree(&theirs.model()));

    let ours = ours.with("HF_HUB_OFFLINE", "1");
    let path = python(&ours, &format!("hf_hub_download({NAME:?}, '2_Dense/model.safetensors')"));
    assert_eq!(fs::read(path).unwrap(), fs::read(dir.path().join("2_Dense/model.safetensors")).unwrap());
    let path = python(&ours, &format!("snapshot_download({NAME:?})"));
    assert_eq!(load("sentences", Path::new(&path)).unwrap(), load("sentences", dir.path()).unwrap());
    assert_eq!(python(&ours, "len(scan_cache_dir().warnings)"), "0");
}
