//! What a run shows: a progress bar in a terminal, or Burn's dashboard, and lines of text elsewhere.

use super::arguments::TrainingArguments;
use super::callback::{Callback, LogEntry, Progress};
use super::history::{Evaluation, LOSS};
use burn::train::Interrupter;
use burn::train::logger::TrainingProgressLogger;
use burn::train::metric::{MetricDefinition, MetricEntry, MetricId, NumericEntry, SerializedEntry};
use burn::train::renderer::tui::TuiMetricsRendererWrapper;
use burn::train::renderer::{MetricState, MetricsRenderer, MetricsRendererTraining};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

/// What shows a run of which so many steps are done, if it is not silent.
pub(super) fn shown(
    definitions: Vec<MetricDefinition>,
    arguments: &TrainingArguments,
    progress: &Progress,
) -> Box<dyn Callback> {
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    // mpirun gives every rank a terminal of its own, which nobody sees, and a lone one no keys: there the dashboard panics.
    if arguments.dashboard && is_terminal && arguments.ranks.size() == 1 {
        return Box::new(Dashboard::new(definitions, progress));
    }
    // It draws nothing where the standard error is not a terminal.
    let bar = ProgressBar::new(progress.steps as u64).with_position(progress.step as u64);
    let template = "{bar:20} {pos}/{len} steps{wide_msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
    Box::new(Console { bar })
}

struct Console {
    bar: ProgressBar,
}

impl Console {
    /// Prints a line above the bar. Training goes on where nobody reads it.
    fn print(&self, line: impl Display) {
        self.bar.suspend(|| drop(writeln!(io::stdout(), "{line}")));
    }
}

impl Callback for Console {
    fn on_step(&mut self, progress: &Progress) -> ControlFlow<String> {
        self.bar.set_position(progress.step as u64);
        Continue(())
    }

    fn on_log(&mut self, entry: &LogEntry) -> ControlFlow<String> {
        let LogEntry { progress, loss, learning_rate, steps_per_second, seconds_left } = entry;
        let Progress { step, steps, epoch, epochs } = progress;
        let loss = loss.map_or(String::new(), |loss| format!("loss {loss:.4}, "));
        let text = format!(
            "epoch {epoch:.2}/{}, {loss}learning rate {learning_rate:.2e}, {steps_per_second:.2} steps/s, {} left",
            if epochs.fract() == 0.0 { epochs.to_string() } else { format!("{epochs:.2}") },
            clock(*seconds_left)
        );
        if self.bar.is_hidden() {
            self.print(format_args!("step {step}/{steps}, {text}"));
        }
        self.bar.set_message(format!(", {text}"));
        Continue(())
    }

    fn on_evaluate(&mut self, progress: &Progress, evaluation: &Evaluation) -> ControlFlow<String> {
        if !evaluation.valid.is_empty() {
            let Progress { step, steps, .. } = progress;
            self.print(format_args!("step {step}/{steps}, evaluation: {}", listed(&evaluation.valid)));
        }
        Continue(())
    }

    fn on_end(&mut self, _: &Progress, reason: &str) {
        self.bar.finish_and_clear();
        self.print(reason);
    }
}

fn listed(values: &BTreeMap<String, f64>) -> String {
    values.iter().map(|(name, value)| format!("{name} {value:.4}")).collect::<Vec<_>>().join(", ")
}

/// Hours, minutes and seconds, as `1:02:03` or `2:03`.
fn clock(seconds: f64) -> String {
    let seconds = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Burn's dashboard, whose keys stop the run: a point for each log entry and each evaluation.
struct Dashboard {
    renderer: TuiMetricsRendererWrapper,
    keys: Interrupter,
    ids: BTreeMap<String, MetricId>,
    /// Steps of an epoch, if the run had a whole number of epochs: the items of Burn's progress.
    steps: usize,
}

impl Dashboard {
    fn new(definitions: Vec<MetricDefinition>, progress: &Progress) -> Self {
        let keys = Interrupter::new();
        let epochs = (progress.epochs.round() as usize).max(1);
        let steps = progress.steps.div_ceil(epochs);
        let mut renderer = TuiMetricsRendererWrapper::new(keys.clone(), Some(progress.step / steps));
        let ids = definitions.iter().map(|one| (one.name.to_string(), one.metric_id.clone())).collect();
        definitions.into_iter().for_each(|definition| renderer.register_metric(definition));
        renderer.start(epochs, 1, None, None);
        renderer.start_split("train", steps);
        Self { renderer, keys, ids, steps }
    }

    fn state(&self, name: &str, value: f64) -> Option<MetricState> {
        let entry = SerializedEntry::new(format!("{value:.4}"), value.to_string());
        let entry = MetricEntry::new(self.ids.get(name)?.clone(), entry);
        Some(MetricState::Numeric(entry, Some(NumericEntry::Value(value))))
    }
}

impl Callback for Dashboard {
    fn on_step(&mut self, progress: &Progress) -> ControlFlow<String> {
        let epoch = (progress.step - 1) / self.steps;
        self.renderer.update_epoch(epoch);
        self.renderer.update_split(progress.step - epoch * self.steps);
        if self.keys.should_stop() { Break("q, then s".into()) } else { Continue(()) }
    }

    fn on_log(&mut self, entry: &LogEntry) -> ControlFlow<String> {
        let state = entry.loss.and_then(|loss| self.state(LOSS, loss));
        state.into_iter().for_each(|state| self.renderer.update_train(state));
        Continue(())
    }

    fn on_evaluate(&mut self, _: &Progress, evaluation: &Evaluation) -> ControlFlow<String> {
        for (name, value) in &evaluation.valid {
            let state = self.state(name, *value);
            state.into_iter().for_each(|state| self.renderer.update_valid(state));
        }
        Continue(())
    }

    fn on_end(&mut self, _: &Progress, reason: &str) {
        self.keys.stop(None); // else it would wait for a key
        self.renderer.manual_close();
        let _ = writeln!(io::stdout(), "{reason}");
    }
}
