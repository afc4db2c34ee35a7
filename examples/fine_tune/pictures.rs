//! The losses of a run as a picture.

use burn_bert::training::History;
use std::fmt::Write;

/// Points of the training curve, each a mean over the same number of batches.
const POINTS: usize = 100;

/// SVG of the losses of all batches and of all evaluations, the one before training included.
pub fn loss(history: &History) -> String {
    let (batches, evaluations) = (history.losses.len().max(1), &history.evaluations);
    let mean = |(index, losses): (usize, &[f64])| {
        let end = index * batches.div_ceil(POINTS) + losses.len();
        (end, losses.iter().sum::<f64>() / losses.len() as f64)
    };
    let train: Vec<_> = history.losses.chunks(batches.div_ceil(POINTS)).enumerate().map(mean).collect();
    let valid = evaluations.iter().map(|evaluation| evaluation.valid.get("Loss"));
    let valid = [history.initial.get("Loss")].into_iter().chain(valid).enumerate();
    let batch = |number: usize| number * batches / evaluations.len().max(1);
    let valid: Vec<_> = valid.filter_map(|(number, loss)| Some((batch(number), *loss?))).collect();
    let losses = || train.iter().chain(&valid).map(|&(_, loss)| loss);
    let (low, high) = (losses().fold(f64::INFINITY, f64::min), losses().fold(f64::NEG_INFINITY, f64::max));
    let (x, y) = (
        |batch: usize| 50.0 + 650.0 * batch as f64 / batches as f64,
        |loss: f64| 360.0 - 330.0 * (loss - low) / (high - low).max(1e-9),
    );
    let mut svg = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 720 400' \
                   style='background: white; font: 12px sans-serif'>"
        .to_string();
    for tick in 0..=4 {
        let loss = low + (high - low) * f64::from(tick) / 4.0;
        let y = y(loss);
        let _ = write!(svg, "<path d='M50 {y}H700' stroke='#ddd'/><text x='6' y='{y}'>{loss:.3}</text>");
    }
    for (name, color, points, at) in [("training", "blue", train, 560), ("validation", "red", valid, 630)] {
        let points: String =
            points.iter().map(|&(batch, loss)| format!("{},{} ", x(batch), y(loss))).collect();
        let _ = write!(svg, "<polyline points='{points}' fill='none' stroke='{color}'/>");
        let _ = write!(svg, "<text x='{at}' y='20' fill='{color}'>{name}</text>");
    }
    svg + &format!("<text x='50' y='20'>loss</text><text x='600' y='385'>{batches} batches</text></svg>\n")
}
