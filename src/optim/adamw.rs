use crate::error::{Error, Result};
use burn::module::ParamGroup;
use burn::optim::{LearningRate, ModuleOptimizer, Optimizer, RecordState, StateSink, StateSource};
use burn::prelude::*;
use burn_fused::{AdamStep, adam, computed_in};

/// AdamW, as `torch.optim.AdamW` computes it.
///
/// With g the gradient of a parameter w, and t the number of its steps:
///
/// ```text
/// m ← m + (1 − β₁)(g − m)
/// v ← v + (1 − β₂)(g² − v)
/// w ← (1 − η·λ)·w − η · m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε)
/// ```
///
/// The defaults are PyTorch's; Burn's `AdamWConfig` has others (ε 1e-5, λ 1e-4) and keeps its settings in f32. Source: PyTorch 2.15.
#[derive(Config, Debug, PartialEq)]
pub struct AdamWConfig {
    /// β₁, decay of the mean of gradients, in [0, 1).
    #[config(default = 0.9)]
    pub beta_1: f64,
    /// β₂, decay of the mean of squared gradients, in [0, 1).
    #[config(default = 0.999)]
    pub beta_2: f64,
    /// ε, added to the root; at least `f32::MIN_POSITIVE`.
    #[config(default = 1e-8)]
    pub epsilon: f64,
    /// λ, at least 0.
    #[config(default = 1e-2)]
    pub weight_decay: f64,
}

impl AdamWConfig {
    /// Makes the optimizer as [`try_init`](Self::try_init) does, and panics with its error.
    pub fn init(&self) -> ModuleOptimizer {
        self.try_init().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The optimizer of a module, with one group that holds all parameters; [`adamw`] decays some of them only. Errors are
    /// those of [`build`](Self::build).
    pub fn try_init(&self) -> Result<ModuleOptimizer> {
        self.build().map(ModuleOptimizer::from)
    }

    /// The optimizer of one group of parameters, for `ModuleOptimizer::with_group`. Returns
    /// [`Error::Config`](crate::Error::Config), naming the field, if a value is outside the range that its
    /// documentation gives.
    pub fn build(&self) -> Result<AdamW> {
        // A smaller ε is 0 in an f32 step, which divides 0 by 0 where a gradient is 0.
        let least = f32::MIN_POSITIVE;
        let epsilons = format!("be finite and at least {least:e}, the smallest normal f32");
        for (field, value, range, allowed) in [
            ("weight_decay", self.weight_decay, 0.0..f64::INFINITY, "be finite and not negative"),
            ("beta_1", self.beta_1, 0.0..1.0, "lie in [0, 1)"),
            ("beta_2", self.beta_2, 0.0..1.0, "lie in [0, 1)"),
            ("epsilon", self.epsilon, least.into()..f64::INFINITY, &epsilons),
        ] {
            if !range.contains(&value) {
                return Err(Error::config(field, format!("is {value:?}, but must {allowed}")));
            }
        }
        Ok(AdamW { config: self.clone() })
    }
}

/// AdamW that decays no bias and no LayerNorm, as BERT is trained: parameters whose path has a `bias` in it, such as MPNet's
/// `relative_attention_bias`, or ends in `gamma` or `beta` are not decayed. Errors are those of [`AdamWConfig::build`]. [The module](super) has an example.
///
/// Source: `AdamWeightDecayOptimizer` of google-research/bert; `Trainer.get_decay_parameter_names` of transformers 5.23.
pub fn adamw(config: &AdamWConfig) -> Result<ModuleOptimizer> {
    let undecayed = config.clone().with_weight_decay(0.0).build()?;
    // By the end of the path, so that modules around the model have the same rule.
    let biases_and_norms = ParamGroup::from_regex(r"bias|(^|\.)(gamma|beta)$").expect("the pattern is valid");
    Ok(config.try_init()?.with_group(biases_and_norms, undecayed, None))
}

/// The optimizer of one group of parameters, made by [`AdamWConfig`] or [`adamw`]; [the module](super) has an example. Its records are
/// those of Burn's `AdamW`.
///
/// f16 and bf16 parameters are updated in f32 and rounded once; their optimizer state is f32. On Flex and on CubeCL devices a step
/// is one pass, and the new values take the gradient's memory. [`step`](super::step) takes few launches for many parameters.
///
/// # Panics
///
/// A step panics if the learning rate is negative or not finite, or a loaded state has another shape than its parameter.
/// Loading a record panics if it has the state of an AMSGrad, which is not implemented.
#[derive(Clone, Debug)]
pub struct AdamW {
    config: AdamWConfig,
}

/// The optimizer state of one parameter in [`adamw`] ([the module](super) has an example); in a record it has the form of Burn's,
/// which reads it as f32.
#[derive(Clone, Debug)]
pub struct AdamWState<const D: usize> {
    time: usize,
    /// The running means of g and g².
    moments: [Tensor<D>; 2],
}

/// The names of Burn's `AdamWState` and `AdaptiveMomentumState`.
pub(crate) const TIME: &str = "momentum.time";
pub(crate) const MEAN: &str = "momentum.moment_1";
pub(crate) const SQUARE: &str = "momentum.moment_2";
const LARGEST: &str = "momentum.max_moment_2";

impl<const D: usize> RecordState for AdamWState<D> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        out.push_scalar(prefix, TIME, self.time.into());
        out.push_tensor(prefix, MEAN, self.moments[0].to_data());
        out.push_tensor(prefix, SQUARE, self.moments[1].to_data());
    }

    fn state_unflatten(prefix: &str, source: &mut StateSource, device: &Device) -> Option<Self> {
        assert!(
            source.take_tensor(prefix, LARGEST).is_none(),
            "the state has AMSGrad's largest moments, which burn_bert::optim::AdamW does not use: \
             continue with burn::optim::AdamWConfig::with_amsgrad, or start without the state"
        );
        let time = source.take_scalar(prefix, TIME)?.try_into().ok()?;
        let mut moment = |name| {
            let data = source.take_tensor(prefix, name)?;
            let dtype = data.dtype();
            Some(Tensor::from_data(data, (device, dtype)))
        };
        Some(Self { time, moments: [moment(MEAN)?, moment(SQUARE)?] })
    }
}

impl Optimizer for AdamW {
    type State<const D: usize> = AdamWState<D>;

    fn step<const D: usize>(
        &self,
        learning_rate: LearningRate,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<AdamWState<D>>,
    ) -> (Tensor<D>, Option<AdamWState<D>>) {
        assert!(
            learning_rate.is_finite() && learning_rate >= 0.0,
            "the learning rate is {learning_rate}, but must be finite and not negative"
        );
        let (shape, dtype) = (tensor.dims(), computed_in(tensor.dtype()));
        let zeros = || Tensor::zeros(shape, (&tensor.device(), dtype));
        let state = state.unwrap_or_else(|| AdamWState { time: 0, moments: [zeros(), zeros()] });
        let moments = state.moments.map(|moment| {
            let found = moment.dims();
            assert!(
                found == shape,
                "the state of AdamW has shape {found:?}, but the parameter has shape {shape:?}; was the record saved with \
                 another model?"
            );
            // Burn's records may have another dtype; a cast to the same one would copy.
            if moment.dtype() == dtype { moment } else { moment.cast(dtype) }
        });
        // Steps are counted for each parameter: without a gradient it takes none.
        let time = state.time + 1;
        let AdamWConfig { beta_1, beta_2, epsilon, weight_decay } = self.config;
        let [correction_1, correction_2] = [beta_1, beta_2].map(|beta| 1.0 - beta.powf(time as f64));
        // In f64 on the host, as torch computes them.
        let (keep, root) = (1.0 - learning_rate * weight_decay, 1.0 / correction_2.sqrt());
        let size = learning_rate / correction_1;
        let step = AdamStep { beta_1, beta_2, epsilon, keep, root, size };
        let (tensor, moments) = adam(step, tensor, moments, gradient);
        (tensor, Some(AdamWState { time, moments }))
    }

    fn to_device<const D: usize>(state: AdamWState<D>, device: &Device) -> AdamWState<D> {
        AdamWState { moments: state.moments.map(|moment| moment.to_device(device)), ..state }
    }
}
