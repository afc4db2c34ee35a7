mod bert_embeddings;
mod config;
mod input;

pub use bert_embeddings::BertEmbeddings;
pub use config::BertEmbeddingsConfig;
pub(crate) use config::{EMBEDDING_SIZE, NUMBERS};
pub use input::BertEmbeddingsInput;
