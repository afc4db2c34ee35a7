//! What models are made of: LayerNorm, linear layers, token embeddings, initialisers, padding, and checks of inputs.

mod dtype;
mod ids;
mod initializer;
mod input_check;
mod layer_norm;
mod limits;
mod linear;
mod padding_mask;
mod resize;
mod token_embedding;

pub use dtype::{cast_module, quantize_linear_layers};
pub(crate) use dtype::{dtype, is_quantized};
pub(crate) use ids::Ids;
pub use ids::IntoIds;
pub use initializer::EmbeddingInitializer;
pub(crate) use input_check::check_input;
pub use layer_norm::LayerNorm;
pub(crate) use limits::{
    MAX_ROWS, MAX_WIDTH, check_dropout, check_epsilon, check_multiple, check_num_params, check_sizes, ensure,
};
pub(crate) use linear::{
    active_prob, drop_out, feed_forward, linear, linear_activation, linear_narrow, product,
};
pub use padding_mask::PaddingMask;
pub use resize::{NewRows, PositionFill, VocabularyResize};
pub use token_embedding::{TokenEmbedding, TokenEmbeddingConfig};
