//! Models by their names on the Hub, from a local server; each load in a process of its own, as the client reads the environment.

mod python;
mod server;
#[path = "../support/mod.rs"]
mod support;
mod tiny;
mod user;

use serde_json::{Value, json};
use server::{COMMIT, Faults, Hub, NAME, etag, git_oid, pointer};
use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};
use support::*;
use tempfile::TempDir;
use tiny::{load, tiny};
use user::{UNREACHABLE, User, finished, has, tree};

/// What is asked for where the cache has all of a branch: whether it moved.
const QUESTION: &str = "GET /api/models/owner/tiny/revision/main";

const OTHER_COMMIT: &str = "89abcdef0123456789abcdef0123456789abcdef";

/// Loads what the environment says.
#[test]
#[ignore = "is started by the other tests"]
fn child() {
    let [kind, name] = ["KIND", "NAME"].map(|variable| env::var(variable).unwrap());
    match load(&kind, Path::new(&name)) {
        Ok(loaded) => println!("\nloaded: {loaded}"),
        Err(error) => println!("\nfailed: {}", format!("{error:#}").replace('\n', " ")),
    }
}

/// The model, a server that has it, and a user of that.
fn served(faults: Faults) -> (TempDir, Hub, User) {
    let dir = tiny();
    let hub = Hub::serve(dir.path(), faults);
    let user = User::new(hub.endpoint());
    (dir, hub, user)
}

#[test]
fn a_model_is_downloaded_once_and_is_that_of_the_directory() {
    let (dir, hub, user) = served(Faults::default());
    let expected = load("sentences", dir.path()).unwrap();
    assert_eq!(user.load("sentences", NAME).unwrap(), expected);

    let requests = hub.requests().join("\n");
    let read = ["config.json", "model.safetensors", "2_Dense/model.safetensors", "1_Pooling/config.json"];
    has(&requests, &read.map(|name| format!("resolve/{COMMIT}/{name}")).each_ref().map(String::as_str));
    has(&requests, &["modules.json", "vocab.txt", "tokenizer_config.json", "sentence_bert_config.json"]);
    for unread in ["README", "pytorch_model.bin", "onnx"] {
        assert!(!requests.contains(unread), "{requests}");
    }
    for kind in ["embeddings", "tokenizer", "config"] {
        assert_eq!(user.load(kind, NAME).unwrap(), load(kind, dir.path()).unwrap());
        assert_eq!(hub.requests(), [QUESTION]);
    }
    // A pipeline has model and tokenizer of one commit.
    assert_eq!(user.load("pipeline", NAME).unwrap(), load("pipeline", dir.path()).unwrap());
    assert_eq!(hub.requests(), [QUESTION]);
}

#[test]
fn a_tokenizer_and_a_config_come_without_weights() {
    let (dir, hub, user) = served(Faults::default());
    for kind in ["tokenizer", "config"] {
        assert_eq!(user.load(kind, NAME).unwrap(), load(kind, dir.path()).unwrap());
    }
    let requests = hub.requests().join("\n");
    assert!(!requests.contains("safetensors"), "{requests}");
    assert_eq!(user.load("sentences", NAME).unwrap(), load("sentences", dir.path()).unwrap());
    let requests = hub.requests().join("\n");
    has(&requests, &["model.safetensors"]);
    assert!(!requests.contains("vocab.txt"), "{requests}");
}

#[test]
fn shards_and_pickles_are_downloaded_where_there_is_no_safetensors_file() {
    for (folder, index) in
        [("bert_sharded", "model.safetensors.index.json"), ("sharded_bin", "pytorch_model.bin.index.json")]
    {
        let dir = files::copy_of(files::fixture("checkpoints").join(folder));
        let hub = Hub::serve(dir.path(), Faults::default());
        let user = User::new(hub.endpoint());
        let expected = load("embeddings", dir.path()).unwrap();
        assert_eq!(user.load("embeddings", NAME).unwrap(), expected);
        has(&hub.requests().join("\n"), &[index, "-of-0000"]);
        assert_eq!(user.load("embeddings", NAME).unwrap(), expected);
        assert_eq!(hub.requests(), [QUESTION]);
    }
}

#[test]
fn an_adapter_and_its_base_are_each_downloaded() {
    let base = files::fixture("classifiers/bert_sequence");
    let adapter = files::copy_of(files::fixture("adapters/classifier"));
    let set = |name: &str, revision: Option<&str>| {
        files::edit(adapter.path(), "adapter_config.json", |config| {
            config["base_model_name_or_path"] = json!(name);
            config["revision"] = json!(revision);
        });
    };
    set(base.to_str().unwrap(), None);
    let expected = load("adapted", adapter.path()).unwrap();
    let hub = Hub::serve(adapter.path(), Faults::default());
    let user = User::new(hub.endpoint());
    assert_eq!(user.load("adapted", NAME).unwrap(), expected);
    has(&hub.requests().join("\n"), &["adapter_config.json", "adapter_model.safetensors"]);
    assert_eq!(user.load("adapted", NAME).unwrap(), expected);
    assert_eq!(hub.requests(), [QUESTION]);

    let hub = Hub::serve(&base, Faults::default());
    let user = User::new(hub.endpoint());
    let path = adapter.path().to_str().unwrap();
    set(NAME, None);
    assert_eq!(user.load("adapted", path).unwrap(), expected);
    has(&hub.requests().join("\n"), &[&format!("resolve/{COMMIT}/model.safetensors")]);
    // A commit never moves.
    set(NAME, Some(COMMIT));
    assert_eq!(user.load("adapted", path).unwrap(), expected);
    assert_eq!(hub.requests(), [""; 0]);
    set("owner/other", None);
    has(&user.load("adapted", path).unwrap_err(), &["owner/other", "the Hub shows no model of this name"]);
}

#[test]
fn a_name_that_is_not_there_says_so() {
    let (_dir, hub, user) = served(Faults::default());
    let missing = user.load("config", "owner/other").unwrap_err();
    has(&missing, &["owner/other is not a local path, and the Hub shows no model of this name", "HF_TOKEN"]);
    let missing = user.load("config", &format!("{NAME}@v9")).unwrap_err();
    has(&missing, &["owner/tiny is not a local path, and has no revision v9"]);
    // What the Hub answers to a user without a token, and to one with a token.
    for refusal in [(401, ""), (404, "RepoNotFound")] {
        hub.set(Faults { refusal: Some(refusal), ..Faults::default() });
        has(&user.load("config", NAME).unwrap_err(), &["the Hub shows no model of this name", "HF_TOKEN"]);
    }
    assert_eq!(tree(&user.cache()), BTreeMap::new());
}

#[test]
fn what_can_only_be_a_path_is_not_asked_for() {
    let (_dir, hub, user) = served(Faults::default());
    for path in ["./owner/tiny", "/owner/tiny", "~/tiny", "a/owner/tiny", r"owner\tiny", "model.safetensors"]
    {
        has(&user.load("sentences", path).unwrap_err(), &["cannot read"]);
    }
    // A directory of that name comes first, even if it is of no use.
    fs::create_dir_all(user.home.path().join(NAME)).unwrap();
    has(&user.load("sentences", NAME).unwrap_err(), &["cannot read owner/tiny/config.json"]);
    assert_eq!(hub.requests(), [""; 0]);
}

#[test]
fn a_gated_model_asks_for_a_token_and_takes_it() {
    let faults = Faults { token: Some("hf_secret"), ..Faults::default() };
    let (dir, hub, user) = served(faults.clone());
    let refused = user.load("sentences", NAME).unwrap_err();
    has(&refused, &["owner/tiny is gated", "https://huggingface.co/owner/tiny", "HF_TOKEN"]);
    let user = user.with("HF_TOKEN", "hf_wrong");
    has(&user.load("sentences", NAME).unwrap_err(), &["HF_TOKEN"]);
    hub.set(Faults { refusal: Some((403, "GatedRepo")), ..faults.clone() });
    has(&user.load("sentences", NAME).unwrap_err(), &["gated", "HF_TOKEN"]);
    hub.set(faults);
    let expected = load("sentences", dir.path()).unwrap();
    assert_eq!(user.with("HF_TOKEN", "hf_secret").load("sentences", NAME).unwrap(), expected);
    // As `hf auth login` leaves it.
    let user = User::new(hub.endpoint());
    fs::create_dir_all(user.home.path().join("hf")).unwrap();
    fs::write(user.home.path().join("hf/token"), "hf_secret\n").unwrap();
    assert_eq!(user.load("sentences", NAME).unwrap(), expected);
}

/// The requests for the bytes of a large file.
fn transfers(hub: &Hub, name: &str) -> Vec<String> {
    let start = format!("GET /cdn/{name}");
    hub.requests().into_iter().filter(|request| request.starts_with(&start)).collect()
}

#[test]
fn a_transfer_that_breaks_goes_on_where_it_broke() {
    let dir = tiny();
    let expected = load("sentences", dir.path()).unwrap();
    for ignores_ranges in [false, true] {
        let hub = Hub::serve(dir.path(), Faults { ignores_ranges, breaks: 3, ..Faults::default() });
        assert_eq!(User::new(hub.endpoint()).load("sentences", NAME).unwrap(), expected);
        let transfers = transfers(&hub, "model.safetensors");
        let goes_on = transfers.iter().map(|request| request.contains("bytes="));
        assert!(goes_on.eq([false, true, true, true]), "{transfers:?}");
    }
    let hub = Hub::serve(dir.path(), Faults::default());
    let user = User::new(hub.endpoint());
    // Then the dense layer's weights are known to be there, and come first.
    user.load("tokenizer", NAME).unwrap();
    let dense = "2_Dense/model.safetensors";
    hub.set(Faults { breaks: 99, ..Faults::default() });
    has(&user.load("embeddings", NAME).unwrap_err(), &["cannot be downloaded"]);
    assert_eq!(transfers(&hub, dense).len(), 5);
    // The next process goes on, too.
    hub.set(Faults::default());
    assert_eq!(user.load("sentences", NAME).unwrap(), expected);
    let size = fs::metadata(dir.path().join(dense)).unwrap().len();
    let [transfer] = &transfers(&hub, dense)[..] else { panic!("one transfer is left") };
    let rest = transfer.split_once("bytes=").unwrap().1.split_once('-').unwrap();
    let [first, last] = [rest.0, rest.1].map(|place| place.parse::<u64>().unwrap());
    assert!(first > size / 2 && last == size - 1, "{transfer} of {size}");
}

#[test]
fn a_file_of_another_checksum_or_size_does_not_enter_the_cache() {
    // The example of LFS's specification, and what `git hash-object` says of it.
    let sha256 = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393";
    assert_eq!(git_oid(pointer(sha256, 12345).as_bytes()), "60c8d8ab2adcf57a391163a7eeb0cdb8bf348e44");
    let dir = tiny();
    for (wrong, endless) in [
        (Some("model.safetensors"), None),
        (Some("vocab.txt"), None),
        (None, Some("2_Dense/model.safetensors")),
        (None, Some("config.json")),
    ] {
        let name = wrong.or(endless).unwrap();
        let hub = Hub::serve(dir.path(), Faults { wrong, endless, ..Faults::default() });
        let user = User::new(hub.endpoint());
        has(&user.load("sentences", NAME).unwrap_err(), &[name, "another size or checksum"]);
        assert!(!user.model().join("snapshots").join(COMMIT).join(name).exists());
        assert!(!user.model().join("refs/main").exists());
        hub.set(Faults::default());
        assert_eq!(user.load("sentences", NAME).unwrap(), load("sentences", dir.path()).unwrap());
    }
}

#[test]
fn what_a_broken_transfer_left_is_not_trusted() {
    let (dir, _hub, user) = served(Faults::default());
    let content = fs::read(dir.path().join("vocab.txt")).unwrap();
    fs::create_dir_all(user.model().join("blobs")).unwrap();
    let part = user.model().join("blobs").join(format!("{}.incomplete", git_oid(&content)));
    fs::write(&part, "[PAX]\n").unwrap();
    assert_eq!(user.load("tokenizer", NAME).unwrap(), load("tokenizer", dir.path()).unwrap());
    assert!(!part.exists());
}

#[test]
fn a_full_cache_needs_no_network() {
    let (dir, hub, mut user) = served(Faults::default());
    let expected = load("sentences", dir.path()).unwrap();
    user.load("sentences", NAME).unwrap();
    user.endpoint = UNREACHABLE.into();
    assert_eq!(user.load("sentences", NAME).unwrap(), expected);
    let user = user.with("HF_HUB_OFFLINE", "1");
    assert_eq!(user.load("sentences", NAME).unwrap(), expected);
    assert_eq!(user.load("sentences", &format!("{NAME}@{COMMIT}")).unwrap(), expected);
    // As `hf download` leaves it: without a word of what is not there.
    fs::remove_dir_all(user.model().join(".no_exist")).unwrap();
    assert_eq!(user.load("sentences", NAME).unwrap(), expected);
    let mut user = user.with("HF_HUB_OFFLINE", "0");
    assert_eq!(user.load("sentences", NAME).unwrap(), expected);
    hub.requests();
    user.endpoint = hub.endpoint();
    assert_eq!(user.load("sentences", NAME).unwrap(), expected);
    assert!(hub.requests().iter().all(|request| request.starts_with("GET /api/")));
    assert_eq!(user.load("embeddings", NAME).unwrap(), load("embeddings", dir.path()).unwrap());
    assert_eq!(hub.requests(), [QUESTION]);
    // Nor does a commit, which never moves; and a refusal does not take what is there.
    assert_eq!(user.load("sentences", &format!("{NAME}@{COMMIT}")).unwrap(), expected);
    assert_eq!(hub.requests(), [""; 0]);
    hub.set(Faults { refusal: Some((401, "")), ..Faults::default() });
    assert_eq!(user.load("sentences", NAME).unwrap(), expected);

    let empty = User::new(UNREACHABLE);
    let unreachable = empty.load("sentences", NAME).unwrap_err();
    has(&unreachable, &["owner/tiny is not a local path, and cannot be downloaded"]);
    let empty = empty.with("HF_HUB_OFFLINE", "true");
    has(&empty.load("sentences", NAME).unwrap_err(), &["owner/tiny", "not complete", "HF_HUB_OFFLINE"]);
}

#[test]
fn the_cache_is_where_python_has_it() {
    let (dir, _hub, user) = served(Faults::default());
    let other = tempfile::tempdir().unwrap();
    let user = user.with("HF_HUB_CACHE", other.path().to_str().unwrap());
    user.load("config", NAME).unwrap();
    let link = other.path().join(format!("models--owner--tiny/snapshots/{COMMIT}/1_Pooling/config.json"));
    let content = fs::read(dir.path().join("1_Pooling/config.json")).unwrap();
    assert_eq!(fs::read(&link).unwrap(), content);
    let blob = format!("../../../blobs/{}", etag("config.json", &content));
    assert_eq!(fs::read_link(&link).unwrap(), Path::new(&blob));
    assert!(!user.cache().exists());
}

#[test]
fn a_revision_has_files_of_its_own_and_shares_what_is_equal() {
    let (_dir, hub, user) = served(Faults::default());
    user.load("sentences", NAME).unwrap();
    let refs = |name: &str| fs::read_to_string(user.model().join("refs").join(name)).unwrap();
    assert_eq!(refs("main"), COMMIT);
    hub.requests();
    let faults = Faults { commit: Some(OTHER_COMMIT), ..Faults::default() };
    hub.set(faults);
    // The branch moved, as Python would notice.
    user.load("sentences", NAME).unwrap();
    assert!(hub.requests().iter().all(|request| request.starts_with("GET /api/")));
    for revision in ["v1", "refs/pr/1", OTHER_COMMIT] {
        user.load("sentences", &format!("{NAME}@{revision}")).unwrap();
        let requests = hub.requests();
        assert!(requests.iter().all(|request| request.starts_with("GET /api/")), "{requests:?}");
    }
    assert_eq!(["main", "v1", "refs/pr/1"].map(refs), [OTHER_COMMIT; 3]);
    assert!(!user.model().join("refs").join(OTHER_COMMIT).exists());
}

#[test]
fn processes_that_start_together_download_once() {
    let (dir, hub, user) = served(Faults::default());
    let expected = load("sentences", dir.path()).unwrap();
    let ranks: Vec<_> = (0..3).map(|_| user.loading("sentences", NAME)).collect();
    for rank in ranks {
        assert_eq!(finished(rank).unwrap(), expected);
    }
    assert_eq!(transfers(&hub, "model.safetensors").len(), 1);
}

#[test]
fn the_users_home_and_the_older_name_of_the_token_are_those_of_python() {
    let faults = Faults { token: Some("hf_secret"), ..Faults::default() };
    let (dir, _hub, user) = served(faults);
    let user = user.with("HF_HOME", "~/other").with("HUGGING_FACE_HUB_TOKEN", " hf_secret\n");
    assert_eq!(user.load("config", NAME).unwrap(), load("config", dir.path()).unwrap());
    assert!(user.home.path().join("other/hub/models--owner--tiny/refs/main").is_file());
    let user = user.with("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
    has(&user.load("sentences", NAME).unwrap_err(), &["is gated"]);
    let user = user.with("HF_HUB_DISABLE_IMPLICIT_TOKEN", "0");
    user.load("sentences", NAME).unwrap();
}

#[test]
fn a_model_of_other_formats_says_what_it_has() {
    let files: [(&str, &[u8]); 2] = [("README.md", b"A model."), ("model.gguf", b"GGUF")];
    for (config, wanted, missing) in [
        (None, "sentences", "has no config.json; it has README.md, model.gguf"),
        (None, "tokenizer", "has no config.json; it has README.md, model.gguf"),
        (
            Some(("config.json", &b"{}"[..])),
            "sentences",
            "has none of model.safetensors, model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json; \
             it has README.md, config.json, model.gguf",
        ),
    ] {
        let dir = files::folder(&files.into_iter().chain(config).collect::<Vec<_>>());
        let hub = Hub::serve(dir.path(), Faults::default());
        let user = User::new(hub.endpoint());
        for _ in 0..2 {
            assert_eq!(user.load(wanted, NAME).unwrap_err(), format!("{NAME} {missing}"));
        }
    }
}

#[test]
fn an_answer_without_end_is_an_error_and_not_all_memory() {
    let dir = tiny();
    for endless in ["revision", "tree"] {
        let hub = Hub::serve(dir.path(), Faults { endless: Some(endless), ..Faults::default() });
        let error = User::new(hub.endpoint()).load("config", NAME).unwrap_err();
        has(&error, &["cannot be downloaded", "answers of at most 32 MiB", endless]);
    }
}

#[test]
fn what_the_server_says_names_no_files() {
    let dir = tiny();
    let outside = |user: &User| -> Vec<String> {
        let names = tree(user.home.path()).into_keys();
        names.filter(|name| !name.starts_with("hf/hub/")).collect()
    };
    let entry = |path: &str, oid: &str, size: u64| -> Value {
        json!({ "type": "file", "path": path, "oid": oid, "size": size })
    };
    let oid = git_oid(b"");
    let modules = entry("modules.json", "../../../evil", 4);
    let large = entry("config.json", &oid, u64::MAX);
    for (faults, problem) in [
        (Faults { commit: Some("../../../../evil"), ..Faults::default() }, "the commit of the revision"),
        (Faults { listed: vec![modules], ..Faults::default() }, "modules.json"),
        (Faults { listed: vec![large], ..Faults::default() }, "config.json has 18446744073709551615 bytes"),
        (Faults { circular: true, ..Faults::default() }, "redirect"),
    ] {
        let user = User::new(Hub::serve(dir.path(), faults).endpoint());
        has(&user.load("sentences", NAME).unwrap_err(), &["cannot be downloaded", problem]);
        assert_eq!(outside(&user), [""; 0]);
    }

    // Folders and shards that the model's own files name.
    let path = dir.path().join("modules.json");
    let mut modules: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    modules[2]["path"] = "../../../../evil".into();
    fs::write(&path, modules.to_string()).unwrap();
    let user = User::new(Hub::serve(dir.path(), Faults::default()).endpoint());
    has(&user.load("sentences", NAME).unwrap_err(), &["have a Dense in \"../../../../evil\""]);
    assert_eq!(outside(&user), [""; 0]);
}
