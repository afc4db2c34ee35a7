//! `RowGradients`: gradients of the rows that batches touched.

use super::rows::TouchedRows;
use super::table_gradient::{TableGradient, merge};
use crate::embeddings::BertEmbeddings;
use crate::error::{EmbeddingTable, Error, Result};
use crate::optim::{Factor, SumOfSquares};
use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::Gradients;

/// Gradients of the rows that one or several batches touched, for
/// [`SparseOptimizer::step`](super::SparseOptimizer::step).
///
/// An id that is looked up several times has one row, the sum. The padding row has none.
#[derive(Clone, Debug, Default)]
pub struct RowGradients {
    words: Option<TableGradient>,
    positions: Option<TableGradient>,
}

impl RowGradients {
    /// Takes the gradients of `rows` out of `gradients`, as `GradientsParams::from_grads` does for parameters.
    ///
    /// `embeddings` is the layer that the rows were copied from. Call this before the gradients of the rest of the
    /// model are taken out, so that a gradient that reached a whole table is noticed.
    ///
    /// # Errors
    ///
    /// [`Error::NotRowSparse`] if another part of the model, such as a tied output head, sent a gradient to
    /// all rows of a table that was looked up by rows. Nothing is taken out then.
    pub fn from_grads(
        gradients: &mut Gradients,
        rows: TouchedRows,
        embeddings: &BertEmbeddings,
    ) -> Result<Self> {
        let is_dense = |table: &Param<Tensor<2>>| table.is_require_grad() && table.grad(gradients).is_some();
        if rows.words.is_some() && is_dense(&embeddings.word_embeddings.weight) {
            return Err(dense_gradient(EmbeddingTable::Word));
        }
        if let Some(positions) = &embeddings.position_embeddings
            && is_dense(&positions.weight)
        {
            return Err(dense_gradient(EmbeddingTable::Position));
        }
        Ok(Self {
            words: rows.words.and_then(|touched| touched.into_gradient(gradients)),
            positions: rows.positions.and_then(|touched| touched.into_gradient(gradients)),
        })
    }

    /// Adds the gradients of another batch, whose rows may be others: the gradients of the sum of both losses.
    ///
    /// For the mean over N batches divide the losses by N, or the sum by [`mul_scalar`](Self::mul_scalar).
    ///
    /// # Errors
    ///
    /// [`Error::Data`] if the two are of tables of different shape.
    pub fn accumulate(self, other: Self) -> Result<Self> {
        Ok(Self {
            words: merge(EmbeddingTable::Word, self.words, other.words)?,
            positions: merge(EmbeddingTable::Position, self.positions, other.positions)?,
        })
    }

    /// Every gradient times `factor`.
    pub fn mul_scalar(self, factor: f64) -> Self {
        self.map(|rows| rows.mul_scalar(factor))
    }

    /// The rows of `table` that have a gradient, ascending, and their gradients, [U, H]; `None` without any.
    pub fn get(&self, table: EmbeddingTable) -> Option<(&[usize], Tensor<2>)> {
        let gradient = match table {
            EmbeddingTable::Word => self.words.as_ref()?,
            EmbeddingTable::Position => self.positions.as_ref()?,
            EmbeddingTable::TokenType | EmbeddingTable::Embedding => return None,
        };
        Some((&gradient.ids, gradient.rows.clone()?))
    }

    /// Scales these gradients and those of the rest of `model` so that their global norm is at most `max_norm`, and
    /// returns the norm before clipping, `[1]`.
    ///
    /// ‖g‖ = √Σ g² over every row and every parameter that has a gradient; all are multiplied by
    /// min(1, `max_norm` / (‖g‖ + 1e-6)). Rows that no batch touched would add zeros, so the norm is the one of
    /// dense training. Nothing is read back from the device.
    ///
    /// This is [`clip_by_global_norm`](crate::optim::clip_by_global_norm) with the rows among the gradients.
    ///
    /// # Panics
    ///
    /// If `max_norm` is not above 0.
    pub fn clip_by_global_norm<M: Module>(
        &mut self,
        model: &M,
        gradients: &mut GradientsParams,
        max_norm: f64,
    ) -> Option<Tensor<1>> {
        let mut squares = SumOfSquares::of(model, &mut [gradients]);
        for table in [&mut self.words, &mut self.positions].into_iter().flatten() {
            table.rows = table.rows.take().map(|rows| squares.add(rows));
        }
        let (norm, factor) = squares.clip(Factor::default(), max_norm);
        *self = std::mem::take(self).map(|rows| factor.apply(rows));
        factor.apply_to_all(model, gradients);
        norm
    }

    /// Those of the word table and of the position table.
    pub(super) fn into_tables(self) -> [Option<TableGradient>; 2] {
        [self.words, self.positions]
    }

    fn map(self, change: impl Fn(Tensor<2>) -> Tensor<2>) -> Self {
        let change = |table: TableGradient| TableGradient { rows: table.rows.map(&change), ..table };
        Self { words: self.words.map(change), positions: self.positions.map(change) }
    }
}

fn dense_gradient(table: EmbeddingTable) -> Error {
    let reason = "got a dense gradient in addition to that of its rows, since another part of the model reads the whole \
                  table (as a tied output head does); train it with BertEmbeddings::forward, or untie the head";
    Error::NotRowSparse { table, reason }
}
