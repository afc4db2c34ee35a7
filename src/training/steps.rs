//! `TrainStep` and `InferenceStep` of the models, here of those whose output is Burn's `ClassificationOutput`.

use crate::model::{BertForMaskedLm, BertForQuestionAnswering, MaskedLmBatch, QuestionAnsweringBatch};
use burn::module::{Module, ParamId};
use burn::prelude::*;
use burn::tensor::DType;
use burn::train::{ClassificationOutput, TrainOutput};
use std::cell::Cell;

thread_local! {
    static IS_WEIGHED: Cell<bool> = const { Cell::new(false) };
}

/// The parameter of every [`Training`](super::Training) whose gradient is the number of what its batches' losses are means over. A model's step
/// gives it, so the id is known beforehand.
pub(super) fn count_id() -> ParamId {
    ParamId::from(0x6275_726e_6265_7274)
}

/// Runs the step of a model such that its gradients are those of its mean loss times what that is a mean over, which is
/// the gradient of [`count_id`]: sums of such gradients are divided once, by the sum of the counts.
pub(super) fn weighing<T>(step: impl FnOnce() -> T) -> T {
    IS_WEIGHED.set(true);
    let output = step();
    IS_WEIGHED.set(false);
    output
}

/// The gradients of a loss for Burn's trainer, see [`weighing`].
pub(super) fn trained_by<M: Module, T>(
    model: &M,
    (loss, count, output): (Tensor<1>, f64, T),
) -> TrainOutput<T> {
    if !IS_WEIGHED.get() {
        return TrainOutput::new(model, loss.backward(), output);
    }
    let device = loss.device().inner();
    // Sums of class weights are no integers, which f32 would hold.
    let dtype = if device.supports_dtype(DType::F64) { DType::F64 } else { DType::F32 };
    let mut output = TrainOutput::new(model, loss.mul_scalar(count).backward(), output);
    output.grads.register(count_id(), Tensor::<1>::full([1], count, (&device, dtype)));
    output
}

/// `TrainStep` and `InferenceStep` of a model, from its method `outcome`, which gives the loss of a batch, what that is a mean
/// over, and what metrics are computed from.
macro_rules! trained {
    ($(#[$doc:meta])* $model:ty: $batch:ty => $output:ty) => {
        /// One batch forward and backward, for Burn's `Learner`.
        $(#[$doc])*
        impl burn::train::TrainStep for $model {
            type Input = $batch;
            type Output = $output;

            fn step(&self, batch: $batch) -> burn::train::TrainOutput<$output> {
                crate::training::steps::trained_by(self, self.outcome(&batch))
            }
        }

        /// The loss and the logits of one batch, without dropout on the device that the validation loader is on.
        impl burn::train::InferenceStep for $model {
            type Input = $batch;
            type Output = $output;

            fn step(&self, batch: $batch) -> $output {
                crate::training::outputs::shared(|| self.outcome(&batch).2)
            }
        }
    };
}
pub(super) use trained;

/// What metrics of Burn's `ClassificationOutput` are computed from.
macro_rules! of_classification_output {
    ($item:ident => $output:expr, $name:ty: $($input:ty),*) => {$(
        impl Adaptor<$input> for $name {
            fn adapt(&self) -> $input {
                let $item = self;
                $output.adapt()
            }
        }
    )*};
}
pub(super) use of_classification_output;

trained! {
    ///
    /// The output serves `LossMetric`, `AccuracyMetric` (the share of masked tokens predicted), `PerplexityMetric` and
    /// `TopKAccuracyMetric`. A batch without masked tokens has no rows and counts in none of them; its gradients are
    /// zeros.
    BertForMaskedLm: MaskedLmBatch => ClassificationOutput
}

impl BertForMaskedLm {
    fn outcome(&self, batch: &MaskedLmBatch) -> (Tensor<1>, f64, ClassificationOutput) {
        let output = self.forward(batch);
        let vocab_size = self.bert.embeddings.word_embeddings.num_embeddings();
        let metrics = classified(&output.loss, output.logits.zip(batch.labels()), vocab_size);
        (output.loss, batch.num_masked() as f64, metrics)
    }
}

trained! {
    ///
    /// The output has a row for each first and each last token of an answer, with a score for each token of the batch, and
    /// serves `LossMetric` and `AccuracyMetric`; a batch without an answer counts in none of them.
    BertForQuestionAnswering: QuestionAnsweringBatch => ClassificationOutput
}

impl BertForQuestionAnswering {
    fn outcome(&self, batch: &QuestionAnsweringBatch) -> (Tensor<1>, f64, ClassificationOutput) {
        let output = self.forward(batch);
        let [_, seq] = output.start_logits.dims();
        let (scores, places): (Vec<_>, Vec<_>) = batch.labelled(&output).into_iter().flatten().unzip();
        let rows = (!scores.is_empty()).then(|| (Tensor::cat(scores, 0), Tensor::cat(places, 0)));
        let metrics = classified(&output.loss, rows, seq);
        (output.loss, batch.num_labelled() as f64, metrics)
    }
}

/// Classes of `rows`: scores and labels. Without any it counts in no metric.
pub(super) fn classified(
    loss: &Tensor<1>,
    rows: Option<(Tensor<2>, Tensor<1, Int>)>,
    classes: usize,
) -> ClassificationOutput {
    let device = loss.device();
    match rows {
        // A loss for each label: Burn weights a batch's loss by its length, so that the mean of all batches is one over labels.
        Some((scores, labels)) => {
            ClassificationOutput::new(loss.clone().expand([labels.dims()[0]]), scores, labels)
        }
        None => ClassificationOutput::new(
            Tensor::zeros([0], &device),
            Tensor::zeros([0, classes], &device),
            Tensor::zeros([0], &device),
        ),
    }
}
