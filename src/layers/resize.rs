//! Growing and shrinking the tables of a trained layer, keeping what was learned.

use super::dtype::is_quantized;
use super::initializer::EmbeddingInitializer;
use super::token_embedding::TokenEmbedding;
use crate::error::{EmbeddingTable, Error, Result};
use burn::module::ParamId;
use burn::prelude::*;
use burn::tensor::{Distribution, FloatDType};
use burn_fused::{computed_in, indices};

/// How [`BertEmbeddings::resize_vocabulary`](crate::BertEmbeddings::resize_vocabulary) initialises new rows.
#[derive(Config, Debug, PartialEq)]
#[non_exhaustive]
pub enum NewRows {
    /// The module's initialiser: `resize_token_embeddings(…, mean_resizing=False)` of transformers.
    Initializer,
    /// Values that an initialiser draws.
    DrawnFrom(EmbeddingInitializer),
    /// N(μ, 10⁻⁹·Σ) with the mean μ and covariance Σ of the old rows: `mean_resizing=True` of transformers.
    ///
    /// New tokens are near-copies of the average token, which hardly changes a softmax over the vocabulary (J. Hewitt,
    /// "Initializing New Word Embeddings for Pretrained Language Models", 2021). A row is μ + √(10⁻⁹/V)·zᵀ(W − μ) with
    /// z ~ N(0, 1)ⱽ, which needs no Cholesky factor of Σ; transformers copies μ where there is none.
    MeanCovariance,
}

/// How to resize a vocabulary; see [`BertEmbeddings::resize_vocabulary`](crate::BertEmbeddings::resize_vocabulary).
#[derive(Config, Debug, PartialEq)]
#[non_exhaustive]
pub struct VocabularyResize {
    /// The number of rows, before it is rounded up.
    pub vocab_size: usize,
    /// How new rows are initialised; by default as in transformers.
    #[config(default = "NewRows::MeanCovariance")]
    pub new_rows: NewRows,
    /// Rounds the number of rows up to a multiple, such as 8 or 64 for tensor cores.
    #[config(default = 1)]
    pub pad_to_multiple_of: usize,
}

impl VocabularyResize {
    pub(crate) fn rows(&self) -> Result<usize> {
        let (asked, multiple) = (self.vocab_size, self.pad_to_multiple_of);
        let rows = asked.checked_next_multiple_of(multiple).filter(|&rows| rows > 0);
        rows.ok_or_else(|| {
            let problem = format!(
                "{asked} rows, rounded up to a multiple of {multiple}, cannot be a number of embeddings"
            );
            Error::Resize { table: EmbeddingTable::Word, problem }
        })
    }
}

/// How [`BertEmbeddings::extend_positions`](crate::BertEmbeddings::extend_positions) initialises position embeddings that it adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionFill {
    /// The learned rows over and over: row i is the old row i mod P, so that local order is right everywhere. The start of
    /// Longformer (Beltagy et al. 2020, section 5).
    Tile,
    /// The learned rows, linearly interpolated: new row i is the old table read at i·(P − 1)/(P′ − 1). The first and last
    /// rows stay bit for bit.
    Interpolate,
}

impl TokenEmbedding {
    /// Adds or removes rows at the end, under a new parameter id; a table of that size already is not changed.
    pub(crate) fn resize(
        &mut self,
        name: EmbeddingTable,
        resize: &VocabularyResize,
        initializer: &EmbeddingInitializer,
    ) -> Result<()> {
        let (rows, old_rows) = (resize.rows()?, self.num_embeddings());
        // Not replaced by itself: a new id would cost the optimizer its state.
        if rows == old_rows {
            return Ok(());
        }
        // Before anything is drawn, so that an error leaves the generator as it was too.
        let old = resizable(self, name, rows)?;
        let new = if rows < old_rows {
            old.narrow(0, 0, rows)
        } else {
            let count = rows - old_rows;
            let added = match &resize.new_rows {
                NewRows::Initializer => draw(initializer, count, &old)?,
                NewRows::DrawnFrom(initializer) => draw(initializer, count, &old)?,
                NewRows::MeanCovariance => draw_around_mean(count, &old),
            };
            Tensor::cat(vec![old, added], 0)
        };
        self.replace(new);
        Ok(())
    }

    /// Adds rows at the end, filled from those after the padding row, under a new parameter id.
    pub(crate) fn extend(&mut self, name: EmbeddingTable, rows: usize, fill: PositionFill) -> Result<()> {
        let failed = |problem: String| Err(Error::Resize { table: name, problem });
        let old_rows = self.num_embeddings();
        if rows < old_rows {
            return failed(format!("it has {old_rows} rows already, more than {rows}"));
        }
        if rows == old_rows {
            return Ok(());
        }
        // Only `AfterPadding` gives the position embeddings a padding row.
        let reserved = self.padding_idx.map_or(0, |pad| pad.saturating_add(1));
        if reserved >= old_rows {
            return failed(format!("rows up to the padding row {} are not positions", reserved - 1));
        }
        let old = resizable(self, name, rows)?;
        let positions = old.clone().narrow(0, reserved, old_rows - reserved);
        let positions = match fill {
            PositionFill::Tile => tile(positions, rows - reserved),
            PositionFill::Interpolate => interpolate(positions, rows - reserved),
        };
        self.replace(match reserved {
            0 => positions,
            reserved => Tensor::cat(vec![old.narrow(0, 0, reserved), positions], 0),
        });
        Ok(())
    }

    /// Replaces the values, under a new id: the optimizer keeps state of the old shape under the old one.
    fn replace(&mut self, values: Tensor<2>) {
        self.weight = self.weight.clone().transform_for_load(values.detach(), ParamId::new());
    }
}

/// The values of a table that can be resized to so many `rows`, detached from autodiff.
fn resizable(table: &TokenEmbedding, name: EmbeddingTable, rows: usize) -> Result<Tensor<2>> {
    let failed = |problem: String| Err(Error::Resize { table: name, problem });
    if table.weight.adapter().is_some() {
        return failed("a LoRA adapter of the old size is attached; merge or remove it first".into());
    }
    if is_quantized(&table.weight) {
        return failed("it is quantised; resize first and quantise afterwards".into());
    }
    let old = table.weight.val().detach();
    let ([_, hidden], dtype) = (old.dims(), old.dtype());
    // Twice: the new table is concatenated from its new rows, which are in memory at the same time.
    let bytes = 2 * rows as u128 * hidden as u128 * dtype.size() as u128;
    // An allocation that fails here is an error, one that fails in Burn ends the process.
    if usize::try_from(bytes).is_ok_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok()) {
        return Ok(old);
    }
    let memory = in_binary_units(bytes);
    failed(format!(
        "{rows} rows of {hidden} values ({dtype:?}) need {memory} of memory while they are made, more than there is"
    ))
}

/// A number of bytes in the largest unit that it reaches: `1536` is `1.5 KiB`.
fn in_binary_units(bytes: u128) -> String {
    const UNITS: [&str; 9] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];
    let power = (bytes.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    let value = bytes as f64 / 2f64.powi(10 * power as i32);
    format!("{value:.1} {}", UNITS[power])
}

fn draw(initializer: &EmbeddingInitializer, rows: usize, like: &Tensor<2>) -> Result<Tensor<2>> {
    initializer.validate()?; // it may be the caller's
    let [_, columns] = like.dims();
    Ok(initializer.sample([rows, columns], &like.device()).cast(FloatDType::from(like.dtype())))
}

/// Rows of N(μ, 10⁻⁹·Σ), with the moments of `old`: see [`NewRows::MeanCovariance`].
fn draw_around_mean(rows: usize, old: &Tensor<2>) -> Tensor<2> {
    /// The factor of Σ in `_init_added_embeddings_weights_with_mean` of transformers.
    const COVARIANCE_SCALE: f64 = 1e-9;
    /// Rows of z at a time: with 30,000 old rows they take 32 MB.
    const CHUNK: usize = 256;

    let narrow = FloatDType::from(old.dtype());
    // A mean of thousands of rows in 16 bits would lose the small ones.
    let wide = FloatDType::from(computed_in(old.dtype()));
    let old = old.clone().cast(wide);
    let [count, _] = old.dims();
    let mean = old.clone().mean_dim(0); // [1, H]
    let centred = old.sub(mean.clone()).mul_scalar((COVARIANCE_SCALE / count as f64).sqrt()); // [V, H]
    let chunks = (0..rows).step_by(CHUNK).map(|start| {
        let shape = [CHUNK.min(rows - start), count];
        let z = Tensor::random(shape, Distribution::Normal(0.0, 1.0), (&centred.device(), wide.into()));
        z.matmul(centred.clone()).add(mean.clone()).cast(narrow)
    });
    Tensor::cat(chunks.collect(), 0)
}

/// Row i is row i mod P: [P, H] → [rows, H].
fn tile(positions: Tensor<2>, rows: usize) -> Tensor<2> {
    let ([period, _], device) = (positions.dims(), positions.device());
    let rows: Vec<usize> = (0..rows).map(|i| i % period).collect();
    positions.select(0, indices(&rows, &device))
}

/// Row i is the table read at i·(P − 1)/(rows − 1): [P, H] → [rows, H].
fn interpolate(positions: Tensor<2>, rows: usize) -> Tensor<2> {
    let [old_rows, _] = positions.dims();
    let device = positions.device();
    let narrow = FloatDType::from(positions.dtype());
    let wide = FloatDType::from(computed_in(positions.dtype()));
    // In whole numbers, so that the position of each row is exact: i·(P − 1) = below·(rows − 1) + rest.
    let (span, steps) = (old_rows - 1, rows - 1);
    let below: Vec<usize> = (0..rows).map(|i| i * span / steps).collect();
    let above: Vec<usize> = below.iter().map(|&row| (row + 1).min(span)).collect();
    let weight: Vec<f64> = (0..rows).map(|i| (i * span % steps) as f64 / steps as f64).collect();
    let row = |rows: &[usize]| positions.clone().select(0, indices(rows, &device)).cast(wide);
    let weight = Tensor::<2>::from_data(TensorData::new(weight, [rows, 1]), (&device, wide.into()));
    let (below, above) = (row(&below), row(&above));
    below.clone().add(above.sub(below).mul(weight)).cast(narrow)
}
