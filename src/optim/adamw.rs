//! AdamW, in one pass over each parameter.

use super::adam::{Adam, AdamKind, Moments, Step, check_learning_rate};
use super::clip::Factor;
#[cfg(feature = "flex")]
use super::host;
use crate::error::Result;
use crate::operator::dtype::computed_in;
use burn::config::Config;
use burn::module::ParamGroup;
use burn::optim::{LearningRate, ModuleOptimizer, Optimizer, RecordState, StateSink, StateSource};
use burn::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

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
/// The defaults are PyTorch's. Burn's `AdamWConfig` computes the same with other ones (ε 1e-5, λ 1e-4), and keeps its
/// settings in f32.
///
/// ```
/// use burn::optim::ModuleOptimizer;
/// use burn_bert::optim::AdamWConfig;
///
/// let optimizer: ModuleOptimizer = AdamWConfig::new().with_weight_decay(0.1).init();
/// ```
///
/// Source: `torch.optim.AdamW` of PyTorch 2.15.
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
    /// The optimiser of a module, with one group that holds all parameters. [`adamw`] decays some of them only.
    ///
    /// # Panics
    ///
    /// Where [`try_build`](Self::try_build) returns an error, with the same message.
    pub fn init(&self) -> ModuleOptimizer {
        ModuleOptimizer::from(self.build())
    }

    /// The optimiser of one group of parameters, for `ModuleOptimizer::with_group`.
    ///
    /// # Panics
    ///
    /// Where [`try_build`](Self::try_build) returns an error, with the same message.
    pub fn build(&self) -> AdamW {
        self.try_build().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The optimiser of one group of parameters.
    ///
    /// # Errors
    ///
    /// [`Error::Config`](crate::Error::Config), naming the field, if a value is outside the range that its
    /// documentation gives.
    pub fn try_build(&self) -> Result<AdamW> {
        let kind = AdamKind::W { weight_decay: self.weight_decay };
        let rule = Adam::new(self.beta_1, self.beta_2, self.epsilon, kind)?;
        Ok(AdamW { rule, factor: SharedFactor::default() })
    }
}

/// AdamW that decays no bias and no LayerNorm, as BERT is trained, for Burn's `Learner` and training loops.
///
/// `config` applies to all parameters, except that those whose path ends in `bias`, `gamma` or `beta`, in any module,
/// are not decayed.
///
/// ```
/// use burn_bert::optim::{AdamWConfig, adamw};
///
/// let optimizer = adamw(&AdamWConfig::new().with_weight_decay(0.1));
/// ```
///
/// Use Burn's schedulers (`ModuleLrScheduler::with_group`) to give a group of parameters its own learning rate, and
/// `ModuleOptimizer::with_group` for other settings. To clip gradients, use
/// [`clip_by_global_norm`](crate::optim::clip_by_global_norm), or [`ClippedAdamW`](super::ClippedAdamW), which clips in the
/// same pass.
///
/// # Panics
///
/// Where [`AdamWConfig::try_build`] returns an error, with the same message.
///
/// Source: `AdamWeightDecayOptimizer` of google-research/bert; `Trainer.get_decay_parameter_names` of
/// transformers 5.23.
pub fn adamw(config: &AdamWConfig) -> ModuleOptimizer {
    let undecayed = config.clone().with_weight_decay(0.0).build();
    config.init().with_group(without_decay(), undecayed, None)
}

/// Biases and LayerNorm.
pub(super) fn without_decay() -> ParamGroup {
    ParamGroup::from_regex(r"(^|\.)(bias|gamma|beta)$").expect("the pattern is valid")
}

/// The optimiser of one group of parameters, made by [`AdamWConfig`].
///
/// # State
///
/// Records are those of Burn's `AdamW`, so one takes the other's.
///
/// # Numerics
///
/// Settings are f64. f16 and bf16 parameters are updated in f32 and rounded once; their moments are f32.
///
/// # Devices
///
/// On Flex a step is one pass over a parameter, its moments and its gradient, on all threads. The new values take the
/// gradient's memory, so that a parameter that a clone of the module shares, as in Burn's `Learner`, is not copied; the
/// clone keeps the old values. Other devices run the same arithmetic as tensor operations.
///
/// # Panics
///
/// A step panics if the learning rate is negative or not finite, or if a loaded state has another shape than its
/// parameter. Loading a record panics if it has the state of an AMSGrad, which this optimiser does not implement.
#[derive(Clone, Debug)]
pub struct AdamW {
    rule: Adam,
    factor: SharedFactor,
}

/// What gradients are multiplied with on their way into a step; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedFactor(Arc<Mutex<Factor>>);

impl SharedFactor {
    pub(super) fn set(&self, factor: Factor) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = factor;
    }

    fn get(&self) -> Factor {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl AdamW {
    /// This optimiser with its gradients multiplied with `factor`.
    pub(super) fn with_factor(self, factor: &SharedFactor) -> Self {
        Self { factor: factor.clone(), ..self }
    }
}

/// The state of one parameter, in the same form as Burn's in a record; see [`AdamWConfig`].
///
/// Burn's own state reads the moments as f32, in any stored dtype.
#[derive(Clone, Debug)]
pub struct AdamWState<const D: usize> {
    time: usize,
    moments: Moments<D>,
}

/// The names of Burn's `AdamWState` and `AdaptiveMomentumState`.
const TIME: &str = "momentum.time";
const MEAN: &str = "momentum.moment_1";
const SQUARE: &str = "momentum.moment_2";
const LARGEST: &str = "momentum.max_moment_2";

impl<const D: usize> RecordState for AdamWState<D> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        out.push_scalar(prefix, TIME, self.time.into());
        out.push_tensor(prefix, MEAN, self.moments.mean.to_data());
        out.push_tensor(prefix, SQUARE, self.moments.square.to_data());
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
        Some(Self { time, moments: Moments { mean: moment(MEAN)?, square: moment(SQUARE)? } })
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
        check_learning_rate(learning_rate).unwrap_or_else(|error| panic!("{error}"));
        let dtype = computed_in(tensor.dtype());
        let (time, moments) = match state {
            Some(AdamWState { time, moments: Moments { mean, square } }) => {
                let shape = tensor.dims();
                for found in [mean.dims(), square.dims()] {
                    assert!(
                        found == shape,
                        "the state of AdamW has shape {found:?}, but the parameter has shape {shape:?}; was the record \
                         saved with another model?"
                    );
                }
                let [mean, square] = [mean, square]
                    .map(|moment| if moment.dtype() == dtype { moment } else { moment.cast(dtype) });
                (time + 1, Moments { mean, square })
            }
            None => {
                let (shape, options) = (tensor.dims(), (&tensor.device(), dtype));
                (1, Moments { mean: Tensor::zeros(shape, options), square: Tensor::zeros(shape, options) })
            }
        };
        let step = Step { learning_rate, time: time as u64 };
        let (tensor, moments) = adam(&self.rule, step, &self.factor.get(), tensor, moments, gradient);
        (tensor, Some(AdamWState { time, moments }))
    }

    fn to_device<const D: usize>(state: AdamWState<D>, device: &Device) -> AdamWState<D> {
        let AdamWState { time, moments: Moments { mean, square } } = state;
        let [mean, square] = [mean, square].map(|moment| moment.to_device(device));
        AdamWState { time, moments: Moments { mean, square } }
    }
}

/// Values and moments after a step of Adam with gradients times `factor`.
fn adam<const D: usize>(
    rule: &Adam,
    step: Step,
    factor: &Factor,
    values: Tensor<D>,
    moments: Moments<D>,
    gradient: Tensor<D>,
) -> (Tensor<D>, Moments<D>) {
    #[cfg(feature = "flex")]
    if let Factor::Host(factor) = factor
        && host::takes(&values, &moments, &gradient)
    {
        return host::adam(rule, step, *factor, values, moments, gradient);
    }
    let wide = computed_in(values.dtype());
    rule.step(step, values, moments, factor.apply(gradient.cast(wide)))
}
