//! `BertForSentenceEmbedding` in Burn's trainer.

use crate::model::{BertForSentenceEmbedding, SentenceEmbeddingOutput, SentencePairBatch};
use burn::prelude::*;
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};

/// One batch forward and backward, for Burn's `Learner`.
///
/// The output has a row per anchor and a class per candidate. It serves `LossMetric` and `AccuracyMetric`: the share of
/// anchors that are nearest to their own candidate of the batch, which depends on the batch size. Negatives are those
/// of one batch: accumulated batches, and those of several devices, do not share them.
impl TrainStep for BertForSentenceEmbedding {
    type Input = SentencePairBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: SentencePairBatch) -> TrainOutput<ClassificationOutput> {
        let output = self.forward(&batch);
        let gradients = output.loss.clone().backward();
        TrainOutput::new(self, gradients, retrieval(output))
    }
}

/// The loss and the scores of one batch.
impl InferenceStep for BertForSentenceEmbedding {
    type Input = SentencePairBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: SentencePairBatch) -> ClassificationOutput {
        retrieval(self.forward(&batch))
    }
}

/// Finding each anchor's candidate as a classification.
fn retrieval(output: SentenceEmbeddingOutput) -> ClassificationOutput {
    let [anchors, _] = output.scores.dims();
    let own = Tensor::arange(0..anchors as i64, &output.scores.device());
    ClassificationOutput::new(output.loss, output.scores, own)
}
