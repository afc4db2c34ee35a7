//! Rows that are compared with an expected gradient instead of a difference quotient.

use super::error::GradCheckError;
use super::report::ExcludedRowReport;
use super::walk::Slot;
use std::ops::Range;

/// One row of a parameter, and the gradient that every entry of it must have.
#[derive(Debug, Clone)]
pub(super) struct Excluded {
    pub path: String,
    pub row: usize,
    pub expected: f64,
}

impl Excluded {
    /// Whether the row is one of `slot`.
    pub fn is_of(&self, slot: &Slot) -> bool {
        slot.paths.contains(&self.path)
    }

    /// The places of the row's entries among those of its parameter.
    pub fn entries(&self, slot: &Slot) -> Range<usize> {
        let start = self.row * slot.row_len();
        start..start + slot.row_len()
    }

    /// Fails unless a trained parameter has this row.
    pub fn check(&self, slots: &[Slot]) -> Result<(), GradCheckError> {
        let Self { path, row, .. } = self;
        let trained = || slots.iter().filter(|slot| slot.trained);
        let Some(slot) = trained().find(|slot| self.is_of(slot)) else {
            let known: Vec<&str> = trained().map(Slot::path).collect();
            return Err(GradCheckError::UnknownPath { path: path.clone(), known: known.join(", ") });
        };
        let rows = slot.shape[0];
        if *row >= rows {
            return Err(GradCheckError::NoSuchRow { path: path.clone(), row: *row, rows });
        }
        Ok(())
    }

    /// Compares the row's gradient, out of the whole parameter's, with the expected one.
    pub fn compare(&self, slot: &Slot, analytic: &[f64]) -> ExcludedRowReport {
        let found = &analytic[self.entries(slot)];
        let mut furthest = (0, found.first().copied().unwrap_or(self.expected));
        for (column, &gradient) in found.iter().enumerate() {
            let distance = (gradient - self.expected).abs();
            if distance.is_nan() || distance > (furthest.1 - self.expected).abs() {
                furthest = (column, gradient);
            }
        }
        ExcludedRowReport {
            path: slot.path().to_owned(),
            row: self.row,
            expected: self.expected,
            furthest,
            entries: found.len(),
            passed: found.iter().all(|&gradient| gradient == self.expected),
        }
    }
}
