//! Configs, batches and tables of another size. `tests/backend` has ids without a row and sequences that are too long.

use super::{Row, bert, embeddings, input, input_of, row};
use crate::prelude::*;

pub fn rows() -> Vec<Row> {
    vec![
        row::Config(
            "invalid config: label_thresholds are [0.5, 1.0], but must be a probability in (0, 1) for each of the 2 labels of \
             MultiLabelClassification; leave them out for 0.5",
            |_| {
                let config = BertForSequenceClassificationConfig::new(bert());
                let config = config.with_problem_type(Some(ProblemType::MultiLabelClassification));
                config.with_label_thresholds(Some(vec![0.5, 1.0])).try_init(&device()).unwrap_err()
            },
        ),
        row::Config("invalid config: class_weights are given, but a regression has no classes", |_| {
            let config = BertForSequenceClassificationConfig::new(bert());
            let config = config.with_problem_type(Some(ProblemType::Regression));
            config.with_class_weights(Some(vec![1.0, 2.0])).try_init(&device()).unwrap_err()
        }),
        row::IdOverflow(
            "input_ids[0][1] does not fit a 32-bit signed integer; no embedding has such an id",
            |_| BertEmbeddingsInput::from_rows(&[[1, 1i64 << 40]], &device()).unwrap_err(),
        ),
        row::SequenceTooLong(
            "the sequence needs position 6 (input_ids[0] has 5 tokens that are not padding, after 0 past ones, and \
             positions start at 2), but there are 6 position embeddings (valid ids: 0..=5); shorten the sequence or \
             extend max_position_embeddings",
            |_| {
                let config = embeddings()
                    .with_pad_token_id(Some(1))
                    .with_position_embedding_type(PositionEmbeddingType::AfterPadding);
                config.init(&device()).try_forward(&input_of(&[[2, 7, 8, 9, 3]])).unwrap_err()
            },
        ),
        row::SequenceTooLong(
            "the sequence needs position 6 (7 tokens with relative positions), but there are 6 position embeddings \
             (valid ids: 0..=5); shorten the sequence or extend max_position_embeddings",
            |_| {
                let mut config = bert();
                config.embeddings.position_embedding_type = PositionEmbeddingType::RelativeKey;
                config.init(&device()).try_forward(&input_of(&[[2; 7]]), None).unwrap_err()
            },
        ),
        row::RaggedRows(
            "input_ids[1] has 2 entries, but input_ids[0] has 3; pad all rows to one length",
            |_| BertEmbeddingsInput::from_rows(&[vec![1, 2, 3], vec![1, 2]], &device()).unwrap_err(),
        ),
        row::RaggedRows("padding[1] has 2 entries, but padding[0] has 1; pad all rows to one length", |_| {
            PaddingMask::from_rows(&[vec![false], vec![false, true]]).unwrap_err()
        }),
        row::ShapeMismatch(
            "token_type_ids has shape [1, 3], but expected [2, 3], the shape of the tokens",
            |_| input().with_token_type_ids(&[[0, 0, 0]]).unwrap_err(),
        ),
        row::ShapeMismatch("hidden has shape [1, 5], but expected [N, 4]", |_| {
            let model = BertForMaskedLmConfig::new(bert()).init(&device());
            model.scores(Tensor::zeros([1, 5], &device())).unwrap_err()
        }),
        row::ShapeMismatch(
            "candidates has shape [1, 2], but expected [2 or more, 2], at least one per anchor",
            |_| SentencePairBatch::new((input(), None), (input_of(&[[2, 3]]), None)).unwrap_err(),
        ),
        row::DTypeMismatch("inputs_embeds is F64, but the module is F32; cast one of them", |_| {
            let vectors = Tensor::ones([1, 2, 4], (&device(), DType::F64));
            let input = BertEmbeddingsInput::from_embeds(vectors).unwrap();
            embeddings().init(&device()).try_forward(&input).unwrap_err()
        }),
        row::DTypeMismatch("hidden is F64, but the module is F32; cast one of them", |_| {
            let model = BertForMaskedLmConfig::new(bert()).init(&device());
            model.scores(Tensor::ones([1, 4], (&device(), DType::F64))).unwrap_err()
        }),
        #[cfg(all(feature = "flex", feature = "ndarray"))]
        row::DeviceMismatch(
            "input_ids is on Device<NdArray(Cpu)>, but Device<Flex(Cpu)> is needed; move it there with to_device",
            |_| {
                let there = input().to_device(&crate::devices::ndarray());
                embeddings().init(&crate::devices::flex()).try_forward(&there).unwrap_err()
            },
        ),
        row::Empty(
            "input_ids has shape [2, 0]: a batch needs at least one sequence of at least one token",
            |_| BertEmbeddingsInput::from_rows(&[[0; 0]; 2], &device()).unwrap_err(),
        ),
        row::Resize(
            "cannot resize the word embeddings: 0 rows, rounded up to a multiple of 8, cannot be a number of embeddings",
            |_| {
                let resize = VocabularyResize::new(0).with_pad_to_multiple_of(8);
                embeddings().init(&device()).resize_vocabulary(&resize).unwrap_err()
            },
        ),
        row::Resize("cannot resize the position embeddings: it has 6 rows already, more than 5", |_| {
            let mut module = embeddings().init(&device());
            module.extend_positions(5, PositionFill::Tile).unwrap_err()
        }),
    ]
}
