//! What a model must be to be saved: what its `config.json` builds.

use super::stored::Stored;
#[cfg(feature = "train")]
use crate::checkpoint::merged_fields;
use crate::checkpoint::{ModelKeys, check_stored};
use crate::encoder::BertLayer;
use crate::error::Result;
use crate::layers::ensure;
#[cfg(feature = "train")]
use std::path::Path;

/// Refuses a model that [`PretrainedModel::save_pretrained`](super::PretrainedModel::save_pretrained) would refuse, whatever the directory holds, or for a file there that
/// it would change; writes nothing.
#[cfg(feature = "train")]
pub(crate) fn check_savable<M: Stored>(model: &M, dir: &Path) -> Result<()> {
    let keys = ModelKeys::written("", model.bert().embeddings.family());
    merged_fields(&model.bert().embeddings.config(), None)?;
    check_built_by_config(model, &keys)?;
    let beside = model.parts_beside().into_iter().map(|(_, part)| part);
    let parts = model.parts(&keys).into_iter().chain(beside).flat_map(|part| part.params);
    let mut params = model.bert().body_params(&keys).into_iter().chain(parts);
    params.try_for_each(|param| param.writer(dir).map(drop))?;
    model.files_beside(dir).map(drop)
}

/// The config must build this very model, or the directory could not be read again.
pub(super) fn check_built_by_config<M: Stored>(model: &M, keys: &ModelKeys) -> Result<()> {
    let bert = model.bert();
    // Models to compare with are built there, but never initialised.
    let device = bert.embeddings.word_embeddings.weight.lazy_device();
    let built = M::build(&model.stored_config(), &device)?;
    for (i, (layer, built)) in bert.encoder.layers.iter().zip(&built.bert().encoder.layers).enumerate() {
        for ((field, found), (_, stated)) in settings(layer).into_iter().zip(settings(built)) {
            ensure(found == stated, field, || {
                format!(
                    "is {found} in layer {i} and {stated} in the config; a config.json holds one value for all layers"
                )
            })?;
        }
    }
    check_stored(&bert.body_params(keys), &built.bert().body_params(keys))?;
    let built_parts = built.parts(keys);
    for part in model.parts(keys) {
        // The built model may have more parts: what this one lacks is reported as missing when it is loaded.
        let expected = built_parts.iter().find(|built| built.namespace == part.namespace);
        check_stored(&part.params, expected.map(|built| built.params.as_slice()).unwrap_or_default())?;
    }
    let beside = model.parts_beside().into_iter().zip(built.parts_beside());
    beside.into_iter().try_for_each(|((_, part), (_, built))| check_stored(&part.params, &built.params))
}

/// What a `config.json` states once for all layers.
fn settings(layer: &BertLayer) -> [(&'static str, String); 4] {
    [
        ("hidden_act", format!("{:?}", layer.hidden_act())),
        ("hidden_dropout_prob", layer.dropout.prob.to_string()),
        ("attention_probs_dropout_prob", layer.attention.dropout.prob.to_string()),
        ("num_attention_heads", layer.attention.num_attention_heads().to_string()),
    ]
}
