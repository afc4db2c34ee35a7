//! What a model gives a training loop for a batch: its loss, and the outputs that metrics are computed from.

use crate::error::{Error, Result};
use crate::metrics::{EntityInput, LabelInput, RetrievalInput, SpearmanInput, TripletInput};
use crate::model::Similarity;
use burn::backend::ExecutionError;
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::kind::Basic;
use burn::train::metric::{
    AccuracyInput, Adaptor, ConfusionStatsInput, HammingScoreInput, LossInput, PerplexityInput,
    TopKAccuracyInput,
};
use burn::train::{ClassificationOutput, ItemLazy};
use serde::Serialize;

pub(super) const UNTRAINED: &str =
    "the model trains no parameter: make or load it on `device.autodiff()`, and freeze not all of it";

/// What a [`TrainableModel`](super::TrainableModel) makes of a batch; [a custom head](crate::model::Stored#a-custom-head) makes one.
#[derive(Clone, Debug)]
pub struct Outcome<T> {
    /// The mean loss, `[1]`, with its graph if the model is on an autodiff device.
    pub loss: Tensor<1>,
    /// What it is a mean over: masked tokens, labelled tokens, texts; 0 if nothing. Batches weigh as much in a step.
    pub count: f64,
    /// What metrics are computed from.
    pub output: T,
}

impl<T> Outcome<T> {
    /// The gradients of the loss times its count.
    pub(super) fn gradients<M: Module>(&self, model: &M) -> Result<GradientsParams> {
        if !self.loss.is_tracked() {
            return Err(Error::data("the model", UNTRAINED));
        }
        Ok(GradientsParams::from_grads(self.loss.clone().mul_scalar(self.count).backward(), model))
    }
}

/// The output for metrics of a model that classifies or gives numbers, with a row for each labelled token, text, or first or
/// last token of an answer.
///
/// It supports `LossMetric`, whose mean is over rows; with one class per row `AccuracyMetric`, `TopKAccuracyMetric`,
/// `PerplexityMetric`, [`ConfusionMetric`](crate::metrics::ConfusionMetric) and, of words,
/// [`EntityMetric`](crate::metrics::EntityMetric); with several classes `HammingScore` and
/// [`LabelMetric`](crate::metrics::LabelMetric); with numbers
/// [`SpearmanMetric`](crate::metrics::SpearmanMetric). Other metrics ignore it. [`Metrics`](crate::training::Metrics) has an example.
#[derive(Clone, Debug, Serialize)]
pub struct ClassificationItem {
    /// The mean loss, `[1]`.
    pub loss: Tensor<1>,
    /// Logits of each class, [N, C]; where a row may have several classes, less the log odds of the model's thresholds, so that a
    /// class is predicted from 0 on.
    pub logits: Tensor<2>,
    /// The class of each row, `[N]`; `None` if a row has several classes or numbers.
    pub classes: Option<Tensor<1, Int>>,
    /// The classes of each row as zeros and ones, or its numbers, [N, C]; `None` with one class per row.
    pub targets: Option<Tensor<2>>,
    /// The sentence of each row in token classification, else empty.
    pub sentences: Vec<usize>,
}

impl ClassificationItem {
    /// An item of rows that each have one of `classes` classes; without a row it counts in no metric.
    pub(super) fn from_rows(
        loss: &Tensor<1>,
        rows: Option<(Tensor<2>, Tensor<1, Int>)>,
        classes: usize,
    ) -> Self {
        let device = loss.device();
        let nothing = || (Tensor::zeros([0, classes], &device), Tensor::zeros([0], &device));
        let (logits, classes) = rows.unwrap_or_else(nothing);
        Self { loss: loss.clone(), logits, classes: Some(classes), targets: None, sentences: Vec::new() }
    }

    fn nothing(&self) -> Tensor<2> {
        let [_, columns] = self.logits.dims();
        Tensor::zeros([0, columns], &self.logits.device())
    }

    /// Loss, logits and classes; no rows of the latter without one class per row.
    fn with_classes(&self) -> ClassificationOutput {
        let (logits, classes) = match &self.classes {
            Some(classes) => (self.logits.clone(), classes.clone()),
            None => (self.nothing(), Tensor::zeros([0], &self.logits.device())),
        };
        let loss = match self.logits.dims() {
            [0, _] => Tensor::zeros([0], &self.loss.device()),
            // A loss for each row: Burn weights a batch's loss by its length, so that the mean of all batches is one over rows.
            [rows, _] => self.loss.clone().expand([rows]),
        };
        ClassificationOutput::new(loss, logits, classes)
    }

    /// Logits and targets; no rows with one class per row.
    pub(super) fn with_targets(&self) -> (Tensor<2>, Tensor<2>) {
        match &self.targets {
            Some(targets) => (self.logits.clone(), targets.clone()),
            None => (self.nothing(), self.nothing()),
        }
    }
}

/// Metric inputs that Burn's [`ClassificationOutput`] has.
macro_rules! adapt_classification {
    ($($input:ident),*) => {$(
        impl Adaptor<$input> for ClassificationItem {
            fn adapt(&self) -> $input {
                self.with_classes().adapt()
            }
        }
    )*};
}
adapt_classification!(LossInput, AccuracyInput, TopKAccuracyInput, PerplexityInput, ConfusionStatsInput);

impl Adaptor<HammingScoreInput> for ClassificationItem {
    fn adapt(&self) -> HammingScoreInput {
        let (logits, targets) = self.with_targets();
        // Targets may be probabilities; Burn's metric takes classes.
        HammingScoreInput::new(logits, targets.greater_equal_elem(0.5).int())
    }
}

impl Adaptor<LabelInput> for ClassificationItem {
    fn adapt(&self) -> LabelInput {
        let (logits, targets) = self.with_targets();
        LabelInput { logits, targets }
    }
}

impl Adaptor<SpearmanInput> for ClassificationItem {
    fn adapt(&self) -> SpearmanInput {
        let (predicted, truth) = self.with_targets();
        SpearmanInput { predicted, truth }
    }
}

impl Adaptor<EntityInput> for ClassificationItem {
    fn adapt(&self) -> EntityInput {
        let ClassificationOutput { output, targets, .. } = self.with_classes();
        EntityInput { logits: output, labels: targets, sentences: self.sentences.clone() }
    }
}

/// The output of a [`BertForSentenceEmbedding`](crate::model::BertForSentenceEmbedding) for metrics.
///
/// It supports `LossMetric`; with labels [`SpearmanMetric`](crate::metrics::SpearmanMetric); without
/// [`RetrievalMetric`](crate::metrics::RetrievalMetric) and `AccuracyMetric`, the share of anchors whose own candidate is the
/// most similar of the batch; with negatives [`TripletMetric`](crate::metrics::TripletMetric), of the first negative of each
/// anchor. Other metrics ignore it.
#[derive(Clone, Debug, Serialize)]
pub struct SentenceEmbeddingItem {
    /// The loss, `[1]`.
    pub loss: Tensor<1>,
    /// The embeddings of the anchors, [B, H].
    pub anchors: Tensor<2>,
    /// The embeddings of the candidates, [C, H].
    pub candidates: Tensor<2>,
    /// The similarity of each anchor and its candidate, if the batch has labels.
    pub labels: Option<Vec<f32>>,
    /// Hashes of the texts of the anchors and of the candidates; `None` if they are unknown.
    pub texts: Option<[Vec<u64>; 2]>,
    /// How embeddings are compared.
    pub similarity: Similarity,
}

impl SentenceEmbeddingItem {
    /// The similarity of each anchor and its candidate number `column`, `[B]`; `[0]` if there is none.
    fn similarities(&self, column: usize) -> Tensor<1> {
        let ([batch, _], [count, _]) = (self.anchors.dims(), self.candidates.dims());
        if count < (column + 1) * batch {
            return Tensor::zeros([0], &self.anchors.device());
        }
        let candidates = self.candidates.clone().narrow(0, column * batch, batch);
        self.similarity.pairwise(self.anchors.clone(), candidates)
    }
}

impl Adaptor<LossInput> for SentenceEmbeddingItem {
    fn adapt(&self) -> LossInput {
        let [batch, _] = self.anchors.dims();
        LossInput::new(self.loss.clone().expand([batch]))
    }
}

impl Adaptor<AccuracyInput> for SentenceEmbeddingItem {
    fn adapt(&self) -> AccuracyInput {
        let ([batch, _], [count, _]) = (self.anchors.dims(), self.candidates.dims());
        let device = self.anchors.device();
        // With labels a candidate may be a mismatch: its own is not to be the nearest.
        if self.labels.is_some() {
            return AccuracyInput::new(Tensor::zeros([0, count], &device), Tensor::zeros([0], &device));
        }
        let scores = self.similarity.between(self.anchors.clone(), self.candidates.clone());
        AccuracyInput::new(scores, Tensor::arange(0..batch as i64, &device))
    }
}

impl Adaptor<SpearmanInput> for SentenceEmbeddingItem {
    fn adapt(&self) -> SpearmanInput {
        let Some(labels) = &self.labels else {
            let nothing = Tensor::zeros([0, 1], &self.anchors.device());
            return SpearmanInput { predicted: nothing.clone(), truth: nothing };
        };
        let predicted = self.similarities(0).unsqueeze_dim(1);
        let truth = TensorData::new(labels.clone(), [labels.len(), 1]);
        SpearmanInput { truth: Tensor::from_data(truth, &predicted.device()), predicted }
    }
}

impl Adaptor<TripletInput> for SentenceEmbeddingItem {
    fn adapt(&self) -> TripletInput {
        let negative = self.similarities(1);
        let positive = if negative.dims()[0] == 0 { negative.clone() } else { self.similarities(0) };
        TripletInput { positive, negative }
    }
}

impl Adaptor<RetrievalInput> for SentenceEmbeddingItem {
    fn adapt(&self) -> RetrievalInput {
        let relevant = match &self.labels {
            Some(labels) => vec![Vec::new(); labels.len()],
            None => (0..self.anchors.dims()[0]).map(|own| vec![own]).collect(),
        };
        let (queries, documents) = (self.anchors.clone(), self.candidates.clone());
        RetrievalInput { queries, documents, relevant, texts: self.texts.clone() }
    }
}

impl ItemLazy for ClassificationItem {
    /// Like Burn's own outputs: nothing is read back here.
    fn sync(self) -> Result<Self, ExecutionError> {
        self.loss.device().flush()?;
        Ok(Self {
            loss: self.loss.without_autodiff(),
            logits: self.logits.without_autodiff(),
            classes: self.classes.map(Tensor::without_autodiff),
            targets: self.targets.map(Tensor::without_autodiff),
            sentences: self.sentences,
        })
    }
}

impl ItemLazy for SentenceEmbeddingItem {
    /// Like Burn's own outputs: nothing is read back here.
    fn sync(self) -> Result<Self, ExecutionError> {
        self.loss.device().flush()?;
        let [anchors, candidates] = [self.anchors, self.candidates].map(Tensor::without_autodiff);
        Ok(Self { loss: self.loss.without_autodiff(), anchors, candidates, ..self })
    }
}

/// How the outputs of an evaluation of a [`Trainer`](super::Trainer) travel between ranks, of which each computes some.
pub struct Shared<T> {
    /// An output as bytes.
    pub write: fn(&T) -> Vec<u8>,
    /// An output from the bytes of `write`, on a device.
    pub read: fn(&[u8], &Device) -> T,
}

impl<T: Serialize> Shared<T> {
    /// An output in MessagePack, which keeps every bit of a number, where JSON may round.
    pub(super) const fn new(read: fn(&[u8], &Device) -> T) -> Option<Self> {
        Some(Self { write: |output| rmp_serde::to_vec(output).expect("plain data"), read })
    }
}

impl ClassificationItem {
    /// Reads what [`Shared::write`] wrote.
    pub(super) fn read(message: &[u8], device: &Device) -> Self {
        type Written = (TensorData, TensorData, Option<TensorData>, Option<TensorData>, Vec<usize>);
        let written: Written = rmp_serde::from_slice(message).expect("what a rank wrote");
        let (loss, logits, classes, targets, sentences) = written;
        Self {
            loss: tensor(loss, device),
            logits: tensor(logits, device),
            classes: classes.map(|classes| tensor(classes, device)),
            targets: targets.map(|targets| tensor(targets, device)),
            sentences,
        }
    }
}

impl SentenceEmbeddingItem {
    /// Reads what [`Shared::write`] wrote.
    pub(super) fn read(message: &[u8], device: &Device) -> Self {
        type Texts = Option<[Vec<u64>; 2]>;
        type Written = (TensorData, TensorData, TensorData, Option<Vec<f32>>, Texts, Similarity);
        let written: Written = rmp_serde::from_slice(message).expect("what a rank wrote");
        let (loss, anchors, candidates, labels, texts, similarity) = written;
        let [anchors, candidates] = [anchors, candidates].map(|data| tensor(data, device));
        Self { loss: tensor(loss, device), anchors, candidates, labels, texts, similarity }
    }
}

/// A tensor in the dtype that it was sent in: Burn would read it on its default device, in that one's dtype.
fn tensor<const D: usize, K: Basic>(data: TensorData, device: &Device) -> Tensor<D, K> {
    let dtype = data.dtype();
    Tensor::from_data(data, (device, dtype))
}
