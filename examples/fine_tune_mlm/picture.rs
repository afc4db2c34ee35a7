//! The loss curve, from the logs of Burn's trainer.

use anyhow::{Context, Result};
use plotters::prelude::*;
use std::fs;
use std::path::Path;

/// Points of the training curve, each a mean over as many batches as it takes.
const POINTS: usize = 100;

/// Losses of all batches, and after each epoch that of the held-out text.
pub struct Losses {
    pub train: Vec<f64>,
    pub valid: Vec<f64>,
}

impl Losses {
    /// The epoch, from 1 on, after which the held-out loss was lowest.
    pub fn best_epoch(&self) -> Option<usize> {
        (1..).zip(&self.valid).min_by(|a, b| a.1.total_cmp(b.1)).map(|(epoch, _)| epoch)
    }
}

pub fn losses(folder: &Path) -> Result<Losses> {
    let mut losses = Losses { train: Vec::new(), valid: Vec::new() };
    for epoch in 1.. {
        let log = |split: &str| folder.join(split).join(format!("epoch-{epoch}")).join("Loss.log");
        if !log("train").exists() {
            break;
        }
        losses.train.extend(read(&log("train"))?.batches);
        if log("valid").exists() {
            losses.valid.extend(read(&log("valid"))?.mean);
        }
    }
    Ok(losses)
}

/// A log of the trainer.
struct Log {
    batches: Vec<f64>,
    /// Over the epoch; not there if the epoch was broken off.
    mean: Option<f64>,
}

/// One number a line, followed by how many it stands for; the last is the mean, marked `final`.
fn read(path: &Path) -> Result<Log> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let values = text.lines().filter_map(|line| line.split_once(','));
    let values = values.filter_map(|(value, count)| Some((value.parse().ok()?, count)));
    // A batch without masked tokens has no loss.
    let values = values.filter(|(value, _): &(f64, _)| value.is_finite());
    let (means, batches): (Vec<_>, Vec<_>) = values.partition(|&(_, count)| count == "final");
    let numbers = |lines: Vec<(f64, &str)>| lines.into_iter().map(|(value, _)| value).collect();
    Ok(Log { batches: numbers(batches), mean: means.last().map(|&(value, _)| value) })
}

pub fn draw(losses: &Losses, batches_per_epoch: usize, before: f64, path: &Path) -> Result<()> {
    let width = losses.train.len().div_ceil(POINTS).max(1);
    let train: Vec<(usize, f64)> = losses
        .train
        .chunks(width)
        .enumerate()
        .map(|(i, chunk)| (i * width + chunk.len() / 2, chunk.iter().sum::<f64>() / chunk.len() as f64))
        .collect();
    let valid = losses.valid.iter().enumerate().map(|(i, &loss)| ((i + 1) * batches_per_epoch, loss));
    let valid: Vec<(usize, f64)> = [(0, before)].into_iter().chain(valid).collect();
    let all = || train.iter().chain(&valid).map(|&(_, loss)| loss);
    let (lowest, highest) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let margin = (highest - lowest).max(0.1) * 0.05;

    let root = SVGBackend::new(path, (720, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Masked-language-model loss", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(44)
        .build_cartesian_2d(0..losses.train.len().max(1), lowest - margin..highest + margin)?;
    chart.configure_mesh().x_desc("batch").y_desc("loss (nats per token)").light_line_style(WHITE).draw()?;
    for (name, points, color) in [("training", train, BLUE), ("held out", valid, RED)] {
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present().context("cannot write the picture")
}
