//! The rooms of `src/`: imports point down.

use std::fs;
use std::path::{Path, PathBuf};

/// From top to bottom. A room may import from those below it.
const LADDER: [&[&str]; 10] = [
    &["training"],
    &["model"],
    &["encoder", "checkpoint", "text"],
    &["sparse"],
    &["embeddings"],
    &["optim"],
    &["remote"],
    &["operator"],
    &["regular_file"],
    &["error"],
];

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// A room's rung, counted from the bottom.
fn height(room: &str) -> Option<usize> {
    LADDER.iter().rev().position(|rung| rung.contains(&room))
}

/// `crate::room` in the code of a file, which names the room that it imports from.
fn imports(source: &str) -> impl Iterator<Item = &str> {
    let code = source.lines().filter_map(|line| line.split("//").next());
    let paths = code.flat_map(|line| line.split("crate::").skip(1));
    paths.map(|path| path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap())
}

#[test]
fn rooms_import_from_those_below_them_alone() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut found = 0;
    for file in files.iter().filter(|file| **file != src.join("lib.rs")) {
        let name = file.strip_prefix(&src).unwrap();
        let room = name.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        let own = height(room).unwrap_or_else(|| panic!("{room} has no place on the ladder"));
        for imported in imports(&fs::read_to_string(file).unwrap()).filter(|&imported| imported != room) {
            let other = height(imported);
            assert!(other.is_some_and(|other| other < own), "{} imports crate::{imported}", name.display());
            found += 1;
        }
    }
    assert!(found > 100, "{found} imports between rooms");
}
