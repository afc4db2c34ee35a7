//! Labels, heads and masked tokens.

use super::{Row, bert, input, row};
use crate::prelude::*;

/// A classifier of sequences with three labels.
fn classifier() -> BertForSequenceClassification {
    BertForSequenceClassificationConfig::new(bert()).with_num_labels(3).init(&device())
}

/// What a classifier of sequences says of single labels.
fn single(config: BertForSequenceClassificationConfig) -> Error {
    let batch = SequenceClassificationBatch::single_label(input(), None, &[1, 3]).unwrap();
    config.init(&device()).try_forward(&batch).unwrap_err()
}

/// What a batch of masked tokens says of these labels.
fn masked(positions: &[[usize; 2]], labels: &[u32]) -> Error {
    MaskedLmBatch::new(input(), None, positions, labels).unwrap_err()
}

/// What a model says whose vocabulary was resized below its head, whether a token is masked or none.
fn resized_without_its_head(config: BertForMaskedLmConfig) -> Error {
    let mut model = config.init(&device());
    model.bert.embeddings.resize_vocabulary(&VocabularyResize::new(12)).unwrap();
    let error = |positions: &[[usize; 2]], labels: &[u32]| {
        let batch = MaskedLmBatch::new(input(), None, positions, labels).unwrap();
        model.try_forward(&batch).map(drop).unwrap_err()
    };
    assert_eq!(error(&[], &[]).to_string(), error(&[[0, 1]], &[7]).to_string());
    error(&[[0, 1]], &[7])
}

pub fn rows() -> Vec<Row> {
    vec![
        row::LabelOutOfRange(
            "labels[1] is 3, but the model has 3 labels (valid: 0..=2); set id2label in the config to have more",
            |_| single(BertForSequenceClassificationConfig::new(bert()).with_num_labels(3)),
        ),
        row::LabelOutOfRange(
            "labels[1][2] is -1, but the model has 2 labels (valid: 0..=1); set id2label in the config to have more",
            |_| {
                let labels = [[-100, 1, 0], [0, 0, -1]];
                let batch = TokenClassificationBatch::new(input(), None, &labels).unwrap();
                let model = BertForTokenClassificationConfig::new(bert()).init(&device());
                model.try_forward(&batch).unwrap_err()
            },
        ),
        row::IdOutOfRange(
            "labels[0][1] is 15, but there are 10 word embeddings (valid ids: 0..=9); is this the tokenizer that the \
             model was made with?",
            |_| {
                let batch = MaskedLmBatch::new(input(), None, &[[0, 1]], &[15]).unwrap();
                BertForMaskedLmConfig::new(bert()).init(&device()).try_forward(&batch).unwrap_err()
            },
        ),
        row::ShapeMismatch("labels has shape [1], but expected [2], one label per sequence", |_| {
            SequenceClassificationBatch::single_label(input(), None, &[1]).unwrap_err()
        }),
        row::ShapeMismatch("labels has shape [2, 2], but expected [2, 3], one label per token", |_| {
            TokenClassificationBatch::new(input(), None, &[vec![0; 3], vec![0; 2]]).unwrap_err()
        }),
        row::ShapeMismatch("labels has shape [2, 1], but expected [2, 3], one number per label", |_| {
            let batch = SequenceClassificationBatch::regression(input(), None, &[[1.0]; 2]).unwrap();
            classifier().try_forward(&batch).unwrap_err()
        }),
        row::Config(
            "invalid config: problem_type is Regression, but the batch has labels of SingleLabelClassification",
            |_| {
                let config = BertForSequenceClassificationConfig::new(bert());
                single(config.with_problem_type(Some(ProblemType::Regression)))
            },
        ),
        row::Config(
            "invalid config: id2label has one label, but the batch has labels of SingleLabelClassification, which needs two",
            |_| single(BertForSequenceClassificationConfig::new(bert()).with_num_labels(1)),
        ),
        row::ShapeMismatch("labels has shape [2], but expected [1], one per position", |_| {
            masked(&[[0, 1]], &[7, 5])
        }),
        row::Data(
            "padding[1] has padding before its first token, but the head reads the vector at position 0; pad at the \
             end",
            |_| {
                let padding = PaddingMask::from_rows(&[[false; 3], [true, false, false]]).unwrap();
                classifier().logits(&input(), Some(&padding)).unwrap_err()
            },
        ),
        row::Data("labels[0][1] is 1.5, but must lie in [0, 1]", |_| {
            let labels = [[0.0, 1.5, 0.0], [0.0, 1.0, 0.0]];
            SequenceClassificationBatch::multi_label(input(), None, &labels).unwrap_err()
        }),
        row::Data("labels[1][0] is NaN, but must lie in [-1e15, 1e15]", |_| {
            SequenceClassificationBatch::regression(input(), None, &[[0.0], [f64::NAN]]).unwrap_err()
        }),
        row::Data("labels[1][2] is 4294967296, which is not an id: ids are 32-bit signed integers", |_| {
            TokenClassificationBatch::new(input(), None, &[[0; 3], [0, -100, 1 << 32]]).unwrap_err()
        }),
        row::Data("labels[1][2] is 4294967295, which is not an id: ids are 32-bit signed integers", |_| {
            masked(&[[1, 2]], &[u32::MAX])
        }),
        row::Data("a label is at [2][0], but the batch has 2 sequences of 3 tokens", |_| {
            masked(&[[2, 0]], &[7])
        }),
        row::Data("the token at [0][1] has two labels; keep one of them", |_| {
            masked(&[[0, 1], [0, 1]], &[7, 5])
        }),
        row::Data(
            "the head's bias has 10 rows, but there are 12 word embeddings; resize both with the model's resize_vocabulary",
            |_| resized_without_its_head(BertForMaskedLmConfig::new(bert())),
        ),
        row::Data(
            "the head's decoder has 10 rows, but there are 12 word embeddings; resize both with the model's \
             resize_vocabulary",
            |_| resized_without_its_head(BertForMaskedLmConfig::new(bert()).with_tie_word_embeddings(false)),
        ),
        row::Data(
            "examples[1] has no word ids, which whole_word_masking needs; set them with with_word_ids or turn \
             whole_word_masking off",
            |_| {
                let collator =
                    MaskedLmCollatorConfig::new(10, 3, 0, vec![0]).with_whole_word_masking(true).init();
                let with = MaskedLmExample::new(vec![1, 7]).with_word_ids(vec![None, Some(0)]);
                let without = MaskedLmExample::new(vec![1, 7]);
                collator.collate(&[with, without], 0, &device()).unwrap_err()
            },
        ),
    ]
}
