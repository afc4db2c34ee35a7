//! The tables of transformers' `TrainingArguments` in docs/migrating.md.

use crate::transformers::Python;
use std::process::Stdio;

#[test]
#[ignore = "needs Python with transformers, named by BURN_BERT_PYTHON"]
fn every_field_of_transformers_training_arguments_is_on_the_page() {
    let fields = Python::named().run("training_arguments.py", &[], Stdio::null());
    let fields: Vec<String> = serde_json::from_slice(&fields).unwrap();
    assert!(fields.len() > 100, "{fields:?}");
    // Names in code, such as `hub_*` for all that begin so, or `greater_is_better=True`.
    let names: Vec<&str> = include_str!("../../docs/migrating.md").split('`').skip(1).step_by(2).collect();
    let is_named = |field: &String| {
        names.iter().any(|name| match name.strip_suffix('*') {
            Some(start) => start.len() > 3 && field.starts_with(start),
            None => name.split('=').next() == Some(field),
        })
    };
    let missing: Vec<_> = fields.iter().filter(|field| !is_named(field)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
