use super::outputs::{ClassificationItem, SentenceEmbeddingItem, is_on_ranks, shared};
use crate::model::{
    BertForMaskedLm, BertForQuestionAnswering, BertForSentenceEmbedding, BertForSequenceClassification,
    BertForTokenClassification, ElectraForPreTraining, MaskedLmBatch, QuestionAnsweringBatch,
    SentencePairBatch, SequenceClassificationBatch, TokenClassificationBatch,
};
use burn::module::{Module, ParamId};
use burn::prelude::*;
use burn::tensor::DType;
use burn::train::TrainOutput;

/// The parameter of every [`Training`](super::Training) whose gradient is the number of what its batches' losses are means over. A model's step
/// gives it, so the id is known beforehand.
pub(super) fn count_id() -> ParamId {
    ParamId::from(0x6275_726e_6265_7274)
}

/// The gradients of a loss for Burn's trainer. On ranks they are multiplied by `count`, what the loss is a mean over, which is the
/// gradient of [`count_id`]: sums of such gradients are divided once, by the sum of the counts.
fn trained_by<M: Module, T>(model: &M, loss: Tensor<1>, count: f64, output: T) -> TrainOutput<T> {
    // Burn's own message would name tensors, which nobody made here.
    assert!(
        loss.is_tracked(),
        "the model trains no parameter: make or load it on `device.autodiff()`, and freeze not all of it"
    );
    if !is_on_ranks() {
        return TrainOutput::new(model, loss.backward(), output);
    }
    let device = loss.device().inner();
    // Sums of class weights are no integers, which f32 would hold.
    let dtype = if device.supports_dtype(DType::F64) { DType::F64 } else { DType::F32 };
    let mut output = TrainOutput::new(model, loss.mul_scalar(count).backward(), output);
    output.grads.register(count_id(), Tensor::<1>::full([1], count, (&device, dtype)));
    output
}

/// `TrainStep` and `InferenceStep` of models, from their method `outcome`, which gives what the loss of a batch is a mean over,
/// and what metrics are computed from.
macro_rules! trained {
    ($($model:ty: $batch:ty => $item:ty;)*) => {$(
        /// One batch forward and backward, for Burn's `Learner`. Panics if the model is not on an autodiff device.
        impl burn::train::TrainStep for $model {
            type Input = $batch;
            type Output = $item;

            fn step(&self, batch: $batch) -> TrainOutput<$item> {
                let (count, item) = self.outcome(&batch);
                trained_by(self, item.loss.clone(), count, item)
            }
        }

        /// The loss and the predictions of one batch, without dropout on the device that the validation loader is on.
        impl burn::train::InferenceStep for $model {
            type Input = $batch;
            type Output = $item;

            fn step(&self, batch: $batch) -> $item {
                shared(|| self.outcome(&batch).1)
            }
        }
    )*};
}

trained! {
    BertForMaskedLm: MaskedLmBatch => ClassificationItem;
    BertForQuestionAnswering: QuestionAnsweringBatch => ClassificationItem;
    BertForSentenceEmbedding: SentencePairBatch => SentenceEmbeddingItem;
    BertForSequenceClassification: SequenceClassificationBatch => ClassificationItem;
    BertForTokenClassification: TokenClassificationBatch => ClassificationItem;
    ElectraForPreTraining: TokenClassificationBatch => ClassificationItem;
}

/// A row for each masked token, with a logit for each word.
impl BertForMaskedLm {
    fn outcome(&self, batch: &MaskedLmBatch) -> (f64, ClassificationItem) {
        let output = self.forward(batch);
        let vocab_size = self.bert.embeddings.word_embeddings.num_embeddings();
        let rows = output.logits.zip(batch.labels());
        (batch.num_masked() as f64, ClassificationItem::of_classes(&output.loss, rows, vocab_size))
    }
}

/// A row for each first and each last token of an answer, with a logit for each token of the batch.
impl BertForQuestionAnswering {
    fn outcome(&self, batch: &QuestionAnsweringBatch) -> (f64, ClassificationItem) {
        let output = self.forward(batch);
        let [_, seq] = output.start_logits.dims();
        let (scores, places): (Vec<_>, Vec<_>) = batch.labelled(&output).into_iter().flatten().unzip();
        let rows = (!scores.is_empty()).then(|| (Tensor::cat(scores, 0), Tensor::cat(places, 0)));
        (batch.num_labelled() as f64, ClassificationItem::of_classes(&output.loss, rows, seq))
    }
}

impl BertForSentenceEmbedding {
    fn outcome(&self, batch: &SentencePairBatch) -> (f64, SentenceEmbeddingItem) {
        let output = self.forward(batch);
        let [count, _] = output.anchors.dims();
        let item = SentenceEmbeddingItem {
            loss: output.loss,
            anchors: output.anchors,
            candidates: output.candidates,
            labels: batch.labels.clone(),
            similarity: self.config().similarity,
        };
        (count as f64, item)
    }
}

/// A row for each text that has a label.
impl BertForSequenceClassification {
    fn outcome(&self, batch: &SequenceClassificationBatch) -> (f64, ClassificationItem) {
        let output = self.forward(batch);
        let (logits, [_, columns]) = (output.logits.clone(), output.logits.dims());
        let item = match batch.targets() {
            None => ClassificationItem::of_classes(&output.loss, batch.labelled(logits), columns),
            targets => {
                let (loss, sentences) = (output.loss, Vec::new());
                ClassificationItem { loss, logits, classes: None, targets, sentences }
            }
        };
        (self.loss_count(batch), item)
    }
}

/// A row for each token that has a label.
impl BertForTokenClassification {
    fn outcome(&self, batch: &TokenClassificationBatch) -> (f64, ClassificationItem) {
        let output = self.forward(batch);
        let [_, _, classes] = output.logits.dims();
        let rows = batch.labelled(output.logits);
        let sentences = batch.positions().iter().map(|[row, _]| *row).collect();
        let item = ClassificationItem::of_classes(&output.loss, rows, classes);
        (self.loss_count(batch), ClassificationItem { sentences, ..item })
    }
}

/// A row for each token that has a label, with a logit for each of its two classes.
impl ElectraForPreTraining {
    fn outcome(&self, batch: &TokenClassificationBatch) -> (f64, ClassificationItem) {
        let output = self.forward(batch);
        let rows = batch
            .labelled(output.logits.unsqueeze_dim(2))
            // ELECTRA has one logit, a softmax over [0, logit] is its sigmoid.
            .map(|(scores, labels)| (Tensor::cat(vec![scores.zeros_like(), scores], 1), labels));
        (batch.num_labelled() as f64, ClassificationItem::of_classes(&output.loss, rows, 2))
    }
}
