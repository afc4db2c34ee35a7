//! The operator on tensors.

use super::{MoveRows, MoveRowsOp};
use crate::operator::path::Path;
use crate::operator::run::run;
use burn::prelude::*;

/// Which rows of a matrix become which of another one.
#[derive(Clone, Debug)]
pub(crate) struct Moves {
    /// Row of the output → row of the input.
    from: Tensor<1, Int>,
    /// Row of the input → row of the output.
    to: Tensor<1, Int>,
    moved: usize,
}

impl Moves {
    /// Row i of the output is row `from[i]` of `rows`; zeros where that is `rows`. `None` if two are the same row.
    pub(crate) fn new(from: &[usize], rows: usize, device: &Device) -> Option<Self> {
        let (mut to, mut moved) = (vec![from.len(); rows], 0);
        for (place, &row) in from.iter().enumerate().filter(|(_, row)| **row != rows) {
            if to[row] != from.len() {
                return None;
            }
            to[row] = place;
            moved += 1;
        }
        let [from, to] = [from, &to].map(|rows| indices(rows, device));
        Some(Self { from, to, moved })
    }

    /// Back to where the rows come from.
    pub(crate) fn inverse(&self) -> Self {
        Self { from: self.to.clone(), to: self.from.clone(), moved: self.moved }
    }

    pub(crate) fn device(&self) -> Device {
        self.from.device()
    }

    /// [N, C] → [M, C]. Forward and backward are a gather each: no order of additions, and no loop over rows.
    ///
    /// # Panics
    ///
    /// If there are other than N rows.
    pub(crate) fn apply(&self, x: Tensor<2>) -> Tensor<2> {
        let ([rows], [of_x]) = (self.from.dims(), self.to.dims());
        assert_eq!(x.dims()[0], of_x, "move_rows: the number of rows");
        let [from, to] = [&self.from, &self.to].map(|index| index.clone().into_dispatch());
        let (x, moved, path) = (x.into_dispatch(), self.moved, Path::current());
        Tensor::from_dispatch(run::<MoveRowsOp, _>(MoveRows { x, from, to, rows, moved, path }))
    }
}

/// Outside autodiff, so that they fit tensors with and without gradient checkpointing.
pub(crate) fn indices(values: &[usize], device: &Device) -> Tensor<1, Int> {
    let values: Vec<i32> = values.iter().map(|&value| value as i32).collect();
    let length = values.len();
    Tensor::from_data(TensorData::new(values, [length]), &device.clone().without_autodiff())
}
