//! `TouchedRows`: the rows of the tables that one batch looks up.

use super::table::{self, Autodiff};
use super::table_gradient::TableGradient;
use crate::embeddings::{
    BertEmbeddings, BertEmbeddingsInput, Ids, TokenEmbedding, Words, check_positions_after_padding, dtype,
    first_position,
};
use crate::error::{EmbeddingTable, Result};
use burn::module::{Param, ParamId};
use burn::prelude::*;
use burn::tensor::Gradients;

/// The rows of the word and position tables that one batch looks up, as small trainable tables of their own.
///
/// Made by [`BertEmbeddings::touched_rows`]; see [the module](super) for what to do with it. It holds copies, which a
/// step of the optimiser makes stale: take the rows of a batch again in every step.
#[derive(Debug)]
pub struct TouchedRows {
    embeddings: BertEmbeddings,
    input: BertEmbeddingsInput,
    pub(super) words: Option<TouchedTable>,
    pub(super) positions: Option<TouchedTable>,
}

/// What ties a small table to the large one.
#[derive(Debug)]
pub(super) struct TouchedTable {
    /// Shape of the large table, [V, H].
    shape: [usize; 2],
    /// Rows of the large table that the first rows of the small one were copied from, ascending, without the
    /// padding row: that comes last in the small table and gets no gradient.
    ids: Vec<usize>,
    /// The small table, [U, H] with U ≥ `ids.len()`.
    leaf: Tensor<2>,
}

impl BertEmbeddings {
    /// Copies the rows that `input` looks up into small tables, for row-sparse training: see [`sparse`](super).
    ///
    /// The ids must be known on the host. Those of [`BertEmbeddingsInput::from_rows`] are; ids that came as
    /// tensors are read back once, which waits for the device, also after
    /// [`unchecked_ids`](BertEmbeddingsInput::unchecked_ids).
    ///
    /// # Errors
    ///
    /// - Those of [`try_forward`](Self::try_forward);
    /// - [`Error::NotRowSparse`](crate::Error::NotRowSparse) if a table that is looked up has a LoRA adapter, is
    ///   quantised or is distributed.
    pub fn touched_rows(&self, input: &BertEmbeddingsInput) -> Result<TouchedRows> {
        self.check(input)?;
        let (small_words, input_ids, words) = match input.words() {
            Words::Ids(ids) => {
                let ids = ids.checked();
                ids.check(EmbeddingTable::Word, self.word_embeddings.num_embeddings())?;
                let looked_up = LookedUp::new(EmbeddingTable::Word, &self.word_embeddings, &ids.to_host()?)?;
                let ids = Ids::from_values("input_ids", looked_up.ids, ids.dims(), &input.device());
                (looked_up.small, Some(ids), Some(looked_up.touched))
            }
            Words::Embeds(_) => {
                // Not looked up, but it tells the hidden size, the dtype and the device; the large table must not
                // be held.
                let weight = &self.word_embeddings.weight;
                let row = Tensor::zeros(
                    [1, self.word_embeddings.embedding_dim()],
                    (&weight.lazy_device(), dtype(weight)),
                );
                let weight = Param::initialized(ParamId::new(), row);
                (TokenEmbedding { weight, padding_idx: None }, None, None)
            }
        };
        let (mut small_positions, mut position_ids, mut positions) = (None, None, None);
        if let Some(table) = &self.position_embeddings {
            let ids = position_ids_of(table, input)?;
            let looked_up = LookedUp::new(EmbeddingTable::Position, table, &ids.values)?;
            small_positions = Some(looked_up.small);
            positions = Some(looked_up.touched);
            // A run of positions is looked up by where it starts: at the first row of the small table.
            position_ids =
                ids.dims.map(|dims| Ids::from_values("position_ids", looked_up.ids, dims, &input.device()));
        }
        let embeddings = self.with_tables(small_words, small_positions);
        let input = input.with_remapped(input_ids, position_ids);
        Ok(TouchedRows { embeddings, input, words, positions })
    }
}

impl TouchedRows {
    /// Embeds the batch: the values of [`BertEmbeddings::forward`] on the whole tables, bit for bit.
    ///
    /// # Shapes
    ///
    /// - output: [B, S, H]
    ///
    /// # Panics
    ///
    /// Where [`try_forward`](Self::try_forward) returns an error, with the same message.
    pub fn forward(&self) -> Tensor<3> {
        self.embeddings.forward(&self.input)
    }

    /// As [`forward`](Self::forward), with an error instead of a panic.
    ///
    /// # Errors
    ///
    /// Those of [`BertEmbeddings::try_forward`] that do not concern token or position ids, which were checked
    /// when the rows were copied.
    pub fn try_forward(&self) -> Result<Tensor<3>> {
        self.embeddings.try_forward(&self.input)
    }

    /// The layer with small tables instead of the word and position table, and the other parameters of the original.
    ///
    /// Use it with [`input`](Self::input) in a model that calls the layer itself.
    pub fn embeddings(&self) -> &BertEmbeddings {
        &self.embeddings
    }

    /// The batch, its token and position ids renumbered for the small tables.
    pub fn input(&self) -> &BertEmbeddingsInput {
        &self.input
    }

    /// The rows of `table` that were copied and get a gradient, ascending: those looked up, but the padding row.
    ///
    /// Empty for a table that the batch does not look up, and for token types, which stay dense.
    pub fn ids(&self, table: EmbeddingTable) -> &[usize] {
        let touched = match table {
            EmbeddingTable::Word => &self.words,
            EmbeddingTable::Position => &self.positions,
            EmbeddingTable::TokenType | EmbeddingTable::Embedding => &None,
        };
        touched.as_ref().map_or(&[], |touched| &touched.ids)
    }
}

impl TouchedTable {
    /// The gradient of rows `ids`: `None` if the table is frozen or the loss does not depend on it.
    pub(super) fn into_gradient(self, gradients: &mut Gradients) -> Option<TableGradient> {
        let rows = self.leaf.grad_remove(gradients)?; // [U, H]
        let rows = match self.ids.len() {
            0 => None,
            kept if kept == rows.dims()[0] => Some(rows),
            kept => Some(rows.narrow(0, 0, kept)),
        };
        Some(TableGradient { shape: self.shape, ids: self.ids, rows })
    }
}

/// What looking ids up in a small table takes.
struct LookedUp {
    small: TokenEmbedding,
    touched: TouchedTable,
    /// The ids, renumbered.
    ids: Vec<i64>,
}

impl LookedUp {
    /// Copies the rows that `ids` name. The ids are known to be in range.
    fn new(kind: EmbeddingTable, table: &TokenEmbedding, ids: &[i64]) -> Result<Self> {
        table::check(kind, &table.weight)?;
        let pad = table.padding_idx;
        let mut rows: Vec<usize> = ids.iter().map(|&id| id as usize).collect();
        rows.sort_unstable();
        rows.dedup();
        let pads = rows.len();
        rows.retain(|&row| Some(row) != pad);
        let has_pad = rows.len() < pads;
        let renumber = |&id: &i64| match id as usize {
            id if Some(id) == pad => rows.len() as i64,
            id => rows.binary_search(&id).expect("rows has every id but the padding one") as i64,
        };
        let renumbered = ids.iter().map(renumber).collect();

        let weight = table.weight.val();
        let autodiff = Autodiff::of(&weight);
        let copied: Vec<usize> = rows.iter().copied().chain(pad.filter(|_| has_pad)).collect();
        let leaf = autodiff.restore(table::gather(weight.inner(), &copied));
        let small = TokenEmbedding {
            weight: Param::initialized(ParamId::new(), leaf.clone()),
            padding_idx: has_pad.then_some(rows.len()),
        };
        Ok(Self { small, touched: TouchedTable { shape: table.dims(), ids: rows, leaf }, ids: renumbered })
    }
}

/// Positions on the host, with their shape where they are not one run K, K+1, … for all sequences.
struct PositionIds {
    values: Vec<i64>,
    dims: Option<[usize; 2]>,
}

/// The positions that [`BertEmbeddings::try_forward`] looks up in `table`, or its error.
fn position_ids_of(table: &TokenEmbedding, input: &BertEmbeddingsInput) -> Result<PositionIds> {
    let rows = table.num_embeddings();
    if let Some(ids) = input.position_ids() {
        let ids = ids.checked();
        ids.check(EmbeddingTable::Position, rows)?;
        return Ok(PositionIds { values: ids.to_host()?, dims: Some(ids.dims()) });
    }
    let [_, seq] = input.dims();
    if let (Some(pad), Words::Ids(ids)) = (table.padding_idx, input.words()) {
        let past = input.past_key_values_length();
        let ids = ids.checked();
        check_positions_after_padding(&ids, pad, past, rows)?;
        let mut values = ids.to_host()?;
        for sequence in values.chunks_mut(seq) {
            let mut last = pad.saturating_add(past);
            for id in sequence {
                *id = if *id == pad as i64 {
                    pad
                } else {
                    last += 1;
                    last
                } as i64;
            }
        }
        return Ok(PositionIds { values, dims: Some(ids.dims()) });
    }
    let first = first_position(table, input)?;
    Ok(PositionIds { values: (first..first + seq).map(|position| position as i64).collect(), dims: None })
}
