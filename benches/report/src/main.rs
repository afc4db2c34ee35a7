//! Draws the charts of `assets/` and writes the README's table of speed, both from the tables of `benches/RESULTS.md`:
//! `cargo run -p report`. With `--check` nothing is written, and the exit status is 1 if a file is not what it would be.

mod charts;
mod speed;
mod tables;

use anyhow::{Result, ensure};
use std::fs;
use std::path::Path;
use tables::Results;

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let results = Results::read(&root.join("benches/RESULTS.md"))?;
    let readme = fs::read_to_string(root.join("README.md"))?;
    let mut files = vec![("README.md".to_string(), speed::insert(&readme, &results)?)];
    for (name, chart) in charts::all(&results)? {
        files.push((format!("assets/{name}.svg"), chart));
    }
    let mut stale = Vec::new();
    for (name, content) in files {
        let path = root.join(&name);
        if fs::read_to_string(&path).ok().as_ref() == Some(&content) {
            continue;
        }
        if std::env::args().any(|argument| argument == "--check") {
            stale.push(name);
        } else {
            fs::write(path, content)?;
            println!("wrote {name}");
        }
    }
    ensure!(
        stale.is_empty(),
        "not what benches/RESULTS.md says: {}; run cargo run -p report",
        stale.join(", ")
    );
    Ok(())
}
