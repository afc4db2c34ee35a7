//! Progress of a training run: Burn's dashboard in a terminal, plain lines elsewhere.

use burn::train::logger::{EvaluationProgressLogger, TrainingProgressLogger};
use burn::train::metric::{MetricDefinition, MetricEntry, MetricId};
use burn::train::renderer::tui::TuiMetricsRendererWrapper;
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining,
};
use burn::train::{Interrupter, LearnerSummary};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, IsTerminal, Write};

/// The renderer for the standard output: Burn's dashboard in a terminal, [`ProgressLines`] elsewhere.
///
/// A [`Run`](super::Run) makes its own. Pass the `interrupter` to the trainer too: the dashboard's keys `q`, then `s`, stop
/// it. `finished_epochs` is the number of epochs that a resumed run has finished.
pub fn progress(interrupter: &Interrupter, finished_epochs: usize) -> Box<dyn MetricsRenderer> {
    if io::stdout().is_terminal() {
        let (keys, trainer) = (Interrupter::new(), interrupter.clone());
        let renderer = TuiMetricsRendererWrapper::new(keys.clone(), Some(finished_epochs));
        Box::new(Stopping { renderer, keys, trainer })
    } else {
        Box::new(ProgressLines::default())
    }
}

/// A renderer whose keys stop the trainer. Burn's dashboard resets its interrupter when training ends, but the trainer's
/// must still know then what stopped it, so they are two.
struct Stopping<R> {
    renderer: R,
    keys: Interrupter,
    trainer: Interrupter,
}

impl<R> Stopping<R> {
    /// The renderer, after the trainer was told of the keys.
    fn renderer(&mut self) -> &mut R {
        if self.keys.should_stop() && !self.trainer.should_stop() {
            self.trainer.stop(Some("q, then s"));
        }
        &mut self.renderer
    }
}

/// Passes every call on.
macro_rules! pass_on {
    ($($interface:ident { $(fn $name:ident($($arg:ident: $type:ty),*) $(-> $output:ty)?;)* })*) => {
        $(impl<R: MetricsRenderer> $interface for Stopping<R> {
            $(fn $name(&mut self, $($arg: $type),*) $(-> $output)? {
                self.renderer().$name($($arg),*)
            })*
        })*
    };
}

pass_on! {
    MetricsRendererTraining {
        fn update_train(state: MetricState);
        fn update_valid(state: MetricState);
        fn on_train_end(summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>>;
    }
    TrainingProgressLogger {
        fn start(epochs: usize, first: usize, items: Option<usize>, label: Option<&str>);
        fn start_split(split: &str, total: usize);
        fn update_split(done: usize);
        fn update_epoch(epoch: usize);
        fn end_split();
        fn end();
        fn log_event_training(event: String);
    }
    MetricsRendererEvaluation {
        fn update_test(name: EvaluationName, state: MetricState);
        fn on_test_end(summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>>;
    }
    EvaluationProgressLogger {
        fn start_global_progress(tests: usize);
        fn start_test(name: &str, total: usize);
        fn update_test_progress(done: usize);
        fn end_test();
        fn end_global_progress();
        fn log_event_evaluation(event: String);
    }
    MetricsRenderer {
        fn manual_close();
        fn register_metric(definition: MetricDefinition);
    }
}

/// Lines that a split prints, the last included.
const LINES: usize = 5;

/// Prints the metrics five times per epoch, one line each time (`2/3 train 160/800 | Loss: epoch 0.41 - batch 0.38 | …`),
/// where Burn's renderer without a terminal prints one for each batch; see [`progress()`] and [`Run`](super::Run).
#[derive(Debug, Default)]
pub struct ProgressLines {
    names: BTreeMap<String, String>,
    /// The latest text of each metric.
    latest: BTreeMap<String, String>,
    split: String,
    total: usize,
    printed: usize,
    epochs: usize,
    epoch: usize,
    is_silent: bool,
}

impl ProgressLines {
    /// Prints nothing, for the ranks of a data-parallel training that are not the first.
    pub(super) fn silent() -> Self {
        Self { is_silent: true, ..Self::default() }
    }

    fn update(&mut self, state: MetricState) {
        let (MetricState::Generic(entry) | MetricState::Numeric(entry, _)) = state;
        let MetricEntry { metric_id, serialized_entry } = entry;
        if serialized_entry.is_not_available() {
            return; // until the epoch ends
        }
        self.latest.insert(key(&metric_id), serialized_entry.formatted);
    }

    /// The line for so many items done; `None` if it is not yet time for one.
    fn line(&mut self, done: usize) -> Option<String> {
        // A split may be empty.
        let due = done * LINES / self.total.max(1);
        if self.is_silent || due <= self.printed || self.latest.is_empty() {
            return None;
        }
        self.printed = due;
        let metrics = self.latest.iter().map(|(id, text)| {
            let name = self.names.get(id).map_or("", String::as_str);
            format!("{name}: {text}")
        });
        let metrics = metrics.collect::<Vec<_>>().join(" | ");
        Some(format!("{}/{} {} {done}/{} | {metrics}", self.epoch, self.epochs, self.split, self.total))
    }
}

fn key(id: &MetricId) -> String {
    format!("{id:?}")
}

impl MetricsRendererTraining for ProgressLines {
    fn update_train(&mut self, state: MetricState) {
        self.update(state);
    }

    fn update_valid(&mut self, state: MetricState) {
        self.update(state);
    }

    fn on_train_end(&mut self, _summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>> {
        Ok(())
    }
}

impl TrainingProgressLogger for ProgressLines {
    fn start(&mut self, epochs: usize, first: usize, _items: Option<usize>, _label: Option<&str>) {
        (self.epochs, self.epoch) = (epochs, first);
    }

    fn start_split(&mut self, split: &str, total: usize) {
        (self.split, self.total, self.printed) = (split.to_string(), total, 0);
        self.latest.clear();
    }

    fn update_split(&mut self, done: usize) {
        if let Some(line) = self.line(done) {
            // Training goes on where nobody reads it.
            let _ = writeln!(io::stdout(), "{line}");
        }
    }

    fn update_epoch(&mut self, epoch: usize) {
        self.epoch = epoch + 1;
    }

    fn end_split(&mut self) {}

    fn end(&mut self) {}

    /// Ignored: the trainer logs every iteration here.
    fn log_event_training(&mut self, _event: String) {}
}

impl MetricsRendererEvaluation for ProgressLines {
    fn update_test(&mut self, _name: EvaluationName, state: MetricState) {
        self.update(state);
    }
}

impl EvaluationProgressLogger for ProgressLines {
    fn start_global_progress(&mut self, _tests: usize) {}

    fn start_test(&mut self, name: &str, total: usize) {
        self.start_split(name, total);
    }

    fn update_test_progress(&mut self, done: usize) {
        self.update_split(done);
    }

    fn end_test(&mut self) {}

    fn end_global_progress(&mut self) {}

    fn log_event_evaluation(&mut self, _event: String) {}
}

impl MetricsRenderer for ProgressLines {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, definition: MetricDefinition) {
        self.names.insert(key(&definition.metric_id), definition.name.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::train::metric::{LossMetric, SerializedEntry};

    #[test]
    fn the_keys_of_a_renderer_stop_the_trainer_even_when_they_come_last() {
        let (keys, trainer) = (Interrupter::new(), Interrupter::new());
        let renderer = ProgressLines::default();
        let mut renderer = Stopping { renderer, keys: keys.clone(), trainer: trainer.clone() };
        renderer.update_split(1);
        assert!(!trainer.should_stop());
        keys.stop(None);
        renderer.on_train_end(None).unwrap();
        keys.reset(); // as Burn's dashboard does
        assert_eq!(trainer.interruption().unwrap().reason.as_deref(), Some("q, then s"));
    }

    #[test]
    fn five_lines_an_epoch_say_where_training_is() {
        let mut lines = ProgressLines::default();
        let id = MetricId::new("loss".to_string().into());
        lines.register_metric(MetricDefinition::new(id.clone(), &LossMetric::new()));
        lines.start(3, 2, None, None);
        lines.start_split("train", 100);
        let update = |lines: &mut ProgressLines, text: &str, value: &str| {
            let entry = SerializedEntry::new(text.to_string(), value.to_string());
            lines.update_train(MetricState::Generic(MetricEntry::new(id.clone(), entry)));
        };
        update(&mut lines, "until the epoch ends", "");
        assert_eq!(lines.line(50), None, "there is nothing to tell");
        let printed: Vec<String> = (1..=100)
            .filter_map(|done| {
                update(&mut lines, &format!("{done} nats"), &done.to_string());
                lines.line(done)
            })
            .collect();
        assert_eq!(printed.len(), 5);
        assert_eq!(printed[0], "2/3 train 20/100 | Loss: 20 nats");
        assert_eq!(printed[4], "2/3 train 100/100 | Loss: 100 nats");
    }
}
