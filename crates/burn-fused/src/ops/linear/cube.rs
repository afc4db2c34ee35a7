//! CubeCL's devices: Burn's autotuned matmuls of operands in 16 bits, which reach tensor cores, added up in f32.

use super::{Linear, LinearOp, backward, forward};
use crate::cube::launch::{RowLaunch, buffer};
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use crate::numerics::precision::narrow;
use crate::ops::activation::cube::{activated, launch};
use crate::ops::activation::{Activation, BiasActivation, BiasActivationOp};
use burn::backend::cubecl::dtype_to_elem_type;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::kernel::cast;
use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_std::calculate_matmul_output;

impl Kernels<CubeBackend> for LinearOp {
    fn forward(input: Linear<CubeBackend>) -> Output<Self, CubeBackend> {
        forward::<CubeBackend>(input, affine, rounded)
    }

    fn backward(input: Linear<CubeBackend>, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        backward::<CubeBackend>(input, upstream, affine, total)
    }
}

fn affine(a: CubeTensor, b: CubeTensor, bias: Option<CubeTensor>, output: DType) -> CubeTensor {
    let Some(bias) = bias else { return product(a, b, output) };
    let (x, bias) = (product(a, b, DType::F32), cast(bias, DType::F32));
    let sum = BiasActivation { x, bias: Some(bias), gate: None, activation: Activation::Identity };
    // The matmul's own rounding would be before the bias.
    match launch(&sum) {
        Some(on) => activated(&on, sum, output),
        None => narrow::<CubeBackend>(BiasActivationOp::reference(sum).0, output),
    }
}

/// Casts both to `dtype`, in one launch if neither has it.
fn rounded([a, b]: [CubeTensor; 2], dtype: DType) -> [CubeTensor; 2] {
    // Others, such as a tied head's transposed table, a cast reads as they lie in memory.
    let are_plain = a.is_contiguous() && b.is_contiguous();
    if a.dtype == dtype || a.dtype != b.dtype || !are_plain {
        return [a, b].map(|tensor| narrow::<CubeBackend>(tensor, dtype));
    }
    let shapes = [&a, &b].map(|tensor| tensor.meta.shape().clone());
    let lengths = [&shapes[0], &shapes[1]].map(Shape::num_elements);
    let on = RowLaunch::new(&a, [1, lengths.iter().sum()]);
    let outputs = shapes.map(|shape| on.empty(shape, dtype));
    let [to_a, to_b] = outputs.clone();
    let (cubes, units, vector) = on.elementwise(on.hidden, on.float, &lengths);
    round::launch(
        &on.client,
        cubes,
        units,
        on.address_type,
        vector,
        buffer(a),
        buffer(b),
        to_a.into_buffer_arg(),
        to_b.into_buffer_arg(),
        [dtype, on.float].map(dtype_to_elem_type),
    );
    outputs
}

#[cube(launch, address_type = "dynamic")]
fn round<T: Float, W: Float, N: Size>(
    a: &[Vector<W, N>],
    b: &[Vector<W, N>],
    to_a: &mut [Vector<T, N>],
    to_b: &mut [Vector<T, N>],
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    if ABSOLUTE_POS < a.len() {
        to_a[ABSOLUTE_POS] = Vector::cast_from(a[ABSOLUTE_POS]);
    } else if ABSOLUTE_POS - a.len() < b.len() {
        to_b[ABSOLUTE_POS - a.len()] = Vector::cast_from(b[ABSOLUTE_POS - a.len()]);
    }
}

/// The sum of all rows as the gradient of `bias`, added up in f32.
fn total(rows: CubeTensor, bias: &CubeTensor) -> CubeTensor {
    let on = RowLaunch::new(&rows, rows.meta.shape().dims());
    narrow::<CubeBackend>(on.sums_of_rows(rows, 1, 0).remove(0), bias.dtype)
}

/// Burn's autotuned product of `left` [.., M, K] and `right` [.., K, N], rounded to `dtype` once.
pub(crate) fn product(left: CubeTensor, right: CubeTensor, dtype: DType) -> CubeTensor {
    let shape = calculate_matmul_output(left.meta.shape(), right.meta.shape()).expect("matrices that fit");
    let (client, device) = (left.client.clone(), left.device.clone());
    // Values side by side: CUDA and ROCm begin each row of what Burn allocates at an aligned address.
    let output = empty_device_contiguous_dtype(client, device, shape, dtype);
    let product = matmul(left, right, Some(output), MatmulStrategy::default(), dtype);
    product.unwrap_or_else(|error| panic!("matmul: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cube::launch::turn;
    use burn::backend::ops::FloatTensorOps;
    use burn::backend::{Backend, try_read_sync};
    use burn::tensor::{TensorData, Tolerance};
    use burn_cubecl::cubecl::logging::{LaunchObservation, LaunchObserver, TimingMethod, TimingRequest};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    fn tensor(shape: [usize; 2], step: usize) -> CubeTensor {
        let values: Vec<f32> =
            (0..shape[0] * shape[1]).map(|i| ((i * step) % 23) as f32 / 16.0 - 0.7).collect();
        CubeBackend::float_from_data(TensorData::new::<f32, _>(values, shape), &Default::default())
    }

    /// The names of this file's launches besides matmuls.
    #[derive(Default)]
    struct Names(Mutex<Vec<&'static str>>);

    impl LaunchObserver for Names {
        fn launched(&self, kernel: &'static str) {
            let ours = ["Round", "ForwardKernel", "Total"];
            let name = ours.into_iter().find(|name| kernel.contains(&format!("::{name}")));
            self.0.lock().unwrap().extend(name);
        }

        fn timing(&self) -> TimingRequest {
            TimingRequest::None
        }

        fn timed(&self, _kernel: &'static str, _duration: Duration, _method: TimingMethod) {}
    }

    /// In f16, for software adapters have no bf16: the code is the same. As many rows as one launch adds up, and more.
    #[test]
    fn operands_in_16_bits_have_the_products_of_the_reference_and_three_launches_beside_the_matmuls() {
        let _turn = turn();
        for ([rows, inputs, outputs], has_bias) in
            [([37, 65, 19], false), ([37, 65, 19], true), ([1100, 3, 40], true)]
        {
            let bias = CubeBackend::float_reshape(tensor([1, outputs], 5), [outputs].into());
            let bias = has_bias.then_some(bias);
            let (dtype, needs) = (DType::F16, [true, true, has_bias]);
            let (x, weight) = (tensor([rows, inputs], 7), tensor([inputs, outputs], 11));
            let input = Linear::<CubeBackend> { x, weight, bias, dtype, output: dtype };
            let grad = cast(tensor([rows, outputs], 13), dtype);
            let upstream = |statistics| Upstream { statistics, grad: grad.clone(), needs };
            let run = || {
                let (y, statistics) = <LinearOp as Kernels<CubeBackend>>::forward(input.clone());
                (y, <LinearOp as Kernels<CubeBackend>>::backward(input.clone(), upstream(statistics)))
            };
            let names = Arc::new(Names::default());
            let observation = LaunchObservation::new(names.clone());
            let (y, mut found) = run();
            CubeBackend::sync(&y.device).unwrap();
            drop(observation);
            let expected: &[_] = match (has_bias, rows > 1024) {
                (false, _) => &["Round"],
                (true, false) => &["Round", "ForwardKernel", "Total"],
                (true, true) => &["Round", "ForwardKernel", "Total", "Total"],
            };
            assert_eq!(*names.0.lock().unwrap(), expected);
            let (expected_y, others) = LinearOp::reference::<CubeBackend>(input.clone());
            assert_eq!(y.dtype, dtype);
            let mut expected = LinearOp::reference_backward::<CubeBackend>(input.clone(), upstream(others));
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
