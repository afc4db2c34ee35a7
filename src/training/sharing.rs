//! A validation that ranks share: how the outputs of a model travel.

use super::outputs::{ClassificationItem, SentenceEmbeddingItem};
use crate::distributed::Ranks;
use crate::model::Similarity;
use burn::prelude::*;
use burn::tensor::kind::Basic;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;

thread_local! {
    static SHARED: RefCell<Option<(Ranks, Device)>> = const { RefCell::new(None) };
}

/// Runs the validation step of a model, which calls [`shared`], on all ranks; received outputs are put on `device`.
pub(super) fn sharing<T>(ranks: &Ranks, device: Device, step: impl FnOnce() -> T) -> T {
    SHARED.set(Some((ranks.clone(), device)));
    let output = step();
    SHARED.set(None); // a model of another crate does not take it
    output
}

/// The outputs of the next batch of a validation: of the one that `own` computes, or of another rank's.
pub(super) fn shared<T: Output>(own: impl Fn() -> T) -> T {
    let Some((ranks, device)) = SHARED.take() else { return own() };
    let message = || rmp_serde::to_vec(&own().to_data()).expect("plain data");
    match ranks.output(message) {
        Ok(Some(message)) => {
            T::from_data(rmp_serde::from_slice(&message).expect("what a rank wrote"), &device)
        }
        // After an error nobody reads it: `Training` ends the training.
        Ok(None) | Err(_) => own(),
    }
}

/// What metrics are computed from, on its way between ranks.
pub(super) trait Output {
    type Data: Serialize + DeserializeOwned;
    fn to_data(&self) -> Self::Data;
    fn from_data(data: Self::Data, device: &Device) -> Self;
}

impl Output for ClassificationItem {
    type Data = (TensorData, TensorData, Option<TensorData>, Option<TensorData>, Vec<usize>);

    fn to_data(&self) -> Self::Data {
        let classes = self.classes.as_ref().map(Tensor::to_data);
        let targets = self.targets.as_ref().map(Tensor::to_data);
        (self.loss.to_data(), self.logits.to_data(), classes, targets, self.sentences.clone())
    }

    fn from_data((loss, logits, classes, targets, sentences): Self::Data, device: &Device) -> Self {
        Self {
            loss: tensor(loss, device),
            logits: tensor(logits, device),
            classes: classes.map(|classes| tensor(classes, device)),
            targets: targets.map(|targets| tensor(targets, device)),
            sentences,
        }
    }
}

impl Output for SentenceEmbeddingItem {
    type Data = (TensorData, TensorData, TensorData, Option<Vec<f32>>, Similarity);

    fn to_data(&self) -> Self::Data {
        let [anchors, candidates] = [&self.anchors, &self.candidates].map(Tensor::to_data);
        (self.loss.to_data(), anchors, candidates, self.labels.clone(), self.similarity)
    }

    fn from_data((loss, anchors, candidates, labels, similarity): Self::Data, device: &Device) -> Self {
        let [anchors, candidates] = [anchors, candidates].map(|vectors| tensor(vectors, device));
        Self { loss: tensor(loss, device), anchors, candidates, labels, similarity }
    }
}

/// In the dtype that it was sent in, which may not be the device's default.
fn tensor<const D: usize, K: Basic>(data: TensorData, device: &Device) -> Tensor<D, K> {
    let dtype = data.dtype();
    Tensor::from_data(data, (device, dtype))
}
