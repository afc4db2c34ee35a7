//! CubeCL's devices: Burn's autotuned matmuls of operands in 16 bits, which reach tensor cores, added up in f32.

use super::{Linear, LinearOp, backward, forward};
use crate::cube::launch::product;
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use crate::numerics::precision::narrow;
use crate::ops::activation::cube::{activated, launch};
use crate::ops::activation::{Activation, BiasActivation, BiasActivationOp};
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::cast;
use burn_cubecl::tensor::CubeTensor;

impl Kernels<CubeBackend> for LinearOp {
    fn forward(input: Linear<CubeBackend>) -> Output<Self, CubeBackend> {
        forward::<CubeBackend>(input, affine)
    }

    fn backward(input: Linear<CubeBackend>, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        backward::<CubeBackend>(input, upstream, affine)
    }
}

fn affine(a: CubeTensor, b: CubeTensor, bias: Option<CubeTensor>, output: DType) -> CubeTensor {
    let Some(bias) = bias else { return product(a, b, output) };
    let (x, bias) = (product(a, b, DType::F32), cast(bias, DType::F32));
    let sum = BiasActivation { x, bias, gate: None, activation: Activation::Identity };
    // The matmul's own rounding would be before the bias.
    match launch(&sum) {
        Some(on) => activated(&on, sum, output),
        None => narrow::<CubeBackend>(BiasActivationOp::reference(sum).0, output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::backend::ops::FloatTensorOps;
    use burn::backend::try_read_sync;
    use burn::tensor::{TensorData, Tolerance};

    fn tensor(shape: [usize; 2], step: usize) -> CubeTensor {
        let values: Vec<f32> =
            (0..shape[0] * shape[1]).map(|i| ((i * step) % 23) as f32 / 16.0 - 0.7).collect();
        CubeBackend::float_from_data(TensorData::new::<f32, _>(values, shape), &Default::default())
    }

    /// In f16, for software adapters have no bf16: the code is the same.
    #[test]
    fn operands_in_16_bits_have_the_products_of_the_reference() {
        let [rows, inputs, outputs] = [37, 65, 19];
        for bias in [None, Some(CubeBackend::float_reshape(tensor([1, outputs], 5), [outputs].into()))] {
            let (dtype, needs) = (DType::F16, [true, true, bias.is_some()]);
            let (x, weight) = (tensor([rows, inputs], 7), tensor([inputs, outputs], 11));
            let input = Linear::<CubeBackend> { x, weight, bias, dtype, output: dtype };
            let (y, statistics) = <LinearOp as Kernels<CubeBackend>>::forward(input.clone());
            let (expected_y, others) = LinearOp::reference::<CubeBackend>(input.clone());
            assert_eq!(y.dtype, dtype);
            let grad = cast(tensor([rows, outputs], 13), dtype);
            let upstream = |statistics| Upstream { statistics, grad: grad.clone(), needs };
            let mut found = <LinearOp as Kernels<CubeBackend>>::backward(input.clone(), upstream(statistics));
            let mut expected = LinearOp::reference_backward::<CubeBackend>(input, upstream(others));
            found.push(Some(y));
            expected.push(Some(expected_y));
            for (found, expected) in found.into_iter().flatten().zip(expected.into_iter().flatten()) {
                assert_eq!(found.dtype, expected.dtype);
                let [found, expected] = [found, expected]
                    .map(|tensor| try_read_sync(CubeBackend::float_into_data(tensor)).unwrap().unwrap());
                found.assert_approx_eq::<f32>(&expected, Tolerance::rel_abs(2e-3, 2e-3));
            }
        }
    }
}
