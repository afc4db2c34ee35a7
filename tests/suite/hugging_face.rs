//! Equal to Hugging Face, value for value, gradient for gradient, loss for loss.

use crate::files::fixture;
use crate::golden::{Golden, NAMES};
use crate::tolerance::{BF16, F16, F32, F64, Tolerance};
use crate::transformers::{Python, real_checkpoint};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::BertEmbeddings;
use std::path::PathBuf;

/// Every device that is compiled in and computes where the fixtures were made: on a CPU.
fn devices() -> Vec<(&'static str, Device)> {
    vec![
        #[cfg(feature = "flex")]
        ("flex", crate::devices::flex()),
        #[cfg(feature = "ndarray")]
        ("ndarray", crate::devices::ndarray()),
    ]
}

fn goldens() -> Vec<Golden> {
    let folder = std::fs::read_dir(fixture("embeddings")).unwrap();
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert_eq!(paths.len(), 32, "as many fixtures as README.md lists");
    paths.iter().map(|path| Golden::read(path)).collect()
}

fn tolerance(dtype: FloatDType) -> Tolerance {
    match dtype {
        FloatDType::F64 => F64,
        FloatDType::F16 => F16,
        FloatDType::BF16 => BF16,
        _ => F32,
    }
}

/// Compares what is computed of the files that `have` it, on every device that computes in their dtype, and prints a row of
/// the parity table for each.
fn assert_equal(
    have: impl Fn(&Golden) -> bool,
    compute: impl Fn(&Golden, &Device) -> Vec<(String, Vec<f64>)>,
) {
    let mut failures = Vec::new();
    for golden in goldens().iter().filter(|golden| have(golden)) {
        for (on, device) in devices() {
            if !device.supports_dtype(golden.dtype) {
                // Each device takes some of the files: those in f32 at least.
                assert_ne!(golden.dtype, FloatDType::F32, "{on}");
                continue;
            }
            let file = golden.path.file_stem().unwrap().to_string_lossy();
            let mut worst = (0.0f64, 0.0f64);
            for (name, values) in compute(golden, &device) {
                let miss = golden.miss(&name, &values, tolerance(golden.dtype));
                if miss.1 > 1.0 {
                    failures.push(format!("{file} on {on}: {name} is off by {:.1e}", miss.0));
                }
                worst = (worst.0.max(miss.0), worst.1.max(miss.1));
            }
            println!("{file:<42} {on:<8} {:>8.1e} {:>6.1} % of the tolerance", worst.0, 100.0 * worst.1);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn outputs_equal_hugging_faces_in_every_dtype() {
    assert_equal(
        |_| true,
        |golden, device| {
            let output = golden.module(device).forward(&golden.input(device).0);
            vec![("output".to_string(), crate::tolerance::values(output))]
        },
    );
}

#[test]
fn gradients_of_every_parameter_and_of_inputs_embeds_equal_hugging_faces() {
    assert_equal(Golden::has_gradients, Golden::gradients);
}

#[test]
fn ten_steps_of_adamw_cost_and_end_as_pytorchs_do() {
    assert_equal(Golden::has_training, Golden::training);
}

/// The real thing: the interpreter that `BURN_BERT_PYTHON` names runs transformers' layer of the checkpoint that
/// `BURN_BERT_CHECKPOINT` names on real sentences.
#[test]
#[ignore = "needs Python with transformers and a checkpoint: BURN_BERT_PYTHON, BURN_BERT_CHECKPOINT"]
fn a_real_checkpoint_on_real_sentences_equals_transformers() {
    let (python, model) = (Python::named(), real_checkpoint());
    let folder = tempfile::tempdir().unwrap();
    python.check("golden", &model, folder.path());

    for (name, device) in devices() {
        let golden = Golden::read(&folder.path().join("f32.safetensors"));
        let loaded = BertEmbeddings::from_pretrained(&model, &device).unwrap();
        let dropout = loaded.config().hidden_dropout_prob;
        assert_eq!(loaded.config(), golden.config.clone().with_hidden_dropout_prob(dropout));
        for (parameter, found) in NAMES.iter().zip(crate::golden::parameters(&loaded)) {
            assert!(found == golden.values(parameter), "{parameter} is not read bit for bit");
        }
        for file in ["f32.safetensors", "f64.safetensors"] {
            let golden = Golden::read(&folder.path().join(file));
            for (tensor, found) in golden.gradients(&device) {
                // Vectors of this checkpoint are short, so 1/σ is about 20, and the gradients are sums of a
                // hundred such terms that cancel: what is lost is lost of the largest element, not of each.
                let largest = golden.values(&tensor).into_iter().fold(1.0, |max: f64, x| max.max(x.abs()));
                let unit = tolerance(golden.dtype);
                let scaled = Tolerance { absolute: unit.absolute * largest, ..unit };
                let (miss, share) =
                    golden.miss(&tensor, &found, if tensor == "output" { unit } else { scaled });
                println!("{name} {file} {tensor:<36} off by {miss:.1e}, largest element {largest:.1e}");
                assert!(share <= 1.0, "{tensor} is off by {miss:.1e}");
            }
        }

        // To transformers' format and back.
        let back = folder.path().join(name);
        loaded.save_pretrained(&back).unwrap();
        let back = BertEmbeddings::from_pretrained(&back, &device).unwrap();
        let [back, loaded] = [&back, &loaded].map(crate::golden::parameters);
        assert!(back == loaded, "a round trip is bit-equal");
    }
}
