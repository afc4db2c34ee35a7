use super::compare::{Comparison, Excluded};
use super::error::GradCheckError;
use super::report::{Coverage, GradCheckReport, Tolerance};
use super::walk::{Replace, Slot, slots};
use burn::module::Param;
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The smallest root mean square that the step is multiplied by: values of a bias after a few steps of training are far smaller than
/// the changes that the loss shows.
const SMALLEST_SCALE: f64 = 1e-2;

/// A check of analytic gradients against central differences; see the [crate's documentation](crate).
#[derive(Debug, Clone, Default)]
pub struct GradCheck {
    dtype: Option<FloatDType>,
    tolerance: Option<Tolerance>,
    step: Option<f64>,
    max_entries: Option<usize>,
    directions: Option<usize>,
    seed: u64,
    excluded: Vec<Excluded>,
}

impl GradCheck {
    /// A check with the [defaults](crate#options).
    pub fn new() -> Self {
        Self::default()
    }

    /// Works in `dtype`, F64 or F32, instead of the widest that the device has.
    pub fn with_dtype(self, dtype: FloatDType) -> Self {
        Self { dtype: Some(dtype), ..self }
    }

    /// Replaces the table's tolerance.
    pub fn with_tolerance(self, absolute: f64, relative: f64) -> Self {
        Self { tolerance: Some(Tolerance { absolute, relative }), ..self }
    }

    /// Replaces the table's step, in units of a parameter's root mean square, which counts as at least 0.01.
    pub fn with_step(self, step: f64) -> Self {
        Self { step: Some(step), ..self }
    }

    /// Checks parameters of up to so many values entry by entry.
    pub fn with_max_entries(self, max_entries: usize) -> Self {
        Self { max_entries: Some(max_entries), ..self }
    }

    /// Checks larger parameters along so many random directions, at least 1.
    pub fn with_directions(self, directions: usize) -> Self {
        // Along none a large parameter would pass whatever its gradient is.
        Self { directions: Some(directions.max(1)), ..self }
    }

    /// Draws directions and the weights of [`Probe::weighted_sum`] from another seed.
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Holds one row of a parameter against an expected gradient instead of a difference quotient.
    ///
    /// Use it for rows where the two differ by design, such as the padding row of a lookup table, whose gradient is 0 although the
    /// loss depends on it. `row` counts along the outermost axis; every entry must be exactly `expected`.
    pub fn with_excluded_row(mut self, path: impl Into<String>, row: usize, expected: f64) -> Self {
        self.excluded.push(Excluded { path: path.into(), row, expected });
        self
    }

    /// Checks the gradients of all float parameters of `module`.
    ///
    /// `loss` is called with the module, cast and with a parameter changed, many times over: it must be a function of the
    /// module alone. To check several tensors without a module around them, pass a tuple of `Param`s as the module.
    ///
    /// # Errors
    ///
    /// A [`GradCheckError`] if the loss or the settings cannot be checked. A wrong gradient is not an error but a report
    /// that does not [pass](GradCheckReport::passes).
    pub fn run<M: Module>(
        &self,
        module: &M,
        loss: impl Fn(&M, &Probe) -> Tensor<1>,
    ) -> Result<GradCheckReport, GradCheckError> {
        self.run_pair((module.clone(), None::<Param<Tensor<1>>>), |(module, _), probe| loss(module, probe))
    }

    /// [`run`](Self::run) of a module with an input, or none.
    fn run_pair<P: Module>(
        &self,
        pair: P,
        loss: impl Fn(&P, &Probe) -> Tensor<1>,
    ) -> Result<GradCheckReport, GradCheckError> {
        let before = slots(&pair, None);
        let first = before.first().ok_or(GradCheckError::NothingTrained)?;
        if !first.device.is_autodiff() {
            return Err(GradCheckError::NoAutodiff { path: first.path().to_owned() });
        }
        let (dtype, tolerance, step) = self.settings(&first.device)?;
        let probe = Probe { device: first.device.clone(), dtype, seed: self.seed };
        self.excluded.iter().try_for_each(|row| row.check(&before))?;
        if !before.iter().any(|slot| slot.trained) {
            return Err(GradCheckError::NothingTrained);
        }
        // Every parameter is replaced by itself in the check's dtype.
        let pair = before
            .into_iter()
            .fold(pair, |pair, Slot { id, values, .. }| pair.map(&mut Replace { id, values, dtype }));

        let loss_of = |pair: &P| {
            let loss = loss(pair, &probe);
            match (loss.shape().num_elements(), loss.dtype()) {
                (1, found) if found == dtype => Ok(loss),
                (1, found) => Err(GradCheckError::LossDtype { found, expected: dtype }),
                (found, _) => Err(GradCheckError::NotScalar { found }),
            }
        };
        let root = loss_of(&pair)?;
        let first: f64 = root.clone().into_scalar();
        // Twice: a random loss has no difference quotient.
        let second: f64 = loss_of(&pair)?.into_scalar();
        if let Some(value) = [first, second].into_iter().find(|value| !value.is_finite()) {
            return Err(GradCheckError::NotFinite { value, place: "at the module's own parameters".into() });
        }
        let epsilon = dtype.finfo().map_or(f64::EPSILON, |info| info.epsilon);
        // Devices that add in no fixed order may differ in the last bits; randomness differs in the first.
        if (first - second).abs() > 16.0 * epsilon * first.abs() {
            return Err(GradCheckError::NotRepeatable { first, second });
        }
        if !root.is_tracked() {
            return Err(GradCheckError::NoGraph);
        }
        let slots = slots(&pair, Some(&root.backward()));
        // Thousands of graphs that no backward ever walks would all be freed in the next one that does.
        let untracked = pair.no_grad();

        let mut report = GradCheckReport {
            dtype,
            tolerance,
            loss: first,
            parameters: Vec::with_capacity(slots.len()),
            excluded_rows: Vec::new(),
        };
        // Two losses for each entry and each direction: more would take long for whole models.
        let (max_entries, directions) = (self.max_entries.unwrap_or(1024), self.directions.unwrap_or(8));
        for slot in &slots {
            let analytic = slot.gradient.clone().unwrap_or_else(|| vec![0.0; slot.values.len()]);
            let mut is_compared = vec![true; slot.values.len()];
            for row in self.excluded.iter().filter(|row| row.is_of(slot)) {
                report.excluded_rows.push(row.compare(slot, &analytic));
                is_compared[row.entries(slot)].fill(false);
            }
            let entries: Vec<usize> = (0..is_compared.len()).filter(|&entry| is_compared[entry]).collect();
            let coverage = match entries.len() {
                _ if !slot.trained => Coverage::Frozen,
                count if count == 0 || slot.values.len() <= max_entries => Coverage::Entries(count),
                _ => Coverage::Directions(directions),
            };
            // A table drawn from N(0, 0.02²) bends on another scale than one around 1.
            let mean_square = slot.values.iter().map(|x| x * x).sum::<f64>() / slot.values.len() as f64;
            let scale = if mean_square > 0.0 { mean_square.sqrt().max(SMALLEST_SCALE) } else { 1.0 };
            let h = step * scale;
            // A large loss has lost the digits that a small difference is made of.
            let rounding = 4.0 * epsilon * first.abs() / h;
            let comparison = Comparison {
                slot,
                analytic,
                h,
                dtype,
                loss_at: |values: Vec<f64>| {
                    let moved = untracked.clone().map(&mut Replace { id: slot.id, values, dtype });
                    loss_of(&moved).map(Tensor::into_scalar)
                },
                tolerance: Tolerance { absolute: tolerance.absolute + rounding, ..tolerance },
                // Where rounding takes no more than was allowed anyway, a gradient of 0 is checked, too.
                smallest: if rounding > tolerance.absolute { 10.0 * rounding } else { 0.0 },
                floor: tolerance.absolute / tolerance.relative,
            };
            report.parameters.push(comparison.report(coverage, &entries, self.seed)?);
        }
        Ok(report)
    }

    /// Checks the gradient of an input, which is copied to the module's device, besides those of the module's parameters; the
    /// report calls it `input`.
    ///
    /// ```
    /// use burn::nn::LayerNormConfig;
    /// use burn::prelude::*;
    /// use burn::tensor::Distribution;
    /// use burn_gradcheck::GradCheck;
    ///
    /// let device = Device::default().autodiff();
    /// let norm = LayerNormConfig::new(6).init(&device);
    /// let x = Tensor::<2>::random([3, 6], Distribution::Default, &device);
    /// let report = GradCheck::new()
    ///     .run_with_input(&norm, x, |norm, x, probe| probe.weighted_sum(norm.forward(x)))?;
    /// assert!(report.parameter("input").is_some_and(|input| input.passed));
    /// # Ok::<(), burn_gradcheck::GradCheckError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`run`](Self::run).
    pub fn run_with_input<M: Module, const D: usize>(
        &self,
        module: &M,
        input: Tensor<D>,
        loss: impl Fn(&M, Tensor<D>, &Probe) -> Tensor<1>,
    ) -> Result<GradCheckReport, GradCheckError> {
        let input = match slots(module, None).first() {
            // The input is cast here, as parameters are: its gradient is compared in the same dtype.
            Some(Slot { device, .. }) => {
                let (dtype, ..) = self.settings(device)?;
                Tensor::from_data(input.into_data(), (device, dtype))
            }
            None => input.detach(),
        };
        let pair = (module.clone(), Param::from_tensor(input));
        self.run_pair(pair, |(module, input), probe| loss(module, input.val(), probe))
    }

    /// The dtype, the tolerance and the step on `device`.
    fn settings(&self, device: &Device) -> Result<(DType, Tolerance, f64), GradCheckError> {
        let dtype = match self.dtype {
            Some(dtype) => dtype.into(),
            None if device.supports_dtype(DType::F64) => DType::F64,
            None => DType::F32,
        };
        let Some(of_table) = Tolerance::for_dtype(dtype).filter(|_| device.supports_dtype(dtype)) else {
            return Err(GradCheckError::Dtype { dtype });
        };
        let tolerance @ Tolerance { absolute, relative } = self.tolerance.unwrap_or(of_table);
        let step = self.step.unwrap_or(if dtype == DType::F64 { 3e-5 } else { 1e-2 });
        for (name, value, is_allowed, allowed) in [
            ("the step", step, step > 0.0, "above 0"),
            ("the relative tolerance", relative, relative > 0.0, "above 0"),
            ("the absolute tolerance", absolute, absolute >= 0.0, "not negative"),
        ] {
            if !(value.is_finite() && is_allowed) {
                return Err(GradCheckError::Setting { name, value, allowed });
            }
        }
        Ok((dtype, tolerance, step))
    }
}

/// Passed to the loss of a [`GradCheck`](crate::GradCheck) besides the module, to compute in the check's dtype.
#[derive(Debug, Clone)]
pub struct Probe {
    device: Device,
    dtype: DType,
    seed: u64,
}

impl Probe {
    /// The device of the module's first parameter.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The dtype that the module was cast to.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// A constant of the loss (an input, a mask, a target), in the module's dtype.
    pub fn constant<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        tensor.cast(self.dtype)
    }

    /// Σ w ⊙ y, `[1]`, with weights w uniform in [−1, 1], the same for every call with the same number of values.
    pub fn weighted_sum<const D: usize>(&self, output: Tensor<D>) -> Tensor<1> {
        let shape = output.shape();
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        // On the host: every device gets the same weights.
        let weights = (0..shape.num_elements()).map(|_| random.random_range(-1.0..=1.0)).collect();
        let weights = TensorData::new::<f64, _>(weights, shape);
        let weights = Tensor::from_data(weights, (&output.device(), output.dtype()));
        (output * weights).sum()
    }
}
