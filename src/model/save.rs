//! Models saved as Hugging Face directories.

use super::bert::BertModel;
use super::stored::Stored;
use crate::checkpoint::{
    Directory, FamilySpec, ModelKeys, check_stored, merged_fields, replace_changed, torch_name,
};
use crate::encoder::config::BertModelConfig;
use crate::error::{Error, Result};
use serde_json::{Map, Value, json};
use std::path::Path;

pub(super) fn save<M: Stored>(model: &M, dir: &Path) -> Result<()> {
    let bert = model.bert();
    let family = bert.embeddings.family();
    let spec = FamilySpec::of(family);
    let mut directory = Directory::open(dir, family)?;
    let old_keys = directory.keys.take();
    let old_prefix = old_keys.as_ref().and_then(|keys| keys.model_prefix());
    // Beside a head the model's keys need a prefix.
    let prefix = match M::CLASS {
        Some(_) => format!("{}.", spec.base),
        None => old_prefix.unwrap_or_default().to_string(),
    };
    let keys = ModelKeys::written(&prefix, family);

    let words = &bert.embeddings.word_embeddings.weight;
    let device = words.lazy_device();
    let own = own_fields(model);
    // Fields that still mean what the old file meant are written as they were.
    let was = directory.fields.as_ref().and_then(|old| M::build(&M::config_of(old).ok()?, &device).ok());
    let mut fields = merged_fields(&bert.embeddings.config(), directory.fields.take())?;
    let mut same = was.as_ref().map(own_fields).unwrap_or_default();
    // transformers gives a head as many outputs as there are labels, so another head's labels stay only if they are as many.
    if num_labels(&fields) != num_labels(&own) {
        same.retain(|field, _| !["id2label", "label2id"].contains(&field.as_str()));
    }
    replace_changed(&mut fields, own, &same);
    // A bare model is part of every class, and leaves the old one.
    if let Some(class) = M::CLASS {
        fields.insert("architectures".into(), json!([format!("{}{class}", spec.class)]));
    }
    // transformers loads in the dtype that the config names; before 4.56 it had another name.
    if let Some(dtype) = torch_name(words.val().dtype()) {
        fields.insert("dtype".into(), dtype.into());
        fields.entry("torch_dtype").and_modify(|old| *old = dtype.into());
    }

    // The config must build this very model, or the directory could not be read again.
    let config = model.stored_config();
    let built = M::build(&config, &device)?;
    check_layers(bert, M::bert_config(&config))?;
    let mut params = bert.body_params(&keys);
    check_stored(&params, &built.bert().body_params(&keys))?;
    let built_parts = built.parts(&keys);
    // What of the old file starts with one of these is replaced, and also removed where this model has no such part.
    let beside_layers = [spec.keys.projection, spec.keys.relative_attention_bias, spec.keys.final_norm];
    let disentangled = spec.keys.disentangled.into_iter().flat_map(|[table, norm, ..]| [table, norm]);
    let beside_layers = beside_layers.into_iter().flatten().chain(disentangled);
    let mut namespaces = vec![keys.encoder()];
    namespaces.extend(beside_layers.map(|name| keys.named(name)));
    let mut copies = Vec::new();
    for part in model.parts(&keys) {
        // The built model may have more parts: what this one lacks is reported as missing when it is loaded.
        let expected = built_parts.iter().find(|built| built.namespace == part.namespace);
        check_stored(&part.params, expected.map(|built| built.params.as_slice()).unwrap_or_default())?;
        namespaces.push(part.namespace);
        params.extend(part.params);
        copies.extend(part.copies);
    }
    let mut folders = Vec::new();
    for ((name, part), (_, built)) in model.parts_beside().into_iter().zip(built.parts_beside()) {
        check_stored(&part.params, &built.params)?;
        folders.push((name, part.params));
    }
    // Keys of a bare model get the prefix, so that its other tensors, such as the pooler, stay readable beside a head.
    let is_unprefixed = old_prefix == Some("");
    directory.replace(fields, model.files_beside(dir)?, params, folders, |key| {
        let is_of_model =
            ["embeddings", "emb_ln.", "encoder.", "transformer.", "pooler.", "layers.", "final_norm."]
                .iter()
                .any(|part| key.starts_with(part));
        let name = if is_unprefixed && is_of_model { keys.named(key) } else { key.to_string() };
        let is_replaced = old_keys.as_ref().is_some_and(|old| old.is_of_layer(key, true))
            || keys.is_of_layer(&name, true)
            || namespaces.iter().any(|namespace| name.starts_with(namespace))
            || copies.contains(&name);
        (!is_replaced).then_some(name)
    })
}

/// Refuses layers with different settings: a `config.json` states one value for all.
fn check_layers(bert: &BertModel, config: &BertModelConfig) -> Result<()> {
    let stated = [
        ("hidden_act", format!("{:?}", config.hidden_act)),
        ("hidden_dropout_prob", config.layer_dropout().to_string()),
        ("attention_probs_dropout_prob", config.attention_probs_dropout_prob.to_string()),
        ("num_attention_heads", config.num_attention_heads.to_string()),
    ];
    for (i, layer) in bert.encoder.layers.iter().enumerate() {
        let found = [
            format!("{:?}", layer.hidden_act()),
            layer.dropout.prob.to_string(),
            layer.attention.dropout.prob.to_string(),
            layer.attention.num_attention_heads().to_string(),
        ];
        for ((field, stated), found) in stated.iter().zip(found) {
            if found != *stated {
                let problem =
                    format!("is {found} in layer {i}, but a config.json states one of all, {stated} here");
                return Err(Error::config(field, problem));
            }
        }
    }
    Ok(())
}

fn own_fields<M: Stored>(model: &M) -> Map<String, Value> {
    let fields = model.bert().config().encoder_fields().into_iter().chain(model.head_fields());
    fields.map(|(field, value)| (field.to_string(), value)).collect()
}

/// How many labels a `config.json` has; transformers' default is two.
fn num_labels(fields: &Map<String, Value>) -> u64 {
    let names = fields.get("id2label").and_then(Value::as_object).map(|names| names.len() as u64);
    names.or_else(|| fields.get("num_labels")?.as_u64()).unwrap_or(2)
}
