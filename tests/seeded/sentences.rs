//! Sentence embeddings: what a step gives to metrics, and dropout in mini-batches.

use crate::prelude::*;
use burn::data::dataloader::Progress;
use burn::train::metric::{AccuracyMetric, LossMetric, MetricMetadata};

/// Pairs in a batch: of so many candidates, one is right.
const BATCH: usize = 8;

fn tokenizer() -> BertTokenizer {
    let words = ["q", "a", "w"].into_iter().flat_map(|kind| (0..BATCH).map(move |i| format!("{kind}{i}")));
    let words: Vec<String> = words.collect();
    tokenizer_of(&words.iter().map(String::as_str).collect::<Vec<_>>())
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

fn model(
    config: impl Fn(BertForSentenceEmbeddingConfig) -> BertForSentenceEmbeddingConfig,
) -> BertForSentenceEmbedding {
    let device = Device::default().autodiff();
    device.seed(5);
    config(BertForSentenceEmbeddingConfig::new(small_bert(29))).init(&device)
}

#[test]
fn a_step_gives_the_metrics_scores_and_the_diagonal() {
    let _turn = turn();
    let batch = |pairs: &[_]| SentencePair::batch(pairs, &tokenizer(), &Device::default());
    let of_pairs = |with_negatives| batch(&pairs(0..1, with_negatives)).unwrap();
    let model = model(|config| config).valid();
    let output = model.outcome(&of_pairs(true)).unwrap().output;
    assert_eq!((output.anchors.dims(), output.candidates.dims()), ([8, 16], [16, 16]));
    let of_validation = MetricMetadata { progress: Progress::new(1, 1, None), iteration: None, lr: None };
    macro_rules! score {
        ($metric:expr, $item:expr) => {{
            let mut metric = $metric;
            metric.update(&$item.adapt(), &of_validation).unwrap();
            metric.final_value().current()
        }};
    }
    // Scores from the vectors themselves.
    let rows = |vectors: &Tensor<2>| -> Vec<Vec<f64>> {
        values(vectors.clone()).chunks(16).map(<[f64]>::to_vec).collect()
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
    let other = model.config().with_loss(SentenceLoss::CosineSimilarity).init(&Device::default());
    let other = other.try_load_record(model.into_record()).unwrap();
    let scored = other.outcome(&of_pairs(false).with_labels(&labels).unwrap()).unwrap().output;
    assert_eq!(score!(SpearmanMetric::new(), scored), 1.0);
    let loss =
        labels.iter().map(|&y| (f64::from(y) + 1.0) / 2.0 - f64::from(y)).map(|d| d * d).sum::<f64>() / 8.0;
    assert_close(&[score!(LossMetric::new(), scored)], &[loss], F32);
    assert!(score!(AccuracyMetric::new(), scored).is_nan() && score!(TripletMetric::new(), scored).is_nan());
    assert!(score!(RetrievalMetric::accuracy(1), scored).is_nan());

    assert!(batch(&[]).is_err());
}

/// The backward computes what the forward computed, with the same masks: as if everything had been kept.
#[test]
fn mini_batches_are_computed_again_with_the_same_dropout() {
    let _turn = turn();
    let pairs = pairs(0..1, true);
    let batch = SentencePair::batch(&pairs, &tokenizer(), &Device::default()).unwrap();
    let loss = SentenceLoss::from(MultipleNegativesRankingLoss::new());
    for size in [3, 100] {
        let device = Device::default().autodiff();
        // The parameters of a model are drawn when they are first used.
        let modules = vec![
            SentenceModuleConfig::Dropout(0.5),
            SentenceModuleConfig::Normalize,
            SentenceDenseConfig::new(7).with_use_residual(true).into(),
            SentenceModuleConfig::LayerNorm,
        ];
        let new = || {
            let config = |config: BertForSentenceEmbeddingConfig| config.with_mini_batch_size(Some(size));
            model(|own| config(own).with_modules(modules.clone()).with_layer_start(Some(0)))
        };
        let drawn = new();
        drawn.forward(&batch);
        let kept = {
            device.seed(7);
            let parts = |input: &BertEmbeddingsInput, padding: &Option<PaddingMask>| {
                let mask: Option<Vec<&[bool]>> = padding.as_ref().map(|mask| mask.rows().collect());
                let mut first = 0;
                let parts = input.input_ids().unwrap().split(size, 0).into_iter().map(|ids| {
                    let rows = first..first + ids.dims()[0];
                    first = rows.end;
                    let mask = mask.as_ref().map(|mask| PaddingMask::from_rows(&mask[rows]).unwrap());
                    drawn.embed(&BertEmbeddingsInput::from_ids(ids).unwrap(), mask.as_ref()).unwrap()
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

/// A pipeline of the model, whose vectors differ in length.
fn pipeline(similarity: Similarity) -> Pipeline<BertForSentenceEmbedding> {
    let loss = SentenceLoss::from(MultipleNegativesRankingLoss::new());
    let model = model(|config| config.with_similarity(similarity).with_loss(loss.clone()));
    Pipeline::new(crate::small_bert::larger(model), tokenizer()).unwrap()
}

#[test]
fn the_default_score_of_pairs_is_by_the_models_own_similarity() {
    let (_turn, dir) = (turn(), tempdir().unwrap());
    let data = || SentencePairs::new(pairs(0..6, false), Vec::new()).unwrap();
    let arguments = TrainingArguments::new(dir.path().join("out")).with_silent(true);
    let accuracy = |similarity: Similarity| {
        let pipeline = pipeline(similarity);
        let found = evaluate(&pipeline, data(), &arguments).unwrap()["Accuracy@1"];
        let pairs = pairs(0..6, false);
        let embed = |texts: &[&String]| pipeline.encode(texts, &TextOptions::new()).unwrap();
        // Several anchors have one positive, which is one document.
        let mut documents: Vec<&String> = Vec::new();
        for pair in &pairs {
            if !documents.contains(&&pair.positive) {
                documents.push(&pair.positive);
            }
        }
        assert!(documents.len() < pairs.len());
        let anchors = embed(&pairs.iter().map(|pair| &pair.anchor).collect::<Vec<_>>());
        let rows = values(similarity.between(anchors, embed(&documents)));
        let mut scores = RetrievalScores::default();
        for (row, pair) in rows.chunks(documents.len()).zip(&pairs) {
            let own = documents.iter().position(|document| **document == pair.positive);
            scores.add(row, &[own.unwrap()]);
        }
        assert_eq!(found, scores.accuracy(1), "{similarity:?}");
        found
    };
    let found =
        [Similarity::Cosine, Similarity::Dot, Similarity::Euclidean, Similarity::Manhattan].map(accuracy);
    assert!(found[1..].iter().any(|other| *other != found[0]), "none differs from the cosine: {found:?}");
}

#[test]
fn an_evaluation_has_no_pair_of_a_batch_among_the_negatives_of_another() {
    let (_turn, dir) = (turn(), tempdir().unwrap());
    let base = pairs(0..1, false);
    let data = |order: &[usize]| {
        SentencePairs::new(order.iter().map(|&i| base[i].clone()).collect(), Vec::new()).unwrap()
    };
    let arguments = TrainingArguments::new(dir.path().join("out")).with_silent(true).with_batch_size(4);
    let pipeline = pipeline(Similarity::Cosine);
    let loss = |order: &[usize], no_duplicates| {
        evaluate(&pipeline, data(order), &arguments.clone().with_no_duplicates(no_duplicates)).unwrap()["Loss"]
    };
    // Sorted by the anchor, as a file with several positives of each is.
    let sorted = [0, 0, 1, 1, 2, 2, 3, 3];
    assert_eq!(loss(&sorted, true), loss(&[0, 1, 2, 3, 0, 1, 2, 3], false));
    assert!(loss(&sorted, false) != loss(&sorted, true), "of a copy the positive is a negative");
}
