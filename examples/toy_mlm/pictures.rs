//! The loss curves and the similarity of position vectors, as SVG.

use crate::language::LETTERS;
use anyhow::{Context, Result};
use burn::prelude::*;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

/// Steps that one point of a loss curve averages over.
const SMOOTHING: usize = 10;
/// Side of a heat map and its distance from the top, in pixels.
const SIDE: i32 = 384;
const TOP: i32 = 36;

/// The losses of the model with positions and of the one without.
pub fn losses([learned, without_positions]: [&[f32]; 2], path: &Path) -> Result<()> {
    let curves = [("learned positions", learned, BLUE), ("positions held at zero", without_positions, RED)];
    let highest = learned.iter().chain(without_positions).fold(0.0, |a: f32, &b| a.max(b));
    let root = SVGBackend::new(path, (720, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Masked-language-model loss in training", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(44)
        .build_cartesian_2d(0..learned.len().max(1), 0.0..highest * 1.05)?;
    chart.configure_mesh().x_desc("step").y_desc("loss (nats)").light_line_style(WHITE).draw()?;
    for (name, losses, color) in curves {
        let points = losses.chunks(SMOOTHING).enumerate().map(|(i, chunk)| {
            (i * SMOOTHING + chunk.len() / 2, chunk.iter().sum::<f32>() / chunk.len() as f32)
        });
        let line = chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?.label(name);
        line.legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present().with_context(|| format!("cannot write {}", path.display()))
}

/// The cosine of all pairs of position vectors, in `order`, with the tables before and after training.
pub fn similarities(before: [Tensor<2>; 2], after: [Tensor<2>; 2], order: &[i32], path: &Path) -> Result<()> {
    let root = SVGBackend::new(path, (980, 470)).into_drawing_area();
    root.fill(&WHITE)?;
    let square = |[left, top, right, bottom]: [i32; 4], style: ShapeStyle| {
        root.draw(&Rectangle::new([(left, TOP + top), (right, TOP + bottom)], style))
    };
    let text = |text: &str, x: i32, y: i32, size: i32, turn: FontTransform| {
        let font = ("sans-serif", size).into_font().transform(turn).color(&BLACK);
        root.draw(&Text::new(text, (x, TOP + y), font.pos(Pos::new(HPos::Center, VPos::Center))))
    };
    let axis = "position, sorted by its letter";
    for (left, stage, [_, table]) in [(60, "before", before), (504, "after", after)] {
        let edge = |index: usize| SIDE * index as i32 / order.len() as i32;
        for (i, cosine) in cosines(table, order).into_iter().enumerate() {
            let (y, x) = (i / order.len(), i % order.len());
            let corners = [left + edge(x), edge(y), left + edge(x + 1), edge(y + 1)];
            square(corners, shade(cosine).filled())?;
        }
        square([left, 0, left + SIDE, SIDE], BLACK.stroke_width(1))?;
        for (letter, i) in ('a'..).zip(0..LETTERS as i32) {
            let centre = SIDE * (2 * i + 1) / (2 * LETTERS as i32);
            text(&letter.to_string(), left + centre, SIDE + 12, 12, FontTransform::None)?;
            text(&letter.to_string(), left - 12, centre, 12, FontTransform::None)?;
        }
        let caption = format!("Cosine of position vectors, {stage} training");
        text(&caption, left + SIDE / 2, -18, 16, FontTransform::None)?;
        text(axis, left + SIDE / 2, SIDE + 34, 13, FontTransform::None)?;
        text(axis, left - 34, SIDE / 2, 13, FontTransform::Rotate270)?;
    }
    let (steps, left) = (64, 912);
    let height = |step: i32| SIDE - SIDE * step / steps;
    for step in 0..steps {
        let color = shade(f64::from(2 * step + 1) / f64::from(steps) - 1.0);
        square([left, height(step + 1), left + 16, height(step)], color.filled())?;
    }
    square([left, 0, left + 16, SIDE], BLACK.stroke_width(1))?;
    for (quarter, label) in (0..).zip(["−1", "−0.5", "0", "0.5", "1"]) {
        text(label, left + 36, height(steps * quarter / 4), 12, FontTransform::None)?;
    }
    root.present().with_context(|| format!("cannot write {}", path.display()))
}

/// Cosine of every pair of these rows, row-major.
fn cosines(table: Tensor<2>, order: &[i32]) -> Vec<f64> {
    let rows = table.clone().select(0, Tensor::from_data(order, &table.device()));
    let rows = rows.clone() / rows.square().sum_dim(1).sqrt();
    rows.clone().matmul(rows.transpose()).into_data().iter::<f64>().collect()
}

/// Blue for −1, white for 0, red for 1.
fn shade(cosine: f64) -> RGBColor {
    let fade = |strength: f64| (255.0 * (1.0 - strength.clamp(0.0, 1.0))) as u8;
    RGBColor(fade(-cosine), fade(cosine.abs()), fade(cosine))
}
