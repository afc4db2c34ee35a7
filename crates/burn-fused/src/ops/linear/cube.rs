//! CubeCL's devices: Burn's autotuned matmuls of operands in 16 bits, which reach tensor cores, into f32.

use super::{Arithmetic, Linear, LinearOp, backward, forward};
use crate::cube::launch::product;
use crate::engine::operator::{Gradients, Kernels, Output, Upstream};
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::cast;
use burn_cubecl::tensor::CubeTensor;

struct Cube;

impl Arithmetic<CubeBackend> for Cube {
    fn matmul(&self, a: CubeTensor, b: CubeTensor, dtype: DType) -> CubeTensor {
        let [a, b] = [a, b].map(|operand| cast(operand, dtype));
        product(a, b, DType::F32)
    }
}

impl Kernels<CubeBackend> for LinearOp {
    fn forward(input: Linear<CubeBackend>) -> Output<Self, CubeBackend> {
        (forward(&Cube, input), [])
    }

    fn backward(input: Linear<CubeBackend>, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        backward(&Cube, input, upstream)
    }
}
