//! What metrics do once an epoch and not once a batch. Times are compared with each other, by far more than a busy machine changes
//! them.

use crate::prelude::*;
use burn::data::dataloader::Progress;
use burn::train::metric::{Metric, MetricMetadata, Numeric};
use burn_bert::metrics::{ConfusionMatrix, RetrievalInput, RetrievalMetric};
use std::time::{Duration, Instant};

/// The least of three.
fn time(run: impl Fn()) -> Duration {
    let one = || {
        let began = Instant::now();
        run();
        began.elapsed()
    };
    (0..3).map(|_| one()).min().unwrap()
}

#[test]
fn a_score_of_a_confusion_matrix_does_not_look_at_every_pair_of_classes() {
    const CLASSES: usize = 300;
    let matrix = |others: usize| {
        let mut matrix = ConfusionMatrix::default();
        let pairs = (0..CLASSES).flat_map(|truth| (0..=others).map(move |i| (truth, (truth + i) % CLASSES)));
        pairs.for_each(|(truth, predicted)| matrix.add(truth, predicted));
        matrix
    };
    let scores = |matrix: &ConfusionMatrix| {
        let sum: f64 = (0..30).map(|_| matrix.macro_f1() + matrix.matthews() + matrix.accuracy()).sum();
        assert!(sum.is_finite() && matrix.total() >= CLASSES as u64);
    };
    // 300 pairs and 90,000, of as many classes.
    let [few, all] = [matrix(0), matrix(CLASSES - 1)];
    let [few, all] = [&few, &all].map(|matrix| time(|| scores(matrix)));
    assert!(all < 20 * few, "{few:?} of one pair a class, {all:?} of all");
}

#[test]
fn retrieval_prepares_the_documents_once_and_not_for_each_batch_of_queries() {
    const QUERIES: usize = 1024;
    let rows = |seed: usize| {
        let value = |i: usize| ((i * 7919 + seed) % 1009) as f32 - 500.0;
        let values = (0..QUERIES * 64).map(value).collect::<Vec<_>>();
        Tensor::<2>::from_data(TensorData::new(values, [QUERIES, 64]), &device())
    };
    let batches = |size: usize| -> Vec<RetrievalInput> {
        let parts = rows(1).split(size, 0).into_iter().zip(rows(2).split(size, 0));
        let relevant: Vec<Vec<usize>> = (0..size).map(|own| vec![own]).collect();
        parts
            .map(|(queries, documents)| RetrievalInput {
                queries,
                documents,
                relevant: relevant.clone(),
                texts: None,
            })
            .collect()
    };
    let score = |batches: &[RetrievalInput]| {
        let mut metric = RetrievalMetric::mrr(QUERIES);
        let metadata = MetricMetadata { progress: Progress::new(1, 1, None), iteration: None, lr: None };
        batches.iter().for_each(|batch| drop(metric.update(batch, &metadata).unwrap()));
        metric.final_value().current()
    };
    let [pairs, whole] = [2, QUERIES].map(batches);
    assert!((score(&pairs) - score(&whole)).abs() < 1e-9);
    let [pairs, whole] = [&pairs, &whole].map(|batches| time(|| assert!(score(batches) > 0.0)));
    assert!(pairs < 8 * whole, "{whole:?} in one batch, {pairs:?} in batches of two");
}
