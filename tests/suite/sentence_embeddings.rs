//! Pooling, normalisation and the contrastive loss against sentence-transformers': values and gradients.

use crate::prelude::*;
use crate::sentences::{DTYPES, POOLINGS, model, sentences};

fn case(suffix: &str) -> File {
    File::at(&fixture(&format!("sentences/cases_{suffix}.safetensors")))
}

#[test]
fn every_pooling_equals_sentence_transformers() {
    let device = device();
    for (dtype, suffix, tolerance) in DTYPES {
        let case = case(suffix);
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
    let padding = Some(PaddingMask::from_lengths(&[2], 3));
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
    let nothing = PaddingMask::from_lengths(&[0], 2);
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
    let padding = PaddingMask::from_lengths(&[2999], 3000);
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
        let case = case(suffix);
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
