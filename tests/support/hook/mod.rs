//! A metric that does something while a model is trained.

use burn::tensor::TensorReadError;
use burn::train::metric::{
    LossInput, Metric, MetricMetadata, MetricName, Numeric, NumericEntry, SerializedEntry,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does something with the number of each training batch. Its value is that number, or what is made of it.
#[derive(Clone)]
pub struct Hook {
    batches: Arc<AtomicUsize>,
    run: Arc<dyn Fn(usize) + Send + Sync>,
    value: Arc<dyn Fn(usize) -> f64 + Send + Sync>,
}

impl Hook {
    pub fn new(run: impl Fn(usize) + Send + Sync + 'static) -> Self {
        Self { batches: Arc::default(), run: Arc::new(run), value: Arc::new(|batches| batches as f64) }
    }

    /// Does something in one training batch.
    pub fn at(batch: usize, run: impl Fn() + Send + Sync + 'static) -> Self {
        Self::new(move |number| {
            if number == batch {
                run();
            }
        })
    }

    pub fn never() -> Self {
        Self::new(|_| panic!("a step was taken"))
    }

    pub fn with_value(self, value: impl Fn(usize) -> f64 + Send + Sync + 'static) -> Self {
        Self { value: Arc::new(value), ..self }
    }
}

impl Metric for Hook {
    type Input = LossInput;

    fn name(&self) -> MetricName {
        Arc::new("Hook".into())
    }

    fn update(
        &mut self,
        _: &LossInput,
        metadata: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        // Training batches alone have a learning rate.
        if metadata.lr.is_some() {
            (self.run)(self.batches.fetch_add(1, Ordering::Relaxed) + 1);
        }
        Ok(SerializedEntry::not_available(None))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(SerializedEntry::new(String::new(), self.final_value().serialize()))
    }

    fn clear(&mut self) {}
}

impl Numeric for Hook {
    fn value(&self) -> Option<NumericEntry> {
        None
    }

    fn running_value(&self) -> Option<NumericEntry> {
        None
    }

    fn final_value(&self) -> NumericEntry {
        NumericEntry::Final((self.value)(self.batches.load(Ordering::Relaxed)))
    }
}
