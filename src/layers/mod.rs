//! What models are made of: LayerNorm, linear layers, token embeddings, initialisers, padding, and checks of parameters.

mod ids;
mod initializer;
mod layer_norm;
mod limits;
mod linear;
mod padding;
mod parameters;
mod resize;
mod token_embedding;

pub(crate) use ids::Ids;
pub use ids::IntoIds;
pub use initializer::EmbeddingInitializer;
pub use layer_norm::LayerNorm;
pub(crate) use limits::{
    MAX_ROWS, MAX_WIDTH, check_dropout, check_epsilon, check_multiple, check_num_params, check_sizes,
};
pub(crate) use linear::{
    active_prob, drop_out, linear, linear_activation, linear_activation_narrow, linear_deferred, product,
};
pub use padding::PaddingMask;
pub(crate) use padding::{padded_length, padding_mask};
pub(crate) use parameters::ParameterCheck;
pub use parameters::cast_module;
#[cfg(feature = "checkpoint")]
pub(crate) use parameters::is_quantized;
pub use resize::{NewRows, VocabularyResize};
pub(crate) use resize::{replace, resizable};
pub use token_embedding::{TokenEmbedding, TokenEmbeddingConfig};
