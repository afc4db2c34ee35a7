//! `SparseOptimizer`: updates the rows that got a gradient, and their state, where they lie.

use super::gradients::{RowGradients, TableGradient};
use super::rules::{Adam, Moments, Rule};
use super::table;
use crate::embeddings::BertEmbeddings;
use crate::error::{Error, Result, Table};
use crate::token_embedding::TokenEmbedding;
use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};

/// Updates rows of a [`BertEmbeddings`]' word and position tables, and the state of just those rows, in place.
///
/// Made by [`RowSgdConfig`](super::RowSgdConfig), [`SparseAdamConfig`](super::SparseAdamConfig) or
/// [`LazyAdamWConfig`](super::LazyAdamWConfig); see [the module](super). One optimiser serves one layer.
///
/// # State
///
/// Adam's moments are two tables of the shape of the one they belong to, made at its first step. On a CPU their
/// memory is taken up as rows are touched, because the operating system gives zero pages out lazily.
#[derive(Debug)]
pub struct SparseOptimizer {
    pub(super) rule: Rule,
    pub(super) words: TableState,
    pub(super) positions: TableState,
}

/// What an optimiser remembers of one table.
#[derive(Debug, Default)]
pub(super) struct TableState {
    /// How often the table was stepped, whichever rows were touched.
    pub(super) time: u64,
    pub(super) moments: Option<TableMoments>,
}

#[derive(Debug)]
pub(super) struct TableMoments {
    /// Of the whole table, [V, H].
    pub(super) moments: Moments,
    /// Whether a row was ever touched: the others' moments are zeros.
    pub(super) touched: Vec<bool>,
}

impl SparseOptimizer {
    pub(super) fn new(rule: Rule) -> Self {
        Self { rule, words: TableState::default(), positions: TableState::default() }
    }

    /// Updates the rows that `gradients` name, in place.
    ///
    /// The learning rate comes with each step: a number, or what a scheduler of Burn gives. A scheduler that has
    /// groups chooses by parameter id or by the paths `word_embeddings.weight` and `position_embeddings.weight`, as
    /// seen from the layer.
    ///
    /// A table without a gradient (frozen, or not looked up) is left alone, and so is its step count. A batch of
    /// padding alone counts as a step of the word table that changes nothing, as in PyTorch.
    ///
    /// A clone of `embeddings` that is still alive keeps the old values; the tables are then copied, once, to
    /// let it.
    ///
    /// # Numerics
    ///
    /// 16-bit tables are updated in f32 and rounded once; their moments are f32.
    ///
    /// # Errors
    ///
    /// [`Error::RowsOfOtherTable`] if the gradients, or the state of an earlier step, are of tables of another
    /// shape. Nothing is changed then.
    pub fn step(
        &mut self,
        learning_rate: impl Into<ModuleLearningRate>,
        embeddings: &mut BertEmbeddings,
        gradients: RowGradients,
    ) -> Result<()> {
        let learning_rate = learning_rate.into();
        let BertEmbeddings { word_embeddings, position_embeddings, .. } = embeddings;
        let [words, positions] = gradients.tables();
        let tables = [
            (Table::Word, "word_embeddings.weight", Some(word_embeddings), &mut self.words, words),
            (
                Table::Position,
                "position_embeddings.weight",
                position_embeddings.as_mut(),
                &mut self.positions,
                positions,
            ),
        ];
        for (table, _, embedding, state, gradient) in &tables {
            let Some(gradient) = gradient else { continue };
            let found = embedding.as_ref().map_or([0, 0], |table| table.dims());
            check_shape("row gradient", *table, gradient.shape, found)?;
            if let Some(moments) = &state.moments {
                check_shape("state of the optimiser", *table, moments.moments.mean.dims(), found)?;
            }
        }
        for (_, path, embedding, state, gradient) in tables {
            if let (Some(embedding), Some(gradient)) = (embedding, gradient) {
                let learning_rate = learning_rate.lr_from_param(embedding.weight.id, Some(path));
                state.step(&self.rule, learning_rate, embedding, gradient);
            }
        }
        Ok(())
    }
}

fn check_shape(what: &'static str, table: Table, expected: [usize; 2], found: [usize; 2]) -> Result<()> {
    match expected == found {
        true => Ok(()),
        false => Err(Error::RowsOfOtherTable { what, table, expected, found }),
    }
}

impl TableState {
    fn step(
        &mut self,
        rule: &Rule,
        learning_rate: f64,
        embedding: &mut TokenEmbedding,
        gradient: &TableGradient,
    ) {
        self.time += 1;
        let Some(rows) = &gradient.rows else { return };
        let ids = &gradient.ids;
        let narrow: FloatDType = rows.dtype().into();
        let rows = rows.clone().cast(computed_in(rows.dtype()));
        match rule {
            Rule::Sgd => table::change_in_place(&mut embedding.weight, |table| {
                let old = table::gather(table.clone(), ids).cast(rows.dtype());
                table::assign(table, ids, (old - rows.mul_scalar(learning_rate)).cast(narrow))
            }),
            Rule::Adam(adam) => {
                let moments = self.follow(adam, gradient.shape, ids, rows);
                table::change_in_place(&mut embedding.weight, |table| {
                    let old = table::gather(table.clone(), ids).cast(moments.mean.dtype());
                    let new = adam.descend(old, learning_rate, self.time, moments);
                    table::assign(table, ids, new.cast(narrow))
                });
            }
        }
    }

    /// Takes a gradient into the moments of rows `ids`, and returns those, [U, H].
    fn follow(&mut self, adam: &Adam, shape: [usize; 2], ids: &[usize], gradient: Tensor<2>) -> Moments {
        let (device, dtype) = (gradient.device(), gradient.dtype());
        let state = self.moments.get_or_insert_with(|| TableMoments::zeros(shape, &device, dtype));
        state.to_device(&device);
        for &id in ids {
            state.touched[id] = true;
        }
        let table = &mut state.moments;
        let old = Moments {
            mean: table::gather(table.mean.clone(), ids),
            square: table::gather(table.square.clone(), ids),
        };
        let new = adam.follow(old, gradient);
        table.mean.inplace(|mean| table::assign(mean, ids, new.mean.clone()));
        table.square.inplace(|square| table::assign(square, ids, new.square.clone()));
        new
    }
}

impl TableMoments {
    pub(super) fn zeros([rows, hidden]: [usize; 2], device: &Device, dtype: DType) -> Self {
        let zeros =
            || device.memory_persistent_allocations((), |()| Tensor::zeros([rows, hidden], (device, dtype)));
        Self { moments: Moments { mean: zeros(), square: zeros() }, touched: vec![false; rows] }
    }

    /// Follows a module that was moved.
    fn to_device(&mut self, device: &Device) {
        if self.moments.mean.device() != *device {
            self.moments.mean.inplace(|mean| mean.to_device(device));
            self.moments.square.inplace(|square| square.to_device(device));
        }
    }
}

/// The dtype that an update is computed in, and that moments are kept in.
fn computed_in(dtype: DType) -> FloatDType {
    match dtype {
        DType::F16 | DType::BF16 => FloatDType::F32,
        _ => dtype.into(),
    }
}
