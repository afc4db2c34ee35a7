//! Contrastive training in Burn's trainer: sentences find their partners.

use crate::tolerance::{F32, assert_close};
use crate::turn;
use burn::data::dataset::InMemDataset;
use burn::module::{Lora, Module, ParamGroup};
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::prelude::*;
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{InferenceStep, Learner, SupervisedTraining};
use burn_bert::BertEmbeddingsConfig;
use burn_bert::model::{
    BertForSentenceEmbedding, BertForSentenceEmbeddingConfig, BertModelConfig, MultipleNegativesRankingLoss,
    Pooling, PretrainedModel,
};
use burn_bert::optim::{AdamWConfig, adamw, layer_wise_decay};
use burn_bert::text::BertTokenizer;
use burn_bert::training::{
    LabelledLoader, ProgressLines, SentencePair, SentencePairBatcher, Training, TryBatcher,
};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Pairs in a batch: of so many candidates, one is right.
const BATCH: usize = 8;

/// Specials, eight questions, their eight answers, and eight words that mean nothing.
fn tokenizer(dir: &Path) -> BertTokenizer {
    let specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from);
    let words = ["q", "a", "w"].into_iter().flat_map(|kind| (0..BATCH).map(move |i| format!("{kind}{i}")));
    let words: Vec<String> = specials.into_iter().chain(words).collect();
    fs::write(dir.join("vocab.txt"), words.join("\n") + "\n").unwrap();
    BertTokenizer::from_pretrained(dir).unwrap()
}

/// Question i and answer i, among words that mean nothing; each batch has every question once. A negative has the
/// meaningless words of its question.
fn pairs(batches: std::ops::Range<usize>, with_negatives: bool) -> Vec<SentencePair> {
    let filler = |n: usize| format!("w{}", n * 7 % BATCH);
    let pair = |n: usize| SentencePair {
        anchor: format!("{} q{} {}", filler(n), n % BATCH, filler(n / BATCH + 3)),
        positive: format!("a{} {}", n % BATCH, filler(n / BATCH + n % 3)),
        negative: with_negatives.then(|| format!("{} {}", filler(n), filler(n / BATCH + 3))),
    };
    (batches.start * BATCH..batches.end * BATCH).map(pair).collect()
}

fn loader(dir: &Path, pairs: Vec<SentencePair>) -> Arc<LabelledLoader<SentencePairBatcher>> {
    let batcher = SentencePairBatcher::new(tokenizer(dir));
    let loader = LabelledLoader::new(InMemDataset::new(pairs), batcher, BATCH, &Device::default());
    Arc::new(loader.unwrap())
}

fn model(
    config: impl Fn(BertForSentenceEmbeddingConfig) -> BertForSentenceEmbeddingConfig,
) -> BertForSentenceEmbedding {
    let device = Device::default().autodiff();
    device.seed(5);
    let embeddings =
        BertEmbeddingsConfig::new().with_vocab_size(29).with_hidden_size(16).with_max_position_embeddings(16);
    let bert = BertModelConfig::new(embeddings)
        .with_num_hidden_layers(1)
        .with_num_attention_heads(2)
        .with_intermediate_size(32);
    config(BertForSentenceEmbeddingConfig::new(bert)).init(&device)
}

fn trained(model: BertForSentenceEmbedding, with_negatives: bool) -> BertForSentenceEmbedding {
    let dir = tempfile::tempdir().unwrap();
    let (train, valid) = (pairs(0..12, with_negatives), pairs(20..22, false));
    let training =
        SupervisedTraining::new(dir.path().join("run"), loader(dir.path(), train), loader(dir.path(), valid))
            .metrics((LossMetric::new(), AccuracyMetric::new()))
            .renderer(Box::new(ProgressLines::default()))
            .with_application_logger(None)
            .num_epochs(8);
    let optimizer = adamw(&AdamWConfig::new());
    let schedule = layer_wise_decay(ConstantLr::new(1e-2).into(), 1, 0.9).unwrap();
    let result = training.launch(Learner::new(Training::new(model), optimizer, schedule));
    assert!(result.error.is_none(), "{:?}", result.error);
    result.model.model
}

/// The share of unseen questions whose nearest vector of eight is that of their answer.
fn accuracy(model: &BertForSentenceEmbedding) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let batcher = SentencePairBatcher::new(tokenizer(dir.path()));
    let model = model.clone().valid();
    let mut right = 0;
    let unseen = pairs(30..40, false);
    for pairs in unseen.chunks(BATCH) {
        let batch = batcher.try_batch(pairs.to_vec(), &Device::default()).unwrap();
        let anchors = model.embed(&batch.anchors, batch.anchor_padding.as_ref()).unwrap();
        let candidates = model.embed(&batch.candidates, batch.candidate_padding.as_ref()).unwrap();
        let nearest = anchors.matmul(candidates.transpose()).argmax(1).into_data();
        right += nearest.iter::<i64>().zip(0..).filter(|(found, own)| found == own).count();
    }
    right as f64 / unseen.len() as f64
}

#[test]
fn questions_find_their_answers_after_training_and_not_before() {
    let _turn = turn();
    let model = model(|config| config);
    let before = accuracy(&model);
    assert!(before < 0.35, "chance is 0.125, but an untrained model has {before}");
    let after = accuracy(&trained(model, false));
    println!("retrieval accuracy {before} → {after}");
    assert!(after > 0.95, "{before} → {after}");
}

#[test]
fn hard_negatives_and_both_directions_are_learned_too() {
    let _turn = turn();
    let loss = MultipleNegativesRankingLoss::new().with_symmetric(true);
    let model = model(|config| config.with_pooling(Pooling::Max).with_loss(loss.clone()));
    let after = accuracy(&trained(model, true));
    assert!(after > 0.95, "{after}");
}

#[test]
fn frozen_embeddings_stay_and_adapters_are_merged_and_saved() {
    let _turn = turn();
    let group = |pattern: &str| ParamGroup::from_regex(pattern).unwrap();
    let model = model(|config| config);
    let values = |tensor: Tensor<2>| crate::tolerance::values(tensor);
    let words = |model: &BertForSentenceEmbedding| values(model.bert.embeddings.word_embeddings.weight.val());
    let before = words(&model);
    let frozen = trained(model.clone().set_require_grad_group(group(r"^bert\.embeddings\."), false), false);
    assert_eq!(words(&frozen), before);
    assert!(accuracy(&frozen) > accuracy(&model), "{}", accuracy(&frozen));

    let lora = Lora::new(4, 8.0).set_param_group(group(r"encoder\.layers\..*\.weight$"));
    let adapted = trained(model.clone().apply_lora(lora), false);
    let merged = adapted.clone().materialize();
    assert_eq!(words(&merged), before);
    assert!(accuracy(&merged) > accuracy(&model), "{}", accuracy(&merged));
    let dir = tempfile::tempdir().unwrap();
    merged.save_pretrained(dir.path()).unwrap();
    let (read, report) = BertForSentenceEmbedding::from_pretrained(dir.path(), &Device::default()).unwrap();
    assert!(report.is_complete(), "{report}");
    let batcher = SentencePairBatcher::new(tokenizer(dir.path()));
    let batch = batcher.try_batch(pairs(3..4, false), &Device::default()).unwrap();
    let embed = |model: &BertForSentenceEmbedding| {
        values(model.embed(&batch.anchors, batch.anchor_padding.as_ref()).unwrap())
    };
    assert_eq!(embed(&read), embed(&merged.clone().valid()));
    assert_close(&embed(&read), &embed(&adapted.valid()), F32);
}

#[test]
fn a_step_gives_the_metrics_scores_and_the_diagonal() {
    let dir = tempfile::tempdir().unwrap();
    let _turn = turn();
    let batcher = SentencePairBatcher::new(tokenizer(dir.path()));
    let batch = |with_negatives| batcher.try_batch(pairs(0..1, with_negatives), &Device::default()).unwrap();
    let model = model(|config| config).valid();
    let output = InferenceStep::step(&model, batch(true));
    assert_eq!((output.output.dims(), output.targets.dims()), ([8, 16], [8]));
    let targets: Vec<i64> = output.targets.into_data().iter().collect();
    assert_eq!(targets, (0..8).collect::<Vec<_>>());
    assert_eq!(InferenceStep::step(&model, batch(false)).output.dims(), [8, 8]);
    let pair = SentencePair::new("q1", "a1");
    assert_eq!(pair, SentencePair { anchor: "q1".into(), positive: "a1".into(), negative: None });
    assert!(batcher.try_batch(Vec::new(), &Device::default()).is_err());
}
