//! LoRA adapters of a model, apart from its weights.

use super::stored::{Stored, params_of};
use crate::checkpoint::{ModelKeys, SavedAdapter};
use crate::error::{Error, Result};
use crate::family::Family;
use burn::module::{ModuleVisitor, Param, ParamId};
use burn::prelude::*;
use std::collections::{HashMap, HashSet};

/// The LoRA adapters and the head of a model, as
/// [`PretrainedModel::save_adapter`](super::PretrainedModel::save_adapter) writes them.
pub(crate) fn adapter_of<M: Stored>(model: &M) -> Result<SavedAdapter> {
    let layers = &model.bert().encoder.layers;
    let of_distances = layers.iter().filter_map(|layer| layer.attention.disentangled.as_ref());
    let of_distances = of_distances.flat_map(|layer| [&layer.pos_key_proj, &layer.pos_query_proj]).flatten();
    let linears = layers.iter().flat_map(|layer| layer.linears()).map(|(_, linear)| linear);
    let adapters =
        linears.chain(of_distances).filter_map(|linear| Some((linear.weight.id, linear.weight.adapter()?)));
    let adapters: HashMap<_, _> = adapters.collect();
    let mut trained = TrainedIds(HashSet::new());
    // Off an autodiff device no tensor says it; `train` restores what is trained.
    model.clone().valid().train().visit(&mut trained);
    let family = model.bert().embeddings.family();
    // They are renamed when transformers loads them.
    if let Family::Gte | Family::NomicBert | Family::JinaEmbeddingsV3 = family {
        let problem = "whose modules have other names in transformers than in its files, so that PEFT would not find them";
        return Err(Error::data("the model", format!("is of the family {family:?}, {problem}")));
    }
    let prefix = M::CLASS.map_or(String::new(), |_| format!("{}.", family.spec().base));
    let keys = ModelKeys::written(&prefix, family);
    let (mut params, copies) = params_of(model, &keys);
    // PEFT reads a module that is saved whole only with all its tensors, also those that transformers ties. DeBERTa's newer head is given
    // the embeddings and has none.
    let is_tied = |[own, copy]: &[String; 2]| own != copy && !copy.starts_with("lm_predictions.lm_head.");
    for [own, copy] in copies.equal.into_iter().chain(copies.replaced).filter(is_tied) {
        if let Some(mut own) = params.iter().find(|param| param.key == own).cloned() {
            (own.part, own.key) = (Some(copy.clone()), copy);
            params.push(own);
        }
    }
    SavedAdapter::new(&params, &keys, &adapters, &trained.0)
}

/// PEFT's name of what a class of transformers is for, if it has one.
pub(crate) fn task_type<M: Stored>() -> Option<&'static str> {
    match M::CLASS {
        None => Some("FEATURE_EXTRACTION"),
        Some("ForSequenceClassification") => Some("SEQ_CLS"),
        Some("ForTokenClassification") => Some("TOKEN_CLS"),
        Some("ForQuestionAnswering") => Some("QUESTION_ANS"),
        Some(_) => None,
    }
}

/// The ids of the parameters that are trained.
struct TrainedIds(HashSet<ParamId>);

impl ModuleVisitor for TrainedIds {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad() {
            self.0.insert(param.id);
        }
    }
}
