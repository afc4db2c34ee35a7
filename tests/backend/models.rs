//! Whole models equal transformers and sentence-transformers: values and every gradient, from the f64 fixtures.

use crate::case::{Case, assert_close, host};
use crate::parity::{Head, collected, fixtures};
use crate::refusals::panic_of;
use crate::sentences::{POOLINGS, model, run, sentences};
use crate::tolerance::distance;
use crate::whole_model::File;
use burn::tensor::FloatDType;
use burn_bert::functional::{Precision, autocast};
use burn_bert::model::*;

/// Every fixture of a head.
fn assert_equal<H: Head>(case: &Case) {
    let device = case.autodiff();
    for fixture in H::fixtures() {
        let file = fixture.case(FloatDType::F64);
        let model: H = fixture.load(FloatDType::F32, &device);
        let (loss, logits) = model.run(&H::batch(&file, &device));
        let what = fixture.name();
        let expected = H::meant(H::logits(&file), &file);
        assert_close(&format!("{what}: logits"), &H::meant(logits, &file), &expected, case.tolerance);
        assert_close(&format!("{what}: loss"), &host(loss.clone()), &file.values("loss"), case.tolerance);
        for (path, gradient) in collected(&model, Some(&loss.backward())) {
            let expected = fixture.values(&file, "grad.", &path).unwrap();
            assert_close(&format!("{what}: gradient of {path}"), &gradient, &expected, case.tolerance);
        }
    }
}

pub fn every_head_equals_transformers(case: &Case) {
    assert_equal::<BertForMaskedLm>(case);
    assert_equal::<BertForSequenceClassification>(case);
    assert_equal::<BertForTokenClassification>(case);
    assert_equal::<BertForQuestionAnswering>(case);
    assert_equal::<ElectraForPreTraining>(case);
}

pub fn a_training_step_in_16_bits_has_the_gradients_of_f64_up_to_rounding_or_is_refused(case: &Case) {
    let fixture = &BertForMaskedLm::fixtures()[0];
    let (device, file) = (case.autodiff(), fixture.case(FloatDType::F64));
    let model: BertForMaskedLm = fixture.load(FloatDType::F32, &device);
    let batch = BertForMaskedLm::batch(&file, &device);
    let loss = || autocast(Precision::Bf16, || model.forward(&batch).loss);
    if let Err(error) = Precision::Bf16.check(&case.device) {
        let message = panic_of(loss);
        assert!(message.starts_with("the precision is bf16, which"), "{message}");
        assert!(error.to_string().contains("choose f32"), "{error}");
        return;
    }
    let found = collected(&model, Some(&loss().backward()));
    let expected: Vec<f64> = found.keys().flat_map(|path| fixture.gradient(path)).collect();
    // Some roundings of 2⁻⁹.
    let distance = distance(&found.into_values().flatten().collect::<Vec<_>>(), &expected);
    assert!(distance > 1e-4 && distance < 3.2e-2, "{distance:.1e}");
}

pub fn sentence_embeddings_equal_sentence_transformers(case: &Case) {
    let device = case.autodiff();
    let file = File::at(&fixtures().join("sentences/cases_f64.safetensors"));
    for (pooling, name) in POOLINGS {
        let (input, padding) = sentences(&file, &["anchors"], &device);
        let model = model(&device, |config| config.with_pooling(pooling).with_normalize(true));
        let found = host(model.embed(&input, padding.as_ref()).unwrap());
        assert_close(name, &found, &file.values(&format!("normalized.{name}")), case.tolerance);
    }
    let [anchors, candidates] = ["anchors", "candidates"].map(|name| sentences(&file, &[name], &device));
    let batch = SentencePairBatch::new(anchors, candidates).unwrap();
    let (loss, gradients) = run(&model(&device, |config| config.with_normalize(true)), &batch);
    assert_close("loss", &loss, &file.values("model.plain"), case.tolerance);
    for (name, gradient) in gradients {
        assert_close(&name, &gradient, &file.values(&name), case.tolerance);
    }
}
