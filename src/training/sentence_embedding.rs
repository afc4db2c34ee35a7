//! `BertForSentenceEmbedding` in Burn's trainer.

use super::step::trained;
use crate::model::{BertForSentenceEmbedding, SentencePairBatch};
use burn::prelude::*;
use burn::train::ClassificationOutput;

trained! {
    ///
    /// The output has a row per anchor and a class per candidate. It serves `LossMetric` and `AccuracyMetric`: the share
    /// of anchors that are nearest to their own candidate of the batch, which depends on the batch size. Negatives are
    /// those of one batch: accumulated batches, and those of several devices, do not share them.
    BertForSentenceEmbedding: SentencePairBatch => ClassificationOutput
}

impl BertForSentenceEmbedding {
    fn outcome(&self, batch: &SentencePairBatch) -> (Tensor<1>, ClassificationOutput) {
        let output = self.forward(batch);
        let [anchors, _] = output.scores.dims();
        let own = Tensor::arange(0..anchors as i64, &output.scores.device());
        (output.loss.clone(), ClassificationOutput::new(output.loss, output.scores, own))
    }
}
