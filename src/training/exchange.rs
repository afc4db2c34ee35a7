//! What the ranks of a training exchange: gradients, and the outputs of a validation that they share.

use crate::distributed::Ranks;
use crate::error::Error;
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::DType;
use burn::train::train::WorkerFailure;
use burn::train::{ClassificationOutput, Interrupter, TrainingError};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone)]
pub(super) struct Exchange {
    pub(super) ranks: Ranks,
    /// Stopped on this rank.
    asked: Interrupter,
    /// Stopped on all ranks after the same step.
    pub(super) agreed: Interrupter,
    round: Arc<Mutex<Round>>,
}

/// A round of a shared validation has as many batches as there are ranks. In its first step rank r computes the outputs of
/// the round's batch r and sends them to all; every step returns the outputs of one batch, in the order of the batches, so
/// that metrics see what they see in one process.
#[derive(Default)]
struct Round {
    /// The batches of the round that begins with the next step, 0 within a round; `None` if the loader is not shared.
    next: Option<usize>,
    /// Those that the next steps return.
    outputs: VecDeque<Vec<u8>>,
}

thread_local! {
    static VALIDATION: RefCell<Option<(Exchange, Device)>> = const { RefCell::new(None) };
}

impl Exchange {
    pub(super) fn new(ranks: &Ranks, asked: &Interrupter) -> Self {
        // One rank stops at once; among several it would leave the others waiting.
        let agreed = if ranks.size() == 1 { asked.clone() } else { Interrupter::new() };
        Self { ranks: ranks.clone(), asked: asked.clone(), agreed, round: Arc::default() }
    }

    /// The mean over all ranks of `gradients`, the sum of what this one counted; `None` if the ranks have parted.
    pub(super) fn mean<M: Module>(
        &self,
        model: &M,
        gradients: GradientsParams,
        count: f64,
    ) -> Option<GradientsParams> {
        if self.asked.should_stop() {
            self.ranks.stop();
        }
        // What counts for nothing has gradients of 0.
        let share = if count > 0.0 { count.recip() } else { 1.0 };
        let mean = self.ranks.mean_of_scaled(model, gradients, share, count);
        if self.ranks.is_stopped() {
            self.agreed.stop(self.asked.get_message().as_deref().or(Some("another rank was stopped")));
        }
        mean.inspect_err(|error| self.fail(error)).ok()
    }

    fn fail(&self, error: &Error) {
        let failure = WorkerFailure { device_id: self.ranks.rank(), message: error.to_string() };
        self.agreed.fail(TrainingError::Workers(vec![failure]));
    }

    /// Runs the validation step of a model, which calls [`shared`]; received outputs are put on `device`.
    pub(super) fn validate<T>(&self, device: Device, step: impl FnOnce() -> T) -> T {
        VALIDATION.set(Some((self.clone(), device)));
        let output = step();
        VALIDATION.set(None); // a model of another crate leaves it there
        output
    }
}

/// The outputs of the next batch of a validation: of what `own` computes, or of another rank's batch.
pub(super) fn shared<T: Output>(own: impl Fn() -> T) -> T {
    let Some((exchange, device)) = VALIDATION.take() else { return own() };
    let mut round = exchange.round.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(begins) = round.next.take() else { return own() };
    if begins > 0 {
        // In the last round some ranks may have no batch, and take part with nothing.
        let has_own = exchange.ranks.rank() < begins;
        let message = if has_own { message(own().parts()) } else { Vec::new() };
        match exchange.ranks.gather(begins, &message) {
            Ok(outputs) => round.outputs = outputs.into_iter().take(begins).collect(),
            Err(error) => exchange.fail(&error),
        }
    }
    match round.outputs.pop_front() {
        Some(message) => T::of(&mut parts(&message).into_iter(), &device),
        None => own(), // the training has ended with an error
    }
}

/// What metrics are computed from, in tensors that travel.
pub(super) trait Output {
    fn parts(&self) -> Vec<Option<TensorData>>;
    fn of(parts: &mut dyn Iterator<Item = Option<TensorData>>, device: &Device) -> Self;
}

impl Output for ClassificationOutput {
    fn parts(&self) -> Vec<Option<TensorData>> {
        let Self { loss, output, targets } = self;
        [loss.to_data(), output.to_data(), targets.to_data()].map(Some).into()
    }

    fn of(parts: &mut dyn Iterator<Item = Option<TensorData>>, device: &Device) -> Self {
        let mut next = || parts.next().flatten().expect("all have these parts");
        Self::new(tensor(next(), device), tensor(next(), device), int_tensor(next(), device))
    }
}

pub(super) fn tensor<const D: usize>(data: TensorData, device: &Device) -> Tensor<D> {
    let dtype = data.dtype();
    Tensor::from_data(data, (device, dtype))
}

pub(super) fn int_tensor(data: TensorData, device: &Device) -> Tensor<1, Int> {
    let dtype = data.dtype();
    Tensor::from_data(data, (device, dtype))
}

/// A line of JSON with shapes and dtypes, and the values.
fn message(parts: Vec<Option<TensorData>>) -> Vec<u8> {
    let form = |data: &TensorData| (data.shape().to_vec(), data.dtype());
    let forms: Vec<_> = parts.iter().map(|part| part.as_ref().map(form)).collect();
    let mut message = serde_json::to_vec(&forms).expect("numbers and names are JSON");
    message.push(b'\n');
    parts.iter().flatten().for_each(|data| message.extend_from_slice(data.as_bytes()));
    message
}

fn parts(message: &[u8]) -> Vec<Option<TensorData>> {
    let end = message.iter().position(|&byte| byte == b'\n').expect("a message of a rank");
    let forms: Vec<Option<(Vec<usize>, DType)>> =
        serde_json::from_slice(&message[..end]).expect("a message of a rank");
    let mut rest = &message[end + 1..];
    let part = |form: Option<(Vec<usize>, DType)>| {
        let (shape, dtype) = form?;
        let (bytes, others) = rest.split_at(shape.iter().product::<usize>() * dtype.size());
        rest = others;
        Some(TensorData::from_bytes_vec(bytes.to_vec(), shape, dtype))
    };
    forms.into_iter().map(part).collect()
}

/// A loader whose rounds begin with this rank's own batch: a model that knows nothing of rounds computes all.
pub(super) struct SharedLoader<I> {
    pub(super) loader: Arc<dyn DataLoader<I>>,
    pub(super) exchange: Exchange,
}

impl<I: 'static> SharedLoader<I> {
    fn of(&self, loader: Arc<dyn DataLoader<I>>) -> Arc<dyn DataLoader<I>> {
        Arc::new(Self { loader, exchange: self.exchange.clone() })
    }
}

impl<I: 'static> DataLoader<I> for SharedLoader<I> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<I> + 'a> {
        let batches = Batches {
            exchange: &self.exchange,
            batches: self.loader.iter(),
            round: VecDeque::new(),
            progress: VecDeque::from([Progress::new(0, self.num_items(), None)]),
        };
        Box::new(batches)
    }

    fn num_items(&self) -> usize {
        self.loader.num_items()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<I>> {
        self.of(self.loader.to_device(device))
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<I>> {
        self.of(self.loader.slice(start, end))
    }
}

struct Batches<'a, I> {
    exchange: &'a Exchange,
    batches: Box<dyn DataLoaderIterator<I> + 'a>,
    /// What is left of the round.
    round: VecDeque<I>,
    /// After the step before, and after each that is left of the round.
    progress: VecDeque<Progress>,
}

impl<I> Iterator for Batches<'_, I> {
    type Item = Result<I, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut next = 0;
        if self.round.is_empty() {
            while self.round.len() < self.exchange.ranks.size()
                && let Some(batch) = self.batches.next()
            {
                match batch {
                    Ok(batch) => self.round.push_back(batch),
                    Err(error) => return Some(Err(error)),
                }
                self.progress.push_back(self.batches.progress());
            }
            next = self.round.len();
            if let Some(own) = self.round.remove(self.exchange.ranks.rank()) {
                self.round.push_front(own);
            }
        }
        let batch = self.round.pop_front()?;
        self.progress.pop_front();
        self.exchange.round.lock().unwrap_or_else(PoisonError::into_inner).next = Some(next);
        Some(Ok(batch))
    }
}

impl<I> DataLoaderIterator<I> for Batches<'_, I> {
    fn progress(&self) -> Progress {
        self.progress[0].clone()
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ranks.fmt(f)
    }
}
