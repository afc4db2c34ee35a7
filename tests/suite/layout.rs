//! The rooms of `src/`: imports point down, and no files import each other.

use crate::files::walk;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From top to bottom. A room may import from those below it.
const LADDER: [&[&str]; 13] = [
    &["training"],
    &["metrics"],
    &["data"],
    &["pipeline"],
    &["model"],
    &["encoder", "checkpoint", "text"],
    &["embeddings"],
    &["layers"],
    &["family"],
    &["optim"],
    &["distributed"],
    &["files"],
    &["error"],
];

/// A room's rung, counted from the bottom.
fn height(room: &str) -> Option<usize> {
    LADDER.iter().rev().position(|rung| rung.contains(&room))
}

/// The paths in `tree`, such as `a::{b, c::{d, e}}`.
fn leaves(tree: &str) -> Vec<String> {
    let Some((prefix, group)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap().trim().to_string()];
    };
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (place, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                found.extend(leaves(group[start..place].trim()).iter().map(|leaf| format!("{prefix}{leaf}")));
                start = place + 1;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// What `module` imports of `modules` by `crate::` and `super::`, without the modules that it is part of.
fn imports<'a>(module: &[String], modules: &'a BTreeMap<Vec<String>, PathBuf>) -> BTreeSet<&'a Vec<String>> {
    let source = fs::read_to_string(&modules[module]).unwrap();
    let code: Vec<&str> = source.lines().filter_map(|line| line.split("//").next()).collect();
    let code = code.join("\n");
    let trees = code.split("use ").skip(1).filter_map(|rest| rest.split(';').next());
    let starts = code.match_indices("crate::").chain(code.match_indices("super::"));
    let inline = starts.map(|(place, _)| {
        code[place..].split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').next().unwrap()
    });
    let mut found = BTreeSet::new();
    for path in trees.chain(inline).flat_map(leaves) {
        let mut segments = path.split("::").peekable();
        let mut target = module.to_vec();
        match segments.peek() {
            Some(&"crate") => target = Vec::from_iter(segments.next().and(None)),
            Some(&"super") => {
                while segments.next_if_eq(&"super").is_some() {
                    target.pop();
                }
            }
            _ => continue,
        }
        let mut target = modules.get_key_value(&target).map(|(target, _)| target);
        for segment in segments {
            let mut inner = target.cloned().unwrap_or_default();
            inner.push(segment.trim().to_string());
            let Some((inner, _)) = modules.get_key_value(&inner) else { break };
            target = Some(inner);
        }
        assert!(module.is_empty() || target != Some(&vec![]), "{module:?} imports {path} through the root");
        found.extend(target.filter(|target| !module.starts_with(target)));
    }
    found
}

/// The modules of `src` with their files.
fn modules() -> BTreeMap<Vec<String>, PathBuf> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let module = |file: PathBuf| {
        let name = file.with_extension("");
        let mut module: Vec<String> = name.iter().map(|part| part.to_str().unwrap().to_string()).collect();
        module.pop_if(|last| last == "mod" || last == "lib");
        (module, src.join(file))
    };
    walk(&src).into_iter().map(module).collect()
}

#[test]
fn no_files_import_each_other() {
    let modules = modules();
    let mut left: BTreeMap<_, _> = modules.keys().map(|module| (module, imports(module, &modules))).collect();
    assert!(left.values().map(BTreeSet::len).sum::<usize>() > 300, "imports are not found");
    // Again and again the files go that import none of those left, or that none of those left imports; circles stay.
    loop {
        let before = left.len();
        let importers = left.clone();
        left.retain(|module, imports| {
            imports.iter().any(|import| importers.contains_key(import))
                && importers.values().any(|imports| imports.contains(module))
        });
        if left.len() == before {
            break;
        }
    }
    let circle: Vec<_> = left.keys().map(|module| module.join("::")).collect();
    assert!(circle.is_empty(), "files that import each other: {circle:?}");
}

#[test]
fn rooms_import_from_those_below_them_alone() {
    let (modules, mut found) = (modules(), 0);
    for module in modules.keys().filter(|module| !module.is_empty()) {
        let own = height(&module[0]).unwrap_or_else(|| panic!("{} has no place on the ladder", module[0]));
        for imported in imports(module, &modules).into_iter().filter(|imported| imported[0] != module[0]) {
            let is_below = height(&imported[0]).is_some_and(|other| other < own);
            assert!(is_below, "{} imports {imported:?}", modules[module].display());
            found += 1;
        }
    }
    assert!(found > 100, "{found} imports between rooms");
}
