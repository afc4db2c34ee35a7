//! Flex, Burn's CPU backend: one pass over the rows, forward and backward, in parallel.

use super::{Activation, BiasActivation, BiasActivationOp, FAR};
use crate::engine::operator::{Gradients, Operator, Output, Upstream};
use crate::flex::row::accumulate;
use crate::flex::scalar::Functions;
use crate::flex::{
    HostKernels, Rows, Scalar, Wide, for_each, rows_per_task, simd_fn, slice, tensor, total_of_each,
    vector_gradient, widened,
};
use burn::backend::{Flex, TensorMetadata};
use pulp::Simd;

/// The time of a value, relative to one of LayerNorm, by which tasks are cut. An estimate by the number of operations; not tuned.
const WORK: usize = 4;

/// Kernels are where time goes: in feed-forward networks.
fn has_kernel(activation: Activation) -> bool {
    !matches!(activation, Activation::Identity | Activation::Tanh | Activation::Sigmoid)
}

impl HostKernels for BiasActivationOp {
    fn forward<T: Scalar>(input: BiasActivation<Flex>) -> Output<Self, Flex> {
        if !has_kernel(input.activation) {
            return Self::reference(input);
        }
        let [count, columns] = [input.x.shape().num_elements(), input.x.shape()[1]];
        let bias = bias::<T>(&input);
        let gate = input.gate.map(|gate| gate.to_contiguous());
        let gate = gate.as_ref().map(|gate| slice::<T>(gate));
        let mut rows = Rows::new(input.x);
        let size = rows_per_task(columns) * columns;
        for_each(WORK * count, rows.tasks::<T>(size).enumerate(), |(task, rows)| {
            let y = rows();
            let gate = gate.map(|gate| &gate[task * size..][..y.len()]);
            match input.activation {
                Activation::Gelu => forward_rows(Gelu, &bias, gate, y),
                Activation::Relu => forward_rows(Relu, &bias, gate, y),
                other => forward_rows(Logistic(other.logistic()), &bias, gate, y),
            }
        });
        (rows.output, [])
    }

    fn backward<T: Scalar>(input: BiasActivation<Flex>, upstream: Upstream<Self, Flex>) -> Gradients<Flex> {
        if !has_kernel(input.activation) {
            return Self::reference_backward(input, upstream);
        }
        let Upstream { grad, needs: [needs_x, needs_bias, needs_gate], .. } = upstream;
        let (bias, columns) = (bias::<T>(&input), input.x.shape()[1]);
        let x = input.x.to_contiguous();
        let x = slice::<T>(&x);
        // Becomes that of x, of which the bias's is the sum.
        let mut grad = Rows::new(grad);
        let gate = input.gate.as_ref().map(|gate| gate.to_contiguous());
        let gate = gate.as_ref().map(|gate| slice::<T>(gate)).unwrap_or_default();
        let mut gate_grad = vec![T::default(); gate.len()];
        let size = rows_per_task(columns) * columns;
        let mut gates = gate.chunks(size).zip(gate_grad.chunks_mut(size));
        let tasks = x.chunks(size).zip(grad.tasks::<T>(size)).map(|task| (task, gates.next()));
        let width = if needs_bias { columns } else { 0 };
        let total = total_of_each(WORK * x.len(), tasks, width, |((x, rows), gate), total| {
            let d = rows();
            match input.activation {
                Activation::Gelu => backward_rows(Gelu, &bias, x, d, gate, total),
                Activation::Relu => backward_rows(Relu, &bias, x, d, gate, total),
                other => backward_rows(Logistic(other.logistic()), &bias, x, d, gate, total),
            }
        });
        vec![
            needs_x.then_some(grad.output),
            input.bias.as_ref().filter(|_| needs_bias).map(|bias| vector_gradient(total, bias)),
            needs_gate.then(|| tensor(gate_grad, input.x.shape())),
        ]
    }
}

/// The bias of a row; zeros without one.
fn bias<T: Scalar>(input: &BiasActivation<Flex>) -> Vec<T::Wide> {
    let zeros = || vec![T::Wide::ZERO; input.x.shape()[1]];
    input.bias.as_ref().map_or_else(zeros, widened::<T>)
}

/// An activation: loops over it have no branch and vectorise.
trait Curve: Copy + Sync {
    /// The value and the derivative at z.
    fn at<S: Simd, W: Wide>(self, z: W) -> (W, W);
}

#[derive(Clone, Copy)]
struct Gelu;

impl Curve for Gelu {
    #[inline(always)]
    fn at<S: Simd, W: Wide>(self, z: W) -> (W, W) {
        let (cumulative, density) = z.normal::<S>();
        (z * cumulative, cumulative + z * density)
    }
}

/// `z · σ(a·z + b·z³)` with the factors of [`Activation::logistic`].
#[derive(Clone, Copy)]
struct Logistic([f64; 2]);

impl Curve for Logistic {
    #[inline(always)]
    fn at<S: Simd, W: Wide>(self, z: W) -> (W, W) {
        let (linear, cubic) = (W::from_f64(self.0[0]), W::from_f64(self.0[1]));
        // Both tails are flat there, and nothing overflows.
        let [low, high] = [-FAR, FAR].map(W::from_f64);
        let near = if z > high { high } else { z };
        let near = if near < low { low } else { near }; // NaN stays
        let square = near * near;
        let (cumulative, density) = logistic::<S, W>(near * (linear + cubic * square));
        let inner = near * (linear + W::from_f64(3.0) * cubic * square);
        (z * cumulative, cumulative + density * inner)
    }
}

/// `σ(u) = 1 / (1 + e⁻ᵘ)` and its derivative, neither of which overflows.
#[inline(always)]
fn logistic<S: Simd, W: Wide>(u: W) -> (W, W) {
    let one = W::from_f64(1.0);
    let exp = Functions::exp::<S>(if u > W::ZERO { W::ZERO - u } else { u }); // e^−|u|
    let near = one / (one + exp);
    let far = exp * near;
    (if u > W::ZERO { near } else { far }, near * far)
}

#[derive(Clone, Copy)]
struct Relu;

impl Curve for Relu {
    #[inline(always)]
    fn at<S: Simd, W: Wide>(self, z: W) -> (W, W) {
        let value = if z < W::ZERO { W::ZERO } else { z }; // NaN stays
        (value, W::from_f64(if z <= W::ZERO { 0.0 } else { 1.0 })) // of NaN 1, as PyTorch's
    }
}

simd_fn! {
    /// Some rows of x, which are overwritten by y.
    fn forward_rows<S, T: Scalar, C: Curve>(
        simd,
        curve: C,
        bias: &'a [T::Wide],
        gate: Option<&'a [T]>,
        y: &'a mut [T],
    ) {
        let value = |y: T, bias: T::Wide| curve.at::<S, _>(y.widen() + bias).0;
        let columns = bias.len();
        match gate {
            None => for y in y.chunks_exact_mut(columns) {
                y.iter_mut().zip(bias).for_each(|(y, &bias)| *y = T::narrow(value(*y, bias)));
            }
            Some(gate) => for (y, gate) in y.chunks_exact_mut(columns).zip(gate.chunks_exact(columns)) {
                for ((y, &bias), gate) in y.iter_mut().zip(bias).zip(gate) {
                    *y = T::narrow(value(*y, bias) * gate.widen());
                }
            }
        }
    }
}

simd_fn! {
    /// Some rows: the gradients of y become those of x, which are added to `total` if there is room for them.
    fn backward_rows<S, T: Scalar, C: Curve>(
        simd,
        curve: C,
        bias: &'a [T::Wide],
        x: &'a [T],
        grad: &'a mut [T],
        gate: Option<(&'a [T], &'a mut [T])>,
        total: &'a mut [T::Wide],
    ) {
        let columns = bias.len();
        let mut d = vec![T::Wide::ZERO; columns];
        let mut gates = gate.map(|(gate, gate_grad)| gate.chunks_exact(columns).zip(gate_grad.chunks_exact_mut(columns)));
        for (x, grad) in x.chunks_exact(columns).zip(grad.chunks_exact_mut(columns)) {
            match gates.as_mut().and_then(Iterator::next) {
                None => for (((x, &bias), grad), d) in x.iter().zip(bias).zip(&*grad).zip(&mut d) {
                    *d = grad.widen() * curve.at::<S, _>(x.widen() + bias).1;
                }
                Some((gate, gate_grad)) => {
                    let inputs = x.iter().zip(bias).zip(&*grad).zip(gate);
                    for ((((x, &bias), grad), gate), (gate_grad, d)) in inputs.zip(gate_grad.iter_mut().zip(&mut d)) {
                        let (value, slope) = curve.at::<S, _>(x.widen() + bias);
                        *gate_grad = T::narrow(grad.widen() * value);
                        *d = grad.widen() * gate.widen() * slope;
                    }
                }
            }
            grad.iter_mut().zip(&d).for_each(|(grad, &d)| *grad = T::narrow(d));
            // What is stored is rounded, its total is not.
            accumulate(total, &d);
        }
    }
}
