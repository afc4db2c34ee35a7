//! Scores against scikit-learn's, SciPy's and sentence-transformers' (tests/fixtures/make_metrics.py).

use crate::prelude::*;
use crate::refusals::unless_panics;
use burn::data::dataloader::Progress;
use burn::train::metric::{
    AccuracyMetric, Adaptor, LossMetric, Metric, MetricMetadata, Numeric, PerplexityMetric,
    TopKAccuracyMetric,
};
use burn::train::{ClassificationOutput, RegressionOutput};
use burn_bert::metrics::{
    ConfusionMatrix, ConfusionMetric, EntityMetric, EntityScores, LabelInput, LabelMetric, LabelScores,
    RetrievalInput, RetrievalMetric, RetrievalScores, SpearmanInput, SpearmanMetric, TripletInput,
    TripletMetric, best_threshold, spearman,
};
use burn_bert::training::{ClassificationItem, TrainableModel};

fn cases(name: &str) -> Value {
    json(fixture("metrics/cases.json"))[name].clone()
}

fn metadata() -> MetricMetadata {
    MetricMetadata { progress: Progress::new(1, 1, None), iteration: None, lr: None }
}

/// The score of a metric in Burn's trainer after some batches; cleared, it is as new.
fn score<M: Metric + Numeric>(mut metric: M, batches: impl IntoIterator<Item = M::Input>) -> f64 {
    let new = metric.final_value().current();
    batches.into_iter().for_each(|batch| drop(metric.update(&batch, &metadata()).unwrap()));
    let score = metric.final_value().current();
    metric.clear();
    let cleared = metric.final_value().current();
    assert!(cleared == new || cleared.is_nan() && new.is_nan(), "{}: {cleared}, not {new}", metric.name());
    score
}

/// What a classifier predicts of so many classes, for sure, and the truth.
fn tokens(output: ClassificationOutput, sentences: Vec<usize>) -> ClassificationItem {
    let ClassificationOutput { loss, output, targets } = output;
    ClassificationItem { loss, logits: output, classes: Some(targets), targets: None, sentences }
}

fn output(classes: usize, predicted: &[usize], truth: &[usize]) -> ClassificationOutput {
    let one_hot = predicted.iter().flat_map(|&best| (0..classes).map(move |class| f32::from(class == best)));
    let logits = TensorData::new(one_hot.collect::<Vec<_>>(), [predicted.len(), classes]);
    let labels = TensorData::new(truth.iter().map(|&id| id as i64).collect::<Vec<_>>(), [truth.len()]);
    let (logits, labels) = (Tensor::from_data(logits, &device()), Tensor::from_data(labels, &device()));
    ClassificationOutput::new(Tensor::zeros([1], &device()), logits, labels)
}

#[test]
fn scores_equal_scikit_learns() {
    for case in cases("cases").as_array().unwrap() {
        let mut matrix = ConfusionMatrix::default();
        let ids = |name: &str| list::<Vec<usize>>(&case[name]);
        let (truth, predicted) = (ids("truth"), ids("predicted"));
        truth.iter().zip(&predicted).for_each(|(&truth, &predicted)| matrix.add(truth, predicted));
        is_score(matrix.accuracy(), &case["accuracy"], 1e-12);
        is_score(matrix.macro_f1(), &case["macro_f1"], 1e-12);
        is_score(matrix.matthews(), &case["matthews"], 1e-12);
        for (class, expected) in case["f1"].as_array().unwrap().iter().enumerate() {
            is_score(matrix.f1(class), expected, 1e-12);
        }

        // The same in Burn's trainer, in batches of seven, of which one is empty.
        for (metric, expected) in [
            (ConfusionMetric::macro_f1(), &case["macro_f1"]),
            (ConfusionMetric::matthews(), &case["matthews"]),
            (ConfusionMetric::f1(0, "zero"), &case["f1"][0]),
        ] {
            let batches = truth.chunks(7).zip(predicted.chunks(7)).chain([(&[][..], &[][..])]);
            let found = score(metric, batches.map(|(truth, predicted)| output(5, predicted, truth).adapt()));
            is_score(found, expected, 1e-12);
        }
    }
}

#[test]
fn a_threshold_has_the_best_f1_of_all() {
    let mut seed = 7_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as f64 / (1_u64 << 31) as f64
    };
    for round in 0..200 {
        // Few values, so that several are equal; some are 0 or 1.
        let texts = 1 + round % 17;
        let scores: Vec<f64> = (0..texts).map(|_| (random() * 9.0).floor() / 8.0).collect();
        let truth: Vec<bool> = (0..texts).map(|_| random() < 0.4).collect();
        let f1 = |threshold: f64| {
            let mut labels = LabelScores::default();
            scores.iter().zip(&truth).for_each(|(score, has)| labels.add(&[*has], &[*score >= threshold]));
            labels.labels()[0].f1()
        };
        let threshold = best_threshold(&scores, &truth);
        // No threshold predicts what has the probability 0.
        let best = scores.iter().filter(|score| **score > 0.0).map(|score| f1(*score)).fold(0.0, f64::max);
        assert_eq!(f1(threshold), best, "{threshold}: {scores:?}, {truth:?}");
        assert!(0.0 < threshold && threshold < 1.0);
        assert!(truth.contains(&true) || threshold == 0.5);
    }
    let least = 0.3_f64;
    assert_eq!(best_threshold(&[least.next_up(), least], &[true, false]), least.next_up());
    assert_eq!(best_threshold(&[0.75, 0.25], &[true, false]), 0.5, "halfway");
    assert_eq!(best_threshold(&[], &[]), 0.5);
}

#[test]
fn scores_of_several_labels_equal_scikit_learns() {
    for case in cases("labels").as_array().unwrap() {
        let rows = |name: &str| list::<Vec<Vec<bool>>>(&case[name]);
        let (truth, predicted) = (rows("truth"), rows("predicted"));
        let mut scores = LabelScores::default();
        truth.iter().zip(&predicted).for_each(|(truth, predicted)| scores.add(truth, predicted));
        for (label, counts) in scores.labels().iter().enumerate() {
            is_score(counts.f1(), &case["f1"][label], 1e-12);
            is_score(counts.precision(), &case["precision"][label], 1e-12);
        }
        let last = scores.labels().len() - 1;
        assert_eq!((scores.labels()[last].present, scores.labels()[last - 1].predicted), (0, 0));
        let matrix = |rows: &[Vec<bool>], on: f32, off: f32| {
            let values = rows.iter().flatten().map(|&is| if is { on } else { off }).collect::<Vec<_>>();
            Tensor::<2>::from_data(TensorData::new(values, [rows.len(), last + 1]), &device())
        };
        let input = |truth: &[Vec<bool>], predicted: &[Vec<bool>]| LabelInput {
            logits: matrix(predicted, 1.0, -1.0),
            targets: matrix(truth, 1.0, 0.0),
        };
        let batches =
            || truth.chunks(7).zip(predicted.chunks(7)).map(|(truth, predicted)| input(truth, predicted));
        for (metric, expected) in [
            (LabelMetric::micro_precision(), &case["micro"][0]),
            (LabelMetric::micro_recall(), &case["micro"][1]),
            (LabelMetric::micro_f1(), &case["micro"][2]),
            (LabelMetric::macro_f1(), &case["macro_f1"]),
            (LabelMetric::f1(0, "zero"), &case["f1"][0]),
        ] {
            is_score(score(metric, batches()), expected, 1e-12);
        }
        let nan = LabelInput { logits: matrix(&predicted, f32::NAN, 0.0), targets: matrix(&truth, 1.0, 0.0) };
        assert!(score(LabelMetric::micro_f1(), batches().chain([nan])).is_nan());
    }
}

#[test]
fn the_rank_correlation_equals_scipys_and_of_what_is_no_number_there_is_none() {
    let case = cases("spearman");
    let [first, second] = ["first", "second"].map(|name| list::<Vec<f64>>(&case[name]));
    is_score(spearman(&first, &second), &case["value"], 1e-12);
    assert_eq!(spearman(&[1.0, f64::INFINITY], &[1.0, 2.0]), 1.0);
    let nan = f64::NAN;
    for (a, b) in
        [([nan; 3], [1.0, 2.0, 3.0]), ([1.0, 2.0, nan], [1.0, 2.0, 3.0]), ([1.0, 2.0, 3.0], [1.0; 3])]
    {
        assert!(spearman(&a, &b).is_nan() && spearman(&b, &a).is_nan());
    }

    let mut metric = SpearmanMetric::new();
    for (first, second) in first.chunks(16).zip(second.chunks(16)) {
        let column = |values: &[f64]| {
            Tensor::<2>::from_data(TensorData::new(values.to_vec(), [values.len(), 1]), &device())
        };
        let output = RegressionOutput::new(Tensor::zeros([1], &device()), column(first), column(second));
        // It is computed once an epoch.
        let entry = metric.update(&output.adapt(), &metadata()).unwrap();
        assert!(entry.is_not_available() && metric.value().is_none() && metric.running_value().is_none());
    }
    is_score(metric.final_value().current(), &case["value"], 1e-12);
}

#[test]
fn a_confusion_matrix_prints_as_a_table_and_its_classes_may_be_far_apart() {
    let mut matrix = ConfusionMatrix::default();
    [(0, 0), (0, 1), (1, 1), (1, 1)].into_iter().for_each(|(truth, predicted)| matrix.add(truth, predicted));
    let names = ["no", "yes"].map(String::from).to_vec();
    let expected = "predicted |        no       yes |     F1\n       \
                    no |         1         1 | 0.6667\n      \
                    yes |         0         2 | 0.8000\n";
    assert_eq!(matrix.to_text(&names), expected);
    // Names of a file.
    assert!(matrix.to_text(&["\u{1b}[31mno".into()]).contains(r"\u{1b}[31mno |"));
    let mut matrix = ConfusionMatrix::default();
    for (truth, predicted) in [(0, 0), (usize::MAX, usize::MAX), (usize::MAX, 1 << 40)] {
        matrix.add(truth, predicted);
    }
    assert_eq!(matrix.num_classes(), usize::MAX);
    assert_eq!((matrix.total(), matrix.count(usize::MAX, 1 << 40)), (3, 1));
    assert!((matrix.macro_f1() - (1.0 + 2.0 / 3.0) / 3.0).abs() < 1e-12);
    assert!(matrix.matthews() > 0.0);
}

/// What the metrics of Burn and of this crate make of some items.
fn scores(items: &[ClassificationItem]) -> [f64; 6] {
    fn score_of<M: Metric + Numeric>(metric: M, items: &[ClassificationItem]) -> f64
    where
        ClassificationItem: Adaptor<M::Input>,
    {
        score(metric, items.iter().map(Adaptor::adapt))
    }
    [
        score_of(AccuracyMetric::new(), items),
        score_of(LossMetric::new(), items),
        score_of(PerplexityMetric::new(), items),
        score_of(TopKAccuracyMetric::new(2), items),
        score_of(ConfusionMetric::macro_f1(), items),
        score_of(ConfusionMetric::matthews(), items),
    ]
}

#[test]
fn what_has_no_label_counts_in_no_metric() {
    /// Batches of which four tokens or sequences have a label, and none.
    fn check<M>(model: &M, labelled: M::Batch, unlabelled: M::Batch)
    where
        M: TrainableModel<Output = ClassificationItem>,
    {
        let outcome = |batch| model.outcome(batch).unwrap();
        let (count, item) = (outcome(&labelled).count, outcome(&labelled).output);
        assert_eq!((item.logits.dims()[0], item.classes.as_ref().unwrap().dims()), (4, [4]));
        let alone = scores(std::slice::from_ref(&item));
        assert!(alone.iter().all(|score| score.is_finite()), "{alone:?}");
        let nothing = outcome(&unlabelled);
        assert!(count > 0.0 && nothing.count == 0.0);
        assert_eq!(nothing.output.logits.dims(), [0, item.logits.dims()[1]]);
        assert_eq!(scores(&[item, nothing.output]), alone);
    }
    let device = autodiff();
    let bert = || small_bert(10, 4);
    let rows = [[2, 7, 3], [2, 8, 3], [2, 5, 3], [2, 4, 3], [2, 6, 3]];
    let input = || BertEmbeddingsInput::from_rows(&rows, &device).unwrap();

    let sequences =
        |labels: [i64; 5]| SequenceClassificationBatch::single_label(input(), None, &labels).unwrap();
    let model = BertForSequenceClassificationConfig::new(bert()).init(&device);
    check(&model, sequences([1, -100, 0, 1, 0]), sequences([-100; 5]));
    let tokens = |labels: [i64; 3]| {
        let rows = [labels, [-100; 3], [-100; 3], [-100; 3], [-100, 0, -100]];
        TokenClassificationBatch::new(input(), None, &rows).unwrap()
    };
    let model = BertForTokenClassificationConfig::new(bert()).init(&device);
    check(&model, tokens([1, 0, 1]), TokenClassificationBatch::new(input(), None, &[[-100; 3]; 5]).unwrap());
    let answers = |answers: [[usize; 2]; 2]| {
        let input = BertEmbeddingsInput::from_rows(&rows[..2], &device).unwrap();
        QuestionAnsweringBatch::new(input, None, &answers).unwrap()
    };
    let model = BertForQuestionAnsweringConfig::new(bert()).init(&device);
    check(&model, answers([[1, 2], [0, 1]]), answers([[3, 9], [usize::MAX, 3]]));
    let words =
        |places: &[[usize; 2]]| MaskedLmBatch::new(input(), None, places, &vec![7; places.len()]).unwrap();
    let model = BertForMaskedLmConfig::new(bert()).init(&device);
    check(&model, words(&[[0, 1], [1, 1], [2, 1], [4, 1]]), words(&[]));
}

#[test]
fn scores_of_entities_equal_seqevals() {
    for case in json(fixture("entities/cases.json"))["scores"].as_array().unwrap() {
        let rows = |name: &str| list::<Vec<Vec<String>>>(&case[name]);
        let (truth, predicted) = (rows("truth"), rows("predicted"));
        let is = |found: f64, expected: &Value| is_score(found, expected, 1e-12);
        let mut scores = EntityScores::default();
        for (truth, predicted) in truth.iter().zip(&predicted) {
            let [truth, predicted] =
                [truth, predicted].map(|row| row.iter().map(String::as_str).collect::<Vec<_>>());
            scores.add(&truth, &predicted);
        }
        is(scores.total().precision(), &case["precision"]);
        is(scores.total().recall(), &case["recall"]);
        is(scores.total().f1(), &case["f1"]);
        let types = case["types"].as_object().unwrap();
        assert_eq!(scores.types().keys().collect::<Vec<_>>(), types.keys().collect::<Vec<_>>());
        for (name, expected) in types {
            let counts = scores.counts(name);
            let found = [counts.precision(), counts.recall(), counts.f1()];
            found.iter().zip(expected.as_array().unwrap()).for_each(|(found, expected)| is(*found, expected));
        }

        // The same in Burn's trainer, in batches of five sentences, of which one is empty.
        let mut tags: Vec<&String> = truth.iter().chain(&predicted).flatten().collect();
        tags.sort();
        tags.dedup();
        let names: Vec<String> = tags.iter().map(|tag| tag.as_str().to_string()).collect();
        let id = |tag: &String| tags.iter().position(|other| *other == tag).unwrap();
        let batches = || {
            let batches = truth.chunks(5).zip(predicted.chunks(5)).chain([(&[][..], &[][..])]);
            batches.map(|(truth, predicted)| {
                let ids = |rows: &[Vec<String>]| rows.iter().flatten().map(id).collect::<Vec<usize>>();
                let sentences =
                    truth.iter().enumerate().flat_map(|(row, tags)| vec![row; tags.len()]).collect();
                tokens(output(names.len(), &ids(predicted), &ids(truth)), sentences).adapt()
            })
        };
        is(score(EntityMetric::f1(&names), batches()), &case["f1"]);
        is(score(EntityMetric::precision(&names), batches()), &case["precision"]);
        is(score(EntityMetric::recall(&names), batches()), &case["recall"]);
    }
}

#[test]
fn scores_that_are_no_number_predict_no_class() {
    let device = device();
    let output = |scores: [[f32; 2]; 2]| {
        let truth = Tensor::from_ints([0, 1], &device);
        ClassificationOutput::new(Tensor::zeros([1], &device), Tensor::from_floats(scores, &device), truth)
    };
    for nan in [[[f32::NAN, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, f32::NAN]]] {
        let mut metric = ConfusionMetric::macro_f1();
        metric.update(&output([[1.0, 0.0], [0.0, 1.0]]).adapt(), &metadata()).unwrap();
        assert_eq!(metric.final_value().current(), 1.0);
        let item = tokens(output(nan), vec![0, 0]);
        let mut entities = EntityMetric::f1(&["O", "B-X"].map(String::from));
        entities.update(&item.adapt(), &metadata()).unwrap();
        assert!(entities.final_value().current().is_nan());
        metric.update(&output(nan).adapt(), &metadata()).unwrap();
        metric.update(&output([[1.0, 0.0], [0.0, 1.0]]).adapt(), &metadata()).unwrap();
        assert!(metric.final_value().current().is_nan() && metric.value().unwrap().current().is_nan());
        metric.clear();
        metric.update(&output([[1.0, f32::NEG_INFINITY], [0.0, 1.0]]).adapt(), &metadata()).unwrap();
        assert_eq!(metric.final_value().current(), 1.0);
    }
}

const SIMILARITIES: [(&str, Similarity); 4] = [
    ("cosine", Similarity::Cosine),
    ("dot", Similarity::Dot),
    ("euclidean", Similarity::Euclidean),
    ("manhattan", Similarity::Manhattan),
];

/// Rows of numbers; what is no number is NaN.
fn vectors(rows: &Value) -> Vec<Vec<f64>> {
    let row = |row: &Value| {
        row.as_array().unwrap().iter().map(|number| number.as_f64().unwrap_or(f64::NAN)).collect()
    };
    rows.as_array().unwrap().iter().map(row).collect()
}

/// In f64.
fn matrix(rows: &[Vec<f64>]) -> Tensor<2> {
    let dims = [rows.len(), rows.first().map_or(4, Vec::len)];
    Tensor::from_data(TensorData::new(rows.concat(), dims), (&device(), DType::F64))
}

/// An expected number, NaN if it is none.
fn is_score(found: f64, expected: &Value, tolerance: f64) {
    match expected.as_f64() {
        Some(expected) => assert!((found - expected).abs() < tolerance, "{found} is not {expected}"),
        None => assert!(found.is_nan(), "{found}"),
    }
}

#[test]
fn rank_correlations_of_similarities_equal_sentence_transformers() {
    for case in cases("similarity").as_array().unwrap() {
        let [a, b] = ["a", "b"].map(|name| vectors(&case[name]));
        let truth = list::<Vec<f64>>(&case["truth"]);
        for (name, similarity) in SIMILARITIES {
            let batches = a.chunks(9).zip(b.chunks(9)).zip(truth.chunks(9)).map(|((a, b), truth)| {
                let predicted = similarity.pairwise(matrix(a), matrix(b)).unsqueeze_dim(1);
                let truth = matrix(&truth.iter().map(|&truth| vec![truth]).collect::<Vec<_>>());
                SpearmanInput { predicted, truth }
            });
            is_score(score(SpearmanMetric::new(), batches), &case[name], 1e-12);
        }
    }
}

#[test]
fn accuracies_of_triplets_equal_sentence_transformers() {
    for case in cases("triplets").as_array().unwrap() {
        let rows = ["anchors", "positives", "negatives"].map(|name| vectors(&case[name]));
        for (name, similarity) in SIMILARITIES {
            let metric = TripletMetric::new().with_margin(case["margin"].as_f64().unwrap());
            let batches = (0..=rows[0].len()).step_by(7).map(|start| {
                let [anchors, positives, negatives] =
                    [0, 1, 2].map(|i| matrix(&rows[i][start..rows[i].len().min(start + 7)]));
                let positive = similarity.pairwise(anchors.clone(), positives);
                let negative = similarity.pairwise(anchors, negatives);
                TripletInput { positive, negative }
            });
            is_score(score(metric, batches), &case[name], 1e-7); // a mean in f32
        }
    }
}

#[test]
fn scores_of_retrieval_equal_sentence_transformers() {
    for case in cases("retrieval").as_array().unwrap() {
        let (queries, documents) = (vectors(&case["queries"]), vectors(&case["documents"]));
        let relevant: Vec<Vec<usize>> = list(&case["relevant"]);
        for (name, similarity) in SIMILARITIES {
            for (i, k) in [1, 3, 5].into_iter().enumerate() {
                for (score, metric) in [
                    ("recall", RetrievalMetric::recall(k)),
                    ("mrr", RetrievalMetric::mrr(k)),
                    ("accuracy", RetrievalMetric::accuracy(k)),
                    ("ndcg", RetrievalMetric::ndcg(k)),
                ] {
                    let mut metric = metric.with_similarity(similarity);
                    assert!(metric.final_value().current().is_nan(), "there is no query");
                    let (queries, documents) = (matrix(&queries), matrix(&documents));
                    let all = RetrievalInput { queries, documents, relevant: relevant.clone(), texts: None };
                    metric.update(&all, &metadata()).unwrap();
                    assert!(metric.value().is_none());
                    is_score(metric.final_value().current(), &case[name][score][i], 1e-12);
                }
            }
        }
    }
}

/// Each query once for each of its documents, as a file of pairs has them, and each document as often: sentence-transformers
/// counts them by their ids, which are those of the texts.
#[test]
fn equal_texts_are_one_query_and_one_document_whose_positives_are_all_relevant() {
    for case in cases("retrieval").as_array().unwrap() {
        let (queries, documents) = (vectors(&case["queries"]), vectors(&case["documents"]));
        let relevant: Vec<Vec<usize>> = list(&case["relevant"]);
        let pairs: Vec<(usize, usize)> = relevant
            .iter()
            .enumerate()
            .flat_map(|(query, own)| own.iter().map(move |&own| (query, own)))
            .collect();
        let mut metrics = [RetrievalMetric::recall(3), RetrievalMetric::mrr(3), RetrievalMetric::accuracy(3)];
        // First all documents, in their order, without a query.
        let hash = |kind: u64, number: usize| kind << 32 | number as u64;
        let hashes = (0..documents.len()).map(|document| hash(1, document)).collect();
        let no_query = Tensor::zeros([0, documents[0].len()], (&device(), DType::F64));
        let all = RetrievalInput {
            queries: no_query,
            documents: matrix(&documents),
            relevant: Vec::new(),
            texts: Some([Vec::new(), hashes]),
        };
        let batches = pairs.chunks(7).map(|pairs| RetrievalInput {
            queries: matrix(&pairs.iter().map(|&(query, _)| queries[query].clone()).collect::<Vec<_>>()),
            documents: matrix(&pairs.iter().map(|&(_, own)| documents[own].clone()).collect::<Vec<_>>()),
            relevant: (0..pairs.len()).map(|own| vec![own]).collect(),
            texts: Some([
                pairs.iter().map(|&(query, _)| hash(2, query)).collect(),
                pairs.iter().map(|&(_, own)| hash(1, own)).collect(),
            ]),
        });
        for batch in [all].into_iter().chain(batches) {
            metrics.iter_mut().for_each(|metric| drop(metric.update(&batch, &metadata()).unwrap()));
        }
        for (metric, name) in metrics.iter().zip(["recall", "mrr", "accuracy"]) {
            is_score(metric.final_value().current(), &case["cosine"][name][1], 1e-12);
        }
    }
}

#[test]
fn retrieval_has_no_ranking_of_what_is_no_number_and_nothing_of_the_training_split() {
    let device = device();
    let mut metric = RetrievalMetric::mrr(30);
    let nan = Tensor::full([1, 6], f64::NAN, (&device, DType::F64));
    let input = RetrievalInput { queries: nan.clone(), documents: nan, relevant: vec![vec![0]], texts: None };
    metric.update(&input, &metadata()).unwrap();
    assert!(metric.final_value().current().is_nan(), "there is no ranking");
    let input = |relevant: [usize; 2]| {
        let [queries, documents] = [0, 1].map(|_| Tensor::eye(2, &device));
        RetrievalInput {
            queries,
            documents,
            relevant: relevant.map(|document| vec![document]).to_vec(),
            texts: None,
        }
    };
    let mut metric = RetrievalMetric::accuracy(1);
    let training = MetricMetadata { lr: Some(1e-3.into()), ..metadata() };
    metric.update(&input([1, 0]), &training).unwrap();
    assert!(metric.final_value().current().is_nan());
    metric.update(&input([0, 1]), &metadata()).unwrap();
    assert_eq!(metric.final_value().current(), 1.0);
    // The score of a batch more is another.
    metric.update(&input([1, 0]), &metadata()).unwrap();
    assert_eq!(metric.final_value().current(), 0.5);
}

#[test]
fn relevant_documents_are_those_of_the_batch_and_each_query_has_its_own() {
    let device = device();
    let refused = |queries, relevant: &[&[usize]]| {
        let relevant = relevant.iter().map(|relevant| relevant.to_vec()).collect();
        let [queries, documents] = [queries, 2].map(|rows| Tensor::ones([rows, 3], &device));
        let input = RetrievalInput { queries, documents, relevant, texts: None };
        unless_panics(|| RetrievalMetric::mrr(1).update(&input, &metadata()))
    };
    refused(2, &[&[0], &[1]]).unwrap().unwrap();
    // The next batch may have a third document, and what follows belongs to other queries.
    says(refused(1, &[&[2]]), "relevant must name documents of this batch, which has 2");
    for (queries, relevant) in [(2, &[&[0][..]][..]), (1, &[&[0], &[1]])] {
        says(refused(queries, relevant), "relevant must have an entry for each query");
    }
    for scores in [&[][..], &[0.5]] {
        panic_of(|| RetrievalScores::default().add(scores, &[1]));
    }
}

#[test]
fn no_vectors_have_no_similarities() {
    let vectors = |rows: usize| Tensor::<2>::ones([rows, 3], &device());
    for (name, similarity) in SIMILARITIES {
        for (a, b) in [(0, 2), (2, 0), (0, 0)] {
            assert_eq!(similarity.between(vectors(a), vectors(b)).dims(), [a, b], "{name}");
        }
        assert_eq!(similarity.pairwise(vectors(0), vectors(0)).dims(), [0], "{name}");
    }
}

/// Times are compared with each other, by far more than a busy machine changes them.
#[test]
fn retrieval_prepares_the_documents_once_and_not_for_each_batch_of_queries() {
    const QUERIES: usize = 1024;
    let rows = |seed: usize| {
        let value = |i: usize| ((i * 7919 + seed) % 1009) as f32 - 500.0;
        let values = (0..QUERIES * 64).map(value).collect::<Vec<_>>();
        Tensor::<2>::from_data(TensorData::new(values, [QUERIES, 64]), &device())
    };
    let [pairs, whole] = [2, QUERIES].map(|size| {
        let parts = rows(1).split(size, 0).into_iter().zip(rows(2).split(size, 0));
        let relevant: Vec<Vec<usize>> = (0..size).map(|own| vec![own]).collect();
        let batch = |(queries, documents)| RetrievalInput {
            queries,
            documents,
            relevant: relevant.clone(),
            texts: None,
        };
        let batches: Vec<_> = parts.map(batch).collect();
        let run = || {
            let (mut metric, began) = (RetrievalMetric::mrr(QUERIES), std::time::Instant::now());
            batches.iter().for_each(|batch| drop(metric.update(batch, &metadata()).unwrap()));
            (metric.final_value().current(), began.elapsed())
        };
        [run(), run(), run()].into_iter().min_by_key(|(_, time)| *time).unwrap()
    });
    assert!((pairs.0 - whole.0).abs() < 1e-9);
    assert!(pairs.1 < 8 * whole.1, "{whole:?} in one batch, {pairs:?} in batches of two");
}
