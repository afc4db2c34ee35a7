//! Prefixes that a wrapper around the model gives to all of its keys.

use super::names::{WORD, is_known};

/// The prefixes of DataParallel and `torch.compile`, and those of trainers such as Lightning.
const WRAPPERS: [&str; 4] = ["module.", "_orig_mod.", "state_dict.", "model."];

/// The prefixes before the keys of the models that these keys belong to, each once; an empty one stands for a model
/// without a wrapper.
pub(super) fn wrappers<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<String> = keys.filter_map(wrapper).map(String::from).collect();
    found.dedup();
    found
}

/// The prefix before the model's own key, if the key is that of a word table.
fn wrapper(key: &str) -> Option<&str> {
    let prefix = key.strip_suffix(WORD)?;
    let mut rest = prefix;
    while !is_known(rest) {
        rest = WRAPPERS.iter().find_map(|wrapper| rest.strip_prefix(wrapper))?;
    }
    Some(&prefix[..prefix.len() - rest.len()])
}
