//! The config of sentence-transformers' `Pooling`.

use super::pooling::Pooling;
use crate::error::Result;
use crate::model::sentence_transformers::SideConfig;
use serde_json::{Value, json};

/// The names of a pooling in `pooling_mode` and in the older flags, of which several give their vectors in this order.
const MODES: [(Pooling, &str, &str); 6] = [
    (Pooling::Cls, "cls", "pooling_mode_cls_token"),
    (Pooling::Max, "max", "pooling_mode_max_tokens"),
    (Pooling::Mean, "mean", "pooling_mode_mean_tokens"),
    (Pooling::MeanSqrtLen, "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"),
    (Pooling::WeightedMean, "weightedmean", "pooling_mode_weightedmean_tokens"),
    (Pooling::LastToken, "lasttoken", "pooling_mode_lasttoken"),
];

/// The poolings that a config states, in its present or its former form, and whether prompts are pooled.
pub(super) fn read(config: &SideConfig, hidden_size: usize) -> Result<(Vec<Pooling>, bool)> {
    for field in ["embedding_dimension", "word_embedding_dimension"] {
        if let Some(width) = config.fields.get(field).filter(|width| **width != hidden_size) {
            let problem = format!("is {width}, but the model's hidden_size is {hidden_size}");
            return Err(config.invalid(field, problem));
        }
    }
    let include_prompt = config.flag("include_prompt")?.unwrap_or(true);
    let invalid = |problem: String| Err(config.invalid("pooling_mode", problem));
    // Newer files have `pooling_mode`, older ones a flag for each mode.
    let flags = || config.fields.iter().filter(|(name, _)| name.starts_with("pooling_mode_"));
    let names: Vec<&str> = match config.fields.get("pooling_mode") {
        Some(Value::Array(modes)) => modes.iter().map(|mode| mode.as_str().unwrap_or("?")).collect(),
        Some(mode) => vec![mode.as_str().unwrap_or("?")],
        None => match flags().find(|(_, is_set)| !is_set.is_boolean()) {
            Some((name, value)) => {
                return invalid(format!("has {name} {value}, but it must be true or false"));
            }
            None => {
                let is_set = |name: &str| config.fields.get(name).is_some_and(|is_set| *is_set == true);
                let known = MODES.map(|(.., flag)| flag);
                let others = flags().map(|(name, _)| name.as_str()).filter(|name| !known.contains(name));
                known.into_iter().chain(others).filter(|name| is_set(name)).collect()
            }
        },
    };
    if names.is_empty() && flags().count() > 0 && !config.fields.contains_key("pooling_mode") {
        return invalid("has no flag that is true; set one".into());
    }
    let supported = MODES.map(|(_, name, _)| name).join(", ");
    let pooling = |name: &str| {
        let known = MODES.iter().find(|(_, mode, flag)| [*mode, *flag].contains(&name));
        let problem = || format!("is {name:?}, but must be one of {supported}");
        known.map(|(pooling, ..)| *pooling).ok_or_else(|| config.invalid("pooling_mode", problem()))
    };
    if names.len() > MODES.len() {
        return invalid(format!("has {} names, but there are {supported}", names.len()));
    }
    let poolings = names.into_iter().map(pooling).collect::<Result<Vec<_>>>()?;
    Ok((if poolings.is_empty() { vec![Pooling::Mean] } else { poolings }, include_prompt))
}

/// The config of these poolings, in the form that every version since 2.0 reads.
pub(super) fn written(poolings: &[Pooling], hidden_size: usize, include_prompt: bool) -> Value {
    let mut config = json!({ "word_embedding_dimension": hidden_size });
    for (mode, _, flag) in MODES {
        config[flag] = json!(poolings.contains(&mode));
    }
    if poolings.len() > 1 {
        // The flags have an order of their own.
        let name =
            |pooling: &Pooling| MODES.iter().find(|(mode, ..)| mode == pooling).map(|(_, name, _)| *name);
        config["pooling_mode"] = poolings.iter().map(name).collect();
    }
    if !include_prompt {
        config["include_prompt"] = json!(false);
    }
    config
}
