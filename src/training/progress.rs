use super::run::Run;
use burn::train::logger::{EvaluationProgressLogger, TrainingProgressLogger};
use burn::train::metric::{MetricDefinition, MetricEntry, MetricId, MetricName};
use burn::train::renderer::tui::TuiMetricsRendererWrapper;
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining,
};
use burn::train::{Interrupter, LearnerSummary};
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::io::{self, IsTerminal, Write};

/// Lines that a split prints, the one at its end included.
const LINES: usize = 5;

/// The dashboard in a terminal, whose keys stop `keys`, lines of text elsewhere, and nothing in a silent run and on ranks
/// that are not the first.
pub(super) fn renderer(run: &Run, keys: &Interrupter) -> Box<dyn MetricsRenderer> {
    let ranks = &run.arguments.ranks;
    let is_silent = run.arguments.silent || !ranks.is_first();
    // mpirun gives every rank a terminal of its own, which nobody sees, and a lone one no keys: there the dashboard panics.
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !is_silent && ranks.size() == 1 && is_terminal {
        return Box::new(TuiMetricsRendererWrapper::new(keys.clone(), Some(run.finished_epochs)));
    }
    Box::new(ProgressLines { is_silent, ..Default::default() })
}

/// Prints the metrics five times per epoch, one line each time (`2/3 train 160/800 | Loss: epoch 0.41 - batch 0.38 | …`),
/// where Burn's renderer without a terminal prints one for each batch.
#[derive(Default)]
struct ProgressLines {
    names: HashMap<MetricId, MetricName>,
    latest: BTreeMap<MetricName, String>,
    split: String,
    total: usize,
    done: usize,
    epochs: usize,
    epoch: usize,
    is_silent: bool,
}

impl ProgressLines {
    fn update(&mut self, state: MetricState) {
        let (MetricState::Generic(entry) | MetricState::Numeric(entry, _)) = state;
        let MetricEntry { metric_id, serialized_entry } = entry;
        if serialized_entry.is_not_available() {
            return; // until the epoch ends
        }
        if let Some(name) = self.names.get(&metric_id) {
            self.latest.insert(name.clone(), serialized_entry.formatted);
        }
    }

    fn print(&self) {
        let texts: Vec<String> = self.latest.iter().map(|(name, text)| format!("{name}: {text}")).collect();
        // Without validation data there is nothing in its split.
        if self.is_silent || texts.is_empty() || self.total == 0 {
            return;
        }
        let Self { epoch, epochs, split, done, total, .. } = self;
        // Training goes on where nobody reads it.
        let _ = writeln!(io::stdout(), "{epoch}/{epochs} {split} {done}/{total} | {}", texts.join(" | "));
    }
}

impl MetricsRendererTraining for ProgressLines {
    fn update_train(&mut self, state: MetricState) {
        self.update(state);
    }

    fn update_valid(&mut self, state: MetricState) {
        self.update(state);
    }

    fn on_train_end(&mut self, _: Option<LearnerSummary>) -> Result<(), Box<dyn Error>> {
        Ok(()) // Burn would print the summary
    }
}

impl TrainingProgressLogger for ProgressLines {
    fn start(&mut self, epochs: usize, first: usize, _: Option<usize>, _: Option<&str>) {
        (self.epochs, self.epoch) = (epochs, first);
    }

    fn update_epoch(&mut self, epoch: usize) {
        self.epoch = epoch + 1;
    }

    fn start_split(&mut self, split: &str, total: usize) {
        (self.split, self.total, self.done) = (split.to_string(), total, 0);
        self.latest.clear();
    }

    fn update_split(&mut self, done: usize) {
        let line = |done: usize| done * LINES / self.total.max(1);
        // The line of the split's end comes later, with what is computed then.
        let is_due = line(done) > line(self.done) && line(done) < LINES;
        self.done = done;
        if is_due {
            self.print();
        }
    }

    fn end_split(&mut self) {
        self.print();
    }

    fn end(&mut self) {}

    fn log_event_training(&mut self, _: String) {}
}

impl MetricsRenderer for ProgressLines {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, definition: MetricDefinition) {
        self.names.insert(definition.metric_id, definition.name);
    }
}

/// Burn's evaluator has another renderer.
impl MetricsRendererEvaluation for ProgressLines {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}
}

impl EvaluationProgressLogger for ProgressLines {
    fn start_global_progress(&mut self, _: usize) {}
    fn start_test(&mut self, _: &str, _: usize) {}
    fn update_test_progress(&mut self, _: usize) {}
    fn end_test(&mut self) {}
    fn end_global_progress(&mut self) {}
    fn log_event_evaluation(&mut self, _: String) {}
}
