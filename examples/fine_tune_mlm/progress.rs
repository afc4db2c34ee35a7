//! Progress: Burn's dashboard in a terminal, plain lines elsewhere.

use burn::train::logger::{EvaluationProgressLogger, TrainingProgressLogger};
use burn::train::metric::{MetricDefinition, MetricEntry, MetricId};
use burn::train::renderer::tui::TuiMetricsRendererWrapper;
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining,
};
use burn::train::{Interrupter, LearnerSummary};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

/// What suits the standard output. `trainer` is stopped by the keys `q`, then `s` of the dashboard.
pub fn renderer(trainer: Interrupter, finished_epochs: usize) -> Box<dyn MetricsRenderer> {
    match std::io::stdout().is_terminal() {
        true => Box::new(dashboard(trainer, finished_epochs)),
        false => Box::new(Plain::default()),
    }
}

/// A dashboard resets its interrupter when training ends. The trainer's must still know then what stopped it, so
/// this one has its own.
fn dashboard(trainer: Interrupter, finished_epochs: usize) -> TuiMetricsRendererWrapper {
    let keys = Interrupter::new();
    let dashboard = TuiMetricsRendererWrapper::new(keys.clone(), Some(finished_epochs));
    thread::spawn(move || {
        while !keys.should_stop() {
            thread::sleep(Duration::from_millis(100));
        }
        trainer.stop(Some("q, then s"));
    });
    dashboard
}

/// Lines that a split prints, beside the last.
const LINES: usize = 5;

/// Prints the metrics five times an epoch.
#[derive(Default)]
struct Plain {
    names: BTreeMap<String, String>,
    /// The latest text of each metric.
    latest: BTreeMap<String, String>,
    split: String,
    total: usize,
    printed: usize,
    epochs: usize,
    epoch: usize,
}

impl Plain {
    fn update(&mut self, state: MetricState) {
        let (MetricState::Generic(entry) | MetricState::Numeric(entry, _)) = state;
        let MetricEntry { metric_id, serialized_entry } = entry;
        self.latest.insert(key(&metric_id), serialized_entry.formatted);
    }

    fn print(&self, done: usize) {
        let metrics = self.latest.iter().map(|(id, text)| {
            let name = self.names.get(id).map_or("", String::as_str);
            format!("{name}: {text}")
        });
        let metrics = metrics.collect::<Vec<_>>().join(" | ");
        println!("{}/{} {} {done}/{} | {metrics}", self.epoch, self.epochs, self.split, self.total);
    }
}

fn key(id: &MetricId) -> String {
    format!("{id:?}")
}

impl MetricsRendererTraining for Plain {
    fn update_train(&mut self, state: MetricState) {
        self.update(state);
    }

    fn update_valid(&mut self, state: MetricState) {
        self.update(state);
    }

    fn on_train_end(&mut self, _summary: Option<LearnerSummary>) -> Result<(), Box<dyn std::error::Error>> {
        Ok(())
    }
}

impl TrainingProgressLogger for Plain {
    fn start(&mut self, epochs: usize, first: usize, _items: Option<usize>, _label: Option<&str>) {
        (self.epochs, self.epoch) = (epochs, first);
    }

    fn start_split(&mut self, split: &str, total: usize) {
        (self.split, self.total, self.printed) = (split.to_string(), total, 0);
        self.latest.clear();
    }

    fn update_split(&mut self, done: usize) {
        if done * LINES / self.total.max(1) > self.printed && !self.latest.is_empty() {
            self.printed = done * LINES / self.total.max(1);
            self.print(done);
        }
    }

    fn update_epoch(&mut self, epoch: usize) {
        self.epoch = epoch + 1;
    }

    fn end_split(&mut self) {}

    fn end(&mut self) {}

    /// The trainer tells of every iteration here.
    fn log_event_training(&mut self, _event: String) {}
}

impl MetricsRendererEvaluation for Plain {
    fn update_test(&mut self, _name: EvaluationName, state: MetricState) {
        self.update(state);
    }
}

impl EvaluationProgressLogger for Plain {
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

impl MetricsRenderer for Plain {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, definition: MetricDefinition) {
        self.names.insert(key(&definition.metric_id), definition.name.to_string());
    }
}
