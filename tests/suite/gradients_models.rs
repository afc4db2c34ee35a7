//! Gradients of what no fixture of transformers has, by central differences: the pooler's output, the untied head, every
//! pooling. `parity_models` has those of the heads, `sentence_losses` those of the losses of sentence embeddings.

use burn::module::{Module, ModuleMapper, Param};
use burn::prelude::*;
use burn_bert::model::{
    BertForMaskedLmConfig, BertForSentenceEmbeddingConfig, BertModelConfig, MaskedLmBatch, Pooling,
};
use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput, Family, PaddingMask, PositionEmbeddingType};
use burn_gradcheck::{GradCheck, Probe};

fn device() -> Device {
    Device::default().autodiff()
}

fn bert(family: Family) -> BertModelConfig {
    let positions = match family {
        Family::Roberta => PositionEmbeddingType::AfterPadding,
        _ => PositionEmbeddingType::Absolute,
    };
    let embeddings = BertEmbeddingsConfig::new()
        .with_family(family)
        .with_vocab_size(9)
        .with_hidden_size(4)
        .with_max_position_embeddings(8)
        .with_hidden_dropout_prob(0.0)
        .with_position_embedding_type(positions);
    BertModelConfig::new(embeddings)
        .with_num_hidden_layers(1)
        .with_num_attention_heads(2)
        .with_intermediate_size(6)
        .with_attention_probs_dropout_prob(0.0)
}

fn input() -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_rows(&[[2, 7, 4, 3], [1, 8, 5, 3]], &device()).unwrap()
}

fn padding() -> Option<PaddingMask> {
    Some(PaddingMask::from_lengths(&[4, 3], 4))
}

/// Weights of order 1, so that no gradient drowns in rounding.
struct Larger;

impl ModuleMapper for Larger {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let is_vector = D == 1;
        param.map(|tensor| {
            let tensor = if is_vector { tensor } else { tensor.mul_scalar(20.0) };
            tensor.detach().require_grad()
        })
    }
}

fn assert_passes<M: Module>(model: M, loss: impl Fn(&M, &Probe) -> Tensor<1>) {
    let model = model.map(&mut Larger);
    GradCheck::new().run(&model, loss).unwrap().assert_passes();
}

#[test]
fn the_model_without_a_head_passes() {
    for family in [Family::Bert, Family::Roberta] {
        assert_passes(bert(family).init(&device()), |model, probe| {
            let output = model.forward(&input(), padding().as_ref());
            probe.weighted_sum(output.last_hidden_state) + probe.weighted_sum(output.pooler_output.unwrap())
        });
    }
}

#[test]
fn masked_language_modelling_passes_with_a_tied_and_with_an_untied_head() {
    for tied in [true, false] {
        let config = BertForMaskedLmConfig::new(bert(Family::Bert)).with_tie_word_embeddings(tied);
        let batch = MaskedLmBatch::new(input(), padding(), &[[0, 1], [1, 2]], &[5, 8]).unwrap();
        assert_passes(config.init(&device()), |model, _| model.forward(&batch).loss);
    }
}

#[test]
fn sentence_embeddings_pass_with_every_pooling() {
    let modes = [
        Pooling::Mean,
        Pooling::Cls,
        Pooling::Max,
        Pooling::MeanSqrtLen,
        Pooling::WeightedMean,
        Pooling::LastToken,
    ];
    for (pooling, normalize) in modes.into_iter().zip([true, false].into_iter().cycle()) {
        let config = BertForSentenceEmbeddingConfig::new(bert(Family::Bert));
        let model = config.with_pooling(pooling).with_normalize(normalize).init(&device());
        assert_passes(model, |model, probe| {
            probe.weighted_sum(model.embed(&input(), padding().as_ref()).unwrap())
        });
    }
}
