//! Operands.

use crate::tiles::PackedMatrix;
use half::bf16;

/// The values of an operand; see [`Matrix`].
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// Values in f32. A bf16 kernel rounds them as it packs them, to nearest, ties to even.
    F32(&'a [f32]),
    /// Values in bf16.
    Bf16(&'a [bf16]),
}

impl<'a> From<&'a [f32]> for Values<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self::F32(values)
    }
}

impl<'a> From<&'a [bf16]> for Values<'a> {
    fn from(values: &'a [bf16]) -> Self {
        Self::Bf16(values)
    }
}

/// A matrix to multiply: a view of values, of which entry (i, j) is the one at i · strides\[0\] + j · strides\[1\].
///
/// ```
/// use burn_fused_matmul::{Kernel, Matrix, product};
///
/// let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let columns = Matrix::new(&values[..], [2, 2], [3, 2]); // the first and the last of three
/// let identity = Matrix::rows(&[1.0, 0.0, 0.0, 1.0][..], [2, 2]);
/// assert_eq!(product(columns, identity, Kernel::F32), [1.0, 3.0, 4.0, 6.0]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    pub(crate) values: Values<'a>,
    shape: [usize; 2],
    pub(crate) strides: [usize; 2],
}

impl<'a> Matrix<'a> {
    /// A matrix of these strides. Strides may be 0, and entries may overlap.
    ///
    /// # Panics
    ///
    /// If an entry lies outside the values, or there are more entries than `usize::MAX`.
    pub fn new(values: impl Into<Values<'a>>, shape: [usize; 2], strides: [usize; 2]) -> Self {
        let values = values.into();
        // With strides of 0, few values are any number of entries.
        let entries = shape[0].checked_mul(shape[1]);
        assert!(entries.is_some(), "a matrix of shape {shape:?} has more entries than can be counted");
        if !shape.contains(&0) {
            let end = |axis: usize| (shape[axis] - 1).checked_mul(strides[axis]);
            let last = end(0).zip(end(1)).and_then(|(rows, columns)| rows.checked_add(columns));
            let count = match values {
                Values::F32(values) => values.len(),
                Values::Bf16(values) => values.len(),
            };
            assert!(
                last.is_some_and(|last| last < count),
                "a matrix of shape {shape:?} and strides {strides:?} reaches beyond its {count} values"
            );
        }
        // Of an axis with one entry, no other is ever read.
        let strides = [0, 1].map(|axis| if shape[axis] > 1 { strides[axis] } else { 1 });
        Self { values, shape, strides }
    }

    /// A matrix whose rows follow each other.
    ///
    /// # Panics
    ///
    /// If there are fewer values than entries.
    pub fn rows(values: impl Into<Values<'a>>, shape: [usize; 2]) -> Self {
        Self::new(values, shape, [shape[1], 1])
    }

    /// What stands for an operand whose values are elsewhere: only its shape is read.
    pub(crate) fn without_values(shape: [usize; 2]) -> Self {
        Self { values: Values::F32(&[]), shape, strides: [shape[1], 1] }
    }

    /// The transposed matrix, a view of the same values.
    pub fn transpose(self) -> Self {
        let ([rows, columns], [row, column]) = (self.shape, self.strides);
        Self { shape: [columns, rows], strides: [column, row], ..self }
    }

    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }
}

/// The right operand of a product, B. [`PackedMatrix`] has an example of both.
#[derive(Clone, Copy, Debug)]
pub enum RightMatrix<'a> {
    /// A view, which each product packs or reads in place.
    Matrix(Matrix<'a>),
    /// Columns that are packed once and for all.
    Packed(&'a PackedMatrix),
}

impl RightMatrix<'_> {
    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        match self {
            Self::Matrix(matrix) => matrix.shape(),
            Self::Packed(packed) => packed.shape(),
        }
    }
}

impl<'a> From<Matrix<'a>> for RightMatrix<'a> {
    fn from(matrix: Matrix<'a>) -> Self {
        Self::Matrix(matrix)
    }
}

impl<'a> From<&'a PackedMatrix> for RightMatrix<'a> {
    fn from(packed: &'a PackedMatrix) -> Self {
        Self::Packed(packed)
    }
}
