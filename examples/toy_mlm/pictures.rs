//! The loss curves and the similarity of position vectors, as SVG.

use crate::run::Run;
use anyhow::{Context, Result};
use burn::prelude::*;
use burn_bert::{BertEmbeddings, TokenEmbedding};
use plotters::prelude::*;
use std::path::Path;

/// Steps that one point of a loss curve averages over.
const SMOOTHING: usize = 10;

pub fn draw(run: &Run, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    draw_losses(run, &folder.join("loss.svg"))?;
    draw_similarities(run, &folder.join("positions.svg"))
}

fn draw_losses(run: &Run, path: &Path) -> Result<()> {
    let curves = [
        ("learned positions", &run.learned.losses, BLUE),
        ("positions held at zero", &run.without_positions.losses, RED),
    ];
    let highest = curves.iter().flat_map(|(_, losses, _)| losses.iter()).fold(0.0, |a: f32, &b| a.max(b));
    let root = SVGBackend::new(path, (720, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Masked-language-model loss in training", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(44)
        .build_cartesian_2d(0..run.steps().max(1), 0.0..highest * 1.05)?;
    chart.configure_mesh().x_desc("step").y_desc("loss (nats)").light_line_style(WHITE).draw()?;
    for (name, losses, color) in curves {
        let points = losses.chunks(SMOOTHING).enumerate().map(|(i, chunk)| {
            (i * SMOOTHING + chunk.len() / 2, chunk.iter().sum::<f32>() / chunk.len() as f32)
        });
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present().context("cannot write the picture")
}

fn draw_similarities(run: &Run, path: &Path) -> Result<()> {
    let root = SVGBackend::new(path, (840, 440)).into_drawing_area();
    root.fill(&WHITE)?;
    let panels = root.split_evenly((1, 2));
    let stages = [("before training", &run.initial), ("after training", &run.learned.model.bert.embeddings)];
    for (panel, (stage, embeddings)) in panels.iter().zip(stages) {
        let order = run.task.position_order();
        let size = order.len();
        let similarities = similarities(position_table(embeddings)?, &order);
        let mut chart = ChartBuilder::on(panel)
            .caption(format!("Cosine of position vectors, {stage}"), ("sans-serif", 16))
            .margin(12)
            .build_cartesian_2d(0..size, 0..size)?;
        chart.configure_mesh().disable_mesh().disable_axes().draw()?;
        chart.draw_series(similarities.iter().enumerate().map(|(i, &cosine)| {
            let (x, y) = (i % size, size - 1 - i / size);
            Rectangle::new([(x, y), (x + 1, y + 1)], shade(cosine).filled())
        }))?;
    }
    root.present().context("cannot write the picture")
}

fn position_table(embeddings: &BertEmbeddings) -> Result<&TokenEmbedding> {
    embeddings.position_embeddings.as_ref().context("the model has no position table")
}

/// Cosine of every pair of these rows, row-major.
fn similarities(table: &TokenEmbedding, order: &[usize]) -> Vec<f64> {
    let weight = table.weight.val().without_autodiff();
    let order: Vec<i32> = order.iter().map(|&row| row as i32).collect();
    let order = Tensor::<1, Int>::from_data(order.as_slice(), &weight.device());
    let rows = weight.select(0, order);
    let rows = rows.clone() / rows.square().sum_dim(1).sqrt();
    rows.clone().matmul(rows.transpose()).into_data().iter::<f64>().collect()
}

/// Blue for −1, white for 0, red for 1.
fn shade(cosine: f64) -> RGBColor {
    let fade = |strength: f64| (255.0 * (1.0 - strength.clamp(0.0, 1.0))) as u8;
    RGBColor(fade(-cosine), fade(cosine.abs()), fade(cosine))
}
