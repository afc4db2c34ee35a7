//! CubeCL's devices: batches of three matmuls, whose results attention reads where they are.

use super::{SelfAttention, SelfAttentionOp, backward, forward, split};
use crate::cube::launch::{RowLaunch, buffer, output, part};
use crate::cube::totals::store;
use crate::engine::operator::{Gradients, Kernels, Output, Upstream};
use crate::numerics::precision::narrow;
use crate::ops::attention::AttentionOp;
use crate::ops::attention::cube::{backward_to, takes};
use crate::ops::linear::LinearOp;
use crate::ops::linear::cube::product;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::tensor::CubeTensor;
use burn_std::Metadata;

type Input = SelfAttention<CubeBackend>;

/// Q, K and V, or their gradients, in one buffer.
struct Joint {
    all: CubeTensor,
    /// Values from one to the next.
    stride: usize,
    parts: [CubeTensor; 3],
}

impl Joint {
    fn new(on: &RowLaunch, dtype: DType) -> Self {
        let (all, stride, parts) = on.parts(3, Shape::new([on.rows, on.hidden]), dtype);
        Self { all, stride, parts: parts.try_into().unwrap_or_else(|_| unreachable!("three parts")) }
    }

    /// From what [`tensor`](Self::tensor) returned.
    fn from_tensor(tensor: CubeTensor) -> Self {
        let [_, rows, hidden] = tensor.meta.shape().dims();
        let stride = tensor.meta.strides()[0];
        let all = CubeTensor::new_contiguous(
            tensor.client,
            tensor.device,
            Shape::new([3 * stride]),
            tensor.handle,
            tensor.dtype,
        );
        let parts = [0, 1, 2].map(|i| part(&all, i * stride, Shape::new([rows, hidden])));
        Self { all, stride, parts }
    }

    /// [3, N, H].
    fn tensor(&self) -> CubeTensor {
        let [rows, hidden] = self.parts[0].meta.shape().dims();
        let Self { all, stride, .. } = self;
        let meta = Metadata::new([3, rows, hidden], [*stride, hidden, 1]);
        CubeTensor::new(all.client.clone(), all.handle.clone(), meta, all.device.clone(), all.dtype)
    }
}

/// A matrix as a batch of one, [1, .., ..].
fn batch(matrix: CubeTensor) -> CubeTensor {
    let [rows, columns] = matrix.meta.shape().dims();
    CubeBackend::float_reshape(matrix, Shape::new([1, rows, columns]))
}

impl Kernels<CubeBackend> for SelfAttentionOp {
    fn forward(input: Input) -> Output<Self, CubeBackend> {
        let on = RowLaunch::new(&input.x, input.x.meta.shape().dims());
        let rows = Joint::new(&on, input.output);
        let attention = input.attention_to(rows.parts.clone());
        if !takes(&attention) {
            return forward(input, LinearOp::forward, AttentionOp::forward);
        }
        let dtypes = |to: DType| [to, on.float].map(dtype_to_elem_type);
        let weights = on.empty([3, on.hidden, on.hidden], input.dtype);
        // x as it is multiplied. Without gaps in it that is written beside the weights.
        let is_beside = input.dtype != on.float && input.x.is_contiguous();
        let rounded = is_beside.then(|| on.empty([on.rows, on.hidden], input.dtype));
        let count = 3 * on.hidden * on.hidden + rounded.as_ref().map_or(0, |_| on.rows * on.hidden);
        let (cubes, units, vector) = on.elementwise(count, on.float, &[on.hidden]);
        join::launch(
            &on.client,
            cubes,
            units,
            AddressType::from_len(count),
            vector,
            buffer(input.attention.query),
            buffer(input.attention.key),
            buffer(input.attention.value),
            weights.clone().into_buffer_arg(),
            rounded.as_ref().map(|_| buffer(input.x.clone())).into(),
            output(&rounded).into(),
            dtypes(input.dtype),
        );
        let x = rounded.unwrap_or_else(|| narrow::<CubeBackend>(input.x, input.dtype));
        let products = product(batch(x.clone()), weights.clone(), DType::F32);
        let (cubes, units, vector) =
            on.elementwise(3 * on.rows * on.hidden, on.float, &[on.hidden, rows.stride]);
        add_biases::launch(
            &on.client,
            cubes,
            units,
            products.required_address_type().max(rows.all.required_address_type()),
            vector,
            buffer(products),
            buffer(input.query_bias),
            buffer(input.key_bias),
            buffer(input.value_bias),
            rows.all.clone().into_buffer_arg(),
            rows.stride / vector,
            dtypes(input.output),
        );
        let (output, [maxima, inverse_sums, context]) = AttentionOp::forward(attention);
        (output, [x, weights, rows.tensor(), maxima, inverse_sums, context])
    }

    fn backward(input: Input, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        let on = RowLaunch::new(&input.x, input.x.meta.shape().dims());
        let rows = Joint::from_tensor(upstream.statistics[2].clone());
        let attention = input.attention_to(rows.parts);
        if !takes(&attention) {
            return backward(input, upstream, LinearOp::backward, AttentionOp::backward);
        }
        let Upstream { statistics: [x, weights, _, maxima, inverse_sums, context], grad, needs } = upstream;
        let grads = Joint::new(&on, input.output);
        let upstream = Upstream {
            statistics: [maxima, inverse_sums, context],
            grad,
            needs: [true, true, true, needs[3], needs[4], needs[5]],
        };
        let positions = backward_to(grads.parts.clone(), attention, upstream).split_off(3);
        let needs_any = |operands: std::ops::Range<usize>| operands.into_iter().any(|operand| needs[operand]);
        let of_biases = needs_any(7..10).then(|| on.sums_of_rows(grads.all.clone(), 3, grads.stride));
        let grads = narrow::<CubeBackend>(grads.tensor(), input.dtype);
        let of_x = needs[6].then(|| {
            let shares = product(grads.clone(), CubeBackend::float_swap_dims(weights, 1, 2), DType::F32);
            CubeBackend::float_reshape(CubeBackend::float_sum_dim(shares, 0), input.x.meta.shape().clone())
        });
        let of_weights = needs_any(0..3).then(|| {
            let all = product(CubeBackend::float_swap_dims(batch(x), 1, 2), grads, DType::F32);
            split::<CubeBackend>(&all)
        });
        let of_weights = [0, 1, 2].map(|i| of_weights.as_ref().map(|parts| parts[i].clone()));
        let of_biases = [0, 1, 2].map(|i| of_biases.as_ref().map(|sums| sums[i].clone()));
        let gradients = of_weights.into_iter().chain(positions).chain([of_x]).chain(of_biases);
        gradients.zip(needs).map(|(gradient, needed)| gradient.filter(|_| needed)).collect()
    }
}

/// Three matrices of one shape, one after the other; and x, if it is given, to rows of its own.
#[cube(launch, address_type = "dynamic")]
fn join<T: Float, W: Float, N: Size>(
    first: &[Vector<W, N>],
    second: &[Vector<W, N>],
    third: &[Vector<W, N>],
    to: &mut [Vector<T, N>],
    x: &ComptimeOption<Box<[Vector<W, N>]>>,
    mut to_x: ComptimeOption<Box<[Vector<T, N>]>>,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let (part, index) = (ABSOLUTE_POS / first.len(), ABSOLUTE_POS % first.len());
    if part == 0 {
        to[ABSOLUTE_POS] = Vector::cast_from(first[index]);
    } else if part == 1 {
        to[ABSOLUTE_POS] = Vector::cast_from(second[index]);
    } else if part == 2 {
        to[ABSOLUTE_POS] = Vector::cast_from(third[index]);
    } else {
        #[comptime]
        match x {
            ComptimeOption::Some(x) => {
                let index = ABSOLUTE_POS - to.len();
                if index < x.len() {
                    store::<Vector<T, N>, Vector<W, N>>(&mut to_x, index, x[index]);
                }
            }
            ComptimeOption::None => {}
        }
    }
}

/// Rows of three products and their biases, to parts that begin `stride` vectors from each other.
#[cube(launch, address_type = "dynamic")]
fn add_biases<T: Float, W: Float, N: Size>(
    products: &[Vector<W, N>],
    first: &[Vector<W, N>],
    second: &[Vector<W, N>],
    third: &[Vector<W, N>],
    to: &mut [Vector<T, N>],
    stride: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let of_part = products.len() / 3;
    let (part, index) = (ABSOLUTE_POS / of_part, ABSOLUTE_POS % of_part);
    let column = index % first.len();
    if part < 3 {
        let mut bias = first[column];
        if part == 1 {
            bias = second[column];
        } else if part == 2 {
            bias = third[column];
        }
        to[part * stride + index] = Vector::cast_from(products[ABSOLUTE_POS] + bias);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cube::launch::turn;
    use crate::engine::inputs::OperatorInputs;
    use crate::engine::operator::Operator;
    use crate::numerics::dropout::Dropout;
    use crate::ops::attention::Attention;
    use burn::backend::ops::IntTensorOps;
    use burn::backend::try_read_sync;
    use burn::tensor::{TensorData, Tolerance};

    /// In f16, for software adapters have no bf16: the code is the same. There are gaps between parts that devices do not bind side by side:
    /// how long they are is the device's.
    #[test]
    fn a_joint_product_in_16_bits_has_the_results_of_the_reference() {
        let _turn = turn();
        let mut has_gaps = false;
        for ([rows, hidden], output) in [([9, 6], DType::F16), ([1100, 16], DType::F32)] {
            let tensor = |shape: [usize; 2], step: usize| {
                let values: Vec<f32> =
                    (0..shape[0] * shape[1]).map(|i| ((i * step) % 23) as f32 / 40.0 - 0.27).collect();
                CubeBackend::float_from_data(TensorData::new::<f32, _>(values, shape), &Default::default())
            };
            let bias = |step| CubeBackend::float_reshape(tensor([1, hidden], step), [hidden].into());
            let length = rows.min(50);
            let starts: Vec<_> = (0..=rows / length).map(|i| (i * length) as i32).collect();
            let attention = Attention {
                dropout: Dropout(None),
                query: tensor([hidden, hidden], 11),
                key: tensor([hidden, hidden], 13),
                value: tensor([hidden, hidden], 17),
                bias: None,
                by_query: Some(narrow::<CubeBackend>(tensor([2 * length - 1, hidden], 9), output)),
                by_key: None,
                starts: CubeBackend::int_from_data(TensorData::from(starts.as_slice()), &Default::default()),
                lengths: vec![length; rows / length],
                longest: length,
                heads: 2,
                scale: 0.3,
                window: length,
            };
            let (x, dtype) = (tensor([rows, hidden], 7), DType::F16);
            let [query_bias, key_bias, value_bias] = [3, 5, 2].map(bias);
            let input = Input { attention, x, query_bias, key_bias, value_bias, dtype, output };
            let grad = narrow::<CubeBackend>(tensor([rows, hidden], 19), output);
            let needs = std::array::from_fn(|operand| ![3, 5].contains(&operand));
            let upstream = |statistics| Upstream { statistics, grad: grad.clone(), needs };
            let (y, statistics) = <SelfAttentionOp as Kernels<CubeBackend>>::forward(input.clone());
            has_gaps |= !statistics[2].is_contiguous();
            let found =
                <SelfAttentionOp as Kernels<CubeBackend>>::backward(input.clone(), upstream(statistics));
            let (expected_y, statistics) = SelfAttentionOp::reference::<CubeBackend>(input.clone());
            let operands = SelfAttentionOp::operands::<CubeBackend>(&input).into_iter();
            let dtypes = operands.map(|operand| operand.map(|operand| operand.dtype));
            let expected =
                SelfAttentionOp::reference_backward::<CubeBackend>(input.clone(), upstream(statistics));
            assert_eq!(y.dtype, output);
            let all = found.into_iter().zip(expected).zip(dtypes).filter_map(|((found, expected), dtype)| {
                assert_eq!(found.is_some(), expected.is_some());
                assert!(found.as_ref().is_none_or(|found| Some(found.dtype) == dtype));
                found.zip(expected)
            });
            for (found, expected) in all.chain([(y, expected_y)]) {
                let [found, expected] = [found, expected]
                    .map(|tensor| try_read_sync(CubeBackend::float_into_data(tensor)).unwrap().unwrap());
                found.assert_approx_eq::<f32>(&expected, Tolerance::rel_abs(5e-3, 5e-3));
            }
        }
        assert!(has_gaps);
    }
}
