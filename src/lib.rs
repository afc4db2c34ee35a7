//! front page
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod config;
mod dtype;
mod embeddings;
mod error;
mod ids;
mod initializer;
mod input;
pub mod masked_lm;
mod token_embedding;

pub use config::{BertEmbeddingsConfig, PositionEmbeddingType};
pub use dtype::cast_module;
pub use embeddings::BertEmbeddings;
pub use error::{Error, Result, Table};
pub use initializer::EmbeddingInitializer;
pub use input::BertEmbeddingsInput;
pub use token_embedding::{TokenEmbedding, TokenEmbeddingConfig};
