//! Dropout is active in training alone: what is frozen, whole models and heads. `tests/backend` has the layer on each device.

use crate::small_bert::small;
use crate::tolerance::values;
use crate::turn;
use burn::module::{Module, Param, ParamGroup};
use burn::nn::Linear;
use burn::prelude::*;
use burn_bert::model::{
    BertForSentenceEmbeddingConfig, BertForSequenceClassificationConfig, BertForTokenClassificationConfig,
    BertModelConfig, SentenceModuleConfig,
};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};

const DROPOUT: f64 = 0.25;

fn module(device: &Device) -> BertEmbeddings {
    device.seed(1);
    BertEmbeddingsConfig::new()
        .with_vocab_size(20)
        .with_hidden_size(16)
        .with_max_position_embeddings(12)
        .with_hidden_dropout_prob(DROPOUT)
        .init(device)
}

/// The share of zeros.
fn zeros<const D: usize>(output: Tensor<D>) -> f64 {
    let output = values(output);
    output.iter().filter(|&&value| value == 0.0).count() as f64 / output.len() as f64
}

#[test]
fn freeze_turns_dropout_off_and_no_grad_does_not() {
    let _turn = turn();
    let device = Device::default().autodiff();
    let ids = [[4, 5, 6, 7, 0, 0], [9, 8, 7, 6, 5, 4]];
    let input = BertEmbeddingsInput::from_rows(&ids, &Device::default()).unwrap();
    // Without dropout LayerNorm gives no zero.
    let dropped = |module: &BertEmbeddings| zeros(module.forward(&input));
    let frozen = module(&device).freeze();
    assert_eq!(dropped(&frozen), 0.0);
    // Not even through valid() and back: what was frozen stays frozen.
    assert_eq!(dropped(&frozen.clone().valid().train()), 0.0);
    assert_ne!(dropped(&frozen.unfreeze()), 0.0);
    assert_ne!(dropped(&module(&device).no_grad()), 0.0);
    let of_tables = module(&device).freeze_group(ParamGroup::from_predicate("weight"));
    assert_ne!(dropped(&of_tables), 0.0);
    assert!(!of_tables.word_embeddings.weight.val().is_require_grad());
    assert!(of_tables.layer_norm.as_ref().unwrap().gamma.val().is_require_grad());
}

/// Ids and vectors that were made on an autodiff device, and moved to a plain one, keep that device's mark in Burn.
#[test]
fn a_plain_model_drops_nothing_whatever_device_its_batch_was_made_on() {
    let _turn = turn();
    let (plain, training) = (Device::default(), Device::default().autodiff());
    let ids: [[i32; 4]; 2] = [[4, 5, 6, 7], [9, 8, 7, 6]];
    let rows = |device| BertEmbeddingsInput::from_rows(&ids, device).unwrap();
    let tensor = Tensor::<2, Int>::from_data(ids, &training);
    let vectors =
        Tensor::<3>::ones([2, 4, 16], &training) * Tensor::arange(0..16, &training).float().unsqueeze();
    let batches = [
        rows(&training),
        rows(&training).to_device(&plain),
        BertEmbeddingsInput::from_ids(tensor.clone()).unwrap(),
        BertEmbeddingsInput::from_ids(tensor.clone()).unwrap().to_device(&plain),
        rows(&plain).with_token_type_ids(tensor.clone() % 2).unwrap(),
        BertEmbeddingsInput::from_embeds(vectors.clone()).unwrap(),
        BertEmbeddingsInput::from_embeds(vectors.clone()).unwrap().to_device(&plain),
    ];
    for published in [BertModelConfig::bert_base_uncased(), BertModelConfig::roberta_base()] {
        let mut bert = small(published, 20, 16).with_attention_probs_dropout_prob(0.5);
        bert.embeddings.type_vocab_size = 2;
        bert.embeddings.hidden_dropout_prob = 0.5;
        let sequences = |device| BertForSequenceClassificationConfig::new(bert.clone()).init(device);
        let tokens = |device| BertForTokenClassificationConfig::new(bert.clone()).init(device);
        for (sequences, tokens) in
            [(sequences(&plain), tokens(&plain)), (sequences(&training).valid(), tokens(&training).valid())]
        {
            for (i, batch) in batches.iter().enumerate() {
                let run = || {
                    [
                        values(sequences.logits(batch, None).unwrap()),
                        values(tokens.logits(batch, None).unwrap()),
                        values(sequences.bert.encoder.forward(vectors.clone(), None)),
                    ]
                };
                assert_eq!(run(), run(), "batch {i}");
                let output = tokens.bert.forward(batch, None).last_hidden_state;
                assert_eq!(output.is_autodiff(), batch.input_ids().is_none(), "batch {i}, for Burn's");
            }
        }
    }
}

/// With the identity in the place of a head's matrices, scores are what dropout leaves: RoBERTa's head drops twice.
#[test]
fn heads_of_classifiers_drop_what_their_matrices_read() {
    let _turn = turn();
    let device = Device::default().autodiff();
    device.seed(1);
    let labels = 64;
    let identity = || Linear { weight: Param::from_tensor(Tensor::eye(labels, &device)), bias: None };
    let ids: Vec<Vec<i32>> = (0..32).map(|row| vec![row % 18 + 2, (row * 7) % 18 + 2]).collect();
    let input = BertEmbeddingsInput::from_rows(&ids, &device).unwrap();
    let near = |found: f64, expected: f64, what: &str| {
        assert!((found - expected).abs() < 0.05, "{what}: {found} of the scores are 0, not {expected}");
    };
    for (published, share) in [
        (BertModelConfig::bert_base_uncased(), DROPOUT),
        (BertModelConfig::roberta_base(), 1.0 - (1.0 - DROPOUT) * (1.0 - DROPOUT)),
    ] {
        let bert = small(published, 20, labels);
        let config = BertForSequenceClassificationConfig::new(bert.clone()).with_num_labels(labels);
        let mut model = config.with_classifier_dropout(Some(DROPOUT)).init(&device);
        model.classifier.out_proj = identity();
        model.classifier.dense = model.classifier.dense.map(|_| identity());
        near(zeros(model.logits(&input, None).unwrap()), share, "sequences");
        assert_eq!(zeros(model.freeze().logits(&input, None).unwrap()), 0.0);

        let config = BertForSentenceEmbeddingConfig::new(bert.clone()).with_normalize(false);
        let model = config.with_modules(vec![SentenceModuleConfig::Dropout(DROPOUT)]).init(&device);
        near(zeros(model.embed(&input, None).unwrap()), DROPOUT, "sentences");
        assert_eq!(zeros(model.freeze().embed(&input, None).unwrap()), 0.0);

        let config = BertForTokenClassificationConfig::new(bert).with_num_labels(labels);
        let mut model = config.with_classifier_dropout(Some(DROPOUT)).init(&device);
        model.classifier = identity();
        near(zeros(model.logits(&input, None).unwrap()), DROPOUT, "tokens");
        assert_eq!(zeros(model.freeze().logits(&input, None).unwrap()), 0.0);
    }
}
