//! `ElectraForPreTraining` in Burn's trainer.

use super::step::{classified, trained};
use crate::model::{ElectraForPreTraining, TokenClassificationBatch};
use burn::prelude::*;
use burn::train::ClassificationOutput;

trained! {
    ///
    /// The output has a row for each token that has a label, with a score for each of its two classes, and serves `LossMetric`,
    /// `AccuracyMetric` and [`ConfusionMetric`](super::ConfusionMetric).
    ElectraForPreTraining: TokenClassificationBatch => ClassificationOutput
}

impl ElectraForPreTraining {
    fn outcome(&self, batch: &TokenClassificationBatch) -> (Tensor<1>, ClassificationOutput) {
        let output = self.forward(batch);
        let rows = batch
            .labelled(output.logits.unsqueeze_dim(2))
            .map(|(scores, labels)| (Tensor::cat(vec![scores.zeros_like(), scores], 1), labels));
        (output.loss.clone(), classified(&output.loss, rows, 2))
    }
}
