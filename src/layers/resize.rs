//! Growing and shrinking the tables of a trained layer, keeping what was learned.

use super::initializer::EmbeddingInitializer;
use super::parameter_check::is_quantized;
use super::token_embedding::TokenEmbedding;
use crate::error::{EmbeddingTable, Error, Result};
use burn::module::{Param, ParamId};
use burn::prelude::*;
use burn::tensor::{DType, Distribution, FloatDType};

/// How new rows of a resized vocabulary are initialised; set by [`VocabularyResize::with_new_rows`].
/// [`BertEmbeddings::resize_vocabulary`](crate::BertEmbeddings::resize_vocabulary) has an example.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum NewRows {
    /// The module's own initialiser: `resize_token_embeddings(…, mean_resizing=False)` of transformers.
    Initializer,
    /// Another initialiser.
    DrawnFrom(EmbeddingInitializer),
    /// N(μ, 10⁻⁹·Σ) with the mean μ and covariance Σ of the old rows: `mean_resizing=True` of transformers.
    ///
    /// New tokens start as near-copies of the average token, which a softmax over the vocabulary hardly
    /// notices (J. Hewitt, "Initializing New Word Embeddings for Pretrained Language Models", 2021).
    /// transformers falls back to copies of μ where Σ has no Cholesky factor; here a row is drawn as
    /// μ + √(10⁻⁹/V)·zᵀ(W − μ) with z ~ N(0, 1)ⱽ, whose covariance is 10⁻⁹·Σ of any rank.
    MeanCovariance,
}

/// How to resize a vocabulary; see [`BertEmbeddings::resize_vocabulary`](crate::BertEmbeddings::resize_vocabulary).
#[derive(Clone, Debug, PartialEq)]
pub struct VocabularyResize {
    vocab_size: usize,
    new_rows: NewRows,
    pad_to_multiple_of: Option<usize>,
}

impl VocabularyResize {
    /// To `vocab_size` rows, new ones drawn by [`NewRows::MeanCovariance`], as transformers does by default.
    pub fn new(vocab_size: usize) -> Self {
        Self { vocab_size, new_rows: NewRows::MeanCovariance, pad_to_multiple_of: None }
    }

    /// How new rows are initialised.
    pub fn with_new_rows(self, new_rows: NewRows) -> Self {
        Self { new_rows, ..self }
    }

    /// Rounds the number of rows up to a multiple, such as 8 or 64 for tensor cores.
    pub fn with_pad_to_multiple_of(self, multiple: usize) -> Self {
        Self { pad_to_multiple_of: Some(multiple), ..self }
    }

    #[cfg(feature = "checkpoint")]
    pub(crate) fn new_rows(&self) -> &NewRows {
        &self.new_rows
    }

    pub(crate) fn rows(&self) -> Result<usize> {
        let rows = match self.pad_to_multiple_of {
            None => Some(self.vocab_size),
            Some(multiple) => self.vocab_size.checked_next_multiple_of(multiple),
        };
        match rows {
            None | Some(0) => Err(Error::Resize {
                table: EmbeddingTable::Word,
                problem: format!(
                    "{} rows, rounded up to a multiple of {}, cannot be a table size",
                    self.vocab_size,
                    self.pad_to_multiple_of.unwrap_or(1)
                ),
            }),
            Some(rows) => Ok(rows),
        }
    }
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
        if rows == old_rows {
            return Ok(());
        }
        let old = resizable(self, name)?;
        check_memory(name, rows, &old)?;
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
        replace(&mut self.weight, new);
        Ok(())
    }
}

/// A table's values, cut off from what was computed with them.
pub(crate) fn resizable(table: &TokenEmbedding, name: EmbeddingTable) -> Result<Tensor<2>> {
    let failed = |problem: &str| Err(Error::Resize { table: name, problem: problem.into() });
    if table.weight.adapter().is_some() {
        return failed("a LoRA adapter of the old size is attached; merge or remove it first");
    }
    if is_quantized(&table.weight) {
        return failed("it is quantised; resize first and quantise afterwards");
    }
    Ok(table.weight.val().detach())
}

/// Gives the parameter other values, trained as before, under an id of its own.
pub(crate) fn replace(param: &mut Param<Tensor<2>>, values: Tensor<2>) {
    *param = param.clone().transform_for_load(values.detach(), ParamId::new());
}

/// Whether a table of `rows` rows like those of `old` can be built.
///
/// The new table and its new rows are in memory at the same time. The memory is reserved and released at once: an
/// allocation that fails here is an error, one that fails in Burn ends the process.
pub(crate) fn check_memory(table: EmbeddingTable, rows: usize, old: &Tensor<2>) -> Result<()> {
    let [_, hidden] = old.dims();
    let bytes = 2 * rows as u128 * hidden as u128 * old.dtype().size() as u128;
    let reserved =
        usize::try_from(bytes).is_ok_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok());
    if reserved {
        return Ok(());
    }
    let problem = format!(
        "{rows} rows of {hidden} values ({:?}) need {} of memory while they are made, more than there is",
        old.dtype(),
        in_binary_units(bytes)
    );
    Err(Error::Resize { table, problem })
}

/// A number of bytes in the largest unit that it reaches: `1536` is `1.5 KiB`.
fn in_binary_units(bytes: u128) -> String {
    const UNITS: [&str; 9] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];
    let power = (bytes.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    let value = bytes as f64 / 2f64.powi(10 * power as i32);
    format!("{value:.1} {}", UNITS[power])
}

fn draw(initializer: &EmbeddingInitializer, rows: usize, like: &Tensor<2>) -> Result<Tensor<2>> {
    initializer.validate()?;
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
    let wide = match old.dtype() {
        DType::F64 => FloatDType::F64,
        _ => FloatDType::F32,
    };
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
