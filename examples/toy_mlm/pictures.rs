//! The loss curves and the similarity of position vectors, as SVG.

use crate::run::Run;
use anyhow::{Context, Result};
use burn::prelude::*;
use burn_bert::{BertEmbeddings, TokenEmbedding};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Steps that one point of a loss curve averages over.
const SMOOTHING: usize = 10;
/// Side of a heat map and its distance from the top, in pixels.
const SIDE: i32 = 384;
const TOP: i32 = 36;
/// Maximum labels per axis of a heat map.
const TICKS: usize = 16;

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
    let root = SVGBackend::new(path, (980, 470)).into_drawing_area();
    root.fill(&WHITE)?;
    let (positions, labels): (Vec<usize>, Vec<String>) = run.task.labelled_positions().into_iter().unzip();
    let stages = [("before training", &run.initial), ("after training", &run.learned.model.bert.embeddings)];
    for (left, (stage, embeddings)) in [60, 504].into_iter().zip(stages) {
        let similarities = similarities(position_table(embeddings)?, &positions);
        draw_heat_map(&root, left, &similarities, positions.len())?;
        draw_ticks(&root, left, &labels)?;
        let middle = left + SIDE / 2;
        let caption = format!("Cosine of position vectors, {stage}");
        root.draw(&Text::new(caption, (middle, TOP - 18), centred(16)))?;
        root.draw(&Text::new(run.task.position_axis(), (middle, TOP + SIDE + 34), centred(13)))?;
        let upwards = centred(13).transform(FontTransform::Rotate270);
        root.draw(&Text::new(run.task.position_axis(), (left - 34, TOP + SIDE / 2), upwards))?;
    }
    draw_color_bar(&root, 912)?;
    root.present().context("cannot write the picture")
}

/// One square per pair of positions, the first position at the top left.
fn draw_heat_map(area: &Area<'_>, left: i32, similarities: &[f64], size: usize) -> Result<()> {
    let edge = |index: usize| (SIDE as usize * index / size) as i32;
    for (i, &cosine) in similarities.iter().enumerate() {
        let (row, column) = (i / size, i % size);
        let corners =
            [(left + edge(column), TOP + edge(row)), (left + edge(column + 1), TOP + edge(row + 1))];
        area.draw(&Rectangle::new(corners, shade(cosine).filled()))?;
    }
    area.draw(&Rectangle::new([(left, TOP), (left + SIDE, TOP + SIDE)], BLACK.stroke_width(1)))?;
    Ok(())
}

/// Labels at the left and below, one for neighbours of the same label, and as many as there is room for.
fn draw_ticks(area: &Area<'_>, left: i32, labels: &[String]) -> Result<()> {
    let groups: Vec<&[String]> = labels.chunk_by(|a, b| a == b).collect();
    let every = groups.len().div_ceil(TICKS);
    let mut start = 0;
    for (i, group) in groups.iter().enumerate() {
        let middle = SIDE * (2 * start + group.len()) as i32 / (2 * labels.len()) as i32;
        start += group.len();
        if i % every == 0 {
            area.draw(&Text::new(group[0].clone(), (left + middle, TOP + SIDE + 12), centred(12)))?;
            area.draw(&Text::new(group[0].clone(), (left - 12, TOP + middle), centred(12)))?;
        }
    }
    Ok(())
}

fn draw_color_bar(area: &Area<'_>, left: i32) -> Result<()> {
    const STEPS: i32 = 64;
    let height = |step: i32| TOP + SIDE - SIDE * step / STEPS;
    for step in 0..STEPS {
        let cosine = (2 * step + 1) as f64 / STEPS as f64 - 1.0;
        let corners = [(left, height(step + 1)), (left + 16, height(step))];
        area.draw(&Rectangle::new(corners, shade(cosine).filled()))?;
    }
    area.draw(&Rectangle::new([(left, TOP), (left + 16, TOP + SIDE)], BLACK.stroke_width(1)))?;
    for (step, label) in
        [(0, "−1"), (STEPS / 4, "−0.5"), (STEPS / 2, "0"), (3 * STEPS / 4, "0.5"), (STEPS, "1")]
    {
        area.draw(&Text::new(label, (left + 36, height(step)), centred(12)))?;
    }
    Ok(())
}

fn centred(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Center))
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
