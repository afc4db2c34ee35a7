use super::outcome::{Outcome, UNTRAINED};
use super::run::TrainableModel;
use burn::module::{Module, ModuleDisplay};
use burn::train::{InferenceStep, TrainOutput, TrainStep};

/// A model for Burn's `Learner`, which trains it by Burn's loop: there the gradients of accumulated batches are added up, each
/// parameter's gradient is clipped alone, and dropout goes on from where the device's generator is.
///
/// ```no_run
/// use burn::train::metric::LossMetric;
/// use burn::train::{Learner, SupervisedTraining};
/// use burn_bert::data::{EpochLoader, MaskedLmCollatorConfig};
/// use burn_bert::model::{BertForMaskedLm, MaskedLmBatch};
/// use burn_bert::optim::{AdamWConfig, LrSchedule, adamw};
/// use burn_bert::training::ForLearner;
/// use std::sync::Arc;
///
/// # fn fine_tune(
/// #     model: BertForMaskedLm, train: EpochLoader<MaskedLmBatch>, valid: EpochLoader<MaskedLmBatch>,
/// # ) -> Result<(), burn_bert::Error> {
/// let (optimizer, schedule) = (adamw(&AdamWConfig::new())?, LrSchedule::Linear.with_warmup(5e-5, 10, 100)?);
/// let training = SupervisedTraining::new("artifacts", Arc::new(train), Arc::new(valid)).num_epochs(3);
/// let training = training.metric_valid_numeric(LossMetric::new());
/// let model = training.launch(Learner::new(ForLearner::new(model), optimizer, schedule)).model.model;
/// # Ok(())
/// # }
/// ```
#[derive(Module, Debug)]
pub struct ForLearner<M: Module> {
    /// The model that is trained.
    pub model: M,
}

impl<M: TrainableModel> ForLearner<M> {
    /// The model for a `Learner`.
    pub fn new(model: M) -> Self {
        Self { model }
    }

    /// Burn's steps return no error.
    fn outcome(&self, batch: &M::Batch) -> Outcome<M::Output> {
        self.model.outcome(batch).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Panics for a batch that the model cannot read, and if it is not on an autodiff device.
impl<M: TrainableModel + ModuleDisplay> TrainStep for ForLearner<M> {
    type Input = M::Batch;
    type Output = M::Output;

    fn step(&self, batch: M::Batch) -> TrainOutput<M::Output> {
        let Outcome { loss, output, .. } = self.outcome(&batch);
        // Burn's own message would name tensors, which nobody made here.
        assert!(loss.is_tracked(), "{UNTRAINED}");
        TrainOutput::new(self, loss.backward(), output)
    }
}

/// Panics for a batch that the model cannot read.
impl<M: TrainableModel + ModuleDisplay> InferenceStep for ForLearner<M> {
    type Input = M::Batch;
    type Output = M::Output;

    fn step(&self, batch: M::Batch) -> M::Output {
        self.outcome(&batch).output
    }
}
