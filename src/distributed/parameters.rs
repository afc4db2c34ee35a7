use super::group::{self, Group};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::{DType, Element, bf16};
use std::collections::HashSet;

/// Elements of a rank in one exchange, 1 MiB in f32: large enough for the bandwidth, small enough for a core's cache.
const PART: usize = 1 << 18;

/// The most elements of all ranks in one exchange, 32 MiB in f32: it bounds the buffers where there are many ranks.
const MAX_BUFFER: usize = 1 << 23;

/// Elements that are added up over all ranks before the next are: 8 KiB of f32 sums, which stay in the first cache.
const BLOCK: usize = 1 << 11;

/// How gradients travel between ranks; [the module](super) has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// In f32, or in f64 where a parameter is f64.
    #[default]
    Full,
    /// In bf16, half as many bytes. Sums are f64 and rounded once, to 8 bits of precision.
    Bf16,
}

/// The float parameters of a module in the order of their fields, and their gradients; one that fields share comes once.
pub(super) struct Parameters {
    are_trained: bool,
    slots: Vec<GradientSlot>,
    seen: HashSet<ParamId>,
    /// The gradients that no parameter has taken.
    gradients: GradientsParams,
}

type Register = Box<dyn FnOnce(TensorData, &mut GradientsParams)>;

struct GradientSlot {
    shape: Vec<usize>,
    dtype: DType,
    /// In the memory that the gradient was in, where it is summed in its dtype: a copy would cost as much as the sum.
    gradient: Option<TensorData>,
    /// Gives the gradient back, as a tensor of the parameter's rank.
    register: Register,
}

impl Parameters {
    /// The trained parameters with their gradients; every parameter without gradients.
    pub(super) fn collect(module: &impl Module, gradients: Option<GradientsParams>) -> Self {
        let (are_trained, gradients) = (gradients.is_some(), gradients.unwrap_or_default());
        let mut found = Self { are_trained, slots: Vec::new(), seen: HashSet::new(), gradients };
        module.visit(&mut found);
        found
    }

    /// What tells them from others; ids differ between processes.
    pub(super) fn kinds(&self) -> Vec<(&[usize], DType)> {
        self.slots.iter().map(|slot| (&slot.shape[..], slot.dtype)).collect()
    }

    /// The gradients in `T`, in which they are summed.
    pub(super) fn convert<T: Element>(&mut self) {
        for slot in &mut self.slots {
            slot.gradient = slot.gradient.take().map(TensorData::convert::<T>);
        }
    }

    pub(super) fn are_finite<T: Element>(&self, factor: f64) -> bool {
        let gradients = self.slots.iter().filter_map(|slot| slot.gradient.as_ref());
        let factor = T::from_elem(factor);
        // Without a branch for each value the compiler takes many at once.
        let are_finite = |part: &[T]| {
            part.iter().fold(true, |all, value| all & times(*value, factor).to_f64().is_finite())
        };
        let values = gradients.map(|data| data.as_slice::<T>().expect(CONVERTED));
        values.flat_map(|values| values.chunks(1 << 12)).all(are_finite)
    }

    /// Σᵣ `weights[r]` · `factor` · gradients of rank r; returns the bytes that this rank sent. A parameter that has a gradient
    /// on no rank gets none: zeros would let AdamW decay it.
    pub(super) fn sum<T: Element + group::Element>(
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
            |index: usize| all.iter().skip(index).step_by(own.len()).any(|&is_there| is_there == 1);
        let slots = self.slots.iter_mut().enumerate().filter(|(index, _)| is_anywhere(*index));
        let values = slots.map(|(_, GradientSlot { shape, gradient, .. })| {
            let values = gradient.get_or_insert_with(|| TensorData::zeros::<T, _>(shape.clone()));
            values.as_mut_slice::<T>().expect(CONVERTED)
        });
        // All at once, since an exchange of a small parameter costs as much as one of thousands.
        match wire {
            // As bits: MPI has no type for bf16.
            Wire::Bf16 if T::dtype() == DType::F32 => {
                let narrow = |value: f64| bf16::from_f32(value as f32).to_bits();
                let wide = |bits| bf16::from_bits(bits).to_f64();
                weighted_sum::<T, u16>(group, values.collect(), factor, weights, narrow, wide)
            }
            _ => {
                let wide = |value: T| value.to_f64();
                weighted_sum::<T, T>(group, values.collect(), factor, weights, T::from_elem::<f64>, wide)
            }
        }
    }

    pub(super) fn into_gradients(mut self) -> GradientsParams {
        for GradientSlot { gradient, register, .. } in self.slots {
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
            self.slots.push(GradientSlot { shape: tensor.dims().to_vec(), dtype, gradient, register });
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

/// The product in `T`: that of two f32 has room in f64, so it is rounded once.
fn times<T: Element>(value: T, factor: T) -> T {
    T::from_elem(value.to_f64() * factor.to_f64())
}

/// Σᵣ `weights[r]` · `factor` · (the `values` of rank r), in the place of `values`, which travel as `W`: what `narrow` makes of
/// them, and `wide` reads. Returns the bytes that this rank sent.
///
/// Each rank adds up one part of the values, in the order of the ranks, and gives it to all: the bytes of a ring, and the
/// same bits on every rank and in every run, which `MPI_Allreduce` does not promise.
pub(super) fn weighted_sum<T: Element, W: group::Element>(
    group: &Group,
    values: Vec<&mut [T]>,
    factor: f64,
    weights: &[f64],
    narrow: impl Fn(f64) -> W,
    wide: impl Fn(W) -> f64,
) -> usize {
    let factor = T::from_elem(factor);
    let (ranks, length) = (weights.len(), values.iter().map(|values| values.len()).sum::<usize>());
    let part = PART.min(MAX_BUFFER / ranks).min(length.div_ceil(ranks)).max(1);
    // Made once for all pieces: fresh pages would cost more than the sums.
    let (mut sent, mut received) = (vec![W::default(); part * ranks], vec![W::default(); part * ranks]);
    let (mut sums, mut own) = (vec![0.0; BLOCK.min(part)], vec![W::default(); part]);
    let mut bytes = 0;
    for mut piece in pieces(values, part * ranks) {
        // The last piece may be shorter: what is left of the one before is added up too, and read by nobody.
        let mut rest = sent.as_mut_slice();
        for values in &piece {
            let (now, later) = rest.split_at_mut(values.len());
            now.iter_mut()
                .zip(&**values)
                .for_each(|(sent, value)| *sent = narrow(times(*value, factor).to_f64()));
            rest = later;
        }
        group.all_to_all(&sent, &mut received);
        for (block, own) in own.chunks_mut(BLOCK).enumerate() {
            let sums = &mut sums[..own.len()];
            sums.fill(0.0);
            // In f64, which is rounded once. What has no weight is left out: 0 · NaN would be NaN.
            for (weight, values) in
                weights.iter().zip(received.chunks(part)).filter(|(weight, _)| **weight > 0.0)
            {
                let values = &values[block * BLOCK..];
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * wide(*value));
            }
            own.iter_mut().zip(sums).for_each(|(own, sum)| *own = narrow(*sum));
        }
        group.all_gather(&own, &mut sent);
        let mut sums = sent.as_slice();
        for values in &mut piece {
            values.iter_mut().zip(sums).for_each(|(value, sum)| *value = T::from_elem(wide(*sum)));
            sums = &sums[values.len()..];
        }
        bytes += 2 * part * (ranks - 1) * size_of::<W>();
    }
    bytes
}

/// All `values` side by side, in pieces of `size`: the slices that make up each.
fn pieces<T>(values: Vec<&mut [T]>, size: usize) -> Vec<Vec<&mut [T]>> {
    let (mut pieces, mut room) = (Vec::new(), 0);
    for mut rest in values {
        while !rest.is_empty() {
            if room == 0 {
                pieces.push(Vec::new());
                room = size;
            }
            let (now, later) = rest.split_at_mut(room.min(rest.len()));
            room -= now.len();
            pieces.last_mut().expect("one was begun").push(now);
            rest = later;
        }
    }
    pieces
}
