//! CubeCL's devices: Burn's autotuned matmuls of operands in 16 bits, which reach tensor cores, into f32.

use super::{Linear, LinearOp, backward, forward};
use crate::cube::launch::product;
use crate::engine::operator::{Gradients, Kernels, Output, Upstream};
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::cast;
use burn_cubecl::tensor::CubeTensor;

impl Kernels<CubeBackend> for LinearOp {
    fn forward(input: Linear<CubeBackend>) -> Output<Self, CubeBackend> {
        (forward(matmul, input), [])
    }

    fn backward(input: Linear<CubeBackend>, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        backward(matmul, input, upstream)
    }
}

fn matmul(a: CubeTensor, b: CubeTensor, dtype: DType) -> CubeTensor {
    let [a, b] = [a, b].map(|operand| cast(operand, dtype));
    product(a, b, DType::F32)
}
