//! Scores of predictions, and metrics of them for Burn's trainer.
//!
//! ```
//! use burn::train::metric::LossMetric;
//! use burn_bert::data::LabelNames;
//! use burn_bert::metrics::{ConfusionMetric, EntityMetric, RetrievalMetric, SpearmanMetric};
//!
//! // Each tuple is an argument of `SupervisedTraining::metrics`.
//! let classification = (LossMetric::new(), ConfusionMetric::macro_f1(), ConfusionMetric::f1(1, "positive"));
//! let names = LabelNames::new(["O", "B-PER", "I-PER"])?; // of the model: id2label
//! let tokens = (LossMetric::new(), EntityMetric::f1(&names), EntityMetric::recall(&names));
//! let sentences = (LossMetric::new(), SpearmanMetric::new(), RetrievalMetric::mrr(10));
//! # let _ = (classification, tokens, sentences);
//! # Ok::<(), burn_bert::Error>(())
//! ```

mod confusion_matrix;
mod entities;
mod retrieval;
mod spearman;
mod squad_scores;

pub use confusion_matrix::{ConfusionMatrix, ConfusionMetric};
pub use entities::{EntityCounts, EntityInput, EntityMetric, EntityScores};
pub use retrieval::{RetrievalInput, RetrievalMetric, RetrievalScores, TripletInput, TripletMetric};
pub use spearman::{SpearmanInput, SpearmanMetric, spearman};
pub use squad_scores::SquadScores;

use burn::prelude::*;
use burn::tensor::TensorReadError;
use burn::train::metric::{
    ConfusionStatsInput, Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes,
    NumericEntry, SerializedEntry,
};

/// The part of a metric that differs: `numeric!` makes one of Burn's of it.
trait Score {
    type Input;

    /// Whether it is too expensive for the training split, which has gradients to compute.
    const IS_FOR_VALIDATION: bool = false;

    fn name(&self) -> MetricName;

    fn add(&mut self, input: &Self::Input) -> Result<(), TensorReadError>;

    /// The score of all batches so far.
    fn score(&self) -> Result<f64, TensorReadError>;

    /// The number of items in the score; `None` if the score of a part of an epoch means nothing.
    fn count(&self) -> Option<usize> {
        None
    }

    fn forget(&mut self);

    /// The score of a part of an epoch.
    fn so_far(&self) -> Option<NumericEntry> {
        let count = self.count()?;
        // Burn takes no error here: a device that cannot be read gives NaN.
        Some(NumericEntry::Aggregated { aggregated_value: self.score().unwrap_or(f64::NAN), count })
    }
}

fn has_nan(logits: &Tensor<2>) -> Result<bool, TensorReadError> {
    let nan = logits.clone().is_nan().any().try_into_data()?;
    Ok(nan.iter::<bool>().any(|nan| nan))
}

/// As Burn's own metrics write themselves.
fn serialized(entry: &NumericEntry) -> SerializedEntry {
    SerializedEntry::new(format!("epoch {:.4}", entry.current()), entry.serialize())
}

/// Makes each [`Score`] a metric of Burn's, of which more is better.
macro_rules! numeric {
    ($($metric:ident: $input:ty),*) => {$(
        impl Metric for $metric {
            type Input = $input;

            fn name(&self) -> MetricName {
                Score::name(self)
            }

            fn attributes(&self) -> MetricAttributes {
                NumericAttributes { unit: None, higher_is_better: true }.into()
            }

            fn update(&mut self, input: &Self::Input, metadata: &MetricMetadata) -> Result<SerializedEntry, TensorReadError> {
                // The trainer gives the learning rate in training alone.
                if Self::IS_FOR_VALIDATION && metadata.lr.is_some() {
                    return Ok(SerializedEntry::not_available(None));
                }
                self.add(input)?;
                Ok(match self.so_far() {
                    Some(entry) => serialized(&entry),
                    None => SerializedEntry::not_available(None), // until the epoch ends
                })
            }

            fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
                Ok(serialized(&NumericEntry::Final(self.score()?)))
            }

            fn clear(&mut self) {
                self.forget();
            }
        }

        impl Numeric for $metric {
            fn value(&self) -> Option<NumericEntry> {
                self.so_far()
            }

            fn running_value(&self) -> Option<NumericEntry> {
                self.so_far()
            }

            fn final_value(&self) -> NumericEntry {
                NumericEntry::Final(self.score().unwrap_or(f64::NAN))
            }
        }
    )*};
}
numeric! {
    ConfusionMetric: ConfusionStatsInput,
    EntityMetric: EntityInput,
    RetrievalMetric: RetrievalInput,
    SpearmanMetric: SpearmanInput,
    TripletMetric: TripletInput
}
