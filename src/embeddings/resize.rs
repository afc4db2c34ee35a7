//! Growing and shrinking the tables of a trained layer, keeping what was learned.

use super::bert_embeddings::BertEmbeddings;
use crate::error::{EmbeddingTable, Error, Result};
use crate::layers::{VocabularyResize, replace, resizable};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_fused::computed_in;

/// How [`BertEmbeddings::extend_positions`] initialises position embeddings that it adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionFill {
    /// The learned rows over and over: row i is the old row i mod P, so that local order is right everywhere. The start of
    /// Longformer (Beltagy et al. 2020, section 5).
    Tile,
    /// The learned rows, linearly interpolated: new row i is the old table read at i·(P − 1)/(P′ − 1). The first and last
    /// rows stay bit for bit.
    Interpolate,
}

impl BertEmbeddings {
    /// Grows or shrinks the word embeddings at the end; rows that are kept are bit-equal.
    ///
    /// A resized table has a new parameter id, so an optimizer starts its state for it from zero and keeps all others; a table
    /// of that size already is not changed. A tied output head reads the table at forward time and uses the new one.
    ///
    /// ```
    /// use burn::prelude::*;
    /// use burn_bert::{BertEmbeddingsConfig, VocabularyResize};
    ///
    /// let config = BertEmbeddingsConfig::new().with_vocab_size(100).with_hidden_size(8);
    /// let mut embeddings = config.init(&Device::default());
    /// embeddings.resize_vocabulary(&VocabularyResize::new(103).with_pad_to_multiple_of(8))?;
    /// assert_eq!(embeddings.word_embeddings.num_embeddings(), 104);
    /// # Ok::<(), burn_bert::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Resize`] if no row would be left, the padding row would be cut off (transformers then trains it), a LoRA
    /// adapter of the old size is attached, the table is quantised, or there is not enough memory; [`Error::Config`] if the
    /// initialiser is not a distribution. The module is unchanged then.
    pub fn resize_vocabulary(&mut self, resize: &VocabularyResize) -> Result<()> {
        let rows = resize.rows()?;
        if let Some(pad) = self.word_embeddings.padding_idx.filter(|&pad| pad >= rows) {
            let problem =
                format!("{rows} rows would cut off the padding row {pad}; keep at least {}", pad + 1);
            return Err(Error::Resize { table: EmbeddingTable::Word, problem });
        }
        // Rows that are drawn afresh are drawn as the table was.
        let initializer = self.config().initializer;
        self.word_embeddings.resize(EmbeddingTable::Word, resize, &initializer)
    }

    /// Lengthens the position embeddings to `max_position_embeddings` rows, for longer sequences.
    ///
    /// The number counts every row, as in `config.json`. With [`AfterPadding`](crate::PositionEmbeddingType::AfterPadding)
    /// rows 0 to `pad_token_id` are not positions of tokens: they stay bit for bit, and `fill` works on the rows after them
    /// (RoBERTa's 514 rows serve 512 tokens). A longer table has a new parameter id.
    ///
    /// # Errors
    ///
    /// [`Error::Resize`] if there is no such table, it has more rows already, no row of it is a position, a LoRA adapter of the
    /// old size is attached, it is quantised, or there is not enough memory. The module is unchanged then.
    pub fn extend_positions(&mut self, max_position_embeddings: usize, fill: PositionFill) -> Result<()> {
        let failed = |problem: String| Err(Error::Resize { table: EmbeddingTable::Position, problem });
        let scheme = self.position_embedding_type();
        let Some(table) = &mut self.position_embeddings else {
            return failed(format!("there is none ({scheme:?} positions)"));
        };
        let rows = table.num_embeddings();
        if max_position_embeddings < rows {
            return failed(format!("it has {rows} rows already, more than {max_position_embeddings}"));
        }
        if max_position_embeddings == rows {
            return Ok(());
        }
        // Only `AfterPadding` gives the position embeddings a padding row.
        let reserved = table.padding_idx.map_or(0, |pad| pad.saturating_add(1));
        if reserved >= rows {
            return failed(format!("rows up to the padding row {} are not positions", reserved - 1));
        }
        let old = resizable(table, EmbeddingTable::Position, max_position_embeddings)?;
        let positions = old.clone().narrow(0, reserved, rows - reserved);
        let positions = match fill {
            PositionFill::Tile => tile(positions, max_position_embeddings - reserved),
            PositionFill::Interpolate => interpolate(positions, max_position_embeddings - reserved),
        };
        let new = match reserved {
            0 => positions,
            reserved => Tensor::cat(vec![old.narrow(0, 0, reserved), positions], 0),
        };
        replace(&mut table.weight, new);
        Ok(())
    }
}

/// Row i is row i mod P: [P, H] → [rows, H].
fn tile(positions: Tensor<2>, rows: usize) -> Tensor<2> {
    let [period, _] = positions.dims();
    // The last block is cut where the rows are no multiple of the period.
    let blocks =
        (0..rows).step_by(period).map(|start| positions.clone().narrow(0, 0, period.min(rows - start)));
    Tensor::cat(blocks.collect(), 0)
}

/// Row i is the table read at i·(P − 1)/(rows − 1): [P, H] → [rows, H].
fn interpolate(positions: Tensor<2>, rows: usize) -> Tensor<2> {
    let [old_rows, _] = positions.dims();
    let device = positions.device();
    let narrow = FloatDType::from(positions.dtype());
    let wide = FloatDType::from(computed_in(positions.dtype()));
    // In whole numbers, so that the place of each row is exact: i·(P − 1) = below·(rows − 1) + rest.
    let (span, steps) = (old_rows - 1, rows - 1);
    let below: Vec<i64> = (0..rows).map(|i| (i * span / steps) as i64).collect();
    let above: Vec<i64> = below.iter().map(|&row| (row + 1).min(span as i64)).collect();
    let weight: Vec<f64> = (0..rows).map(|i| (i * span % steps) as f64 / steps as f64).collect();
    let row = |index: Vec<i64>| {
        let index = Tensor::<1, Int>::from_data(TensorData::new(index, [rows]), &device);
        positions.clone().select(0, index).cast(wide)
    };
    let weight = Tensor::<2>::from_data(TensorData::new(weight, [rows, 1]), (&device, wide.into()));
    let (below, above) = (row(below), row(above));
    below.clone().add(above.sub(below).mul(weight)).cast(narrow)
}
