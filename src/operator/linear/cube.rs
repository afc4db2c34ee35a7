//! Every CubeCL runtime: Burn's autotuned products of operands in 16 bits, which reach tensor cores, into f32.

use super::reference::{Arithmetic, backward, forward};
use super::{Linear, LinearOp};
use crate::operator::cube::launch::product;
use crate::operator::kernels::{Kernels, Operator, Output};
use crate::operator::path::Path;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::cast;
use burn_cubecl::tensor::CubeTensor;

struct Cube;

impl Arithmetic<CubeBackend> for Cube {
    fn product(a: CubeTensor, b: CubeTensor, dtype: DType) -> CubeTensor {
        let [a, b] = [a, b].map(|operand| cast(operand, dtype));
        product(a, b, DType::F32)
    }
}

impl Kernels<CubeBackend> for LinearOp {
    fn forward(input: Linear<CubeBackend>) -> Output<Self, CubeBackend> {
        match input.path {
            Path::Fused => (forward::<Cube, CubeBackend>(input), []),
            Path::Reference => Self::reference(input),
        }
    }

    fn backward(
        input: Linear<CubeBackend>,
        []: [CubeTensor; 0],
        grad: CubeTensor,
        needs: [bool; 3],
    ) -> Vec<Option<CubeTensor>> {
        match input.path {
            Path::Fused => backward::<Cube, CubeBackend>(input, grad, needs),
            Path::Reference => Self::reference_backward(input, [], grad, needs),
        }
    }
}
