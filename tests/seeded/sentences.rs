//! Contrastive training in Burn's trainer: sentences find their partners.

use crate::tolerance::{F32, assert_close, parameters};
use crate::turn;
use burn::data::dataloader::{DataLoader, Progress};
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::prelude::*;
use burn::train::metric::{AccuracyMetric, Adaptor, LossMetric, Metric, MetricMetadata, Numeric};
use burn::train::renderer::CliMetricsRenderer;
use burn::train::{InferenceStep, Learner, SupervisedTraining};
use burn_bert::data::{
    Batches, Columns, EpochLoader, SentencePair, SentencePairBatcher, SentencePairs, TryBatcher,
};
use burn_bert::metrics::{RetrievalMetric, SpearmanMetric, TripletMetric};
use burn_bert::model::{
    BertForSentenceEmbedding, BertForSentenceEmbeddingConfig, BertModelConfig, CoSentLoss, MatryoshkaLoss,
    MultipleNegativesRankingLoss, Pooling, SentenceLoss, TripletLoss,
};
use burn_bert::optim::{AdamWConfig, adamw, layer_wise_decay};
use burn_bert::text::BertTokenizer;
use burn_bert::training::Training;
use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput, PaddingMask};
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
        negatives: match with_negatives {
            true => vec![format!("{} {}", filler(n), filler(n / BATCH + 3))],
            false => Vec::new(),
        },
        label: None,
    };
    (batches.start * BATCH..batches.end * BATCH).map(pair).collect()
}

fn loader(dir: &Path, pairs: Vec<SentencePair>) -> Arc<EpochLoader<SentencePairBatcher>> {
    let batcher = SentencePairBatcher::new(tokenizer(dir));
    let loader = EpochLoader::new(Batches::new(InMemDataset::new(pairs), batcher), BATCH, &Device::default());
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
    let (train, valid) = (pairs(0..12, with_negatives), pairs(20..22, with_negatives));
    let training =
        SupervisedTraining::new(dir.path().join("run"), loader(dir.path(), train), loader(dir.path(), valid))
            .metrics((LossMetric::new(), AccuracyMetric::new()))
            .renderer(Box::new(CliMetricsRenderer::new()))
            .with_application_logger(None)
            .num_epochs(8);
    let optimizer = adamw(&AdamWConfig::new()).unwrap();
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
    let model = model(|config| config.with_pooling(Pooling::Max).with_loss(loss.clone().into()));
    let after = accuracy(&trained(model, true));
    assert!(after > 0.95, "{after}");
}

#[test]
fn a_step_gives_the_metrics_scores_and_the_diagonal() {
    let dir = tempfile::tempdir().unwrap();
    let _turn = turn();
    let batcher = SentencePairBatcher::new(tokenizer(dir.path()));
    let batch = |with_negatives| batcher.try_batch(pairs(0..1, with_negatives), &Device::default()).unwrap();
    let model = model(|config| config).valid();
    let output = InferenceStep::step(&model, batch(true));
    assert_eq!((output.anchors.dims(), output.candidates.dims()), ([8, 16], [16, 16]));
    let metadata = MetricMetadata { progress: Progress::new(1, 1, None), iteration: None, lr: None };
    macro_rules! score {
        ($metric:expr, $item:expr) => {{
            let mut metric = $metric;
            metric.update(&$item.adapt(), &metadata).unwrap();
            metric.final_value().current()
        }};
    }
    // Scores from the vectors themselves.
    let rows = |vectors: &Tensor<2>| -> Vec<Vec<f64>> {
        crate::tolerance::values(vectors.clone()).chunks(16).map(<[f64]>::to_vec).collect()
    };
    let (anchors, candidates) = (rows(&output.anchors), rows(&output.candidates));
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let share = |count: &dyn Fn(usize) -> bool| (0..8).filter(|&i| count(i)).count() as f64 / 8.0;
    let own = |i: usize| dot(&anchors[i], &candidates[i]);
    let nearest = share(&|i| (0..16).all(|j| j == i || dot(&anchors[i], &candidates[j]) < own(i)));
    assert_eq!(score!(AccuracyMetric::new(), output), 100.0 * nearest);
    assert_eq!(score!(RetrievalMetric::accuracy(1), output), nearest);
    let ordered = share(&|i| own(i) > dot(&anchors[i], &candidates[8 + i]));
    assert_eq!(score!(TripletMetric::new(), output), ordered);
    assert!(score!(SpearmanMetric::new(), output).is_nan(), "there are no labels");

    let labels: Vec<f32> = (0..8).map(|i| own(i) as f32 * 2.0 - 1.0).collect();
    let scored = InferenceStep::step(
        &with_loss(&model, SentenceLoss::CosineSimilarity),
        batch(false).with_labels(&labels).unwrap(),
    );
    assert_eq!(score!(SpearmanMetric::new(), scored), 1.0);
    let loss =
        labels.iter().map(|&y| (f64::from(y) + 1.0) / 2.0 - f64::from(y)).map(|d| d * d).sum::<f64>() / 8.0;
    assert_close(&[score!(LossMetric::new(), scored)], &[loss], F32);
    assert!(score!(AccuracyMetric::new(), scored).is_nan() && score!(TripletMetric::new(), scored).is_nan());
    assert!(score!(RetrievalMetric::accuracy(1), scored).is_nan());

    let pair = SentencePair::new("q1", "a1");
    let same =
        SentencePair { anchor: "q1".into(), positive: "a1".into(), negatives: Vec::new(), label: None };
    assert_eq!(pair, same);
    assert!(batcher.try_batch(Vec::new(), &Device::default()).is_err());
}

/// The model with another loss.
fn with_loss(model: &BertForSentenceEmbedding, loss: SentenceLoss) -> BertForSentenceEmbedding {
    let other = model.config().with_loss(loss).init(&Device::default());
    let record = model.clone().into_record();
    other.try_load_record(record).unwrap()
}

/// A file of questions with each of the eight answers, of which two have something to do with the question.
fn scored(dir: &Path, name: &str, first: usize) -> SentencePairs {
    let mut text = String::new();
    for n in first * BATCH * 8..(first + 2) * BATCH * 8 {
        let (question, answer) = (n % BATCH, n / BATCH % BATCH);
        let score = match (answer + BATCH - question) % BATCH {
            0 => 1.0,
            1 => 0.5,
            _ => 0.0,
        };
        let filler = |n: usize| n * 7 % BATCH;
        text += &format!(
            "{{\"sentence1\": \"w{} q{question}\", \"sentence2\": \"a{answer} w{}\", \"score\": {score}}}\n",
            filler(n / 3),
            filler(n / 5 + 1)
        );
    }
    fs::write(dir.join(name), text).unwrap();
    SentencePairs::open(dir.join(name), &Columns::default()).unwrap()
}

#[test]
fn scored_pairs_of_a_file_are_learned_with_each_loss_of_pairs() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    for (loss, mini_batch_size) in [
        (SentenceLoss::CosineSimilarity, None),
        (MatryoshkaLoss::new(CoSentLoss::new(), [16, 4]).into(), Some(12)),
    ] {
        let load = |pairs: SentencePairs, seed: Option<u64>| {
            let batcher = SentencePairBatcher::new(tokenizer(dir.path()));
            let loader = EpochLoader::new(Batches::new(pairs, batcher), 32, &Device::default()).unwrap();
            seed.into_iter().fold(loader, EpochLoader::with_shuffling)
        };
        let train = load(scored(dir.path(), "train.jsonl", 0), Some(3));
        let valid = load(scored(dir.path(), "valid.jsonl", 2), None);
        let model = model(|config| config.with_loss(loss.clone()).with_mini_batch_size(mini_batch_size));
        let score = |model: &BertForSentenceEmbedding| {
            let (model, mut metric) = (model.clone().valid(), SpearmanMetric::new());
            let metadata = MetricMetadata { progress: Progress::new(1, 1, None), iteration: None, lr: None };
            for batch in valid.iter() {
                let item = InferenceStep::step(&model, batch.unwrap());
                metric.update(&item.adapt(), &metadata).unwrap();
            }
            metric.final_value().current()
        };
        let before = score(&model);
        let training =
            SupervisedTraining::new(dir.path().join("run"), Arc::new(train), Arc::new(valid.clone()))
                .metrics((LossMetric::new(), SpearmanMetric::new()))
                .renderer(Box::new(CliMetricsRenderer::new()))
                .with_application_logger(None)
                .num_epochs(40);
        let schedule = ConstantLr::new(1e-2);
        let result = training.launch(Learner::new(
            Training::new(model),
            adamw(&AdamWConfig::new()).unwrap(),
            schedule,
        ));
        assert!(result.error.is_none(), "{:?}", result.error);
        let after = score(&result.model.model);
        println!("{loss:?}: Spearman {before:.4} → {after:.4}");
        // With three of four labels equal, it is 0.76 at most.
        assert!(before < 0.2 && after > 0.5, "{before} → {after}");
    }
}

#[test]
fn triplets_are_learned() {
    let _turn = turn();
    let loss = TripletLoss::new().with_triplet_margin(1.0);
    let model = model(|config| config.with_normalize(false).with_loss(loss.clone().into()));
    // The share of unseen anchors that are nearer to their positive than to their negative.
    let dir = tempfile::tempdir().unwrap();
    let batcher = SentencePairBatcher::new(tokenizer(dir.path()));
    let unseen = batcher.try_batch(pairs(30..40, true), &Device::default()).unwrap();
    let score = |model: &BertForSentenceEmbedding| {
        let metadata = MetricMetadata { progress: Progress::new(1, 1, None), iteration: None, lr: None };
        let item = InferenceStep::step(&model.clone().valid(), unseen.clone());
        let mut metric = TripletMetric::new();
        metric.update(&item.adapt(), &metadata).unwrap();
        metric.final_value().current()
    };
    let before = score(&model);
    let after = score(&trained(model, true));
    println!("accuracy of triplets {before} → {after}");
    assert!(before < 0.9 && after > 0.9, "{before} → {after}");
}

/// The backward computes what the forward computed, with the same masks: as if everything had been kept.
#[test]
fn mini_batches_are_computed_again_with_the_same_dropout() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let batcher = SentencePairBatcher::new(tokenizer(dir.path()));
    let pairs = pairs(0..1, true);
    let batch = batcher.try_batch(pairs.clone(), &Device::default()).unwrap();
    let loss = SentenceLoss::from(MultipleNegativesRankingLoss::new());
    for size in [3, 100] {
        let device = Device::default().autodiff();
        // The parameters of a model are drawn when they are first used.
        let new = || model(|config| config.with_mini_batch_size(Some(size)));
        let drawn = new();
        drawn.forward(&batch);
        let kept = {
            device.seed(7);
            let parts = |input: &BertEmbeddingsInput, padding: &Option<PaddingMask>| {
                let ids: Vec<Vec<i32>> = input
                    .input_ids()
                    .unwrap()
                    .iter_dim(0)
                    .map(|row| row.into_data().iter().collect())
                    .collect();
                let mask: Option<Vec<Vec<bool>>> =
                    padding.as_ref().map(|mask| mask.rows().map(<[bool]>::to_vec).collect());
                let parts = (0..ids.len()).step_by(size).map(|first| {
                    let range = first..ids.len().min(first + size);
                    let input = BertEmbeddingsInput::from_rows(&ids[range.clone()], &device).unwrap();
                    let mask = mask.as_ref().map(|mask| PaddingMask::from_rows(&mask[range]).unwrap());
                    drawn.embed(&input, mask.as_ref()).unwrap()
                });
                Tensor::cat(parts.collect(), 0)
            };
            let anchors = parts(&batch.anchors, &batch.anchor_padding);
            let candidates = parts(&batch.candidates, &batch.candidate_padding);
            parameters(&drawn, Some(&loss.forward(anchors, candidates, None).backward()))
        };
        device.seed(7);
        let found = drawn.forward(&batch).loss;
        drawn.forward(&batch); // draws between forward and backward are not those of the backward
        let found = parameters(&drawn, Some(&found.backward()));
        assert!(kept.values().flatten().any(|&gradient| gradient != 0.0));
        assert!(found.keys().eq(kept.keys()));
        for (path, kept) in &kept {
            assert_close(&found[path], kept, F32);
        }
        device.seed(8);
        let other = parameters(&drawn, Some(&drawn.forward(&batch).loss.backward()));
        assert!(other != kept, "another dropout");
        // A model that nothing has used before.
        let fresh = new();
        let found = parameters(&fresh, Some(&fresh.forward(&batch).loss.backward()));
        assert!(found.keys().eq(parameters(&fresh, None).keys()), "every parameter has a gradient");
    }
}
