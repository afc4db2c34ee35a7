//! `BertForQuestionAnswering` in Burn's trainer.

use crate::model::{BertForQuestionAnswering, QuestionAnsweringBatch};
use burn::prelude::*;
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};

/// One batch forward and backward, for Burn's `Learner`.
///
/// The output has a row for each first and each last token of an answer, with a score for each token of the batch, and
/// serves `LossMetric` and `AccuracyMetric`; a batch without an answer counts in none of them.
impl TrainStep for BertForQuestionAnswering {
    type Input = QuestionAnsweringBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: QuestionAnsweringBatch) -> TrainOutput<ClassificationOutput> {
        let (loss, output) = self.answer(&batch);
        TrainOutput::new(self, loss.backward(), output)
    }
}

/// The loss and the scores of one batch.
impl InferenceStep for BertForQuestionAnswering {
    type Input = QuestionAnsweringBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: QuestionAnsweringBatch) -> ClassificationOutput {
        self.answer(&batch).1
    }
}

impl BertForQuestionAnswering {
    /// The loss, and what the metrics are computed from.
    fn answer(&self, batch: &QuestionAnsweringBatch) -> (Tensor<1>, ClassificationOutput) {
        let output = self.forward(batch);
        let (device, [_, seq]) = (output.loss.device(), output.start_logits.dims());
        let (scores, places): (Vec<_>, Vec<_>) = batch.labelled(&output).into_iter().flatten().unzip();
        let metrics = match scores.is_empty() {
            false => {
                ClassificationOutput::new(output.loss.clone(), Tensor::cat(scores, 0), Tensor::cat(places, 0))
            }
            true => ClassificationOutput::new(
                Tensor::zeros([0], &device),
                Tensor::zeros([0, seq], &device),
                Tensor::zeros([0], &device),
            ),
        };
        (output.loss, metrics)
    }
}
