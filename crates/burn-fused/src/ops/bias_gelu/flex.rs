//! Flex, Burn's CPU backend: one pass over the rows, forward and backward, in parallel.

use super::{Activation, BiasGelu, BiasGeluOp, CUBIC};
use crate::engine::operator::Output;
use crate::flex::functions::Functions;
use crate::flex::scalar::{Scalar, Wide};
use crate::flex::sums::accumulate;
use crate::flex::{HostKernels, Rows, for_each, rows_per_task, slice, tensor, widened};
use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use pulp::{Arch, Simd, WithSimd};
use std::marker::PhantomData;

/// Evaluates an expression with the curve of an activation that the kernels [take](HostKernels::takes).
macro_rules! with_curve {
    ($activation:expr, $curve:ident => $run:expr) => {
        match $activation {
            Activation::Gelu => {
                type $curve = Gelu;
                $run
            }
            Activation::GeluTanh => {
                type $curve = GeluTanh<false>;
                $run
            }
            Activation::GeluFast => {
                type $curve = GeluTanh<true>;
                $run
            }
            Activation::Relu => {
                type $curve = Relu;
                $run
            }
            other => unreachable!("{other:?} has no curve"),
        }
    };
}

impl HostKernels for BiasGeluOp {
    /// Those of feed-forward networks, where time goes; the reference computes the others.
    fn takes(input: &BiasGelu<Flex>) -> bool {
        use Activation::{Gelu, GeluFast, GeluTanh, Relu};
        matches!(input.activation, Gelu | GeluTanh | GeluFast | Relu)
    }

    fn forward<T: Scalar>(input: BiasGelu<Flex>) -> Output<Self, Flex> {
        (with_curve!(input.activation, C => forward::<T, C>(input)), [])
    }

    fn backward<T: Scalar>(
        input: BiasGelu<Flex>,
        []: [FloatTensor<Flex>; 0],
        grad: FloatTensor<Flex>,
        needs: [bool; 2],
    ) -> Vec<Option<FloatTensor<Flex>>> {
        with_curve!(input.activation, C => backward::<T, C>(&input, &grad, needs))
    }
}

/// An activation: loops over it have no branch and vectorise.
trait Curve: Send {
    /// The value and the derivative at z.
    fn at<S: Simd, W: Wide>(z: W) -> (W, W);
}

struct Gelu;

impl Curve for Gelu {
    #[inline(always)]
    fn at<S: Simd, W: Wide>(z: W) -> (W, W) {
        let (cumulative, density) = z.normal::<S>();
        (z * cumulative, cumulative + z * density)
    }
}

struct GeluTanh<const FAST: bool>;

impl<const FAST: bool> Curve for GeluTanh<FAST> {
    /// With u = 2 √(2/π) (z + 0.044715 z³), (1 + tanh(u / 2)) / 2 is 1 / (1 + e⁻ᵘ).
    #[inline(always)]
    fn at<S: Simd, W: Wide>(z: W) -> (W, W) {
        let activation = if FAST { Activation::GeluFast } else { Activation::GeluTanh };
        let [one, linear] = [1.0, 2.0 * activation.slope()].map(W::from_f64);
        // u = z · (linear + cubic · z²).
        let cubic = linear * W::from_f64(CUBIC);
        let far = W::from_f64(1e3); // both tails are flat there
        let square = if z * z > far { far } else { z * z };
        let u = z * (linear + cubic * square);
        let exp = Functions::exp::<S>(if u > W::ZERO { W::ZERO - u } else { u }); // e^−|u|
        let near = one / (one + exp);
        let far = exp * near;
        let cumulative = if u > W::ZERO { near } else { far };
        let inner = z * (linear + W::from_f64(3.0) * cubic * square);
        (z * cumulative, cumulative + near * far * inner)
    }
}

struct Relu;

impl Curve for Relu {
    #[inline(always)]
    fn at<S: Simd, W: Wide>(z: W) -> (W, W) {
        let value = if z < W::ZERO { W::ZERO } else { z }; // NaN stays
        (value, W::from_f64(if z > W::ZERO { 1.0 } else { 0.0 }))
    }
}

fn forward<T: Scalar, C: Curve>(input: BiasGelu<Flex>) -> FloatTensor<Flex> {
    let bias = widened::<T>(&input.bias);
    let count = input.x.shape().num_elements();
    let mut rows = Rows::new(input.x);
    let tasks = rows.tasks::<T>(rows_per_task(bias.len()) * bias.len());
    let tasks = tasks.map(|(x, y)| Forward::<T, C> { bias: &bias, x, y, curve: PhantomData });
    for_each(WORK * count, tasks, |task| Arch::new().dispatch(task));
    rows.output()
}

/// Cost per value, relative to LayerNorm.
const WORK: usize = 4;

fn backward<T: Scalar, C: Curve>(
    input: &BiasGelu<Flex>,
    grad: &FloatTensor<Flex>,
    [needs_x, needs_bias]: [bool; 2],
) -> Vec<Option<FloatTensor<Flex>>> {
    let bias = widened::<T>(&input.bias);
    let columns = bias.len();
    let (x, grad) = (input.x.to_contiguous(), grad.to_contiguous());
    let (x, grad) = (slice::<T>(&x), slice::<T>(&grad));
    let mut x_grad = vec![T::default(); x.len()];
    let size = rows_per_task(columns) * columns;
    let mut partials = vec![vec![T::Wide::ZERO; columns]; x.len().div_ceil(size)];
    let tasks = x.chunks(size).zip(grad.chunks(size)).zip(x_grad.chunks_mut(size)).zip(&mut partials);
    let tasks = tasks.map(|(((x, grad), x_grad), total)| Backward::<T, C> {
        bias: &bias,
        x,
        grad,
        x_grad,
        total,
        curve: PhantomData,
    });
    for_each(WORK * x.len(), tasks, |task| Arch::new().dispatch(task));
    let mut total = vec![T::Wide::ZERO; columns];
    partials.iter().for_each(|partial| accumulate(&mut total, partial));
    vec![
        needs_x.then(|| tensor(x_grad, input.x.shape())),
        needs_bias.then(|| tensor(T::narrow_all(total), input.bias.shape())),
    ]
}

/// Consecutive rows.
struct Forward<'a, T: Scalar, C> {
    bias: &'a [T::Wide],
    /// Where not in `y`.
    x: Option<&'a [T]>,
    y: &'a mut [T],
    curve: PhantomData<C>,
}

impl<T: Scalar, C: Curve> WithSimd for Forward<'_, T, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        if let Some(x) = self.x {
            self.y.copy_from_slice(x);
        }
        for y in self.y.chunks_exact_mut(self.bias.len()) {
            y.iter_mut()
                .zip(self.bias)
                .for_each(|(y, &bias)| *y = T::narrow(C::at::<S, _>(y.widen() + bias).0));
        }
    }
}

/// Consecutive rows.
struct Backward<'a, T: Scalar, C> {
    bias: &'a [T::Wide],
    x: &'a [T],
    grad: &'a [T],
    x_grad: &'a mut [T],
    /// Sums the gradients of x.
    total: &'a mut [T::Wide],
    curve: PhantomData<C>,
}

impl<T: Scalar, C: Curve> WithSimd for Backward<'_, T, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let columns = self.bias.len();
        let mut d = vec![T::Wide::ZERO; columns];
        let inputs = self.x.chunks_exact(columns).zip(self.grad.chunks_exact(columns));
        for ((x, grad), x_grad) in inputs.zip(self.x_grad.chunks_exact_mut(columns)) {
            for (((x, &bias), grad), d) in x.iter().zip(self.bias).zip(grad).zip(&mut d) {
                *d = grad.widen() * C::at::<S, _>(x.widen() + bias).1;
            }
            x_grad.iter_mut().zip(&d).for_each(|(x_grad, &d)| *x_grad = T::narrow(d));
            accumulate(self.total, &d);
        }
    }
}
