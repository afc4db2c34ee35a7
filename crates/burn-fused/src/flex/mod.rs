//! What the kernels for Flex, Burn's CPU backend, have in common.
//!
//! Results do not depend on the number of threads: rows are cut into tasks of a fixed size, and what tasks add up
//! separately is added up in the order of tasks.

pub(crate) mod mask;
pub(crate) mod row;
pub(crate) mod scalar;

use crate::engine::call::Precision;
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use crate::numerics::precision::{computed_in, narrow};
use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{DType, Element, Shape, TensorData, bf16};
use burn_fused_matmul::{Kernel, Matrix, Packed, RightMatrix, on_threads, product};
pub(crate) use scalar::{Scalar, Wide};
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};

/// Runs `$body` with the type alias `$scalar` for the dtype `$dtype`, or `$other` if that is `None` or has no kernel.
macro_rules! with_scalar {
    ($dtype:expr, $scalar:ident => $body:expr, $other:expr) => {
        $crate::flex::with_scalar!($dtype, $scalar => $body, $other;
            F32 f32, F64 f64, F16 burn::tensor::f16, BF16 burn::tensor::bf16)
    };
    ($dtype:expr, $scalar:ident => $body:expr, $other:expr; $($name:ident $float:ty),*) => {
        match $dtype {
            $(Some(burn::tensor::DType::$name) => {
                type $scalar = $float;
                $body
            })*
            _ => $other,
        }
    };
}
pub(crate) use with_scalar;

/// Defines a function whose body is compiled for the instructions of the detected CPU, the type `$S`: loops in it are
/// vectorised. The lifetime of arguments is `'a`.
macro_rules! simd_fn {
    (
        $(#[$doc:meta])*
        $visibility:vis fn $name:ident<$S:ident $(, $T:ident: $bound:path)*>(
            $simd:ident, $($argument:ident: $type:ty),* $(,)?
        ) $(-> $output:ty)? $body:block
    ) => {
        $(#[$doc])*
        $visibility fn $name<'a, $($T: $bound),*>($($argument: $type),*) $(-> $output)? {
            // What pulp calls is a type's method: a closure would not be compiled for the CPU's instructions.
            struct Call<'a, $($T: $bound),*> {
                $($argument: $type,)*
                types: std::marker::PhantomData<($($T,)*)>,
            }
            #[allow(unused_parens)] // around the type of what is returned, if anything is
            impl<'a, $($T: $bound),*> pulp::WithSimd for Call<'a, $($T),*> {
                type Output = ($($output)?);

                #[inline(always)]
                fn with_simd<$S: pulp::Simd>(self, $simd: $S) -> Self::Output {
                    let _ = $simd; // most bodies name the type alone
                    let Self { $($argument,)* .. } = self;
                    $body
                }
            }
            pulp::Arch::new().dispatch(Call::<$($T),*> { $($argument,)* types: std::marker::PhantomData })
        }
    };
}
pub(crate) use simd_fn;

/// An operator whose kernels take rows of one dtype, and vectors in it or in the dtype that it is computed in; the reference takes
/// other inputs.
pub(crate) trait HostKernels: Operator {
    fn forward<T: Scalar>(inputs: Self::On<Flex>) -> Output<Self, Flex>;
    fn backward<T: Scalar>(inputs: Self::On<Flex>, upstream: Upstream<Self, Flex>) -> Gradients<Flex>;
    /// See [`Kernels::saved`].
    fn saved(inputs: &Self::On<Flex>) -> Self::On<Flex> {
        inputs.clone()
    }
}

impl<O: HostKernels> Kernels<Flex> for O {
    fn forward(inputs: O::On<Flex>) -> Output<O, Flex> {
        let dtype = kernel_dtype::<O>(&inputs);
        with_scalar!(dtype, T => <O as HostKernels>::forward::<T>(inputs), O::reference(inputs))
    }

    fn backward(inputs: O::On<Flex>, upstream: Upstream<O, Flex>) -> Gradients<Flex> {
        with_scalar!(
            kernel_dtype::<O>(&inputs),
            T => <O as HostKernels>::backward::<T>(inputs, upstream),
            O::reference_backward(inputs, upstream)
        )
    }

    fn saved(inputs: &O::On<Flex>) -> O::On<Flex> {
        <O as HostKernels>::saved(inputs)
    }
}

/// All values of a contiguous tensor of dtype `T`, row-major.
pub(crate) fn slice<T: Scalar>(tensor: &FloatTensor<Flex>) -> &[T] {
    tensor.as_slice().expect("a contiguous tensor of the kernel's dtype")
}

/// All values, row-major, wide; they may be wide already.
pub(crate) fn widened<T: Scalar>(tensor: &FloatTensor<Flex>) -> Vec<T::Wide> {
    let tensor = tensor.to_contiguous();
    if tensor.dtype() == T::Wide::dtype() {
        return slice::<T::Wide>(&tensor).to_vec();
    }
    slice::<T>(&tensor).iter().map(|value| value.widen()).collect()
}

/// The integers, row-major. Panics if one is not in 0..`end`, with what `refused` says of its place and itself.
pub(crate) fn indices(
    ints: &IntTensor<Flex>,
    end: usize,
    refused: impl Fn(usize, i128) -> String,
) -> Vec<u32> {
    let check = |(index, int): (usize, i128)| match u32::try_from(int) {
        Ok(index) if (index as usize) < end => index,
        _ => panic!("{}", refused(index, int)),
    };
    let data = ints.clone().into_data();
    match data.dtype() {
        // Those above i64's largest are named, too.
        DType::U64 => data.iter::<u64>().map(i128::from).enumerate().map(check).collect(),
        _ => data.iter::<i64>().map(i128::from).enumerate().map(check).collect(),
    }
}

/// The dtype of rows, unless there is nothing to compute.
fn kernel_dtype<O: HostKernels>(inputs: &O::On<Flex>) -> Option<DType> {
    let operands: Vec<_> = O::operands::<Flex>(inputs).into_iter().flatten().collect();
    let is_vector = |operand: &FloatTensor<Flex>| operand.layout().shape().num_dims() == 1;
    let rows = operands.iter().find(|operand| !is_vector(operand)).or(operands.first())?;
    let dtype = rows.dtype();
    // A model in 16 bits may have norms in f32.
    let is_alike = |operand: &&FloatTensor<Flex>| {
        operand.dtype() == dtype || is_vector(operand) && operand.dtype() == computed_in(dtype)
    };
    let alike = operands.iter().all(is_alike);
    // Kernels cut rows into chunks, which cannot be of no values.
    let empty = operands.iter().any(|operand| operand.layout().num_elements() == 0);
    (alike && !empty).then_some(dtype)
}

/// Rows of a task, the same number on any number of threads, on which no sum may depend.
pub(crate) fn rows_per_task(columns: usize) -> usize {
    /// Values of a task, enough to be worth handing out: 64 rows of BERT-base, 192 KiB in f32, which a core's second cache holds. Not
    /// tuned.
    const VALUES: usize = 48 * 1024;
    // Of fewer rows a task's partial sums would be as large as what they are sums of.
    (VALUES / columns).clamp(16, 64)
}

/// The gradient of the vector `of`, in its dtype.
pub(crate) fn vector_gradient<W: Wide>(values: Vec<W>, of: &FloatTensor<Flex>) -> FloatTensor<Flex> {
    narrow::<Flex>(tensor(values, of.shape()), of.dtype())
}

pub(crate) fn tensor<T: Scalar>(values: Vec<T>, shape: Shape) -> FloatTensor<Flex> {
    Flex::float_from_data(TensorData::new(values, shape), &Default::default())
}

/// The two statistics of each row, as tensors of `shape`.
pub(crate) fn statistics<W: Wide>(row_statistics: &[[W; 2]], shape: Shape) -> [FloatTensor<Flex>; 2] {
    [0, 1].map(|i| tensor(row_statistics.iter().map(|row| row[i]).collect(), shape.clone()))
}

/// The two statistics of each row, which [`statistics`] made tensors of.
pub(crate) fn row_statistics<W: Wide>(statistics: [FloatTensor<Flex>; 2]) -> Vec<[W; 2]> {
    let [first, second] = statistics.map(|values| values.to_contiguous());
    slice::<W>(&first).iter().zip(slice::<W>(&second)).map(|(&first, &second)| [first, second]).collect()
}

/// Calls `work` as [`for_each`] does, and returns the totals of what it adds to the `width` values that it is given with every item.
pub(crate) fn total_of_each<I, W: Wide>(
    values: usize,
    items: I,
    width: usize,
    work: impl Fn(I::Item, &mut [W]) + Sync,
) -> Vec<W>
where
    I: ExactSizeIterator<Item: Send> + Send,
{
    let mut partials = vec![vec![W::ZERO; width]; items.len()];
    for_each(values, items.zip(&mut partials), |(item, partial)| work(item, partial));
    // In the order of items, whatever thread worked on them.
    let mut total = vec![W::ZERO; width];
    partials.iter().for_each(|partial| row::accumulate(&mut total, partial));
    total
}

/// Rows that an operator replaces by its output.
pub(crate) struct Rows {
    /// Read where something else, such as autodiff, holds them too.
    source: Option<FloatTensor<Flex>>,
    /// What [`tasks`](Self::tasks) write.
    pub(crate) output: FloatTensor<Flex>,
}

impl Rows {
    pub(crate) fn new(rows: FloatTensor<Flex>) -> Self {
        // Memory that nobody else sees is written in place.
        if rows.is_contiguous() && rows.is_unique() {
            return Self { source: None, output: rows };
        }
        let output = Flex::float_zeros(rows.shape(), &Default::default(), rows.dtype().into());
        Self { source: Some(rows.to_contiguous()), output }
    }

    /// Tasks of `size` values: each is called for them, once, by the thread that works on them.
    pub(crate) fn tasks<'a, T: Scalar>(
        &'a mut self,
        size: usize,
    ) -> impl ExactSizeIterator<Item = impl FnOnce() -> &'a mut [T]> {
        let source = self.source.as_ref().map(|rows| slice::<T>(rows));
        let (first, count) = (self.output.layout().start_offset(), self.output.layout().num_elements());
        let output = &mut self.output.storage_mut::<T>()[first..][..count];
        output.chunks_mut(size).enumerate().map(move |(task, output)| {
            move || {
                if let Some(source) = source {
                    output.copy_from_slice(&source[task * size..][..output.len()]);
                }
                output
            }
        })
    }
}

/// A · B. If one of the two is in bf16, the other is rounded to it, and the product is in f32.
pub(crate) fn multiply(a: FloatTensor<Flex>, b: FloatTensor<Flex>) -> FloatTensor<Flex> {
    let dtypes = [a.dtype(), b.dtype()];
    if dtypes.contains(&DType::F64) {
        // `burn-fused-matmul` has f32 and bf16 alone.
        return Flex::float_matmul(a, b);
    }
    let kernel = if dtypes.contains(&DType::BF16) { Kernel::bf16() } else { Kernel::F32 };
    let shape = Shape::new([a.shape()[0], b.shape()[1]]);
    tensor(with_matrix(&a, |a| with_matrix(&b, |b| product(a, b, kernel))), shape)
}

/// Calls `f` with a matrix in f32 or bf16.
pub(crate) fn with_matrix<R>(matrix: &FloatTensor<Flex>, f: impl FnOnce(Matrix) -> R) -> R {
    let layout = matrix.layout();
    let (Ok(row), Ok(column)) = (layout.strides()[0].try_into(), layout.strides()[1].try_into()) else {
        // A matrix that runs backwards, as a flipped one does.
        return with_matrix(&matrix.to_contiguous(), f);
    };
    let (shape, strides, start) = (layout.shape().dims(), [row, column], layout.start_offset());
    match matrix.dtype() {
        DType::BF16 => f(Matrix::new(&matrix.storage::<bf16>()[start..], shape, strides)),
        _ => f(Matrix::new(&matrix.storage::<f32>()[start..], shape, strides)),
    }
}

/// The tensor of a packed weight.
pub(crate) fn packed_tensor(packed: Packed, dtype: DType) -> FlexTensor {
    let layout = Layout::contiguous(Shape::from(packed.shape()));
    FlexTensor::new(packed.into_bytes(), layout, dtype)
}

/// The packed weight that is all of a tensor.
pub(crate) fn packed(tensor: &FlexTensor) -> Option<Arc<Packed>> {
    let (packed, layout) = (Packed::of(&tensor.data_arc())?, tensor.layout());
    let is_whole = layout.is_contiguous() && layout.start_offset() == 0;
    (is_whole && layout.shape().dims() == packed.shape()).then_some(packed)
}

/// Calls `f` with a matrix in f32 or bf16 as a right operand for `kernel`: packed, where it stays so.
pub(crate) fn with_right_matrix<R>(
    matrix: &FloatTensor<Flex>,
    kernel: Kernel,
    f: impl FnOnce(RightMatrix) -> R,
) -> R {
    match packed(matrix).as_deref() {
        Some(Packed::Float(packed)) if packed.kernel() == kernel => f(packed.into()),
        _ => with_matrix(matrix, |matrix| f(matrix.into())),
    }
}

/// The instructions that Flex multiplies matrices with on this CPU.
///
/// | precision | |
/// |---|---|
/// | f32 | `"AVX-512"`, `"AVX2 + FMA"`, `"NEON"` or `"scalar"` |
/// | bf16 | `"AMX"`, `"AVX512-BF16"` or `"f32 on rounded operands"` |
///
/// ```
/// println!("matmuls run on {}", burn_fused::matrix_kernel(burn_fused::Precision::F32));
/// ```
pub fn matrix_kernel(precision: Precision) -> &'static str {
    match precision {
        Precision::Bf16 => Kernel::bf16().name(),
        Precision::F32 => Kernel::F32.name(),
    }
}

/// The fewest values for which a second thread is woken: 128 KiB in f32. Not tuned.
const PARALLEL_FROM: usize = 32 * 1024;

/// Calls `work` with every item, of `values` numbers in all, in parallel if that is worth it.
pub(crate) fn for_each<I>(values: usize, items: I, work: impl Fn(I::Item) + Sync)
where
    I: ExactSizeIterator<Item: Send> + Send,
{
    // A thread without an item would be woken for nothing.
    let threads = if values < PARALLEL_FROM { 1 } else { rayon::current_num_threads().min(items.len()) };
    // Taken one at a time: threads join late, and tasks differ in length.
    let items = Mutex::new(items);
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    on_threads(threads, || {
        while let Some(item) = next() {
            work(item);
        }
    });
}
