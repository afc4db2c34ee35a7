//! What models are made of: LayerNorm, linear layers, token embeddings, initialisers, padding, and checks of inputs.

mod checks;
mod dtype;
mod ids;
mod initializer;
mod layer_norm;
mod linear;
mod padding_mask;
mod resize;
mod token_embedding;

pub(crate) use checks::{
    MAX_ROWS, MAX_WIDTH, check_dropout, check_epsilon, check_input, check_multiple, check_num_params,
    check_sizes, ensure,
};
pub use dtype::{cast_module, prepare_linear_layers, quantize_linear_layers};
pub(crate) use dtype::{dtype, is_quantized};
pub(crate) use ids::Ids;
pub use ids::IntoIds;
pub use initializer::EmbeddingInitializer;
pub use layer_norm::LayerNorm;
pub(crate) use linear::{
    active_prob, drop_out, feed_forward, linear, linear_activation, linear_narrow, product,
};
pub use padding_mask::PaddingMask;
pub use resize::{NewRows, PositionFill, VocabularyResize};
pub use token_embedding::{TokenEmbedding, TokenEmbeddingConfig};
