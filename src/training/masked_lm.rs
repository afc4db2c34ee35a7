//! `BertForMaskedLm` in Burn's trainer.

use crate::model::BertForMaskedLm;
use crate::model::MaskedLmBatch;
use burn::prelude::*;
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};

/// One batch forward and backward, for Burn's `Learner`.
///
/// The output serves `LossMetric`, `AccuracyMetric` (the share of masked tokens predicted), `PerplexityMetric` and
/// `TopKAccuracyMetric`. A batch without masked tokens has no rows and counts in none of them; its gradients are zeros.
impl TrainStep for BertForMaskedLm {
    type Input = MaskedLmBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: MaskedLmBatch) -> TrainOutput<ClassificationOutput> {
        let (loss, output) = self.classify(&batch);
        TrainOutput::new(self, loss.backward(), output)
    }
}

/// The loss of one batch, without dropout on the device that the validation loader is on.
impl InferenceStep for BertForMaskedLm {
    type Input = MaskedLmBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: MaskedLmBatch) -> ClassificationOutput {
        self.classify(&batch).1
    }
}

impl BertForMaskedLm {
    /// The loss, and what the metrics are computed from.
    fn classify(&self, batch: &MaskedLmBatch) -> (Tensor<1>, ClassificationOutput) {
        let output = self.forward(batch);
        let metrics = match output.logits.zip(batch.labels()) {
            Some((scores, targets)) => ClassificationOutput::new(output.loss.clone(), scores, targets),
            None => {
                let vocab_size = self.bert.embeddings.word_embeddings.num_embeddings();
                let device = output.loss.device();
                ClassificationOutput::new(
                    Tensor::zeros([0], &device),
                    Tensor::zeros([0, vocab_size], &device),
                    Tensor::zeros([0], &device),
                )
            }
        };
        (output.loss, metrics)
    }
}
