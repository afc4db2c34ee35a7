//! The confusion matrix as a picture.

use anyhow::{Context, Result};
use burn_bert::training::{ConfusionMatrix, LabelNames};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

const SIZE: i32 = 480;
const MARGIN: i32 = 110;

/// Draws a row for each true class; the darker a cell, the larger its share of the row.
pub fn draw(matrix: &ConfusionMatrix, names: &LabelNames, path: &Path) -> Result<()> {
    let root = SVGBackend::new(path, (SIZE as u32, SIZE as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let classes = matrix.num_classes().max(names.len()).max(1);
    let cell = (SIZE - MARGIN - 20) / classes as i32;
    let centred = |size: i32, color: &RGBColor| {
        ("sans-serif", size).into_font().color(color).pos(Pos::new(HPos::Center, VPos::Center))
    };
    let caption = centred(14, &BLACK);
    let middle = MARGIN + cell * classes as i32 / 2;
    root.draw(&Text::new("predicted", (middle, 20), caption.clone()))?;
    root.draw(&Text::new("true", (30, middle), caption.clone()))?;
    for truth in 0..classes {
        let total: u64 = (0..classes).map(|predicted| matrix.count(truth, predicted)).sum();
        let (name, place) = (names.name(truth).unwrap_or(""), MARGIN + cell * truth as i32 + cell / 2);
        root.draw(&Text::new(name.to_string(), (place, MARGIN - 20), caption.clone()))?;
        root.draw(&Text::new(name.to_string(), (MARGIN - 40, place), caption.clone()))?;
        for predicted in 0..classes {
            let count = matrix.count(truth, predicted);
            let share = count as f64 / total.max(1) as f64;
            let corner = (MARGIN + cell * predicted as i32, MARGIN + cell * truth as i32);
            let square = [corner, (corner.0 + cell, corner.1 + cell)];
            root.draw(&Rectangle::new(square, BLUE.mix(share).filled()))?;
            root.draw(&Rectangle::new(square, BLACK.stroke_width(1)))?;
            let style = centred(14, if share > 0.5 { &WHITE } else { &BLACK });
            root.draw(&Text::new(count.to_string(), (corner.0 + cell / 2, corner.1 + cell / 2), style))?;
        }
    }
    root.present().context("cannot write the picture")
}
