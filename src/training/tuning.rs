use crate::error::{Error, Result};
use crate::layers::ensure;
use crate::model::Stored;
use crate::optim::num_trainable_params;
use burn::module::{Lora, LoraAdapter, Param, ParamGroup, Reparameterizer};
use burn::prelude::*;
use burn::tensor::Distribution;
use serde::Serialize;

/// Which parameters a [`Trainer`](super::Trainer) trains.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub enum Tuning {
    /// All parameters that are not frozen already.
    #[default]
    Full,
    /// Low-rank adapters of the encoder's weights, and the whole head. At the end the adapters are merged into the weights.
    ///
    /// A weight W of I inputs becomes W + `alpha`/`rank` · A·B, with A uniform in ±1/√I and B zero at the start. Source: `LoraConfig`
    /// of PEFT 0.21, whose defaults are a rank and an alpha of 8 and, of BERT, the modules `query` and `value`.
    Lora {
        /// The rank of the adapters, the columns of A.
        rank: usize,
        /// The product of the adapters is multiplied by `alpha` / `rank`; above 0.
        alpha: f64,
        /// The modules of each layer that are adapted, by their paths or the ends of them: `attention.query`, `attention.key`,
        /// `attention.value`, `attention_output`, `intermediate`, `gate` (in the families that have it) and `output`. Without any,
        /// all (PEFT's `"all-linear"`).
        target_modules: Vec<String>,
    },
    /// All but the embedding layer.
    FrozenEmbeddings,
    /// Only parameters whose path matches a regular expression, such as `^classifier\.`.
    Matching(String),
}

impl Tuning {
    /// The model with only these parameters trained.
    pub(super) fn select<M: Stored>(&self, model: M) -> Result<M> {
        let group = |pattern: &str| {
            let group = ParamGroup::from_regex(pattern);
            group.map_err(|error| Error::config("tuning", format!("has {pattern:?}: {error:?}")))
        };
        let model = match self {
            Self::Full => model,
            Self::FrozenEmbeddings => model.set_require_grad_group(group(r"(^|\.)embeddings\.")?, false),
            Self::Matching(pattern) => {
                model.set_require_grad_group(ParamGroup::all().exclude(group(pattern)?), false)
            }
            Self::Lora { rank, alpha, target_modules } => {
                let mut linears = model.bert().encoder.layers.iter().flat_map(|layer| layer.linears());
                let is_plain = linears.all(|(_, linear)| linear.weight.adapter().is_none());
                ensure(is_plain, "tuning", || {
                    "is Lora, but the model has adapters already; Tuning::Full trains those".into()
                })?;
                let hidden_size = model.bert().embeddings.hidden_size();
                let allowed = format!("1 to the hidden_size of the model, {hidden_size}");
                let problem = || format!("has the LoRA rank {rank}, but it must be {allowed}");
                ensure((1..=hidden_size).contains(rank), "tuning", problem)?;
                let adapted = adapted_modules(&model, target_modules)?;
                let adapted = group(&format!(r"encoder\.layers\.{adapted}\.weight$"))?;
                let lora = Adapters(Lora::new(*rank, *alpha).set_param_group(adapted));
                let body =
                    r"(^|\.)(encoder|embeddings|embeddings_projection|relative_attention_bias|distances)\.";
                let trained = ParamGroup::all().exclude(group(body)?);
                model.apply_reparameterization(lora).set_require_grad_group(trained, true)
            }
        };
        let is_trained = num_trainable_params(&model) > 0;
        ensure(is_trained, "tuning", || "leaves no parameter to train".into())?;
        Ok(model)
    }
}

/// A pattern of the paths of these modules below `encoder.layers`, or of all.
fn adapted_modules<M: Stored>(model: &M, target_modules: &[String]) -> Result<String> {
    let layer = model.bert().encoder.layers.first();
    let names: Vec<&str> = layer.iter().flat_map(|layer| layer.linears()).map(|(name, _)| name).collect();
    let is = |name: &str, target: &str| name == target || name.ends_with(&format!(".{target}"));
    for target in target_modules {
        ensure(names.iter().any(|name| is(name, target)), "tuning", || {
            format!("has the target module {target:?}, but the modules of a layer are {names:?}")
        })?;
    }
    if target_modules.is_empty() {
        return Ok(r".*".into());
    }
    let chosen = names.iter().filter(|name| target_modules.iter().any(|target| is(name, target)));
    Ok(format!(r"\d+\.({})", chosen.map(|name| name.replace('.', r"\.")).collect::<Vec<_>>().join("|")))
}

/// LoRA with the A of PEFT, whose deviation, 1/√(3·inputs), does not depend on the rank. Burn's is 1/rank, with which the weights
/// move several times as far at the same learning rate.
struct Adapters(Lora);

impl Reparameterizer for Adapters {
    type Reparam = LoraAdapter;

    fn reparameterize<const D: usize>(
        &mut self,
        path: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<LoraAdapter>) {
        let (base, adapter) = self.0.reparameterize(path, param);
        let adapter = adapter.map(|adapter| {
            let a = adapter.a.val();
            let bound = (a.dims()[0] as f64).sqrt().recip();
            let a = Tensor::random(a.dims(), Distribution::Uniform(-bound, bound), (&a.device(), a.dtype()));
            LoraAdapter { a: Param::from_tensor(a), ..adapter }
        });
        (base, adapter)
    }
}
