//! Growing and shrinking tables: what was learned stays, and the bugs of others are not repeated.

mod positions;
mod vocabulary;

use crate::checkpoint_files::{tiny, values};
use crate::prelude::*;

const HIDDEN: usize = 4;

fn words(module: &BertEmbeddings) -> Vec<f64> {
    values(&module.word_embeddings.weight)
}

fn positions(module: &BertEmbeddings) -> Vec<f64> {
    values(&module.position_embeddings.as_ref().unwrap().weight)
}

fn rows(values: &[f64], range: std::ops::Range<usize>) -> &[f64] {
    &values[range.start * HIDDEN..range.end * HIDDEN]
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn resized(mut module: BertEmbeddings, resize: &VocabularyResize) -> BertEmbeddings {
    module.resize_vocabulary(resize).unwrap();
    module
}

fn extended(mut module: BertEmbeddings, rows: usize, fill: PositionFill) -> BertEmbeddings {
    module.extend_positions(rows, fill).unwrap();
    module
}

fn roberta(rows: usize) -> BertEmbeddings {
    tiny()
        .with_family(burn_bert::Family::Roberta)
        .with_max_position_embeddings(rows)
        .with_pad_token_id(Some(1))
        .with_position_embedding_type(PositionEmbeddingType::AfterPadding)
        .init(&device())
}
