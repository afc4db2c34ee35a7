//! BERT's input layer: config, input, module and lookup tables.

mod check;
mod config;
mod families;
mod family;
mod ids;
mod initializer;
mod input;
mod layer_norm;
mod module;
mod padding;
mod resize;
mod token_embedding;

pub(crate) use check::{check_beside, check_linear, check_param, dtype, is_quantized};
pub use config::BertEmbeddingsConfig;
pub(crate) use config::check_dropout;
pub use family::{Family, PositionEmbeddingType};
#[cfg(feature = "checkpoint")]
pub(crate) use family::{FamilyKeys, FamilySpec, Field, Projection, Unsupported};
pub(crate) use family::{HeadActivation, SequenceHead};
pub(crate) use ids::Ids;
pub use ids::IntoIds;
pub use initializer::EmbeddingInitializer;
pub use input::BertEmbeddingsInput;
pub(crate) use input::Words;
pub use layer_norm::LayerNorm;
pub(crate) use layer_norm::check_epsilon;
pub use module::BertEmbeddings;
pub(crate) use module::{active_prob, check_positions_after_padding, drop_out, first_position};
pub use padding::PaddingMask;
pub(crate) use padding::{check_multiple, padded_length, padding_mask};
pub use resize::{NewRows, PositionFill, VocabularyResize};
pub use token_embedding::{TokenEmbedding, TokenEmbeddingConfig};
