//! What each head gives a training loop.

use super::outputs::{ClassificationItem, Outcome, SentenceEmbeddingItem, Shared};
use super::run::{Run, TrainableModel, Trained, train};
use crate::embeddings::BertEmbeddingsInput;
use crate::error::Result;
use crate::metrics::best_threshold;
use crate::model::{
    BertForMaskedLm, BertForQuestionAnswering, BertForSentenceEmbedding, BertForSequenceClassification,
    BertForTokenClassification, ElectraForPreTraining, MaskedLmBatch, ProblemType, QuestionAnsweringBatch,
    SentencePairBatch, SequenceClassificationBatch, TokenClassificationBatch,
};
use burn::prelude::*;

/// The types of a model's batches and outputs, how ranks send outputs, and [`run`](TrainableModel::run), which is compiled here.
macro_rules! trains {
    ($batch:ident => $output:ident) => {
        type Batch = $batch;
        type Output = $output;
        const SHARED: Option<Shared<$output>> = Shared::new($output::read);

        fn run(run: Run<Self>) -> Result<Trained<Self>> {
            train(run)
        }
    };
}

/// A row for each masked token, with a logit for each word.
impl TrainableModel for BertForMaskedLm {
    trains!(MaskedLmBatch => ClassificationItem);

    fn inputs(batch: &MaskedLmBatch) -> Vec<&BertEmbeddingsInput> {
        vec![&batch.input]
    }

    fn outcome(&self, batch: &MaskedLmBatch) -> Result<Outcome<ClassificationItem>> {
        let output = self.try_forward(batch)?;
        let vocab_size = self.bert.embeddings.word_embeddings.num_embeddings();
        let rows = output.logits.zip(batch.labels());
        let item = ClassificationItem::from_rows(&output.loss, rows, vocab_size);
        Ok(Outcome { loss: output.loss, count: batch.num_masked() as f64, output: item })
    }
}

/// A row for each first and each last token of an answer, with a logit for each token of the batch.
impl TrainableModel for BertForQuestionAnswering {
    trains!(QuestionAnsweringBatch => ClassificationItem);

    fn inputs(batch: &QuestionAnsweringBatch) -> Vec<&BertEmbeddingsInput> {
        vec![&batch.input]
    }

    fn outcome(&self, batch: &QuestionAnsweringBatch) -> Result<Outcome<ClassificationItem>> {
        let output = self.try_forward(batch)?;
        let [_, seq] = output.start_logits.dims();
        let (scores, positions): (Vec<_>, Vec<_>) = batch.labelled(&output).into_iter().flatten().unzip();
        let rows = (!scores.is_empty()).then(|| (Tensor::cat(scores, 0), Tensor::cat(positions, 0)));
        let item = ClassificationItem::from_rows(&output.loss, rows, seq);
        Ok(Outcome { loss: output.loss, count: batch.num_labelled() as f64, output: item })
    }
}

impl TrainableModel for BertForSentenceEmbedding {
    trains!(SentencePairBatch => SentenceEmbeddingItem);

    fn inputs(batch: &SentencePairBatch) -> Vec<&BertEmbeddingsInput> {
        vec![&batch.anchors, &batch.candidates]
    }

    fn outcome(&self, batch: &SentencePairBatch) -> Result<Outcome<SentenceEmbeddingItem>> {
        let output = self.try_forward(batch)?;
        let [count, _] = output.anchors.dims();
        let item = SentenceEmbeddingItem {
            loss: output.loss.clone(),
            anchors: output.anchors,
            candidates: output.candidates,
            labels: batch.labels.clone(),
            texts: batch.texts.clone(),
            similarity: self.config().similarity,
        };
        Ok(Outcome { loss: output.loss, count: count as f64, output: item })
    }
}

/// A row for each text that has a label.
impl TrainableModel for BertForSequenceClassification {
    trains!(SequenceClassificationBatch => ClassificationItem);

    fn inputs(batch: &SequenceClassificationBatch) -> Vec<&BertEmbeddingsInput> {
        vec![&batch.input]
    }

    fn outcome(&self, batch: &SequenceClassificationBatch) -> Result<Outcome<ClassificationItem>> {
        let output = self.try_forward(batch)?;
        let (logits, [_, columns]) = (output.logits.clone(), output.logits.dims());
        let item = match batch.targets() {
            None => ClassificationItem::from_rows(&output.loss, batch.labelled(logits), columns),
            targets => {
                let odds = self.config().label_thresholds.map(|thresholds| {
                    let odds: Vec<f64> = thresholds.iter().map(|p| (p / (1.0 - p)).ln()).collect();
                    Tensor::<1>::from_data(&odds[..], (&logits.device(), logits.dtype())).unsqueeze::<2>()
                });
                let logits = odds.into_iter().fold(logits, |logits, odds| logits - odds);
                let (loss, sentences) = (output.loss.clone(), Vec::new());
                ClassificationItem { loss, logits, classes: None, targets, sentences }
            }
        };
        Ok(Outcome { loss: output.loss, count: self.loss_count(batch), output: item })
    }

    fn uncalibrated(self) -> Result<Self> {
        self.with_label_thresholds(None)
    }

    /// Sets the threshold of each of several labels that has the best F1 on the validation data.
    fn calibrated(self, run: &Run<Self>) -> Result<Self> {
        if self.config().problem_type != Some(ProblemType::MultiLabelClassification) {
            return Ok(self);
        }
        let model = self;
        let mut scored = vec![(Vec::new(), Vec::new()); model.id2label().len()];
        run.validate(&model, |output| {
            let (logits, targets) = output.with_targets();
            let (logits, targets) = (logits.into_data(), targets.into_data());
            for (index, (logit, target)) in logits.iter::<f64>().zip(targets.iter::<f64>()).enumerate() {
                let label = index % scored.len();
                scored[label].0.push(1.0 / (1.0 + (-logit).exp()));
                scored[label].1.push(target >= 0.5);
            }
            Ok(())
        })?;
        let thresholds = scored.iter().map(|(scores, truth)| best_threshold(scores, truth));
        let thresholds: Vec<f64> = thresholds.collect();
        let shown: Vec<String> =
            model.id2label().iter().zip(&thresholds).map(|(name, p)| format!("{name:?} {p:.4}")).collect();
        run.arguments
            .note(format_args!("thresholds with the best F1 on the validation data: {}", shown.join(", ")));
        model.with_label_thresholds(Some(thresholds))
    }
}

/// A row for each token that has a label.
impl TrainableModel for BertForTokenClassification {
    trains!(TokenClassificationBatch => ClassificationItem);

    fn inputs(batch: &TokenClassificationBatch) -> Vec<&BertEmbeddingsInput> {
        vec![&batch.input]
    }

    fn outcome(&self, batch: &TokenClassificationBatch) -> Result<Outcome<ClassificationItem>> {
        let output = self.try_forward(batch)?;
        let [_, _, classes] = output.logits.dims();
        let rows = batch.labelled(output.logits);
        let sentences = batch.positions().iter().map(|[row, _]| *row).collect();
        let item =
            ClassificationItem { sentences, ..ClassificationItem::from_rows(&output.loss, rows, classes) };
        Ok(Outcome { loss: output.loss, count: self.loss_count(batch), output: item })
    }
}

/// A row for each token that has a label, with a logit for each of its two classes.
impl TrainableModel for ElectraForPreTraining {
    trains!(TokenClassificationBatch => ClassificationItem);

    fn outcome(&self, batch: &TokenClassificationBatch) -> Result<Outcome<ClassificationItem>> {
        let output = self.try_forward(batch)?;
        let rows = batch
            .labelled(output.logits.unsqueeze_dim(2))
            // ELECTRA has one logit, a softmax over [0, logit] is its sigmoid.
            .map(|(scores, labels)| (Tensor::cat(vec![scores.zeros_like(), scores], 1), labels));
        let item = ClassificationItem::from_rows(&output.loss, rows, 2);
        Ok(Outcome { loss: output.loss, count: batch.num_labelled() as f64, output: item })
    }
}
