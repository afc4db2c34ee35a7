//! `BertForMaskedLm` in Burn's trainer.

use crate::model::BertForMaskedLm;
use crate::model::MaskedLmBatch;
use crate::optim::{clip_by_global_norm, clip_on_all_devices};
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams};
use burn::prelude::*;
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};
use std::collections::HashSet;

/// One batch forward and backward, for Burn's `Learner`.
///
/// The output serves `LossMetric`, `AccuracyMetric` (the share of hidden tokens guessed), `PerplexityMetric`
/// and `TopKAccuracyMetric`. A batch that hides nothing counts there as one token of id 0 with equal scores
/// for all words; its gradients are zeros.
impl TrainStep for BertForMaskedLm {
    type Input = MaskedLmBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: MaskedLmBatch) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(&batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

/// The loss of one batch, without dropout on the device that the validation loader is on.
impl InferenceStep for BertForMaskedLm {
    type Input = MaskedLmBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: MaskedLmBatch) -> ClassificationOutput {
        self.classify(&batch)
    }
}

impl BertForMaskedLm {
    fn classify(&self, batch: &MaskedLmBatch) -> ClassificationOutput {
        let output = self.forward(batch);
        let (scores, targets) = output.logits.zip(batch.labels()).unwrap_or_else(|| {
            let vocab_size = self.embeddings.word_embeddings.num_embeddings();
            let device = output.loss.device();
            (Tensor::zeros([1, vocab_size], &device), Tensor::zeros([1], &device))
        });
        ClassificationOutput::new(output.loss, scores, targets)
    }
}

/// [`BertForMaskedLm`] as a `Learner` trains it with gradients accumulated and clipped.
///
/// Burn's trainer adds up the gradients of accumulated batches and clips each parameter by itself. This takes
/// the mean over the batches, as PyTorch users do, and clips by the norm of all gradients together
/// ([`clip_by_global_norm`](crate::clip_by_global_norm)).
///
/// ```no_run
/// use burn::optim::AdamWConfig;
/// use burn::prelude::*;
/// use burn::train::metric::{AccuracyMetric, LossMetric, PerplexityMetric};
/// use burn::train::{Learner, SupervisedTraining};
/// use burn_bert::model::{BertForMaskedLm, MaskedLmBatch};
/// use burn_bert::optim::{adamw, linear_warmup_decay};
/// use burn_bert::training::MaskedLmTraining;
/// # use burn::data::dataloader::DataLoader;
/// # use std::sync::Arc;
/// # type Loader = Arc<dyn DataLoader<MaskedLmBatch>>;
/// # fn fine_tune(train: Loader, valid: Loader) -> Result<(), burn_bert::Error> {
///
/// let device = Device::default().autodiff();
/// let (model, report) = BertForMaskedLm::from_pretrained("bert-base-uncased", &device)?;
/// eprint!("{report}");
/// let model = MaskedLmTraining::new(model).with_max_grad_norm(1.0).with_accumulation(4);
/// let optimizer = adamw(&AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01));
/// let schedule = linear_warmup_decay(5e-5, 100, 1000)?;
/// let result = SupervisedTraining::new("artifacts", train, valid)
///     .metrics((LossMetric::new(), AccuracyMetric::new(), PerplexityMetric::new()))
///     .grads_accumulation(4)
///     .with_default_checkpointers()
///     .num_epochs(3)
///     .launch(Learner::new(model, optimizer, schedule));
/// result.model.model.save_pretrained("fine-tuned")?;
/// # Ok(())
/// # }
/// ```
#[derive(Module, Debug)]
pub struct MaskedLmTraining {
    /// The model that is trained.
    pub model: BertForMaskedLm,
    /// The largest norm of all gradients together; `f64::INFINITY` for no clipping.
    pub max_grad_norm: f64,
    /// How many batches are added up before a step: the number given to
    /// `SupervisedTraining::grads_accumulation`, times that of the devices, whose batches Burn adds up as well.
    pub accumulation: usize,
}

impl MaskedLmTraining {
    /// One batch a step, gradients clipped to a norm of 1, as BERT was trained.
    pub fn new(model: BertForMaskedLm) -> Self {
        Self { model, max_grad_norm: 1.0, accumulation: 1 }
    }

    /// Sets the largest norm of all gradients together.
    pub fn with_max_grad_norm(self, max_grad_norm: f64) -> Self {
        Self { max_grad_norm, ..self }
    }

    /// Sets how many batches there are in a step, see [`accumulation`](Self::accumulation).
    ///
    /// # Panics
    ///
    /// Panics if there is none.
    pub fn with_accumulation(self, accumulation: usize) -> Self {
        assert!(accumulation > 0, "accumulation is 0, but a step needs at least one batch");
        Self { accumulation, ..self }
    }
}

impl TrainStep for MaskedLmTraining {
    type Input = MaskedLmBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: MaskedLmBatch) -> TrainOutput<ClassificationOutput> {
        TrainStep::step(&self.model, batch)
    }

    fn optimize(
        self,
        optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
        mut gradients: GradientsParams,
    ) -> Self {
        if self.accumulation > 1 {
            let factor = 1.0 / self.accumulation as f64;
            self.visit(&mut Multiply::new(&mut gradients, factor));
        }
        if self.max_grad_norm.is_finite() {
            clip_by_global_norm(&self, &mut gradients, self.max_grad_norm);
        }
        optimizer.step(rate, self, gradients)
    }

    fn optimize_multi(
        self,
        optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
        mut gradients: MultiGradientsParams,
    ) -> Self {
        if self.accumulation > 1 {
            let factor = 1.0 / self.accumulation as f64;
            for (gradients, _) in &mut gradients.grads {
                self.visit(&mut Multiply::new(gradients, factor));
            }
        }
        if self.max_grad_norm.is_finite() {
            gradients = clip_on_all_devices(&self, gradients, self.max_grad_norm);
        }
        optimizer.step_multi(rate, self, gradients)
    }
}

impl InferenceStep for MaskedLmTraining {
    type Input = MaskedLmBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: MaskedLmBatch) -> ClassificationOutput {
        InferenceStep::step(&self.model, batch)
    }
}

/// Multiplies all gradients of a module.
struct Multiply<'a> {
    gradients: &'a mut GradientsParams,
    factor: f64,
    /// The parameters that were multiplied: one that fields share is visited in each of them.
    seen: HashSet<ParamId>,
}

impl<'a> Multiply<'a> {
    fn new(gradients: &'a mut GradientsParams, factor: f64) -> Self {
        Self { gradients, factor, seen: HashSet::new() }
    }
}

impl ModuleVisitor for Multiply<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.seen.insert(param.id)
            && let Some(gradient) = self.gradients.remove::<D>(param.id)
        {
            self.gradients.register(param.id, gradient.mul_scalar(self.factor));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::nn::LinearConfig;

    #[test]
    fn a_parameter_that_two_fields_share_is_multiplied_once() {
        let device = Device::default().autodiff();
        let linear = LinearConfig::new(2, 2).with_bias(false).init(&device);
        let model = (linear.clone(), linear);
        let loss = model.1.forward(model.0.forward(Tensor::<2>::ones([1, 2], &device))).sum();
        let mut gradients = GradientsParams::from_grads(loss.backward(), &model);
        let gradient = |gradients: &GradientsParams| gradients.get::<2>(model.0.weight.id).unwrap();
        let before = gradient(&gradients);
        model.visit(&mut Multiply::new(&mut gradients, 0.5));
        gradient(&gradients).into_data().assert_eq(&before.mul_scalar(0.5).into_data(), true);
    }
}
