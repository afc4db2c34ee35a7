//! The models that classify sequences or tokens in Burn's trainer.

use super::outputs::output;
use super::steps::{classified, of_classification_output, trained};
use crate::metrics::{EntityInput, SpearmanInput};
use crate::model::{
    BertForSequenceClassification, BertForTokenClassification, ElectraForPreTraining,
    SequenceClassificationBatch, TokenClassificationBatch,
};
use burn::backend::ExecutionError;
use burn::prelude::*;
use burn::train::metric::{
    AccuracyInput, Adaptor, ConfusionStatsInput, HammingScoreInput, LossInput, PerplexityInput,
    TopKAccuracyInput,
};
use burn::train::{ClassificationOutput, ItemLazy};

/// The output of a [`BertForSequenceClassification`] for metrics.
///
/// It always supports `LossMetric`, whose mean is over sequences; with one class per sequence `AccuracyMetric`,
/// `TopKAccuracyMetric` and [`ConfusionMetric`](crate::metrics::ConfusionMetric); with several classes `HammingScore`; with
/// numbers [`SpearmanMetric`](crate::metrics::SpearmanMetric). Other metrics see an empty batch, which they ignore.
#[derive(Clone, Debug)]
pub struct SequenceClassificationItem {
    /// The mean loss, `[1]`.
    pub loss: Tensor<1>,
    /// Logits of each class, [B, C]; sequences without a label have no row here and below.
    pub logits: Tensor<2>,
    /// The class of each sequence, `[B]`; `None` without one class per sequence.
    pub classes: Option<Tensor<1, Int>>,
    /// The classes of each sequence as zeros and ones, or its numbers, [B, C]; `None` with one class per sequence.
    pub targets: Option<Tensor<2>>,
}

impl SequenceClassificationItem {
    fn new(loss: Tensor<1>, logits: Tensor<2>, batch: &SequenceClassificationBatch) -> Self {
        let (device, [_, columns]) = (logits.device(), logits.dims());
        let (logits, classes, targets) = match (batch.targets(), batch.labelled(logits.clone())) {
            (Some(targets), _) => (logits, None, Some(targets)),
            (None, Some((logits, classes))) => (logits, Some(classes), None),
            (None, None) => (Tensor::zeros([0, columns], &device), None, None),
        };
        Self { loss, logits, classes, targets }
    }

    /// Logits and classes; no rows without one class per sequence.
    fn output(&self) -> ClassificationOutput {
        let [_, columns] = self.logits.dims();
        classified(&self.loss, self.classes.clone().map(|classes| (self.logits.clone(), classes)), columns)
    }

    /// Logits and targets; no rows with one class per sequence.
    fn with_targets(&self) -> (Tensor<2>, Tensor<2>) {
        let (device, [_, columns]) = (self.logits.device(), self.logits.dims());
        let nothing = || (Tensor::zeros([0, columns], &device), Tensor::zeros([0, columns], &device));
        self.targets.clone().map_or_else(nothing, |targets| (self.logits.clone(), targets))
    }
}

impl ItemLazy for SequenceClassificationItem {
    fn sync(self) -> Result<Self, ExecutionError> {
        // Like Burn's own outputs: nothing is read back here.
        self.loss.device().flush()?;
        Ok(Self {
            loss: self.loss.without_autodiff(),
            logits: self.logits.without_autodiff(),
            classes: self.classes.map(Tensor::without_autodiff),
            targets: self.targets.map(Tensor::without_autodiff),
        })
    }
}

output!(SequenceClassificationItem { loss, logits, classes, targets });

impl Adaptor<LossInput> for SequenceClassificationItem {
    fn adapt(&self) -> LossInput {
        // A row for each sequence: Burn weights a batch's loss by its length.
        LossInput::new(match self.logits.dims() {
            [0, _] => Tensor::zeros([0], &self.loss.device()),
            [rows, _] => self.loss.clone().expand([rows]),
        })
    }
}

of_classification_output!(
    item => item.output(), SequenceClassificationItem: AccuracyInput, TopKAccuracyInput, ConfusionStatsInput
);

impl Adaptor<HammingScoreInput> for SequenceClassificationItem {
    fn adapt(&self) -> HammingScoreInput {
        let (logits, targets) = self.with_targets();
        // Targets may be probabilities; Burn's metric takes classes.
        HammingScoreInput::new(logits, targets.greater_equal_elem(0.5).int())
    }
}

impl Adaptor<SpearmanInput> for SequenceClassificationItem {
    fn adapt(&self) -> SpearmanInput {
        let (predicted, truth) = self.with_targets();
        SpearmanInput { predicted, truth }
    }
}

trained!(BertForSequenceClassification: SequenceClassificationBatch => SequenceClassificationItem);

impl BertForSequenceClassification {
    fn outcome(&self, batch: &SequenceClassificationBatch) -> (Tensor<1>, f64, SequenceClassificationItem) {
        let output = self.forward(batch);
        let item = SequenceClassificationItem::new(output.loss.clone(), output.logits, batch);
        (output.loss, self.loss_count(batch), item)
    }
}

/// The output of a [`BertForTokenClassification`] for metrics, with a row for each token that has a label.
///
/// It supports [`EntityMetric`](crate::metrics::EntityMetric), [`ConfusionMetric`](crate::metrics::ConfusionMetric),
/// `LossMetric` and `AccuracyMetric`; a batch without such a token counts in none of them.
pub struct TokenClassificationItem {
    /// Loss, logits [N, C] and labels `[N]`.
    pub output: ClassificationOutput,
    /// The row of the batch that each of the N tokens is in.
    pub sentences: Vec<usize>,
}

impl ItemLazy for TokenClassificationItem {
    fn sync(self) -> Result<Self, ExecutionError> {
        Ok(Self { output: self.output.sync()?, sentences: self.sentences })
    }
}

output!(TokenClassificationItem { output, sentences });

of_classification_output!(
    item => item.output, TokenClassificationItem: LossInput, AccuracyInput, TopKAccuracyInput, PerplexityInput, ConfusionStatsInput
);

impl Adaptor<EntityInput> for TokenClassificationItem {
    fn adapt(&self) -> EntityInput {
        let ClassificationOutput { output, targets, .. } = &self.output;
        EntityInput { logits: output.clone(), labels: targets.clone(), sentences: self.sentences.clone() }
    }
}

trained! {
    BertForTokenClassification: TokenClassificationBatch => TokenClassificationItem
}

impl BertForTokenClassification {
    fn outcome(&self, batch: &TokenClassificationBatch) -> (Tensor<1>, f64, TokenClassificationItem) {
        let output = self.forward(batch);
        let [_, _, classes] = output.logits.dims();
        let metrics = classified(&output.loss, batch.labelled(output.logits), classes);
        let sentences = batch.positions().iter().map(|[row, _]| *row).collect();
        (output.loss, self.loss_count(batch), TokenClassificationItem { output: metrics, sentences })
    }
}

trained! {
    ///
    /// The output has a row for each token that has a label, with a score for each of its two classes, and serves `LossMetric`,
    /// `AccuracyMetric` and [`ConfusionMetric`](crate::metrics::ConfusionMetric).
    ElectraForPreTraining: TokenClassificationBatch => ClassificationOutput
}

impl ElectraForPreTraining {
    fn outcome(&self, batch: &TokenClassificationBatch) -> (Tensor<1>, f64, ClassificationOutput) {
        let output = self.forward(batch);
        let rows = batch
            .labelled(output.logits.unsqueeze_dim(2))
            // ELECTRA has one logit, a softmax over [0, logit] is its sigmoid.
            .map(|(scores, labels)| (Tensor::cat(vec![scores.zeros_like(), scores], 1), labels));
        (output.loss.clone(), batch.num_labelled() as f64, classified(&output.loss, rows, 2))
    }
}
