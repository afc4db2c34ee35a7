//! The loss curve of a run.

use anyhow::{Context, Result};
use burn_bert::training::Losses;
use plotters::prelude::*;
use std::path::Path;

/// Points of the training curve, each a mean over as many batches as it takes.
const POINTS: usize = 100;

/// Draws the losses of all batches and of all validations, `before` being the one before training.
pub fn draw(losses: &Losses, batches_per_epoch: usize, before: f64, title: &str, path: &Path) -> Result<()> {
    let width = losses.train.len().div_ceil(POINTS).max(1);
    let train: Vec<(usize, f64)> = losses
        .train
        .chunks(width)
        .enumerate()
        .map(|(i, chunk)| (i * width + chunk.len() / 2, chunk.iter().sum::<f64>() / chunk.len() as f64))
        .collect();
    let valid = losses.valid.iter().enumerate();
    let valid = valid.filter_map(|(i, loss)| Some(((i + 1) * batches_per_epoch, (*loss)?)));
    let valid: Vec<(usize, f64)> = [(0, before)].into_iter().chain(valid).collect();
    let all = || train.iter().chain(&valid).map(|&(_, loss)| loss);
    let (lowest, highest) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let margin = (highest - lowest).max(0.1) * 0.05;

    let root = SVGBackend::new(path, (720, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(44)
        .build_cartesian_2d(0..losses.train.len().max(1), lowest - margin..highest + margin)?;
    chart.configure_mesh().x_desc("batch").y_desc("loss").light_line_style(WHITE).draw()?;
    for (name, points, color) in [("training", train, BLUE), ("held out", valid, RED)] {
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present().context("cannot write the picture")
}
