//! Whole models into Hugging Face directories and out of them: what is kept, what is refused, what is reported.

mod existing_directory;
mod loading;
mod round_trip;
mod untied_head;

use crate::checkpoint_files::{Stored, safetensors_bytes, tensors_of};
use crate::files;
use crate::prelude::*;
use crate::small_bert::small;

fn fixture(name: &str) -> PathBuf {
    files::fixture("masked_lm").join(name)
}

fn tiny() -> BertForMaskedLmConfig {
    let bert = small_bert(20, 8).with_num_hidden_layers(2).with_attention_probs_dropout_prob(0.2);
    BertForMaskedLmConfig::new(bert)
}

fn roberta() -> BertForMaskedLmConfig {
    BertForMaskedLmConfig::new(small(BertModelConfig::roberta_base(), 20, 8))
}

fn load(dir: &Path) -> (BertForMaskedLm, LoadReport) {
    BertForMaskedLm::from_pretrained(dir, &device()).unwrap()
}

fn refused(dir: &Path) -> Error {
    BertForMaskedLm::from_pretrained(dir, &device()).map(|(_, report)| report).unwrap_err()
}

fn copy_of(name: &str) -> TempDir {
    files::copy_of(fixture(name))
}

/// A copy of a fixture with fields of its config replaced.
fn with_fields(name: &str, fields: &[(&str, Value)]) -> TempDir {
    let dir = copy_of(name);
    set_fields(&dir, fields);
    dir
}

/// A copy of a fixture with tensors added, taken away or renamed.
fn with_tensors(name: &str, change: impl FnOnce(&mut Vec<Stored>)) -> TempDir {
    let dir = copy_of(name);
    let mut tensors = tensors_of(dir.path());
    change(&mut tensors);
    fs::write(dir.path().join("model.safetensors"), safetensors_bytes(&tensors)).unwrap();
    dir
}
