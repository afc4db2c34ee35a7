//! The small BERT of tests that need no other.

use burn::module::{Module, ModuleMapper, Param};
use burn::prelude::*;
use burn_bert::BertEmbeddingsConfig;
use burn_bert::model::BertModelConfig;

/// 10 words, 6 positions, 4 values a token.
pub fn small_layer() -> BertEmbeddingsConfig {
    BertEmbeddingsConfig::new().with_vocab_size(10).with_hidden_size(4).with_max_position_embeddings(6)
}

/// A layer with two heads, 16 positions, an inner width of 12, and no dropout.
pub fn small_bert(vocab_size: usize, hidden_size: usize) -> BertModelConfig {
    small(BertModelConfig::bert_base_uncased(), vocab_size, hidden_size)
}

/// The same of the family of a published model.
pub fn small(published: BertModelConfig, vocab_size: usize, hidden_size: usize) -> BertModelConfig {
    let mut bert = published
        .with_num_hidden_layers(1)
        .with_num_attention_heads(2)
        .with_intermediate_size(12)
        .with_attention_probs_dropout_prob(0.0);
    let embeddings = &mut bert.embeddings;
    embeddings.vocab_size = vocab_size;
    embeddings.hidden_size = hidden_size;
    embeddings.embedding_size = embeddings.embedding_size.map(|_| hidden_size / 2);
    embeddings.max_position_embeddings = 16;
    embeddings.hidden_dropout_prob = 0.0;
    bert
}

/// A model in training with matrices of order 1, so that logits differ and no gradient drowns in rounding.
pub fn larger<M: Module>(model: M) -> M {
    struct Larger;
    impl ModuleMapper for Larger {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let factor = if D == 1 { 1.0 } else { 20.0 };
            param.map(|tensor| tensor.mul_scalar(factor).detach().require_grad())
        }
    }
    model.map(&mut Larger)
}
