//! CubeCL's devices: Burn's autotuned matmuls of operands in 16 bits, which reach tensor cores, added up in f32.

use super::{Arithmetic, Linear, LinearOp, Reference, backward, forward};
use crate::cube::launch::{RowLaunch, contiguous, product};
use crate::engine::operator::{Gradients, Kernels, Output, Upstream};
use crate::ops::bias_gelu::Activation;
use crate::ops::bias_gelu::cube::activated;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

struct Cube;

impl Arithmetic<CubeBackend> for Cube {
    fn rounded(&self, operand: CubeTensor, dtype: DType) -> CubeTensor {
        if operand.dtype == dtype { operand } else { contiguous(operand, dtype) }
    }

    fn affine(
        &self,
        a: CubeTensor,
        b: CubeTensor,
        bias: Option<CubeTensor>,
        _dtype: DType,
        output: DType,
    ) -> CubeTensor {
        let Some(bias) = bias else { return product(a, b, output) };
        // What follows adds the bias, where it can. Where it cannot, sums are rounded behind it.
        let sum = product(a, b, DType::F32);
        activated(&sum, &bias, Activation::Identity, output).expect("rows of f32 and a bias of f32")
    }

    fn total(&self, x: CubeTensor, of: &CubeTensor) -> CubeTensor {
        match RowLaunch::of(&[&x], x.meta.shape().dims(), BINDINGS) {
            Some(on) => on.sums_of_rows(vec![x], of.dtype).remove(0),
            None => Arithmetic::<CubeBackend>::total(&Reference, x, of),
        }
    }
}

/// Buffers that the sum of rows binds, with CubeCL's own for sizes and scalars.
const BINDINGS: u32 = 4;

impl Kernels<CubeBackend> for LinearOp {
    fn forward(input: Linear<CubeBackend>) -> Output<Self, CubeBackend> {
        forward(&Cube, input)
    }

    fn backward(input: Linear<CubeBackend>, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        backward(&Cube, input, upstream)
    }
}
