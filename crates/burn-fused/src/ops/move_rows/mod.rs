//! Rows of a matrix at other places: one gather forward, one backward.

#[cfg(feature = "_cubecl")]
mod cube;

use crate::engine::inputs::inputs;
use crate::engine::operator::{Gradients, Operator, Output, Spec, Upstream};
use crate::engine::run::run;
use crate::numerics::dropout::DropoutOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::prelude::*;

inputs! {
    /// N rows of length C, which become M.
    MoveRows of MoveRowsOp, operands: 1, statistics: 0 {
        floats { x, }
        ints {
            /// The index in x of each of M rows, `[M]`; N for a row of zeros.
            from,
            /// The index of each of x's N rows in the result, `[N]`; M for a row that is left out.
            to,
        }
        plain {
            /// The number of rows of x that are in the result.
            moved: usize,
        }
    }
}

#[cfg(feature = "flex")]
impl crate::engine::operator::Kernels<burn::backend::Flex> for MoveRowsOp {}

/// Which rows of a matrix become which of another one.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::{Moves, indices};
///
/// let device = Device::default();
/// let x = Tensor::<2>::from_floats([[1.0], [2.0], [3.0]], &device);
/// let picked = Moves::new(&[2, 0], 3, &device).expect("no row twice").apply(x.clone());
/// assert_eq!(picked.into_data(), x.select(0, indices(&[2, 0], &device)).into_data());
/// ```
#[derive(Clone, Debug)]
pub struct Moves {
    /// Row of the output → row of the input.
    from: Tensor<1, Int>,
    /// Row of the input → row of the output.
    to: Tensor<1, Int>,
    moved: usize,
}

impl Moves {
    /// Row i of the output is row `from[i]` of `rows`; zeros where that is `rows`. `None` if two are the same row.
    pub fn new(from: &[usize], rows: usize, device: &Device) -> Option<Self> {
        let (mut to, mut moved) = (vec![from.len(); rows], 0);
        for (index, &row) in from.iter().enumerate().filter(|(_, row)| **row != rows) {
            if to[row] != from.len() {
                return None;
            }
            to[row] = index;
            moved += 1;
        }
        // The backward is a gather by the inverse.
        let [from, to] = [from, &to].map(|rows| indices(rows, device));
        Some(Self { from, to, moved })
    }

    /// Moves the rows back.
    pub fn inverse(&self) -> Self {
        Self { from: self.to.clone(), to: self.from.clone(), moved: self.moved }
    }

    /// The device of the indices.
    pub fn device(&self) -> Device {
        self.from.device()
    }

    /// [N, C] → [M, C]. Forward and backward are a gather each: no order of additions, and no loop over rows.
    ///
    /// # Panics
    ///
    /// If there are other than N rows.
    pub fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        assert_eq!(x.dims()[0], self.to.dims()[0], "move_rows: the number of rows");
        let [from, to] = [&self.from, &self.to].map(|index| index.clone().into_dispatch());
        let (x, moved) = (x.into_dispatch(), self.moved);
        Tensor::from_dispatch(run::<MoveRowsOp, _>(MoveRows { x, from, to, moved }))
    }
}

/// `values` as a tensor on `device`, outside autodiff, so that they fit tensors with and without gradient checkpointing, such
/// as those of [`Moves`].
pub fn indices(values: &[usize], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(values, &device.clone().without_autodiff())
}

impl Operator for MoveRowsOp {
    fn specs<B: Backend>(inputs: &MoveRows<B>) -> Vec<Spec> {
        let shape = Shape::new([inputs.from.shape()[0], inputs.x.shape()[1]]);
        vec![Spec { shape, dtype: inputs.x.dtype() }]
    }

    fn reference<B: DropoutOps>(inputs: MoveRows<B>) -> Output<Self, B> {
        let MoveRows { mut x, from, moved, .. } = inputs;
        // The row behind the last is zero. Where none is asked for, that saves a copy of x.
        if moved < from.shape()[0] {
            let zero = B::float_zeros(Shape::new([1, x.shape()[1]]), &x.device(), x.dtype().into());
            x = B::float_cat(vec![x, zero], 0);
        }
        (B::float_select(x, 0, from), [])
    }

    fn reference_backward<B: DropoutOps>(inputs: MoveRows<B>, upstream: Upstream<Self, B>) -> Gradients<B> {
        vec![Some(Self::reference::<B>(inputs.back(upstream.grad)).0)]
    }
}

impl<B: Backend> MoveRows<B> {
    /// The gradient of the output moves back.
    fn back(self, grad: FloatTensor<B>) -> Self {
        Self { x: grad, from: self.to, to: self.from, moved: self.moved }
    }
}
