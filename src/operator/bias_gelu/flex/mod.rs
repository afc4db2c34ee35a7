//! Flex, Burn's CPU backend: one pass over the rows, forward and backward, in parallel.
//!
//! Results do not depend on the number of threads: rows are cut into tasks of a fixed size, and what tasks have in
//! common is added up in their order.

use super::{BiasGelu, BiasGeluOp, CUBIC};
use crate::operator::activation::Activation;
use crate::operator::flex::functions::Functions;
use crate::operator::flex::scalar::{Scalar, Wide};
use crate::operator::flex::sums::accumulate;
use crate::operator::flex::{Rows, kernel_dtype, rows_per_task, slice, tensor, widened, with_scalar};
use crate::operator::inputs::Fields;
use crate::operator::kernels::{Kernels, Operator, Output};
use crate::operator::parallel;
use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;
use pulp::{Arch, Simd, WithSimd};
use std::f64::consts::PI;
use std::marker::PhantomData;

/// Evaluates an expression with the curve of an activation.
macro_rules! with_curve {
    ($activation:expr, $curve:ident => $run:expr) => {
        match $activation {
            Activation::Gelu => {
                type $curve = Gelu;
                $run
            }
            Activation::GeluTanh => {
                type $curve = GeluTanh;
                $run
            }
            Activation::Relu => {
                type $curve = Relu;
                $run
            }
        }
    };
}

impl Kernels<Flex> for BiasGeluOp {
    fn forward(input: BiasGelu<Flex>) -> Output<Self, Flex> {
        with_scalar!(dtype(&input), T => (with_curve!(input.activation, C => forward::<T, C>(input)), []), Self::reference::<Flex>(input))
    }

    fn backward(
        input: BiasGelu<Flex>,
        []: [FloatTensor<Flex>; 0],
        grad: FloatTensor<Flex>,
        needs: [bool; 2],
    ) -> Vec<Option<FloatTensor<Flex>>> {
        with_scalar!(
            dtype(&input),
            T => with_curve!(input.activation, C => backward::<T, C>(&input, &grad, needs)),
            Self::reference_backward::<Flex>(input, [], grad, needs)
        )
    }
}

fn dtype(input: &BiasGelu<Flex>) -> Option<DType> {
    kernel_dtype(input.path, BiasGeluOp::operands::<Flex>(input))
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

struct GeluTanh;

impl Curve for GeluTanh {
    /// With u = 2 √(2/π) (z + 0.044715 z³), (1 + tanh(u / 2)) / 2 is 1 / (1 + e⁻ᵘ).
    #[inline(always)]
    fn at<S: Simd, W: Wide>(z: W) -> (W, W) {
        let [one, linear] = [1.0, 2.0 * (2.0 / PI).sqrt()].map(W::from_f64);
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
    parallel::for_each(WORK * count, tasks, |task| Arch::new().dispatch(task));
    rows.output()
}

/// A value takes as long as so many of LayerNorm.
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
    parallel::for_each(WORK * x.len(), tasks, |task| Arch::new().dispatch(task));
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

#[cfg(test)]
mod tests {
    use super::*;
    use pulp::Scalar;

    /// tanh's own GELU, by its formula, and its derivative.
    fn gelu_tanh(z: f64) -> (f64, f64) {
        let scale = (2.0 / PI).sqrt();
        let tanh = (scale * (z + CUBIC * z.powi(3))).tanh();
        let inner = scale * (1.0 + 3.0 * CUBIC * z * z);
        (z * (1.0 + tanh) / 2.0, (1.0 + tanh) / 2.0 + z * (1.0 - tanh * tanh) / 2.0 * inner)
    }

    #[test]
    fn the_approximation_of_gelu_is_right_to_rounding() {
        let mut largest = [[0.0f64; 2]; 2];
        for i in -1_000_000..=1_000_000 {
            let z = 14.0 * i as f32 / 1e6;
            let expected = gelu_tanh(f64::from(z));
            let (value, slope) = GeluTanh::at::<Scalar, _>(z);
            let narrow = [f64::from(value) - expected.0, f64::from(slope) - expected.1];
            let (value, slope) = GeluTanh::at::<Scalar, _>(f64::from(z));
            let wide = [value - expected.0, slope - expected.1];
            for (largest, found) in largest.iter_mut().zip([narrow, wide]) {
                *largest = [0, 1].map(|i| largest[i].max(found[i].abs()));
            }
        }
        let [narrow, wide] = largest;
        println!("f32 {narrow:?}, f64 {wide:?}");
        assert!(narrow[0] < 2e-6 && narrow[1] < 1e-6, "{narrow:?}");
        assert!(wide[0] < 4e-15 && wide[1] < 4e-15, "{wide:?}");
    }

    #[test]
    fn far_values_are_those_of_the_limits_and_nan_stays() {
        for z in [1e3f32, 1e19, 1e30] {
            assert_eq!(
                (GeluTanh::at::<Scalar, _>(z), GeluTanh::at::<Scalar, _>(-z)),
                ((z, 1.0), (-0.0, 0.0))
            );
            assert_eq!((Relu::at::<Scalar, _>(z), Relu::at::<Scalar, _>(-z)), ((z, 1.0), (0.0, 0.0)));
        }
        assert_eq!(Relu::at::<Scalar, _>(f32::NEG_INFINITY), (0.0, 0.0));
        assert!(GeluTanh::at::<Scalar, _>(f32::NAN).0.is_nan() && Relu::at::<Scalar, _>(f32::NAN).0.is_nan());
        assert_eq!(Relu::at::<Scalar, _>(0.0f32), (0.0, 0.0));
    }
}
