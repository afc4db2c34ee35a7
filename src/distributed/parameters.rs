//! The parameters of a module, and their gradients, as buffers that travel between ranks.

use super::group::Group;
use super::weighted_sum::{Bf16Bits, Number, Wire, weighted_sum};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::{DType, Element};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;

/// The float parameters of a module in the order of their fields; one that fields share comes once.
#[derive(Default)]
pub(super) struct Layout {
    trained_alone: bool,
    parameters: Vec<(Vec<usize>, DType)>,
    places: HashMap<ParamId, usize>,
}

impl Layout {
    pub(super) fn of(module: &impl Module) -> Self {
        let mut layout = Self::default();
        module.visit(&mut layout);
        layout
    }

    pub(super) fn of_trained(module: &impl Module) -> Self {
        let mut layout = Self { trained_alone: true, ..Self::default() };
        module.visit(&mut layout);
        layout
    }

    /// What tells it from another one; ids differ between processes.
    pub(super) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (shape, dtype) in &self.parameters {
            (shape, format!("{dtype:?}")).hash(&mut hasher);
        }
        hasher.finish()
    }

    pub(super) fn has_f64(&self) -> bool {
        self.parameters.iter().any(|(_, dtype)| *dtype == DType::F64)
    }
}

impl ModuleVisitor for Layout {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        let is_counted = tensor.dtype().is_float() && (!self.trained_alone || param.is_require_grad());
        if is_counted && !self.places.contains_key(&param.id) {
            self.places.insert(param.id, self.parameters.len());
            self.parameters.push((tensor.dims().to_vec(), tensor.dtype()));
        }
    }
}

/// Gives a module the float parameters of rank 0, one after the other.
pub(super) struct OfFirst<'a>(pub(super) &'a Group);

impl ModuleMapper for OfFirst<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let old = param.val();
        if !old.dtype().is_float() {
            return param; // quantized
        }
        let mut bytes = old.to_data().as_bytes().to_vec();
        self.0.broadcast(0, &mut bytes);
        if self.0.rank == 0 {
            return param;
        }
        param.map(|old| {
            let data = TensorData::from_bytes_vec(bytes, old.dims(), old.dtype());
            let new = Tensor::from_data(data, (&old.device(), old.dtype()));
            new.set_require_grad(old.is_require_grad())
        })
    }
}

/// The gradients of what a module trains, in `T`.
pub(super) struct Gradients<T> {
    layout: Layout,
    /// In the memory that the gradients were in, where their dtype is `T`: a copy would cost as much as the sum.
    values: Vec<Option<TensorData>>,
    /// Of what is no parameter of the module.
    others: GradientsParams,
    dtype: PhantomData<T>,
}

impl<T: Number + Element> Gradients<T> {
    pub(super) fn of(module: &impl Module, layout: Layout, gradients: GradientsParams) -> Self {
        let values = vec![None; layout.parameters.len()];
        let mut found = Self { layout, values, others: gradients, dtype: PhantomData };
        module.visit(&mut Take(&mut found));
        found
    }

    /// Whether all are, times `factor`.
    pub(super) fn are_finite(&self, factor: f64) -> bool {
        let values = self.values.iter().flatten().map(|data| data.as_slice::<T>().expect(CONVERTED));
        let factor = T::from_f64(factor);
        // Without a branch for each value the compiler takes many at once.
        let are_finite =
            |part: &[T]| part.iter().fold(true, |all, value| all & value.times(factor).to_f64().is_finite());
        values.flat_map(|values| values.chunks(1 << 12)).all(are_finite)
    }

    /// Σᵣ `weights[r]` · `factor` · gradients of rank r; returns the bytes that this rank sent. A parameter that has a gradient
    /// on no rank gets none: zeros would let AdamW decay it.
    pub(super) fn sum(&mut self, group: &Group, wire: Wire, factor: f64, weights: &[f64]) -> usize {
        let own: Vec<u8> = self.values.iter().map(|values| values.is_some().into()).collect();
        let mut all = vec![0; own.len() * weights.len()];
        group.all_gather(&own, &mut all);
        let is_anywhere =
            |place: usize| all.iter().skip(place).step_by(own.len()).any(|&is_there| is_there == 1);
        let places = self.values.iter_mut().zip(&self.layout.parameters).enumerate();
        let values = places.filter(|(place, _)| is_anywhere(*place)).map(|(_, (values, (shape, _)))| {
            let values = values.get_or_insert_with(|| TensorData::zeros::<T, _>(shape.clone()));
            values.as_mut_slice::<T>().expect(CONVERTED)
        });
        // All at once, since an exchange of a small parameter costs as much as one of thousands.
        match wire {
            Wire::Bf16 if T::dtype() == DType::F32 => {
                weighted_sum::<T, Bf16Bits>(group, values.collect(), factor, weights)
            }
            _ => weighted_sum::<T, T>(group, values.collect(), factor, weights),
        }
    }

    pub(super) fn into_params(mut self, module: &impl Module) -> GradientsParams {
        module.visit(&mut Give(&mut self));
        self.others
    }
}

const CONVERTED: &str = "data of the type that they were converted to";

struct Take<'a, T>(&'a mut Gradients<T>);

impl<T: Number + Element> ModuleVisitor for Take<'_, T> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(&place) = self.0.layout.places.get(&param.id)
            && let Some(gradient) = self.0.others.remove::<D>(param.id)
        {
            self.0.values[place] = Some(gradient.into_data().convert::<T>());
        }
    }
}

struct Give<'a, T>(&'a mut Gradients<T>);

impl<T: Number + Element> ModuleVisitor for Give<'_, T> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(&place) = self.0.layout.places.get(&param.id)
            && let Some(values) = self.0.values[place].take()
        {
            let (_, dtype) = self.0.layout.parameters[place];
            let gradient = Tensor::<D>::from_data(values, (&param.val().device().inner(), dtype));
            self.0.others.register(param.id, gradient);
        }
    }
}
