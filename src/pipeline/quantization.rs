//! Embeddings as vector stores take them: rows of numbers, of 32 bits, of 8, or of one.

use crate::error::{Error, Result};
use burn::prelude::*;

/// What [`quantize_embeddings`] makes of each value.
#[derive(Clone, Copy, Debug)]
pub enum EmbeddingPrecision<'a> {
    /// 8 bits: of the 256 equal parts of the range of its dimension, counted from −128 on, the one that the value is in.
    Int8(&'a EmbeddingRanges),
    /// A bit for each value, which is 1 above 0; 8 of them are a number, of which 128 is subtracted.
    Binary,
}

/// The smallest and the largest value of each dimension, by which embeddings become int8 vectors and are read back to rescore
/// what a search found. Keep it with the vectors. [`quantize_embeddings`] has an example.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingRanges {
    /// The smallest values.
    pub min: Vec<f32>,
    /// The largest values.
    pub max: Vec<f32>,
}

impl EmbeddingRanges {
    /// The ranges of embeddings (`calibration_embeddings`), best of thousands of typical texts; [`Error::Data`] if there are
    /// fewer than two.
    pub fn new(embeddings: Tensor<2>) -> Result<Self> {
        if embeddings.dims()[0] < 2 {
            return Err(Error::data("ranges", "need at least two embeddings; give those of typical texts"));
        }
        let values = |tensor: Tensor<2>| tensor.into_data().iter().collect();
        Ok(Self { min: values(embeddings.clone().min_dim(0)), max: values(embeddings.max_dim(0)) })
    }

    /// The least value of a dimension and the size of each of its parts.
    fn steps(&self) -> impl Iterator<Item = (f32, f32)> + Clone {
        self.min.iter().zip(&self.max).map(|(&min, &max)| match (max - min) / 255.0 {
            0.0 => (min, 1.0),
            step => (min, step),
        })
    }

    /// The embeddings that int8 vectors stand for, [N, H], to within a part of the range. [`Error::ShapeMismatch`] if a vector
    /// has not a value for each dimension.
    pub fn dequantize(&self, vectors: &[Vec<i8>], device: &Device) -> Result<Tensor<2>> {
        let width = self.min.len();
        let mut values = Vec::with_capacity(vectors.len() * width);
        for vector in vectors {
            check_width(vectors.len(), vector.len(), width)?;
            let parts = vector.iter().map(|&value| f32::from(value) + 128.0);
            values.extend(parts.zip(self.steps()).map(|(part, (min, step))| part * step + min));
        }
        Ok(Tensor::from_data(TensorData::new(values, [vectors.len(), width]), device))
    }
}

fn check_width(rows: usize, found: usize, width: usize) -> Result<()> {
    let expected = || format!("[N, {width}], a value for each of the ranges");
    if found == width { Ok(()) } else { Err(Error::shape("embeddings", [rows, found], expected())) }
}

/// Quantizes embeddings, for a smaller index and a faster search. Of `uint8` and `ubinary` vectors, each value is 128 larger.
/// [`Error::ShapeMismatch`] if there are not as many ranges as dimensions.
///
/// ```
/// # use burn_bert::{Result, model::BertForSentenceEmbedding, pipeline::*};
/// # fn example(embedder: Pipeline<BertForSentenceEmbedding>, texts: &[&str]) -> Result<()> {
/// let options = TextOptions::new().with_truncate_dim(256).with_normalize(true);
/// let corpus = embedder.encode_document(texts, &options)?;
/// let ranges = EmbeddingRanges::new(corpus.clone())?;
/// let stored = quantize_embeddings(&corpus, EmbeddingPrecision::Int8(&ranges))?; // Vec<Vec<i8>>
///
/// // Those that the store found are scored again with the query as it is.
/// let query = embedder.encode_query(&["Who wrote the notes?"], &options)?;
/// let found = ranges.dequantize(&stored[..10], &query.device())?;
/// println!("{:?}", embedder.search(&query, &found, 3)?);
/// println!("{:?}", to_vectors(query)); // Vec<Vec<f32>>
/// # Ok(())
/// # }
/// ```
///
/// Source: `quantize_embeddings` of sentence-transformers 6.2.
pub fn quantize_embeddings(embeddings: &Tensor<2>, precision: EmbeddingPrecision) -> Result<Vec<Vec<i8>>> {
    let [rows, width] = embeddings.dims();
    let vectors = to_vectors(embeddings.clone()).into_iter();
    Ok(match precision {
        EmbeddingPrecision::Int8(ranges) => {
            check_width(rows, width, ranges.min.len())?;
            let part = |(value, (min, step)): (f32, (f32, f32))| {
                (((value - min) / step).floor().clamp(0.0, 255.0) - 128.0) as i8
            };
            vectors.map(|vector| vector.into_iter().zip(ranges.steps()).map(part).collect()).collect()
        }
        EmbeddingPrecision::Binary => {
            let bits = |values: &[f32]| {
                let set = values.iter().enumerate().filter(|(_, value)| **value > 0.0);
                // The first value is the highest bit; 128 less is the highest bit turned.
                (set.fold(0, |byte, (bit, _)| byte | 0x80 >> bit) ^ 0x80) as u8 as i8
            };
            vectors.map(|vector| vector.chunks(8).map(bits).collect()).collect()
        }
    })
}

/// Embeddings, [N, H], as rows of numbers. [`quantize_embeddings`] has an example.
pub fn to_vectors(embeddings: Tensor<2>) -> Vec<Vec<f32>> {
    let [_, width] = embeddings.dims();
    let values: Vec<f32> = embeddings.into_data().iter().collect();
    values.chunks(width.max(1)).map(<[f32]>::to_vec).collect()
}
