//! The smallest and the longest inputs of every model, nothing but padding, and ids without a row.

use crate::small_bert::small_bert;
use burn::prelude::*;
use burn_bert::model::{
    BertForMaskedLmConfig, BertForSentenceEmbeddingConfig, BertForSequenceClassificationConfig,
    BertForTokenClassificationConfig, BertModelConfig, MaskedLmBatch, Pooling, SequenceClassificationBatch,
    TokenClassificationBatch,
};
use burn_bert::{BertEmbeddingsInput, Error, Family, PaddingMask, PositionEmbeddingType, Result};

const VOCABULARY: usize = 12;

fn device() -> Device {
    Device::default().autodiff()
}

/// A BERT and a RoBERTa, and the longest sequence that each reads.
fn families() -> [(BertModelConfig, usize); 2] {
    [Family::Bert, Family::Roberta].map(|family| {
        let mut bert = small_bert(VOCABULARY, 8).with_num_hidden_layers(2);
        (bert.embeddings.family, bert.embeddings.pad_token_id) = (family, Some(1));
        if family == Family::Roberta {
            bert.embeddings.position_embedding_type = PositionEmbeddingType::AfterPadding;
            bert.embeddings.type_vocab_size = 1;
        }
        let longest = bert.embeddings.max_sequence_length().unwrap();
        (bert, longest)
    })
}

/// The losses of every head on a batch, each taken backward.
fn losses(
    bert: &BertModelConfig,
    ids: &[Vec<i32>],
    padding: Option<&PaddingMask>,
) -> Vec<(&'static str, Result<f64>)> {
    let (device, batch, seq) = (device(), ids.len(), ids[0].len());
    let input = BertEmbeddingsInput::from_rows(ids, &device).unwrap();
    let loss = |loss: Result<Tensor<1>>| {
        loss.map(|loss| {
            drop(loss.backward());
            loss.into_scalar::<f64>()
        })
    };
    let model = bert.init(&device);
    let hidden = model.try_forward(&input, padding).map(|output| output.last_hidden_state.square().sum());
    let masked = MaskedLmBatch::new(input.clone(), padding.cloned(), &[[batch - 1, seq - 1]], &[3]).unwrap();
    let masked_lm = BertForMaskedLmConfig::new(bert.clone()).init(&device);
    let sequences =
        SequenceClassificationBatch::single_label(input.clone(), padding.cloned(), &vec![1; batch]).unwrap();
    let sequence = BertForSequenceClassificationConfig::new(bert.clone()).init(&device);
    let labels = vec![vec![1; seq]; batch];
    let tokens = TokenClassificationBatch::new(input.clone(), padding.cloned(), &labels).unwrap();
    let token = BertForTokenClassificationConfig::new(bert.clone()).init(&device);
    let mut all = vec![
        ("hidden", loss(hidden)),
        ("masked", loss(masked_lm.try_forward(&masked).map(|output| output.loss))),
        ("sequence", loss(sequence.try_forward(&sequences).map(|output| output.loss))),
        ("token", loss(token.try_forward(&tokens).map(|output| output.loss))),
    ];
    for pooling in [Pooling::Mean, Pooling::Max, Pooling::LastToken] {
        let sentence = BertForSentenceEmbeddingConfig::new(bert.clone()).with_pooling(pooling).init(&device);
        all.push(("sentence", loss(sentence.embed(&input, padding).map(|vectors| vectors.square().sum()))));
    }
    all
}

#[test]
fn one_token_and_the_longest_sequence_have_finite_losses_in_every_model() {
    for (bert, longest) in families() {
        for (batch, seq) in [(1, 1), (3, 1), (1, longest), (2, longest)] {
            for (name, loss) in losses(&bert, &vec![vec![4; seq]; batch], None) {
                assert!(loss.unwrap().is_finite(), "{name}, {batch} of {seq}");
            }
        }
        for (name, loss) in losses(&bert, &[vec![4; longest + 1]], None) {
            assert!(matches!(loss, Err(Error::SequenceTooLong { .. })), "{name}: {loss:?}");
        }
    }
}

#[test]
fn nothing_but_padding_has_finite_losses_or_is_refused_by_name() {
    for (bert, longest) in families() {
        for seq in [1, 5, longest] {
            for lengths in [[0, 0], [1, 0], [0, 1]] {
                let padding = PaddingMask::from_lengths(&lengths, seq);
                let found = losses(&bert, &vec![vec![1; seq]; 2], Some(&padding));
                for (name, loss) in found {
                    match loss {
                        Ok(loss) => assert!(loss.is_finite(), "{name}, {lengths:?} of {seq}: {loss}"),
                        Err(error) => assert!(matches!(error, Error::Data { .. }), "{name}: {error}"),
                    }
                }
            }
        }
    }
}

#[test]
fn an_id_that_has_no_row_is_refused_by_every_model() {
    for (bert, _) in families() {
        for id in [-1, VOCABULARY as i32, i32::MIN, i32::MAX] {
            for (name, loss) in losses(&bert, &[vec![4, 5, 6], vec![4, id, 6]], None) {
                match loss {
                    Err(Error::IdOutOfRange { id: found, index, .. }) => {
                        assert_eq!((found, index), (id.into(), vec![1, 1]), "{name}");
                    }
                    other => panic!("{name}: {other:?}"),
                }
            }
        }
    }
}
