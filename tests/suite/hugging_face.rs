//! The embedding layer of a real checkpoint. `tests/backend` has the fixtures.

use crate::golden::{Golden, NAMES};
use crate::prelude::*;
use crate::transformers::{Python, real_checkpoint};

/// Every device that is compiled in and computes where the fixtures were made: on a CPU.
fn devices() -> Vec<(&'static str, Device)> {
    vec![
        #[cfg(feature = "flex")]
        ("flex", crate::devices::flex()),
        #[cfg(feature = "ndarray")]
        ("ndarray", crate::devices::ndarray()),
    ]
}

/// The real thing: the interpreter that `BURN_BERT_PYTHON` names runs transformers' layer of the checkpoint that
/// `BURN_BERT_CHECKPOINT` names on real sentences.
#[test]
#[ignore = "needs Python with transformers and a checkpoint: BURN_BERT_PYTHON, BURN_BERT_CHECKPOINT"]
fn a_real_checkpoint_on_real_sentences_equals_transformers() {
    let (python, model) = (Python::named(), real_checkpoint());
    let folder = tempdir().unwrap();
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
                let unit = of_layer(golden.dtype.into());
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
