//! `SparseOptimizer`: updates the rows that got a gradient, and their state, in place.

use super::gradients::RowGradients;
use super::step;
use super::table;
use super::table_gradient::{TableGradient, check_shape};
use crate::embeddings::BertEmbeddings;
use crate::embeddings::TokenEmbedding;
use crate::error::{EmbeddingTable, Result};
use crate::operator::dtype::computed_in;
use crate::optim::{Adam, AdamKind, Moments, Step, check_learning_rate};
use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::ParamId;
use burn::prelude::*;
use burn::tensor::DType;

/// Updates rows of a [`BertEmbeddings`]' word and position tables, and the state of just those rows, in place.
///
/// Made by [`RowSgdConfig`](super::RowSgdConfig), [`SparseAdamConfig`](super::SparseAdamConfig) or
/// [`LazyAdamWConfig`](super::LazyAdamWConfig); see [the module](super). One optimiser serves one layer.
///
/// # State
///
/// Adam's moments are two tables of the shape of the one they belong to, made at its first step. On a CPU their memory
/// is committed as rows are touched, because the operating system provides zero pages lazily.
///
/// As in Burn's optimisers they belong to a parameter id: a table of another id, one that was
/// [resized](BertEmbeddings::resize_vocabulary) for example, starts from zero. A [loaded](Self::load) state belongs to
/// the first layer that it steps, whatever its ids; its tables must have the same shape.
#[derive(Debug)]
pub struct SparseOptimizer {
    pub(super) rule: Rule,
    pub(super) words: TableState,
    pub(super) positions: TableState,
}

/// The state of one table.
#[derive(Debug, Default)]
pub(super) struct TableState {
    /// The parameter that it is of; `None` for a new state and one that was loaded, which take the next.
    pub(super) param: Option<ParamId>,
    /// How often the table was stepped, whichever rows were touched.
    pub(super) time: u64,
    pub(super) moments: Option<Kept>,
}

/// Adam's moments of one table.
#[derive(Debug)]
pub(super) enum Kept {
    /// Those of all rows.
    Table(TableMoments),
    /// Those that were loaded: expanded to a whole table at the first step.
    Rows(RowMoments),
}

#[derive(Debug)]
pub(super) struct TableMoments {
    /// Of the whole table, [V, H].
    moments: Moments<2>,
    /// Whether a row was ever touched: the others' moments are zeros.
    touched: Vec<bool>,
}

/// Moments of the rows that were ever touched.
#[derive(Clone, Debug)]
pub(super) struct RowMoments {
    /// Shape of the whole table, [V, H].
    pub(super) shape: [usize; 2],
    /// Which rows, ascending, each once.
    pub(super) ids: Vec<usize>,
    /// Of those rows, [ids.len(), H].
    pub(super) moments: Moments<2>,
}

/// What an optimiser does to rows.
#[derive(Debug, Clone)]
pub(super) enum Rule {
    /// Plain descent, without state.
    Sgd,
    /// Descent along running means.
    Adam(Adam),
}

impl Rule {
    /// Its name, by which a saved state is recognised.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Sgd => "RowSgd",
            Self::Adam(adam) => match adam.kind() {
                AdamKind::Sparse => "SparseAdam",
                AdamKind::W { .. } => "LazyAdamW",
            },
        }
    }
}

impl SparseOptimizer {
    pub(super) fn new(rule: Rule) -> Self {
        Self { rule, words: TableState::default(), positions: TableState::default() }
    }

    /// Updates the rows that `gradients` name, in place.
    ///
    /// Each step takes its learning rate: a number, or the output of one of Burn's schedulers. A scheduler with groups
    /// selects by parameter id or by the paths `word_embeddings.weight` and `position_embeddings.weight`, as seen from
    /// the layer.
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
    /// [`Error::Data`](crate::Error::Data) if the gradients, or a state that was loaded, are of tables of another shape,
    /// or a learning rate is negative or not finite;
    /// [`Error::NotRowSparse`](crate::Error::NotRowSparse) if a table was quantised, or given an adapter, since its rows were taken. Nothing is
    /// changed then.
    pub fn step(
        &mut self,
        learning_rate: impl Into<ModuleLearningRate>,
        embeddings: &mut BertEmbeddings,
        gradients: RowGradients,
    ) -> Result<()> {
        let learning_rate = learning_rate.into();
        let BertEmbeddings { word_embeddings, position_embeddings, .. } = embeddings;
        let [words, positions] = gradients.into_tables();
        let tables = [
            (EmbeddingTable::Word, "word_embeddings.weight", Some(word_embeddings), &mut self.words, words),
            (
                EmbeddingTable::Position,
                "position_embeddings.weight",
                position_embeddings.as_mut(),
                &mut self.positions,
                positions,
            ),
        ];
        for (table, path, embedding, state, gradient) in &tables {
            let Some(gradient) = gradient else { continue };
            let found = embedding.as_ref().map_or([0, 0], |table| table.dims());
            check_shape("row gradient", *table, gradient.shape, found)?;
            if let Some(embedding) = embedding {
                table::check(*table, &embedding.weight)?;
                check_learning_rate(learning_rate.lr_from_param(embedding.weight.id, Some(path)))?;
            }
            if let (Some(embedding), Some(kept)) = (embedding, &state.moments)
                && state.is_of(embedding)
            {
                check_shape("state of the optimiser", *table, kept.shape(), found)?;
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

impl TableState {
    fn is_of(&self, embedding: &TokenEmbedding) -> bool {
        self.param.is_none_or(|param| param == embedding.weight.id)
    }

    fn step(
        &mut self,
        rule: &Rule,
        learning_rate: f64,
        embedding: &mut TokenEmbedding,
        gradient: TableGradient,
    ) {
        if !self.is_of(embedding) {
            *self = Self::default();
        }
        self.param = Some(embedding.weight.id);
        self.time += 1;
        let Some(rows) = gradient.rows else { return };
        let (step, ids) = (Step { learning_rate, time: self.time }, &gradient.ids);
        match rule {
            Rule::Sgd => {
                table::change_in_place(&mut embedding.weight, |table| step::sgd(step, table, ids, rows));
            }
            Rule::Adam(adam) => {
                let (device, dtype) = (rows.device(), computed_in(rows.dtype()));
                let mut state = match self.moments.take() {
                    Some(Kept::Table(state)) => state,
                    Some(Kept::Rows(rows)) => rows.into_table(),
                    None => TableMoments::zeros(gradient.shape, &device, dtype),
                };
                state.move_to(&device, dtype);
                for &id in ids {
                    state.touched[id] = true;
                }
                table::change_in_place(&mut embedding.weight, |table| {
                    step::adam(adam, step, table, &mut state.moments, ids, rows)
                });
                self.moments = Some(Kept::Table(state));
            }
        }
    }
}

impl Kept {
    /// Shape of the whole table, [V, H].
    fn shape(&self) -> [usize; 2] {
        match self {
            Self::Table(table) => table.moments.mean.dims(),
            Self::Rows(rows) => rows.shape,
        }
    }

    /// Those of the rows that were ever touched.
    pub(super) fn rows(&self) -> RowMoments {
        match self {
            Self::Table(table) => table.rows(),
            Self::Rows(rows) => rows.clone(),
        }
    }
}

impl RowMoments {
    fn into_table(self) -> TableMoments {
        let Self { shape, ids, moments: Moments { mean, square } } = self;
        let mut table = TableMoments::zeros(shape, &mean.device(), mean.dtype());
        table.moments.mean.inplace(|table| table::assign(table, &ids, mean));
        table.moments.square.inplace(|table| table::assign(table, &ids, square));
        for id in ids {
            table.touched[id] = true;
        }
        table
    }
}

impl TableMoments {
    fn zeros([rows, hidden]: [usize; 2], device: &Device, dtype: DType) -> Self {
        let zeros =
            || device.memory_persistent_allocations((), |()| Tensor::zeros([rows, hidden], (device, dtype)));
        Self { moments: Moments { mean: zeros(), square: zeros() }, touched: vec![false; rows] }
    }

    fn rows(&self) -> RowMoments {
        let ids: Vec<usize> = (0..self.touched.len()).filter(|&id| self.touched[id]).collect();
        let Moments { mean, square } = &self.moments;
        let rows = |moment: &Tensor<2>| table::gather(moment.clone(), &ids);
        RowMoments { shape: mean.dims(), moments: Moments { mean: rows(mean), square: rows(square) }, ids }
    }

    /// Follows a module that was moved or cast.
    fn move_to(&mut self, device: &Device, dtype: DType) {
        let Moments { mean, square } = &mut self.moments;
        for moment in [mean, square] {
            if moment.device() != *device || moment.dtype() != dtype {
                moment.inplace(|moment| moment.to_device(device).cast(dtype));
            }
        }
    }
}
