//! Pooling, normalisation and the losses of sentence embeddings against sentence-transformers' (tests/fixtures/make_sentences.py
//! and make_sentence_losses.py): values and gradients, of the losses through a whole model, in mini-batches too.

use crate::prelude::*;
use crate::sentences::{DTYPES, POOLINGS, model, run, sentences};
use std::collections::BTreeMap;

fn case(folder: &str, suffix: &str) -> File {
    File::at(&fixture(&format!("{folder}/cases_{suffix}.safetensors")))
}

#[test]
fn every_pooling_equals_sentence_transformers() {
    let device = device();
    for (dtype, suffix, tolerance) in DTYPES {
        let case = case("sentences", suffix);
        let (input, padding) = sentences(&case, &["anchors"], &device);
        let hidden = Tensor::<3>::from_data(case.data("hidden"), (&device, DType::from(dtype)));
        for (pooling, name) in POOLINGS {
            let expected = case.values(&format!("embedding.{name}"));
            assert_close(&values(pooling.forward(hidden.clone(), padding.as_ref())), &expected, tolerance);
            // The first row has no padding.
            let whole = hidden.clone().narrow(0, 0, 1);
            assert_close(&values(pooling.forward(whole, None)), &expected[..12], tolerance);
            for (normalize, expected) in
                [(false, expected), (true, case.values(&format!("normalized.{name}")))]
            {
                let model = model(&device, |config| config.with_pooling(pooling).with_normalize(normalize));
                let model = cast_module(model, dtype).unwrap();
                assert_close(&values(model.embed(&input, padding.as_ref()).unwrap()), &expected, tolerance);
            }
        }
    }
}

#[test]
fn what_lies_in_padding_changes_nothing_and_gets_no_gradient() {
    let device = autodiff();
    let padding = PaddingMask::from_rows(&[[false, true, false], [true, true, true]]).unwrap();
    for (pooling, _) in POOLINGS {
        let run = |filler: f32| {
            let rows = [[[1.0, -4.0], [filler; 2], [3.0, -2.0]], [[filler; 2]; 3]];
            let hidden = Tensor::<3>::from_data(rows, &device).require_grad();
            let pooled = pooling.forward(hidden.clone(), Some(&padding));
            let weights = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
            let gradients = (pooled.clone() * weights).sum().backward();
            (values(pooled), values(hidden.grad(&gradients).unwrap()))
        };
        let (pooled, gradient) = run(0.0);
        assert_eq!(pooled[2..], [0.0; 2], "{pooling:?}: a sequence of nothing but padding gets zeros");
        assert_eq!((&gradient[2..4], &gradient[6..]), (&[0.0; 2][..], &[0.0; 6][..]), "{pooling:?}");
        for filler in [1e9, f32::NAN, f32::INFINITY] {
            assert_eq!(run(filler), (pooled.clone(), gradient.clone()), "{pooling:?}, {filler}");
        }
    }
    let hidden = Tensor::<3>::zeros([2, 4, 2], &device);
    let result = Pooling::Max.try_forward(hidden.clone(), Some(&padding));
    fails!(result, Error::ShapeMismatch { input: "padding", .. });
    assert_eq!(values(Pooling::Mean.forward(hidden, None)), [0.0; 4]);
}

#[test]
fn nothing_to_pool_other_padding_and_no_length_are_errors() {
    let device = device();
    for (pooling, _) in POOLINGS {
        for dims in [[2, 0, 4], [0, 3, 4]] {
            let error = pooling.try_forward(Tensor::zeros(dims, &device), None).unwrap_err();
            assert!(matches!(error, Error::Empty { input: "hidden", .. }), "{pooling:?}: {error}");
        }
    }
    let input = || BertEmbeddingsInput::from_rows(&[[2, 3]], &device).unwrap();
    let padding = Some(PaddingMask::from_lengths(&[2], 3).unwrap());
    let result = SentencePairBatch::new((input(), padding), (input(), None));
    fails!(result, Error::ShapeMismatch { input: "padding", .. });
    let config = model(&device, |config| config).config();
    let result = config.with_max_seq_length(Some(0)).try_init(&device);
    fails!(result, Error::Config { field: "max_seq_length", .. });
}

#[test]
fn a_zero_vector_is_normalised_to_zero_with_a_finite_gradient() {
    let device = autodiff();
    let model = model(&device, |config| config.with_normalize(true));
    let nothing = PaddingMask::from_lengths(&[0], 2).unwrap();
    let input = BertEmbeddingsInput::from_rows(&[[5, 6]], &device).unwrap();
    let vector = model.embed(&input, Some(&nothing)).unwrap();
    assert_eq!(values(vector.clone()), [0.0; 12]);
    let gradients = vector.sum().backward();
    let words = model.bert.embeddings.word_embeddings.weight.grad(&gradients).unwrap();
    assert!(values(words).iter().all(|gradient| gradient.is_finite()));

    // Beside a zero vector, the others have the gradients that they should: 20 · cos is 20, 0 and 0.
    let vectors = |rows| Tensor::<2>::from_data(rows, &device).require_grad();
    let (anchors, candidates) = (vectors([[3.0, 4.0], [0.0, 0.0]]), vectors([[3.0, 4.0], [0.0, 0.0]]));
    let loss = SentenceLoss::from(MultipleNegativesRankingLoss::new());
    let loss = loss.forward(anchors.clone(), candidates.clone(), None);
    assert_close(&values(loss.clone()), &[(2f64.ln() + (-20f64).exp()) / 2.0], F32);
    let gradients = loss.backward();
    for tensor in [anchors, candidates] {
        let gradient = values(tensor.grad(&gradients).unwrap());
        assert!(gradient.iter().all(|gradient| gradient.is_finite()), "{gradient:?}");
    }
}

#[test]
fn f16_is_added_up_and_normalised_in_f32() {
    let device = device();
    // 3000 ones: a sum in f16 ends at 2048, where 1 is less than half a step.
    let hidden = Tensor::<3>::ones([1, 3000, 1], (&device, DType::F16));
    let padding = PaddingMask::from_lengths(&[2999], 3000).unwrap();
    for pooled in [Pooling::Mean.forward(hidden.clone(), None), Pooling::Mean.forward(hidden, Some(&padding))]
    {
        assert_eq!((pooled.dtype(), values(pooled)), (DType::F16, vec![1.0]));
    }
    // 400² is past the largest f16, 65504.
    let vectors = Tensor::<2>::from_data([[300.0, 400.0]], (&device, DType::F16));
    let loss = SentenceLoss::CosineSimilarity.forward(vectors.clone(), vectors, Some(&[0.0]));
    assert_eq!(loss.dtype(), DType::F16);
    assert_close(&values(loss), &[1.0], F16);
}

#[test]
fn the_contrastive_loss_and_its_gradients_equal_sentence_transformers() {
    let device = autodiff();
    for (dtype, suffix, tolerance) in DTYPES {
        let case = case("sentences", suffix);
        for (name, symmetric) in [("plain", false), ("symmetric", true)] {
            let vectors = |part: &str| {
                let data = case.data(&format!("loss.{part}"));
                Tensor::<2>::from_data(data, (&device, DType::from(dtype))).require_grad()
            };
            let (anchors, candidates) = (vectors("anchors"), vectors("candidates"));
            let loss = MultipleNegativesRankingLoss::new().with_scale(5.0).with_symmetric(symmetric);
            let loss = SentenceLoss::from(loss).forward(anchors.clone(), candidates.clone(), None);
            assert_close(&values(loss.clone()), &case.values(&format!("loss.{name}")), tolerance);
            let gradients = loss.backward();
            for (part, tensor) in [("anchors", anchors), ("candidates", candidates)] {
                let expected = case.values(&format!("loss.{name}.grad.{part}"));
                assert_close(&values(tensor.grad(&gradients).unwrap()), &expected, tolerance);
            }
        }
    }
}

/// Each loss by its name in the fixture, with the number of columns that it reads; the first of a kind with its defaults.
fn losses() -> Vec<(&'static str, usize, SentenceLoss)> {
    let dims = [12, 6, 4];
    let triplet =
        |metric, margin| TripletLoss::new().with_distance_metric(metric).with_triplet_margin(margin);
    let co_sent = CoSentLoss::new().with_scale(3.0);
    let matryoshka_co_sent = MatryoshkaLoss::new(co_sent, dims).with_matryoshka_weights([1.0, 0.5, 0.25]);
    let ranking = MultipleNegativesRankingLoss::new().with_scale(5.0);
    let matryoshka_triplet = MatryoshkaLoss::new(triplet(Similarity::Euclidean, 0.5), dims);
    vec![
        ("co_sent", 2, CoSentLoss::new().into()),
        ("cosine", 2, SentenceLoss::CosineSimilarity),
        ("triplet", 3, TripletLoss::new().into()),
        ("triplet_cosine", 3, triplet(Similarity::Cosine, 0.25).into()),
        ("triplet_manhattan", 3, triplet(Similarity::Manhattan, 0.5).into()),
        ("ranking", 4, MultipleNegativesRankingLoss::new().into()),
        ("matryoshka_co_sent", 2, matryoshka_co_sent.into()),
        ("matryoshka_ranking", 3, MatryoshkaLoss::new(ranking, dims).into()),
        ("matryoshka_triplet", 3, matryoshka_triplet.into()),
    ]
}

/// The first columns of the fixture, with labels.
fn batch(case: &File, columns: usize, device: &Device) -> SentencePairBatch {
    let all = ["column0", "column1", "column2", "column3"];
    let [anchors, candidates] = [0..1, 1..columns].map(|part| sentences(case, &all[part], device));
    SentencePairBatch::new(anchors, candidates)
        .unwrap()
        .with_labels(&case.data("labels").iter().collect::<Vec<f32>>())
        .unwrap()
}

#[test]
fn every_loss_trains_a_model_as_in_sentence_transformers_in_mini_batches_too() {
    let device = autodiff();
    for (dtype, suffix, tolerance) in DTYPES {
        let case = case("sentence_losses", suffix);
        for (name, columns, loss) in losses() {
            let batch = batch(&case, columns, &device);
            let loss_of_model = case.values(&format!("model.{name}"));
            let mut expected = BTreeMap::new();
            let again = device.clone().gradient_checkpointing();
            for (mini_batch_size, device) in [
                (None, &device),
                (Some(1), &device),
                (Some(2), &device),
                (Some(100), &device),
                (None, &again),
                (Some(2), &again),
            ] {
                println!("{suffix} {name} {mini_batch_size:?}");
                let model = model(device, |config| {
                    config.with_loss(loss.clone()).with_mini_batch_size(mini_batch_size)
                });
                let (found, gradients) = run(&cast_module(model, dtype).unwrap(), &batch);
                assert_close(&found, &loss_of_model, tolerance);
                for (key, gradient) in gradients {
                    let expected =
                        expected.entry(key).or_insert_with_key(|key| case.values(&format!("{name}.{key}")));
                    assert_close(&gradient, expected, tolerance);
                }
            }
        }
        // What sentence-transformers' own cache computes.
        for name in ["", "matryoshka_"] {
            let (cached, plain) = (format!("model.{name}cached"), format!("model.{name}ranking"));
            assert_close(&case.values(&cached), &case.values(&plain), tolerance);
        }
    }
}

/// sentence-transformers gives 0 for a batch that has nothing to compare.
#[test]
fn a_batch_without_a_comparison_costs_nothing() {
    let device = autodiff();
    let vectors = |rows: &[[f32; 2]]| {
        Tensor::<2>::from_data(TensorData::new(rows.concat(), [rows.len(), 2]), &device).require_grad()
    };
    let [pair, pairs] = [&[[3.0, 4.0]][..], &[[3.0, 4.0], [1.0, -1.0]][..]];
    for (loss, anchors, labels) in [
        (SentenceLoss::from(MultipleNegativesRankingLoss::new()), pair, None),
        (MultipleNegativesRankingLoss::new().with_symmetric(true).into(), pair, None),
        (CoSentLoss::new().into(), pair, Some(&[0.5][..])),
        (CoSentLoss::new().into(), pairs, Some(&[0.5, 0.5][..])),
    ] {
        let anchors = vectors(anchors);
        let candidates = anchors.clone().flip([1]).detach();
        let found = loss.forward(anchors.clone(), candidates, labels);
        let gradient = values(anchors.grad(&found.backward()).unwrap());
        assert_eq!(values(found), [0.0], "{loss:?}");
        assert!(gradient.iter().all(|&gradient| gradient == 0.0), "{loss:?}: {gradient:?}");
    }
}

#[test]
fn similarities_of_any_scale_give_finite_losses_and_gradients() {
    let device = autodiff();
    let anchors = Tensor::<2>::from_data([[1.0, 0.0], [0.0, 1.0]], &device).require_grad();
    let candidates = Tensor::<2>::from_data([[-1.0, 1e-3], [0.0, 1.0]], &device);
    for scale in [1e-3, 1e3, 1e30] {
        let loss = SentenceLoss::from(CoSentLoss::new().with_scale(scale));
        let found = loss.forward(anchors.clone(), candidates.clone(), Some(&[1.0, 0.0]));
        let gradient = values(anchors.grad(&found.backward()).unwrap());
        assert!(gradient.iter().all(|value| value.is_finite()), "{scale}: {gradient:?}");
        let expected = if scale < 1.0 { (2.0 * scale).exp().ln_1p() } else { 2.0 * scale };
        let found = values(found)[0];
        assert!((found / expected - 1.0).abs() < 1e-3, "{scale}: {found}, not {expected}");
    }
}

#[test]
fn what_a_loss_cannot_read_or_mini_batches_cannot_split_is_an_error() {
    let device = device();
    let vectors = |rows: usize, width: usize| Tensor::<2>::ones([rows, width], &device);
    let try_loss = |loss: &SentenceLoss, candidates: Tensor<2>, labels: Option<&[f32]>| {
        loss.try_forward(vectors(2, 4), candidates, labels).unwrap_err().to_string()
    };
    let [co_sent, triplet, ranking] = [
        CoSentLoss::new().into(),
        TripletLoss::new().into(),
        SentenceLoss::from(MultipleNegativesRankingLoss::new()),
    ];
    let nested: SentenceLoss = MatryoshkaLoss::new(CoSentLoss::new(), [4, 2]).into();
    for loss in [&co_sent, &SentenceLoss::CosineSimilarity, &nested] {
        assert!(loss.reads_labels());
        let missing = try_loss(loss, vectors(2, 4), None);
        assert!(missing.contains("the labels are missing"), "{missing}");
        let three = try_loss(loss, vectors(2, 4), Some(&[0.0; 3]));
        assert!(three.contains("the labels are 3, but there must be one for each of the 2"), "{three}");
        let nan = try_loss(loss, vectors(2, 4), Some(&[0.0, f32::NAN]));
        assert_eq!(nan, "the label of pair 1 is NaN, but must be finite");
        let shape = try_loss(loss, vectors(3, 4), Some(&[0.0, 1.0]));
        assert!(shape.contains("candidates has shape [3, 4], but expected [2, 4] for 2 anchors"), "{shape}");
    }
    let no_negatives = try_loss(&triplet, vectors(2, 4), None);
    assert!(no_negatives.contains("expected [4, 4] for 2 anchors"), "{no_negatives}");
    for candidates in [vectors(1, 4), vectors(2, 5)] {
        let few = try_loss(&ranking, candidates.clone(), None);
        let shape = candidates.dims();
        assert_eq!(few, format!("candidates has shape {shape:?}, but expected [2 or more, 4] for 2 anchors"));
    }
    assert!(!ranking.reads_labels() && !triplet.reads_labels());
    for (loss, candidates) in [(&triplet, 0), (&ranking, 0), (&ranking, 2)] {
        let result = loss.try_forward(vectors(0, 4), vectors(candidates, 4), None);
        fails!(result, Error::Empty { input: "anchors", .. });
    }
    let result = ranking.try_forward(vectors(2, 4), vectors(2, 4).cast(FloatDType::F64), None);
    fails!(result, Error::DTypeMismatch { input: "candidates", .. });

    let matryoshka = |dims: &[usize]| MatryoshkaLoss::new(MultipleNegativesRankingLoss::new(), dims);
    let rows = [
        (matryoshka(&[]).into(), "matryoshka_dims is empty"),
        (matryoshka(&[4, 0]).into(), "matryoshka_dims has 0, but the vectors have 4 values (allowed: 1..=4)"),
        (matryoshka(&[5, 4]).into(), "matryoshka_dims has 5, but the vectors have 4 values"),
        (
            matryoshka(&[4, 2]).with_matryoshka_weights([1.0]).into(),
            "matryoshka_weights has 1 weights, but there are 2 dims",
        ),
        (matryoshka(&[4]).with_matryoshka_weights([f64::NAN]).into(), "matryoshka_weights has NaN"),
        (MatryoshkaLoss::new(CoSentLoss::new().with_scale(0.0), [4]).into(), "scale is 0"),
        (CoSentLoss::new().with_scale(f64::NAN).into(), "scale is NaN"),
        (MultipleNegativesRankingLoss::new().with_scale(-1.0).into(), "scale is -1"),
        (TripletLoss::new().with_triplet_margin(f64::INFINITY).into(), "triplet_margin is inf"),
    ];
    each(rows, |(loss, problem)| {
        let loss: SentenceLoss = loss;
        let found = try_loss(&loss, vectors(2, 4), Some(&[0.0, 1.0]));
        assert!(found.starts_with("invalid config: ") && found.contains(problem), "{found}");
    });
    let device = autodiff();
    let config = model(&device, |config| config).config();
    let rows = [
        (config.clone().with_mini_batch_size(Some(0)), "mini_batch_size is 0, but must be at least 1"),
        (
            config.clone().with_loss(MatryoshkaLoss::new(CoSentLoss::new(), [13]).into()),
            "matryoshka_dims has 13, but the vectors have 12 values",
        ),
    ];
    each(rows, |(config, problem)| says(config.try_init(&device), problem));
    let split = config.with_mini_batch_size(Some(2)).try_init(&device).unwrap();
    let pairs = |rows: &[[i32; 3]]| {
        let input = || BertEmbeddingsInput::from_rows(rows, &device).unwrap();
        SentencePairBatch::new((input(), None), (input(), None)).unwrap()
    };
    // The row is that of the batch, and not of the mini-batch.
    let error = split.try_forward(&pairs(&[[2, 7, 3], [2, 8, 3], [2, 99, 3]])).unwrap_err().to_string();
    assert!(error.starts_with("input_ids[2][1] is 99"), "{error}");
    let embeds = || BertEmbeddingsInput::from_embeds(Tensor::ones([2, 3, 12], &device)).unwrap();
    let batch = SentencePairBatch::new((embeds(), None), (embeds(), None)).unwrap();
    let error = split.try_forward(&batch).unwrap_err().to_string();
    assert!(error.starts_with("inputs_embeds cannot be split into mini-batches"), "{error}");
    let batch = pairs(&[[2, 7, 3], [2, 8, 3]]);
    let error = batch.with_labels(&[0.5, f32::INFINITY]).unwrap_err().to_string();
    assert_eq!(error, "the label of pair 1 is inf, but must be finite");
}
