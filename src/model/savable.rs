//! What a model must be to be saved: what its `config.json` builds.

use super::stored::{Stored, params_of};
#[cfg(feature = "train")]
use crate::checkpoint::merged_fields;
use crate::checkpoint::{ModelKeys, StoredParam, check_stored};
use crate::encoder::BertLayer;
use crate::error::{Error, Result};
use crate::layers::ensure;
#[cfg(feature = "train")]
use std::path::Path;

/// Refuses a model that [`PretrainedModel::save_pretrained`](super::PretrainedModel::save_pretrained) would refuse, whatever the
/// directory holds, or for a file there that it would change; writes nothing.
#[cfg(feature = "train")]
pub(crate) fn check_savable<M: Stored>(model: &M, dir: &Path) -> Result<()> {
    let model = &model.clone().materialize();
    let keys = ModelKeys::written("", model.bert().embeddings.family());
    merged_fields(&model.bert().embeddings.config(), None)?;
    let (params, _) = params_of(model, &keys);
    check_built_by_config(model, &params, &keys)?;
    params.iter().try_for_each(|param| param.writer(dir).map(drop))?;
    model.files_beside(dir).map(drop)
}

/// The config must build this very model, or the directory could not be read again.
pub(super) fn check_built_by_config<M: Stored>(
    model: &M,
    params: &[StoredParam],
    keys: &ModelKeys,
) -> Result<()> {
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
    check_stored(params, &params_of(&built, keys).0)?;
    let stored = bert.embeddings.config().layer_norm_eps;
    let mut norms = bert.encoder.norms().chain(model.head_norms());
    let Some(norm) = norms.find(|norm| norm.epsilon() != stored) else { return Ok(()) };
    let key = params.iter().find(|param| param.holds(norm.gamma.id)).map_or("", |param| &param.key);
    let problem = format!(
        "belongs to a LayerNorm with ε {:e} and not {stored:e}; a config.json states one ε of all, that of the embeddings",
        norm.epsilon()
    );
    Err(Error::data(key, problem))
}

/// The settings that a `config.json` states once for all layers.
fn settings(layer: &BertLayer) -> [(&'static str, String); 4] {
    [
        ("hidden_act", format!("{:?}", layer.hidden_act())),
        ("hidden_dropout_prob", layer.dropout.prob.to_string()),
        ("attention_probs_dropout_prob", layer.attention.dropout.prob.to_string()),
        ("num_attention_heads", layer.attention.num_attention_heads().to_string()),
    ]
}
