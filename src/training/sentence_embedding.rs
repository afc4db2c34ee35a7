//! `BertForSentenceEmbedding` in Burn's trainer.

use super::outputs::output;
use super::steps::trained;
use crate::metrics::{RetrievalInput, SpearmanInput, TripletInput};
use crate::model::{BertForSentenceEmbedding, SentencePairBatch, Similarity};
use burn::backend::ExecutionError;
use burn::prelude::*;
use burn::train::ItemLazy;
use burn::train::metric::{AccuracyInput, Adaptor, LossInput};

/// The output of a [`BertForSentenceEmbedding`] for metrics.
///
/// It always supports `LossMetric`; with labels [`SpearmanMetric`](crate::metrics::SpearmanMetric); without
/// [`RetrievalMetric`](crate::metrics::RetrievalMetric) and `AccuracyMetric`, the share of anchors whose own candidate is the
/// most similar of the batch, which depends on the batch size; with negatives
/// [`TripletMetric`](crate::metrics::TripletMetric), of the first negative of each anchor. Other metrics see an empty batch,
/// which they ignore. Accumulated batches and several devices do not share negatives.
#[derive(Clone, Debug)]
pub struct SentenceEmbeddingItem {
    /// The loss, `[1]`.
    pub loss: Tensor<1>,
    /// The embeddings of the anchors, [B, H].
    pub anchors: Tensor<2>,
    /// The embeddings of the candidates, [C, H].
    pub candidates: Tensor<2>,
    /// The similarity of each anchor and its candidate, if the batch has labels.
    pub labels: Option<Vec<f32>>,
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
        self.similarity.of_pairs(self.anchors.clone(), candidates)
    }
}

impl ItemLazy for SentenceEmbeddingItem {
    fn sync(self) -> Result<Self, ExecutionError> {
        // Like Burn's own outputs: nothing is read back here.
        self.loss.device().flush()?;
        Ok(Self {
            loss: self.loss.without_autodiff(),
            anchors: self.anchors.without_autodiff(),
            candidates: self.candidates.without_autodiff(),
            ..self
        })
    }
}

output!(SentenceEmbeddingItem { loss, anchors, candidates, labels, similarity });

impl Adaptor<LossInput> for SentenceEmbeddingItem {
    fn adapt(&self) -> LossInput {
        let [batch, _] = self.anchors.dims();
        LossInput::new(self.loss.clone().expand([batch]))
    }
}

impl Adaptor<AccuracyInput> for SentenceEmbeddingItem {
    fn adapt(&self) -> AccuracyInput {
        let ([batch, _], [count, _], device) =
            (self.anchors.dims(), self.candidates.dims(), self.anchors.device());
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
        RetrievalInput { queries: self.anchors.clone(), documents: self.candidates.clone(), relevant }
    }
}

trained!(BertForSentenceEmbedding: SentencePairBatch => SentenceEmbeddingItem);

impl BertForSentenceEmbedding {
    fn outcome(&self, batch: &SentencePairBatch) -> (Tensor<1>, f64, SentenceEmbeddingItem) {
        let output = self.forward(batch);
        let [count, _] = output.anchors.dims();
        let item = SentenceEmbeddingItem {
            loss: output.loss.clone(),
            anchors: output.anchors,
            candidates: output.candidates,
            labels: batch.labels.clone(),
            similarity: self.config().similarity,
        };
        (output.loss, count as f64, item)
    }
}
