//! Progress of a training run: Burn's dashboard in a terminal, plain lines elsewhere.

use super::history::LOSS;
use crate::distributed::Ranks;
use burn::train::logger::{EvaluationProgressLogger, TrainingProgressLogger};
use burn::train::metric::{MetricDefinition, MetricEntry, MetricId, NumericEntry};
use burn::train::renderer::tui::TuiMetricsRendererWrapper;
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining,
};
use burn::train::{Interrupter, LearnerSummary};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, OnceLock};

/// The renderer of a run, which stops its trainer by the keys of Burn's dashboard, or when the loss is no number: the dashboard
/// in a terminal, lines of text elsewhere, and nothing where `is_silent` and on ranks that are not the first.
///
/// The dashboard resets its interrupter when training ends, but the trainer's must still know then what stopped it, so they are
/// two.
pub(super) struct Progress {
    dashboard: Option<TuiMetricsRendererWrapper>,
    lines: ProgressLines,
    keys: Interrupter,
    trainer: Interrupter,
    problem: Problem,
}

/// The loss that is infinite or NaN, and of what it is.
pub(super) type Problem = Arc<OnceLock<(&'static str, f64)>>;

impl Progress {
    /// `finished_epochs` is the number of epochs that a resumed run has finished.
    pub(super) fn new(
        trainer: &Interrupter,
        problem: &Problem,
        finished_epochs: usize,
        ranks: &Ranks,
        is_silent: bool,
    ) -> Self {
        let is_silent = is_silent || !ranks.is_first();
        // mpirun gives every rank a terminal of its own, which nobody sees, and a lone one no keys: there the dashboard panics.
        let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        let is_dashboard = !is_silent && ranks.size() == 1 && is_terminal;
        let keys = Interrupter::new();
        let dashboard = || TuiMetricsRendererWrapper::new(keys.clone(), Some(finished_epochs));
        Self {
            dashboard: is_dashboard.then(dashboard),
            lines: ProgressLines { is_silent, ..Default::default() },
            keys,
            trainer: trainer.clone(),
            problem: problem.clone(),
        }
    }

    /// Passes the dashboard's keys on.
    fn read_keys(&self) {
        if self.keys.should_stop() && !self.trainer.should_stop() {
            self.trainer.stop(Some("q, then s"));
        }
    }

    fn check(&self, batch: &'static str, state: &MetricState) {
        // A batch without labels counts nothing, and has no loss.
        if let MetricState::Numeric(
            entry,
            Some(NumericEntry::Aggregated { aggregated_value: loss, count: 1.. }),
        ) = state
            && !loss.is_finite()
            && entry.metric_id == MetricId::new(LOSS.to_string().into())
        {
            let _ = self.problem.set((batch, *loss));
            self.trainer.stop(Some("the loss is no number"));
        }
    }

    fn update(&mut self, state: MetricState, dashboard: fn(&mut TuiMetricsRendererWrapper, MetricState)) {
        self.read_keys();
        match &mut self.dashboard {
            Some(own) => dashboard(own, state),
            None => self.lines.update(state),
        }
    }
}

impl MetricsRendererTraining for Progress {
    fn update_train(&mut self, state: MetricState) {
        self.check("of a training batch", &state);
        self.update(state, |dashboard, state| dashboard.update_train(state));
    }

    fn update_valid(&mut self, state: MetricState) {
        self.check("of a validation batch", &state);
        self.update(state, |dashboard, state| dashboard.update_valid(state));
    }

    fn on_train_end(&mut self, summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>> {
        self.read_keys();
        self.dashboard.as_mut().map_or(Ok(()), |dashboard| dashboard.on_train_end(summary))
    }
}

/// Passes every call on to the dashboard, or to what the lines make of it.
macro_rules! pass_on {
    ($($interface:ident { $(fn $name:ident($($arg:ident: $type:ty),*) $(for |$lines:ident| $line:expr)?;)* })*) => {
        $(impl $interface for Progress {
            $(fn $name(&mut self, $($arg: $type),*) {
                self.read_keys();
                match &mut self.dashboard {
                    Some(dashboard) => dashboard.$name($($arg),*),
                    None => {
                        $(let $lines = &mut self.lines;
                        $line)?
                    }
                }
            })*
        })*
    };
}

pass_on! {
    TrainingProgressLogger {
        fn start(epochs: usize, first: usize, items: Option<usize>, label: Option<&str>) for |lines| lines.start(epochs, first);
        fn start_split(split: &str, total: usize) for |lines| lines.start_split(split, total);
        fn update_split(done: usize) for |lines| print(lines.line(done));
        fn update_epoch(epoch: usize) for |lines| lines.epoch = epoch + 1;
        fn end_split() for |lines| print(lines.text());
        fn end();
        fn log_event_training(event: String);
    }
    MetricsRenderer {
        fn manual_close();
        fn register_metric(definition: MetricDefinition) for |lines| lines.register(definition);
    }
    // Burn's evaluator, which has another renderer.
    MetricsRendererEvaluation {
        fn update_test(name: EvaluationName, state: MetricState);
    }
    EvaluationProgressLogger {
        fn start_global_progress(tests: usize);
        fn start_test(name: &str, total: usize);
        fn update_test_progress(done: usize);
        fn end_test();
        fn end_global_progress();
        fn log_event_evaluation(event: String);
    }
}

/// Lines that a split prints, the one at its end included.
const LINES: usize = 5;

/// Prints the metrics five times per epoch, one line each time (`2/3 train 160/800 | Loss: epoch 0.41 - batch 0.38 | …`),
/// where Burn's renderer without a terminal prints one for each batch.
#[derive(Debug, Default)]
struct ProgressLines {
    names: BTreeMap<String, String>,
    /// The latest text of each metric.
    latest: BTreeMap<String, String>,
    split: String,
    total: usize,
    done: usize,
    printed: usize,
    epochs: usize,
    epoch: usize,
    is_silent: bool,
}

impl ProgressLines {
    fn start(&mut self, epochs: usize, first: usize) {
        (self.epochs, self.epoch) = (epochs, first);
    }

    fn start_split(&mut self, split: &str, total: usize) {
        (self.split, self.total, self.done, self.printed) = (split.to_string(), total, 0, 0);
        self.latest.clear();
    }

    fn register(&mut self, definition: MetricDefinition) {
        self.names.insert(key(&definition.metric_id), definition.name.to_string());
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
        self.done = done;
        // A split may be empty. The line of its end comes later, with what is computed then.
        let due = done * LINES / self.total.max(1);
        if due <= self.printed || due >= LINES {
            return None;
        }
        self.printed = due;
        self.text()
    }

    fn text(&self) -> Option<String> {
        if self.is_silent || self.latest.is_empty() {
            return None;
        }
        let metrics = self.latest.iter().map(|(id, text)| {
            let name = self.names.get(id).map_or("", String::as_str);
            format!("{name}: {text}")
        });
        let metrics = metrics.collect::<Vec<_>>().join(" | ");
        let Self { epoch, epochs, split, done, total, .. } = self;
        Some(format!("{epoch}/{epochs} {split} {done}/{total} | {metrics}"))
    }
}

/// Prints a line, if there is one. Training goes on where nobody reads it.
fn print(line: Option<String>) {
    line.map(|line| writeln!(io::stdout(), "{line}"));
}

fn key(id: &MetricId) -> String {
    format!("{id:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::train::metric::{LossMetric, SerializedEntry};

    fn progress() -> (Interrupter, Problem, Progress) {
        let (trainer, problem) = (Interrupter::new(), Arc::default());
        let progress = Progress::new(&trainer, &problem, 0, &Ranks::single(), true);
        (trainer, problem, progress)
    }

    #[test]
    fn the_keys_of_a_renderer_stop_the_trainer_even_when_they_come_last() {
        let (trainer, _, mut renderer) = progress();
        renderer.update_split(1);
        assert!(!trainer.should_stop());
        renderer.keys.stop(None);
        renderer.on_train_end(None).unwrap();
        renderer.keys.reset(); // as Burn's dashboard does
        assert_eq!(trainer.interruption().unwrap().reason.as_deref(), Some("q, then s"));
    }

    #[test]
    fn a_loss_that_is_no_number_stops_the_trainer_but_not_that_of_a_batch_without_labels() {
        let (trainer, problem, mut renderer) = progress();
        let update = |renderer: &mut Progress, name: &str, loss: f64, count: usize| {
            let entry = SerializedEntry::new(String::new(), String::new());
            let entry = MetricEntry::new(MetricId::new(name.to_string().into()), entry);
            let number = NumericEntry::Aggregated { aggregated_value: loss, count };
            renderer.update_valid(MetricState::Numeric(entry, Some(number)));
        };
        for (name, loss, count) in [("Loss", 1e9, 1), ("Loss", f64::NAN, 0), ("F1", f64::NAN, 1)] {
            update(&mut renderer, name, loss, count);
            assert!(!trainer.should_stop() && problem.get().is_none(), "{name} {loss} {count}");
        }
        update(&mut renderer, "Loss", f64::INFINITY, 1);
        assert!(trainer.should_stop());
        assert_eq!(problem.get(), Some(&("of a validation batch", f64::INFINITY)));
    }

    #[test]
    fn five_lines_an_epoch_say_where_training_is_the_last_one_with_what_its_end_gives() {
        let mut lines = ProgressLines::default();
        let id = MetricId::new("loss".to_string().into());
        lines.register(MetricDefinition::new(id.clone(), &LossMetric::new()));
        lines.start(3, 2);
        lines.start_split("train", 100);
        let update = |lines: &mut ProgressLines, text: &str, value: &str| {
            let entry = SerializedEntry::new(text.to_string(), value.to_string());
            lines.update(MetricState::Generic(MetricEntry::new(id.clone(), entry)));
        };
        update(&mut lines, "until the epoch ends", "");
        assert_eq!(lines.line(50), None, "there is nothing to tell");
        lines.start_split("train", 100);
        let printed: Vec<String> = (1..=100)
            .filter_map(|done| {
                update(&mut lines, &format!("{done} nats"), &done.to_string());
                lines.line(done)
            })
            .collect();
        assert_eq!(printed.len(), 4);
        assert_eq!(printed[0], "2/3 train 20/100 | Loss: 20 nats");
        update(&mut lines, "of the epoch", "7");
        assert_eq!(lines.text().unwrap(), "2/3 train 100/100 | Loss: of the epoch");
    }
}
