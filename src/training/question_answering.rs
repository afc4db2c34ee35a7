//! `BertForQuestionAnswering` in Burn's trainer.

use super::step::{classified, trained};
use crate::model::{BertForQuestionAnswering, QuestionAnsweringBatch};
use burn::prelude::*;
use burn::train::ClassificationOutput;

trained! {
    ///
    /// The output has a row for each first and each last token of an answer, with a score for each token of the batch, and
    /// serves `LossMetric` and `AccuracyMetric`; a batch without an answer counts in none of them.
    BertForQuestionAnswering: QuestionAnsweringBatch => ClassificationOutput
}

impl BertForQuestionAnswering {
    fn outcome(&self, batch: &QuestionAnsweringBatch) -> (Tensor<1>, ClassificationOutput) {
        let output = self.forward(batch);
        let [_, seq] = output.start_logits.dims();
        let (scores, places): (Vec<_>, Vec<_>) = batch.labelled(&output).into_iter().flatten().unzip();
        let rows = (!scores.is_empty()).then(|| (Tensor::cat(scores, 0), Tensor::cat(places, 0)));
        let metrics = classified(&output.loss, rows, seq);
        (output.loss, metrics)
    }
}
