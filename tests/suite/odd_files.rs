//! Names that stand for no regular file, files that are not what their name says, and the empty path.

use crate::checkpoint_files::{
    Stored, copy_of, file_of, fixture, holds_pattern, safetensors_bytes, tiny, tiny_tensors,
};
use crate::prelude::*;

/// Files of the fixtures, one of each kind that a load reads.
const FILES: [(&str, &str); 4] = [
    ("bert", "config.json"),
    ("bert", "model.safetensors"),
    ("bert_sharded", "model.safetensors.index.json"),
    ("sharded_bin", "pytorch_model-00002-of-00002.bin"),
];

const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1\n\
    oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 440473133\n";

fn message<T>(result: Result<T, Error>) -> String {
    let error = result.err().expect("this should be refused");
    format!("{:#}", anyhow::Error::new(error))
}

fn load(path: &Path) -> Result<BertEmbeddings, Error> {
    BertEmbeddings::from_pretrained(path, &device())
}

/// Asserts that `run` refuses a path in words that have these parts, and takes no longer than a load of a tiny file ever does.
fn refused<T: Send + 'static>(
    path: &Path,
    run: impl FnOnce(&Path) -> Result<T, Error> + Send + 'static,
    parts: [&str; 2],
) {
    let (path, (sender, receiver)) = (path.to_path_buf(), std::sync::mpsc::channel());
    std::thread::spawn(move || sender.send(run(&path)));
    let message = message(receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("it hangs"));
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
}

/// Puts something that is no regular file, or a pointer to one, in the place of a file.
pub fn put_in_place(kind: &str, path: &Path) {
    _ = fs::remove_dir(path).or_else(|_| fs::remove_file(path));
    match kind {
        "a FIFO" => {
            assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        }
        "a socket" => {
            std::os::unix::net::UnixListener::bind(path).unwrap();
        }
        "a directory" => fs::create_dir(path).unwrap(),
        "a link to nowhere" => std::os::unix::fs::symlink("/nowhere/at/all", path).unwrap(),
        "a device" => std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
        "a git-LFS pointer" => fs::write(path, LFS_POINTER).unwrap(),
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_no_regular_file_or_a_pointer_of_git_lfs_is_refused_by_name_and_kind() {
    for kind in ["a FIFO", "a socket", "a directory", "a device", "a git-LFS pointer"] {
        for (folder, name) in FILES {
            let copy = copy_of(folder);
            put_in_place(kind, &copy.path().join(name));
            refused(copy.path(), load, [name, kind]);
        }
    }
}

#[test]
fn a_fifo_beside_a_lone_file_is_refused_and_no_save_waits_for_one() {
    let folder = folder(&[("weights.safetensors", &safetensors_bytes(&tiny_tensors("")))]);
    let [fifo, weights] = ["fifo", "weights.safetensors"].map(|name| folder.path().join(name));
    put_in_place("a FIFO", &fifo);
    refused(&fifo, load, ["fifo", "a FIFO"]);
    put_in_place("a FIFO", &folder.path().join("config.json"));
    let expected = ["config.json", "a FIFO"];
    refused(&weights, load, expected);
    refused(folder.path(), |dir| BertEmbeddingsConfig::from_pretrained(dir).map(drop), expected);
    for name in ["config.json", "model.safetensors"] {
        let copy = copy_of("bert");
        put_in_place("a FIFO", &copy.path().join(name));
        refused(copy.path(), |dir| tiny().init(&device()).save_pretrained(dir), [name, "a FIFO"]);
    }
}

#[cfg(feature = "tokenizers")]
#[test]
fn texts_and_a_tokenizers_files_that_are_no_regular_files_are_refused() {
    for (kind, name) in [
        #[cfg(feature = "train")]
        ("a FIFO", "text.txt"),
        #[cfg(feature = "train")]
        ("a device", "text.txt"),
        ("a FIFO", "tokenizer.json"),
        ("a FIFO", "vocab.txt"),
        ("a FIFO", "tokenizer_config.json"),
        ("a FIFO", "special_tokens_map.json"),
        ("a git-LFS pointer", "tokenizer.json"),
    ] {
        let folder = folder(&[("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")]);
        put_in_place(kind, &folder.path().join(name));
        let read = move |dir: &Path| match name {
            #[cfg(feature = "train")]
            "text.txt" => PlainText::open(dir.join(name)).map(drop),
            _ => BertTokenizer::from_pretrained(dir).map(drop),
        };
        refused(folder.path(), read, [name, kind]);
    }
}

#[test]
fn links_are_followed_and_a_link_to_nowhere_does_not_give_way_to_another_file() {
    use std::os::unix::fs::symlink;
    let folder = folder(&[]);
    for name in ["config.json", "model.safetensors"] {
        symlink(fixture("bert").join(name), folder.path().join(name)).unwrap();
    }
    assert!(holds_pattern(&load(folder.path()).unwrap()));

    let model = folder.path().join("model.safetensors");
    fs::copy(fixture("zip.bin"), folder.path().join("pytorch_model.bin")).unwrap();
    for target in [Path::new("gone"), Path::new("model.safetensors")] {
        fs::remove_file(&model).unwrap();
        symlink(target, &model).unwrap();
        let message = message(load(folder.path()));
        assert!(message.contains("model.safetensors"), "{message}");
    }
}

#[test]
fn the_empty_path_is_no_directory_to_save_into_and_none_to_load_from() {
    let module = tiny().init(&device());
    for (message, what) in [
        (message(module.save_pretrained("")), "saved into"),
        (message(load(Path::new(""))), "read"),
        (message(BertEmbeddingsConfig::from_pretrained("")), "read"),
    ] {
        assert_eq!(message, format!("the empty path cannot be {what}; the current directory is \".\""));
    }
    for name in ["config.json", "model.safetensors"] {
        assert!(!Path::new(name).exists(), "{name} was written into the current directory");
    }
}

// Keys that a wrapper of the model has prefixed

#[test]
fn the_prefixes_of_data_parallel_compile_and_lightning_are_taken_off() {
    for wrapper in
        ["module.", "_orig_mod.", "module._orig_mod.", "model.", "state_dict.model.", "state_dict."]
    {
        for prefix in ["", "embeddings.", "bert.embeddings."] {
            let (_folder, path) = file_of(&tiny_tensors(&format!("{wrapper}{prefix}")));
            let module = load(&path).unwrap_or_else(|error| panic!("{wrapper}{prefix}: {error}"));
            assert!(holds_pattern(&module), "{wrapper}{prefix}");
        }
    }
    // A trainer's checkpoint: the model's tensors among those of the optimizer.
    assert!(holds_pattern(&load(&fixture("lightning.bin")).unwrap()));
    // A tensor that is missing is called by its key in the file.
    let mut tensors = tiny_tensors("module.bert.embeddings.");
    tensors.pop();
    let (_folder, path) = file_of(&tensors);
    says(load(&path), "module.bert.embeddings.LayerNorm.bias");
}

#[test]
fn a_model_with_and_without_a_wrapper_is_ambiguous_and_one_with_it_is_not_saved_over() {
    let bias = vec![Stored::f32("bert.embeddings.LayerNorm.bias", &[4])];
    for (without, key, other) in [
        (
            tiny_tensors("bert.embeddings."),
            "word_embeddings.weight",
            "bert.embeddings.word_embeddings.weight",
        ),
        (bias, "LayerNorm.bias", "bert."),
    ] {
        let (_folder, path) = file_of(&[without, tiny_tensors("module.bert.embeddings.")].concat());
        let message = message(load(&path));
        let both = [format!("has bert.embeddings.{key} and "), format!("module.{other}")];
        assert!(both.iter().all(|part| message.contains(part)), "{message}");
    }
    let dir = folder(&[("model.safetensors", &safetensors_bytes(&tiny_tensors("module.bert.embeddings.")))]);
    let before = fs::read(dir.path().join("model.safetensors")).unwrap();
    let message = message(tiny().init(&device()).save_pretrained(dir.path()));
    assert!(message.contains("module.") && message.contains("another directory"), "{message}");
    assert_eq!(fs::read(dir.path().join("model.safetensors")).unwrap(), before);
}
