//! One parameter's analytic gradient against difference quotients, or, in excluded rows, against an expected gradient.

use super::error::{GradCheckError, Result};
use super::report::{Coverage, ExcludedRowReport, ParameterReport, Place, Tolerance, Worst};
use super::walk::Slot;
use burn::tensor::DType;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ops::Range;

/// Everything that the comparison of one parameter needs.
pub(super) struct Comparison<'a, L> {
    pub slot: &'a Slot,
    pub analytic: Vec<f64>,
    /// The step.
    pub h: f64,
    pub dtype: DType,
    /// The loss with other values in this parameter.
    pub loss_at: L,
    /// What decides, the rounding of the loss included.
    pub tolerance: Tolerance,
    /// The largest derivative of a parameter whose comparisons decide anything is at least this.
    pub smallest: f64,
    /// The gradient below which relative errors are not meaningful.
    pub floor: f64,
}

/// The derivative along a direction, both ways.
struct Compared {
    worst: Worst,
    /// The larger of the two derivatives, or ‖∇L‖ of a direction.
    size: f64,
    absolute_error: f64,
    relative_error: f64,
    /// The share of the tolerance that is used up; infinite where the error is not a number.
    share: f64,
}

impl<L: Fn(Vec<f64>) -> Result<f64>> Comparison<'_, L> {
    /// Compares `entries`, or random directions through them that are drawn from `seed`.
    pub fn report(&self, coverage: Coverage, entries: &[usize], seed: u64) -> Result<ParameterReport> {
        let compared = match coverage {
            Coverage::Frozen => Vec::new(),
            Coverage::Entries(_) => entries.iter().map(|&entry| self.entry(entry)).collect::<Result<_>>()?,
            Coverage::Directions(count) => self.directions(count, entries, seed)?,
        };
        // Not-a-number is above all others, and so remains.
        let largest =
            |error: fn(&Compared) -> f64| compared.iter().map(error).max_by(f64::total_cmp).unwrap_or(0.0);
        let is_within = compared.iter().all(|compared| compared.share <= 1.0);
        let is_resolved = compared.is_empty() || largest(|compared| compared.size) >= self.smallest;
        Ok(ParameterReport {
            path: self.slot.path().to_owned(),
            shape: self.slot.shape.clone(),
            coverage,
            tolerance: self.tolerance,
            has_gradient: self.slot.gradient.is_some(),
            max_absolute_error: largest(|compared| compared.absolute_error),
            max_relative_error: largest(|compared| compared.relative_error),
            lost_in_rounding: is_within && !is_resolved,
            passed: is_within && is_resolved,
            // The first of those that are equal.
            worst: compared.into_iter().rev().max_by(|a, b| a.share.total_cmp(&b.share)).map(|c| c.worst),
        })
    }

    fn entry(&self, entry: usize) -> Result<Compared> {
        self.compare(Place::Entry(self.slot.index(entry)), &[(entry, 1.0)])
    }

    /// Up to the first direction that disagrees, and then the entry that is to blame, as the worst of all.
    fn directions(&self, count: usize, entries: &[usize], seed: u64) -> Result<Vec<Compared>> {
        // The same directions in every run: a report can be compared with the last one.
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut compared = Vec::new();
        for number in 0..count {
            let mut sign = || if random.random() { 1.0 } else { -1.0 };
            let direction: Vec<_> = entries.iter().map(|&entry| (entry, sign())).collect();
            compared.push(self.compare(Place::Direction(number), &direction)?);
            let Compared { worst: Worst { analytic, numeric, .. }, share, .. } = compared[number];
            if share > 1.0 {
                let entry = self.entry(self.blamed(&direction, analytic - numeric)?)?;
                compared.insert(0, Compared { share: f64::INFINITY, ..entry });
                break;
            }
        }
        Ok(compared)
    }

    /// Halves a direction that disagrees, following the half that disagrees more, down to one entry.
    fn blamed(&self, direction: &[(usize, f64)], mut difference: f64) -> Result<usize> {
        let mut part = direction;
        while part.len() > 1 {
            let (left, right) = part.split_at(part.len() / 2);
            let [analytic, numeric] = self.derivatives(left)?;
            let of_left = analytic - numeric;
            // By linearity: one quotient less at each halving.
            let of_right = difference - of_left;
            // What is left of an infinite difference says nothing about the right half.
            let is_in_left = !of_left.is_finite() || of_left.abs() >= of_right.abs();
            (part, difference) = if is_in_left { (left, of_left) } else { (right, of_right) };
        }
        Ok(part[0].0)
    }

    fn compare(&self, place: Place, direction: &[(usize, f64)]) -> Result<Compared> {
        let [analytic, numeric] = self.derivatives(direction)?;
        // The length of the gradient's part that the direction sees is the typical size of either derivative.
        let length = direction.iter().map(|&(entry, _)| self.analytic[entry].powi(2)).sum::<f64>().sqrt();
        let size = analytic.abs().max(numeric.abs()).max(length);
        let error = (analytic - numeric).abs();
        let (relative_error, share) = if error == 0.0 {
            (0.0, 0.0) // of a size and a tolerance that may be 0, too
        } else if error.is_finite() {
            let allowed = self.tolerance.absolute + self.tolerance.relative * size;
            (error / size.max(self.floor), error / allowed)
        } else {
            // An infinite gradient has an infinite tolerance, and one that is not a number is not above any.
            (error, f64::INFINITY)
        };
        let worst = Worst { place, analytic, numeric };
        Ok(Compared { worst, size, absolute_error: error, relative_error, share })
    }

    /// The derivatives along a direction that is given by its entries other than 0: the analytic and the numeric one.
    fn derivatives(&self, direction: &[(usize, f64)]) -> Result<[f64; 2]> {
        let moved = |entry: usize, distance: f64| {
            let value = self.slot.values[entry] + distance;
            // As the parameter will hold it: the quotient needs the step that was really made.
            if self.dtype == DType::F32 { f64::from(value as f32) } else { value }
        };
        // Rounding may make nothing of a step.
        if direction.iter().any(|&(entry, _)| moved(entry, self.h) == moved(entry, -self.h)) {
            return Err(GradCheckError::Setting {
                name: "the step, times the parameter's root mean square,",
                value: self.h,
                allowed: "large enough to change every value",
            });
        }
        let loss = |sign: f64| {
            let mut values = self.slot.values.clone();
            direction.iter().for_each(|&(entry, d)| values[entry] = moved(entry, sign * self.h * d));
            let value = (self.loss_at)(values)?;
            if !value.is_finite() {
                let (path, entry) = (self.slot.path(), self.slot.index(direction[0].0));
                let place = format!("{:e} away from {path} {entry:?}", self.h);
                return Err(GradCheckError::NotFinite { value, place });
            }
            Ok(value)
        };
        let analytic = direction.iter().map(|&(entry, d)| self.analytic[entry] * d).sum();
        Ok([analytic, (loss(1.0)? - loss(-1.0)?) / (2.0 * self.h)])
    }
}

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
        let length: usize = slot.shape.iter().skip(1).product();
        self.row * length..(self.row + 1) * length
    }

    /// Fails unless a trained parameter has this row.
    pub fn check(&self, slots: &[Slot]) -> Result<()> {
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
        let distance = |&(_, gradient): &(usize, f64)| (gradient - self.expected).abs();
        // Reversed: of those that are equal, the first is named.
        let furthest =
            found.iter().copied().enumerate().rev().max_by(|a, b| distance(a).total_cmp(&distance(b)));
        ExcludedRowReport {
            path: slot.path().to_owned(),
            row: self.row,
            expected: self.expected,
            // An empty row has no entry to name.
            furthest: furthest.unwrap_or((0, self.expected)),
            entries: found.len(),
            // Exactly: next to 0 would still train a padding row.
            passed: found.iter().all(|&gradient| gradient == self.expected),
        }
    }
}
