//! What the kernels for Flex, Burn's CPU backend, have in common.

pub(crate) mod functions;
pub(crate) mod layer_norm;
pub(crate) mod mask;
pub(crate) mod products;
pub(crate) mod scalar;
pub(crate) mod sums;

use crate::operator::kernels::{Kernels, Operator, Output};
use crate::operator::path::Path;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{BackendTensor, DispatchKindConversion, DispatchTensor, Flex, TensorMetadata};
use burn::prelude::Tensor;
use burn::tensor::{DType, Shape, TensorData};
use scalar::Scalar;

/// Runs `$body` with the type alias `$scalar` for the dtype `$dtype`, or `$other` if that is `None` or has no kernel.
macro_rules! with_scalar {
    ($dtype:expr, $scalar:ident => $body:expr, $other:expr) => {
        match $dtype {
            Some(burn::tensor::DType::F32) => {
                type $scalar = f32;
                $body
            }
            Some(burn::tensor::DType::F64) => {
                type $scalar = f64;
                $body
            }
            Some(burn::tensor::DType::F16) => {
                type $scalar = burn::tensor::f16;
                $body
            }
            Some(burn::tensor::DType::BF16) => {
                type $scalar = burn::tensor::bf16;
                $body
            }
            _ => $other,
        }
    };
}
pub(crate) use with_scalar;

/// An operator whose kernels compute in the dtype that all float inputs share; the reference takes other inputs.
pub(crate) trait HostKernels: Operator {
    /// See [`Operator::reference`].
    fn forward<T: Scalar>(inputs: Self::On<Flex>) -> Output<Self, Flex>;

    /// See [`Operator::reference_backward`].
    fn backward<T: Scalar>(
        inputs: Self::On<Flex>,
        statistics: Self::Statistics<FloatTensor<Flex>>,
        grad: FloatTensor<Flex>,
        needs: Self::Needs,
    ) -> Vec<Option<FloatTensor<Flex>>>;
}

impl<O: HostKernels> Kernels<Flex> for O {
    fn forward(inputs: O::On<Flex>) -> Output<O, Flex> {
        let dtype = kernel_dtype(O::path(&inputs), O::operands::<Flex>(&inputs));
        with_scalar!(dtype, T => <O as HostKernels>::forward::<T>(inputs), O::reference(inputs))
    }

    fn backward(
        inputs: O::On<Flex>,
        statistics: O::Statistics<FloatTensor<Flex>>,
        grad: FloatTensor<Flex>,
        needs: O::Needs,
    ) -> Vec<Option<FloatTensor<Flex>>> {
        with_scalar!(
            kernel_dtype(O::path(&inputs), O::operands::<Flex>(&inputs)),
            T => <O as HostKernels>::backward::<T>(inputs, statistics, grad, needs),
            O::reference_backward(inputs, statistics, grad, needs)
        )
    }
}

/// All values of a contiguous tensor, row-major.
///
/// # Panics
///
/// If the tensor is not contiguous or of another dtype than `T`.
pub(crate) fn slice<T: Scalar>(tensor: &FloatTensor<Flex>) -> &[T] {
    tensor.as_slice().expect("a contiguous tensor of the kernel's dtype")
}

/// All values, row-major, wide.
pub(crate) fn widened<T: Scalar>(tensor: &FloatTensor<Flex>) -> Vec<T::Wide> {
    let tensor = tensor.to_contiguous();
    slice::<T>(&tensor).iter().map(|value| value.widen()).collect()
}

/// The dtype that all float inputs share, unless there is nothing to compute or kernels are not wanted.
pub(crate) fn kernel_dtype(path: Path, operands: Vec<Option<&FloatTensor<Flex>>>) -> Option<DType> {
    let inputs: Vec<_> = operands.into_iter().flatten().collect();
    let dtype = inputs.first()?.dtype();
    let alike = inputs.iter().all(|input| input.dtype() == dtype);
    let empty = inputs.iter().any(|input| input.layout().num_elements() == 0);
    (alike && !empty && path == Path::Fused).then_some(dtype)
}

/// Rows of a task: enough to be worth handing out, and always as many whatever the threads.
pub(crate) fn rows_per_task(columns: usize) -> usize {
    (48 * 1024 / columns).clamp(1, 64)
}

/// A tensor of `values`.
pub(crate) fn tensor<T: Scalar>(values: Vec<T>, shape: Shape) -> FloatTensor<Flex> {
    Flex::float_from_data(TensorData::new(values, shape), &Default::default())
}

/// Rows that an operator replaces by its output.
pub(crate) struct Rows {
    /// Read where something else, such as autodiff, holds them too.
    source: Option<FloatTensor<Flex>>,
    output: FloatTensor<Flex>,
}

impl Rows {
    pub(crate) fn new(rows: FloatTensor<Flex>) -> Self {
        if rows.is_contiguous() && rows.is_unique() {
            return Self { source: None, output: rows };
        }
        let output = Flex::float_zeros(rows.shape(), &Default::default(), rows.dtype().into());
        Self { source: Some(rows.to_contiguous()), output }
    }

    /// Tasks of `size` values: what to copy into the output first, and the output.
    pub(crate) fn tasks<T: Scalar>(
        &mut self,
        size: usize,
    ) -> impl ExactSizeIterator<Item = (Option<&[T]>, &mut [T])> {
        let source = self.source.as_ref().map(|rows| slice::<T>(rows));
        let (first, count) = (self.output.layout().start_offset(), self.output.layout().num_elements());
        let output = &mut self.output.storage_mut::<T>()[first..][..count];
        output
            .chunks_mut(size)
            .enumerate()
            .map(move |(task, output)| (source.map(|source| &source[task * size..][..output.len()]), output))
    }

    pub(crate) fn output(self) -> FloatTensor<Flex> {
        self.output
    }
}

/// The tensor as Flex has it, outside autodiff.
///
/// # Panics
///
/// If the tensor is on another device.
pub(crate) fn primitive<const D: usize>(tensor: Tensor<D>) -> FloatTensor<Flex> {
    let tensor: Result<BackendTensor<Flex>, _> = DispatchTensor::try_into_backend(tensor.into_dispatch());
    tensor.unwrap_or_else(|error| panic!("a tensor that is not on Flex: {error}")).float()
}
