//! One parameter's analytic gradient against difference quotients, or, in excluded rows, against an expected gradient.

use super::error::GradCheckError;
use super::probe::SplitMix;
use super::report::{Coverage, ExcludedRowReport, ParameterReport, Place, Worst};
use super::walk::Slot;
use burn::tensor::DType;
use std::fmt;
use std::ops::Range;

/// How many comparisons a parameter gets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sampling {
    /// Parameters of up to so many values are compared entry by entry.
    pub max_entries: usize,
    /// Larger ones along so many random directions.
    pub directions: usize,
    /// The seed of the directions.
    pub seed: u64,
}

/// Everything that the comparison of one parameter needs.
pub(super) struct Comparison<'a, L> {
    pub slot: &'a Slot,
    /// The gradient of the backward pass.
    pub analytic: Vec<f64>,
    /// Entries of excluded rows.
    pub skipped: Vec<bool>,
    /// The step.
    pub h: f64,
    /// The dtype of the parameter's values.
    pub dtype: DType,
    /// The loss with other values in this parameter.
    pub loss_at: L,
    /// What decides, the rounding of the loss included.
    pub tolerance: Tolerance,
    /// The gradient below which relative errors are not meaningful.
    pub floor: f64,
}

/// The derivative along a direction, both ways.
struct Compared {
    analytic: f64,
    numeric: f64,
    /// The length of the gradient's part that the direction sees: the typical size of either derivative.
    length: f64,
}

impl Compared {
    fn difference(&self) -> f64 {
        self.analytic - self.numeric
    }

    fn size(&self) -> f64 {
        self.analytic.abs().max(self.numeric.abs()).max(self.length)
    }
}

/// The largest errors so far.
struct Tally {
    parameter: ParameterReport,
    worst_share: f64,
}

impl<L: Fn(Vec<f64>) -> Result<f64, GradCheckError>> Comparison<'_, L> {
    pub fn report(&self, sampling: Sampling) -> Result<ParameterReport, GradCheckError> {
        let slot = self.slot;
        let entries: Vec<usize> = (0..slot.values.len()).filter(|&entry| !self.skipped[entry]).collect();
        let coverage = if !slot.trained {
            Coverage::Frozen
        } else if slot.values.len() <= sampling.max_entries || entries.is_empty() {
            Coverage::Entries(entries.len())
        } else {
            Coverage::Directions(sampling.directions)
        };
        let parameter = ParameterReport {
            path: slot.path().to_owned(),
            shape: slot.shape.clone(),
            coverage,
            tolerance: self.tolerance,
            has_gradient: slot.gradient.is_some(),
            max_absolute_error: 0.0,
            max_relative_error: 0.0,
            worst: None,
            passed: true,
        };
        let mut tally = Tally { parameter, worst_share: -1.0 };
        match coverage {
            Coverage::Frozen => {}
            Coverage::Entries(_) => {
                for entry in entries {
                    let compared = self.along(&[(entry, 1.0)])?;
                    self.count(&mut tally, Place::Entry(slot.index(entry)), &compared);
                }
            }
            Coverage::Directions(directions) => {
                // The same directions in every run: a report can be compared with the last one.
                let mut random = SplitMix(sampling.seed);
                for number in 0..directions {
                    let direction: Vec<_> = entries.iter().map(|&entry| (entry, random.sign())).collect();
                    let compared = self.along(&direction)?;
                    if !self.count(&mut tally, Place::Direction(number), &compared) {
                        let (entry, compared) = self.narrow(&direction, compared.difference())?;
                        // It is the one to name, also where the direction was further off.
                        tally.worst_share = f64::NEG_INFINITY;
                        self.count(&mut tally, Place::Entry(slot.index(entry)), &compared);
                        break;
                    }
                }
            }
        }
        Ok(tally.parameter)
    }

    /// Both derivatives along a direction that is given by its entries other than 0.
    fn along(&self, direction: &[(usize, f64)]) -> Result<Compared, GradCheckError> {
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
                let entry = direction.first().map(|&(entry, _)| self.slot.index(entry)).unwrap_or_default();
                let place = format!("{:e} away from {} {entry:?}", self.h, self.slot.path());
                return Err(GradCheckError::NotFinite { value, place });
            }
            Ok(value)
        };
        Ok(Compared {
            analytic: direction.iter().map(|&(entry, d)| self.analytic[entry] * d).sum(),
            numeric: (loss(1.0)? - loss(-1.0)?) / (2.0 * self.h),
            length: direction.iter().map(|&(entry, _)| self.analytic[entry].powi(2)).sum::<f64>().sqrt(),
        })
    }

    /// Halves a direction that disagrees, following the half that disagrees more, down to one entry.
    fn narrow(
        &self,
        direction: &[(usize, f64)],
        mut difference: f64,
    ) -> Result<(usize, Compared), GradCheckError> {
        let mut part = direction;
        while part.len() > 1 {
            let (left, right) = part.split_at(part.len() / 2);
            let of_left = self.along(left)?.difference();
            // By linearity: one quotient less at each halving.
            let of_right = difference - of_left;
            // What is left of an infinite difference says nothing about the right half.
            let is_in_left = !of_left.is_finite() || of_left.abs() >= of_right.abs();
            (part, difference) = if is_in_left { (left, of_left) } else { (right, of_right) };
        }
        let entry = part.first().map_or(0, |&(entry, _)| entry);
        Ok((entry, self.along(&[(entry, 1.0)])?))
    }

    /// Enters a comparison; says whether it is within the tolerance.
    fn count(&self, tally: &mut Tally, place: Place, compared: &Compared) -> bool {
        let error = compared.difference().abs();
        let allowed = self.tolerance.absolute + self.tolerance.relative * compared.size();
        // An infinite gradient has an infinite tolerance, and one that is not a number is not above any.
        let is_number = error.is_finite();
        let passed = is_number && error <= allowed;
        let parameter = &mut tally.parameter;
        parameter.passed &= passed;
        let relative = if is_number { error / compared.size().max(self.floor) } else { error };
        let so_far = [&mut parameter.max_absolute_error, &mut parameter.max_relative_error];
        for (largest, next) in so_far.into_iter().zip([error, relative]) {
            // Nothing is above not-a-number, which so remains.
            if next.is_nan() || next > *largest {
                *largest = next;
            }
        }
        let share = if is_number { error / allowed } else { f64::INFINITY };
        if share > tally.worst_share {
            tally.worst_share = share;
            let Compared { analytic, numeric, .. } = *compared;
            parameter.worst = Some(Worst { place, analytic, numeric });
        }
        passed
    }
}

/// The root mean square of a parameter's values; 1 where that is 0.
pub(super) fn scale(values: &[f64]) -> f64 {
    let mean_square = values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64;
    // Zeros would leave no step.
    if mean_square > 0.0 { mean_square.sqrt() } else { 1.0 }
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
        // An empty row has no entry to name.
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
            // Exactly: next to 0 would still train a padding row.
            passed: found.iter().all(|&gradient| gradient == self.expected),
        }
    }
}

/// How far an analytic gradient may be from the difference quotient; see the table in the [crate's documentation](crate#numerics).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Allowed whatever the gradient's size.
    pub absolute: f64,
    /// Allowed as a share of the larger of the two numbers.
    pub relative: f64,
}

impl Tolerance {
    /// The table's entry for a dtype, where differences can be taken in it.
    pub fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F64 => Some(Self { absolute: 1e-7, relative: 1e-5 }),
            DType::F32 => Some(Self { absolute: 1e-3, relative: 1e-2 }),
            _ => None,
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tolerance {:e} + {:e}·|gradient|", self.absolute, self.relative)
    }
}
