use super::outputs::{Outcome, UNTRAINED};
use super::run::TrainableModel;
use crate::data::{Epoch, EpochLoader};
use crate::optim::step;
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::module::{Module, ModuleDisplay};
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn::train::{InferenceStep, TrainOutput, TrainStep};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
///
/// # fn fine_tune(
/// #     model: BertForMaskedLm, train: EpochLoader<MaskedLmBatch>, valid: EpochLoader<MaskedLmBatch>,
/// # ) -> Result<(), burn_bert::Error> {
/// let (optimizer, schedule) = (adamw(&AdamWConfig::new())?, LrSchedule::Linear.with_warmup(5e-5, 10, 100)?);
/// let [train, valid] = [train, valid].map(ForLearner::<BertForMaskedLm>::data);
/// let training = SupervisedTraining::new("artifacts", train, valid).num_epochs(3);
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

    /// The data of a `Learner` on one device, which reads the next epoch each time and counts batches.
    pub fn data(loader: EpochLoader<M::Batch>) -> Arc<dyn DataLoader<M::Batch>> {
        Arc::new(Epochs { loader, next: AtomicUsize::new(0) })
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

    fn optimize(
        self,
        optimizer: &mut ModuleOptimizer,
        rates: ModuleLearningRate,
        gradients: GradientsParams,
    ) -> Self {
        step(optimizer, rates, self, gradients)
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

/// The epochs of a loader, one after the other: those of Burn have no number.
struct Epochs<B> {
    loader: EpochLoader<B>,
    next: AtomicUsize,
}

impl<B: Send + 'static> DataLoader<B> for Epochs<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<B> + 'a> {
        // Relaxed: epochs are only counted, and nothing else is ordered by it.
        let batches = self.loader.epoch(self.next.fetch_add(1, Ordering::Relaxed));
        Box::new(Counted { batches, done: 0, all: self.num_items() })
    }

    fn num_items(&self) -> usize {
        self.loader.num_batches()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<B>> {
        Arc::new(Self { loader: self.loader.on(device), next: AtomicUsize::new(0) })
    }

    fn slice(&self, _: usize, _: usize) -> Arc<dyn DataLoader<B>> {
        panic!("a `Learner` trains on one device; a `Trainer` trains on several, by `with_devices`")
    }
}

/// The batches of an epoch, and how many of all were taken.
struct Counted<B> {
    batches: Epoch<B>,
    done: usize,
    all: usize,
}

impl<B> Iterator for Counted<B> {
    type Item = Result<B, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batches.next().inspect(|_| self.done += 1)
    }
}

impl<B> DataLoaderIterator<B> for Counted<B> {
    fn progress(&self) -> Progress {
        Progress::new(self.done, self.all, Some("batches".into()))
    }
}
