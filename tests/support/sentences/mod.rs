//! The sentence model of the fixtures, and their batches.

use super::parity::{collected, fixtures, keys};
use super::tolerance::{F64, MODEL_F32, Tolerance, values};
use super::whole_model::File;
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::model::*;
use burn_bert::{BertEmbeddingsInput, PaddingMask};
use std::collections::BTreeMap;

/// The dtypes of the fixtures, with the ends of their files' names.
pub const DTYPES: [(FloatDType, &str, Tolerance); 2] =
    [(FloatDType::F32, "f32", MODEL_F32), (FloatDType::F64, "f64", F64)];

/// Each pooling by its name in the fixtures.
pub const POOLINGS: [(Pooling, &str); 6] = [
    (Pooling::Cls, "cls"),
    (Pooling::Max, "max"),
    (Pooling::Mean, "mean"),
    (Pooling::MeanSqrtLen, "mean_sqrt_len_tokens"),
    (Pooling::WeightedMean, "weightedmean"),
    (Pooling::LastToken, "lasttoken"),
];

/// The tiny BERT, in training without dropout.
pub fn model(
    device: &Device,
    change: impl FnOnce(BertForSentenceEmbeddingConfig) -> BertForSentenceEmbeddingConfig,
) -> BertForSentenceEmbedding {
    let dir = fixtures().join("masked_lm/tiny_bert_encoder_only");
    let mut config = BertForSentenceEmbeddingConfig::from_pretrained(&dir).unwrap();
    assert_eq!((config.pooling, config.normalize), (Pooling::Mean, false));
    config.bert.embeddings.hidden_dropout_prob = 0.0;
    config.bert.attention_probs_dropout_prob = 0.0;
    let (model, report) =
        BertForSentenceEmbedding::from_pretrained_with(&change(config), &dir, device).unwrap();
    assert!(report.is_complete());
    assert_eq!(report.unused, ["pooler.dense.bias", "pooler.dense.weight"]);
    model
}

/// Sentences of a file, those of several columns behind each other.
pub fn sentences(
    case: &File,
    columns: &[&str],
    device: &Device,
) -> (BertEmbeddingsInput, Option<PaddingMask>) {
    let column =
        |name: &&str, part: &str| Tensor::<2, Int>::from_data(case.data(&format!("{name}.{part}")), device);
    let all = |part: &str| Tensor::cat(columns.iter().map(|name| column(name, part)).collect(), 0);
    let padding: PaddingMask = all("attention_mask").equal_elem(0).into();
    (BertEmbeddingsInput::from_ids(all("input_ids")).unwrap(), Some(padding))
}

/// Loss and gradients of a model, these by the names of the fixture.
pub fn run(
    model: &BertForSentenceEmbedding,
    batch: &SentencePairBatch,
) -> (Vec<f64>, BTreeMap<String, Vec<f64>>) {
    let loss = model.forward(batch).loss;
    let gradients = collected(model, Some(&loss.backward()));
    assert_eq!(gradients.len(), 37);
    let keys = keys(model, &fixtures().join("masked_lm/tiny_bert_encoder_only"));
    let named =
        gradients.into_iter().map(|(path, gradient)| (format!("grad.bert.{}", keys[&path].key), gradient));
    (values(loss), named.collect())
}
