//! BERT's embedding layer: config, input and module.

mod bert_embeddings;
mod config;
mod input;
mod resize;

pub use bert_embeddings::BertEmbeddings;
pub use config::BertEmbeddingsConfig;
pub use input::BertEmbeddingsInput;
pub use resize::PositionFill;
