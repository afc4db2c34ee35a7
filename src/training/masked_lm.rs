//! `BertForMaskedLm` in Burn's trainer.

use super::step::{classified, trained};
use crate::model::BertForMaskedLm;
use crate::model::MaskedLmBatch;
use burn::prelude::*;
use burn::train::ClassificationOutput;

trained! {
    ///
    /// The output serves `LossMetric`, `AccuracyMetric` (the share of masked tokens predicted), `PerplexityMetric` and
    /// `TopKAccuracyMetric`. A batch without masked tokens has no rows and counts in none of them; its gradients are
    /// zeros.
    BertForMaskedLm: MaskedLmBatch => ClassificationOutput
}

impl BertForMaskedLm {
    fn outcome(&self, batch: &MaskedLmBatch) -> (Tensor<1>, ClassificationOutput) {
        let output = self.forward(batch);
        let vocab_size = self.bert.embeddings.word_embeddings.num_embeddings();
        let metrics = classified(&output.loss, output.logits.zip(batch.labels()), vocab_size);
        (output.loss, metrics)
    }
}
