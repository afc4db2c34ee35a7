//! Every model's gradients, by central differences.

use burn::module::{Module, ModuleMapper, Param};
use burn::prelude::*;
use burn_bert::model::{
    BertForMaskedLmConfig, BertForSentenceEmbeddingConfig, BertForSequenceClassificationConfig,
    BertForTokenClassificationConfig, BertModelConfig, MaskedLmBatch, MultipleNegativesRankingLoss, Pooling,
    SentencePairBatch, SequenceClassificationBatch, TokenClassificationBatch,
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

const FAMILIES: [Family; 2] = [Family::Bert, Family::Roberta];

#[test]
fn the_model_without_a_head_passes() {
    for family in FAMILIES {
        assert_passes(bert(family).init(&device()), |model, probe| {
            let output = model.forward(&input(), padding().as_ref());
            probe.weighted_sum(output.last_hidden_state) + probe.weighted_sum(output.pooler_output.unwrap())
        });
    }
}

#[test]
fn masked_language_modelling_passes_with_a_tied_and_with_an_untied_head() {
    for tied in [true, false] {
        let config = BertForMaskedLmConfig::new(bert(FAMILIES[0])).with_tie_word_embeddings(tied);
        let batch = MaskedLmBatch::new(input(), padding(), &[[0, 1], [1, 2]], &[5, 8]).unwrap();
        assert_passes(config.init(&device()), |model, _| model.forward(&batch).loss);
    }
}

#[test]
fn classifiers_of_sequences_pass_with_every_kind_of_label() {
    let classes = SequenceClassificationBatch::single_label(input(), padding(), &[2, 0]).unwrap();
    let rows = [[1.0, 0.0, 1.0], [0.0, 0.5, 1.0]];
    let many = SequenceClassificationBatch::multi_label(input(), padding(), &rows).unwrap();
    let values = SequenceClassificationBatch::regression(input(), padding(), &rows).unwrap();
    for family in FAMILIES {
        let config = BertForSequenceClassificationConfig::new(bert(family)).with_num_labels(3);
        let weighted = config.clone().with_class_weights(Some(vec![0.5, 2.0, 1.0]));
        for (config, batch) in [(&weighted, &classes), (&weighted, &many), (&config, &values)] {
            assert_passes(config.init(&device()), |model, _| model.forward(batch).loss);
        }
    }
}

#[test]
fn classifiers_of_tokens_pass() {
    let batch =
        TokenClassificationBatch::new(input(), padding(), &[[-100, 1, 0, 2], [-100, 2, 0, -100]]).unwrap();
    let config = BertForTokenClassificationConfig::new(bert(FAMILIES[0])).with_num_labels(3);
    assert_passes(config.init(&device()), |model, _| model.forward(&batch).loss);
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
        let config = BertForSentenceEmbeddingConfig::new(bert(FAMILIES[0]));
        let model = config.with_pooling(pooling).with_normalize(normalize).init(&device());
        assert_passes(model, |model, probe| {
            probe.weighted_sum(model.embed(&input(), padding().as_ref()).unwrap())
        });
    }
}

#[test]
fn contrastive_training_passes_with_hard_negatives_in_one_and_in_both_directions() {
    let rows = [[2, 4, 7, 3], [1, 5, 8, 3], [2, 6, 6, 3]];
    let candidates = BertEmbeddingsInput::from_rows(&rows, &device()).unwrap();
    let batch = SentencePairBatch::new((input(), padding()), (candidates, None)).unwrap();
    for symmetric in [false, true] {
        // A scale of 2 keeps the loss away from its flat end.
        let loss = MultipleNegativesRankingLoss::new().with_scale(2.0).with_symmetric(symmetric);
        let config = BertForSentenceEmbeddingConfig::new(bert(FAMILIES[1])).with_loss(loss.into());
        assert_passes(config.init(&device()), |model, _| model.forward(&batch).loss);
    }
}
