//! CubeCL's devices: Burn's autotuned matmuls of operands in 16 bits, which reach tensor cores, into f32.

use super::{Arithmetic, Linear, LinearOp, arithmetic, backward, forward};
use crate::cube::launch::product;
use crate::engine::operator::{Kernels, Output};
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
        (forward(arithmetic(&input, &Cube), input), [])
    }

    fn backward(
        input: Linear<CubeBackend>,
        []: [CubeTensor; 0],
        grad: CubeTensor,
        needs: [bool; 3],
    ) -> Vec<Option<CubeTensor>> {
        backward(arithmetic(&input, &Cube), input, grad, needs)
    }
}
