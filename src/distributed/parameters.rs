//! The parameters of a module, and their gradients, as buffers that travel between ranks.

use super::group::Group;
use super::weighted_sum::{Bf16Bits, Number, Wire, weighted_sum};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::{DType, Element};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The float parameters of a module in the order of their fields, and their gradients; one that fields share comes once.
pub(super) struct Parameters {
    are_trained: bool,
    slots: Vec<Slot>,
    seen: HashSet<ParamId>,
    /// Those that were not taken.
    gradients: GradientsParams,
}

type Register = Box<dyn FnOnce(TensorData, &mut GradientsParams)>;

struct Slot {
    shape: Vec<usize>,
    dtype: DType,
    /// In the memory that the gradient was in, where it is summed in its dtype: a copy would cost as much as the sum.
    gradient: Option<TensorData>,
    /// Gives the gradient back, as a tensor of the parameter's rank.
    register: Register,
}

impl Parameters {
    /// Those that are trained, with their gradients; all without gradients.
    pub(super) fn of(module: &impl Module, gradients: Option<GradientsParams>) -> Self {
        let (are_trained, gradients) = (gradients.is_some(), gradients.unwrap_or_default());
        let mut found = Self { are_trained, slots: Vec::new(), seen: HashSet::new(), gradients };
        module.visit(&mut found);
        found
    }

    /// What tells them from others; ids differ between processes.
    pub(super) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for Slot { shape, dtype, .. } in &self.slots {
            (shape, dtype).hash(&mut hasher);
        }
        hasher.finish()
    }

    pub(super) fn has_f64(&self) -> bool {
        self.slots.iter().any(|slot| slot.dtype == DType::F64)
    }

    /// The gradients in `T`, in which they are summed.
    pub(super) fn convert<T: Element>(&mut self) {
        for slot in &mut self.slots {
            slot.gradient = slot.gradient.take().map(TensorData::convert::<T>);
        }
    }

    pub(super) fn are_finite<T: Number + Element>(&self, factor: f64) -> bool {
        let gradients = self.slots.iter().filter_map(|slot| slot.gradient.as_ref());
        let factor = T::from_f64(factor);
        // Without a branch for each value the compiler takes many at once.
        let are_finite =
            |part: &[T]| part.iter().fold(true, |all, value| all & value.times(factor).to_f64().is_finite());
        let values = gradients.map(|data| data.as_slice::<T>().expect(CONVERTED));
        values.flat_map(|values| values.chunks(1 << 12)).all(are_finite)
    }

    /// Σᵣ `weights[r]` · `factor` · gradients of rank r; returns the bytes that this rank sent. A parameter that has a gradient
    /// on no rank gets none: zeros would let AdamW decay it.
    pub(super) fn sum<T: Number + Element>(
        &mut self,
        group: &Group,
        wire: Wire,
        factor: f64,
        weights: &[f64],
    ) -> usize {
        let own: Vec<u8> = self.slots.iter().map(|slot| slot.gradient.is_some().into()).collect();
        let mut all = vec![0; own.len() * weights.len()];
        group.all_gather(&own, &mut all);
        let is_anywhere =
            |place: usize| all.iter().skip(place).step_by(own.len()).any(|&is_there| is_there == 1);
        let slots = self.slots.iter_mut().enumerate().filter(|(place, _)| is_anywhere(*place));
        let values = slots.map(|(_, Slot { shape, gradient, .. })| {
            let values = gradient.get_or_insert_with(|| TensorData::zeros::<T, _>(shape.clone()));
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

    pub(super) fn into_gradients(mut self) -> GradientsParams {
        for Slot { gradient, register, .. } in self.slots {
            if let Some(values) = gradient {
                register(values, &mut self.gradients);
            }
        }
        self.gradients
    }
}

const CONVERTED: &str = "data of the type that they were converted to";

impl ModuleVisitor for Parameters {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        let is_counted = tensor.dtype().is_float() && (!self.are_trained || param.is_require_grad());
        if is_counted && self.seen.insert(param.id) {
            let gradient = self.gradients.remove::<D>(param.id).map(Tensor::into_data);
            let (id, device, dtype) = (param.id, tensor.device().inner(), tensor.dtype());
            let register = Box::new(move |values, gradients: &mut GradientsParams| {
                gradients.register(id, Tensor::<D>::from_data(values, (&device, dtype)));
            });
            self.slots.push(Slot { shape: tensor.dims().to_vec(), dtype, gradient, register });
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
        // A copy, which MPI writes into.
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
