//! The confusion matrix as a picture.

use anyhow::{Context, Result};
use burn_bert::data::LabelNames;
use burn_bert::metrics::ConfusionMatrix;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

/// Of the matrix, unless its cells would be too small for their numbers.
const SIZE: i32 = 350;
const SMALLEST_CELL: i32 = 28;
const MARGIN: i32 = 130;
/// Letters of a name that fit into the margin.
const LETTERS: usize = 14;

/// Draws a row for each true class; the darker a cell, the larger its share of the row.
pub fn draw(matrix: &ConfusionMatrix, names: &LabelNames, path: &Path) -> Result<()> {
    let classes = matrix.num_classes().max(names.len()).max(1);
    let cell = (SIZE / classes as i32).max(SMALLEST_CELL);
    let size = (MARGIN + cell * classes as i32 + 20) as u32;
    let root = SVGBackend::new(path, (size, size)).into_drawing_area();
    root.fill(&WHITE)?;
    let text = |size: i32, color: &RGBColor| {
        let centred = Pos::new(HPos::Center, VPos::Center);
        ("sans-serif", size).into_font().color(color).pos(centred)
    };
    let caption = text(14, &BLACK);
    let upwards = caption.transform(FontTransform::Rotate270);
    let middle = MARGIN + cell * classes as i32 / 2;
    root.draw(&Text::new("predicted", (middle, 12), caption.clone()))?;
    root.draw(&Text::new("true", (12, middle), upwards.clone()))?;
    for truth in 0..classes {
        let total: u64 = (0..classes).map(|predicted| matrix.count(truth, predicted)).sum();
        let (name, place) =
            (shortened(names.name(truth).unwrap_or("")), MARGIN + cell * truth as i32 + cell / 2);
        root.draw(&Text::new(
            name.clone(),
            (place, MARGIN - 6),
            upwards.pos(Pos::new(HPos::Left, VPos::Center)),
        ))?;
        root.draw(&Text::new(name, (MARGIN - 6, place), caption.pos(Pos::new(HPos::Right, VPos::Center))))?;
        for predicted in 0..classes {
            let count = matrix.count(truth, predicted);
            let share = count as f64 / total.max(1) as f64;
            let corner = (MARGIN + cell * predicted as i32, MARGIN + cell * truth as i32);
            let square = [corner, (corner.0 + cell, corner.1 + cell)];
            root.draw(&Rectangle::new(square, BLUE.mix(share).filled()))?;
            root.draw(&Rectangle::new(square, BLACK.stroke_width(1)))?;
            let style = text(12, if share > 0.5 { &WHITE } else { &BLACK });
            root.draw(&Text::new(count.to_string(), (corner.0 + cell / 2, corner.1 + cell / 2), style))?;
        }
    }
    root.present().context("cannot write the picture")
}

/// A name that fits into the margin.
fn shortened(name: &str) -> String {
    match name.chars().count() {
        0..=LETTERS => name.to_string(),
        _ => name.chars().take(LETTERS - 1).chain(['…']).collect(),
    }
}
