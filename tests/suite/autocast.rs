//! Whole models in bf16 beside PyTorch's autocast.

use crate::parity::{Fixture, Head, collected, fixtures};
use crate::prelude::*;
use burn_bert::functional::{Precision, autocast, on_reference_path};
use std::collections::BTreeMap;

fn batch(fixture: &Fixture, device: &Device) -> MaskedLmBatch {
    BertForMaskedLm::batch(&fixture.case(FloatDType::F32), device)
}

/// Logits, loss and gradients by the names of the fixture.
fn all(fixture: &Fixture, model: &BertForMaskedLm, output: MaskedLmOutput) -> BTreeMap<String, Vec<f64>> {
    let gradients = collected(model, Some(&output.loss.backward())).into_iter();
    let mut found: BTreeMap<_, _> =
        gradients.map(|(path, gradient)| (format!("grad.{}", fixture.key(&path)), gradient)).collect();
    found.insert("loss".into(), values(output.loss));
    found.insert("logits".into(), values(output.logits.unwrap()));
    found
}

/// Both are away from f64 by rounding; ours by no more than PyTorch's, which rounds also what this crate keeps in f32.
fn assert_as_near_as_pytorch(fixture: &Fixture, torch: &File) {
    let device = autodiff();
    let batch = batch(fixture, &device);
    let model: BertForMaskedLm = fixture.load(FloatDType::F32, &device);
    let output = autocast(Precision::Bf16, || model.forward(&batch));
    assert_eq!((output.loss.dtype(), output.logits.as_ref().unwrap().dtype()), (DType::F32, DType::F32));
    let found = all(fixture, &model, output);
    let exact: BertForMaskedLm = fixture.load(FloatDType::F64, &device);
    let exact = all(fixture, &exact, exact.forward(&batch));
    let (mut ours, mut theirs) = (0.0, 0.0);
    // The gradient of a key's bias is 0 but for rounding.
    for (name, found) in found.iter().filter(|(name, _)| !name.ends_with("key.bias")) {
        let [our, their] = [found, &torch.values(name)].map(|values| distance(values, &exact[name]));
        // Eight times half a unit in the last place: which way a model of two layers is rounded is a matter of chance.
        assert!(our <= (2.0 * their).max(3.2e-2), "{name}: {our:.1e}, PyTorch's {their:.1e}");
        (ours, theirs) = (ours + our, theirs + their);
    }
    // A rounding at the beginning moves all gradients, so both sums vary.
    assert!(ours <= 1.5 * theirs, "{ours:.1e}, PyTorch's {theirs:.1e}");
    assert!(ours >= 0.2 * theirs, "{ours:.1e}: nothing is rounded");
}

#[test]
fn logits_loss_and_every_gradient_are_as_near_to_f64_as_pytorchs_autocast() {
    for (fixture, name) in BertForMaskedLm::fixtures().iter().zip(["cases", "roberta_cases"]) {
        let torch = File::at(&fixtures().join(format!("autocast/{name}_bf16.safetensors")));
        assert_as_near_as_pytorch(fixture, &torch);
        on_reference_path(|| assert_as_near_as_pytorch(fixture, &torch));
    }
}

#[test]
fn a_model_of_16_bits_and_one_of_f64_compute_as_ever_in_autocast() {
    let device = device();
    let fixture = &BertForMaskedLm::fixtures()[0];
    let batch = batch(fixture, &device);
    for dtype in [FloatDType::BF16, FloatDType::F16, FloatDType::F64] {
        let model: BertForMaskedLm = fixture.load(dtype, &device);
        let run = |precision| values(autocast(precision, || model.forward(&batch)).logits.unwrap());
        assert!(run(Precision::Bf16) == run(Precision::F32), "{dtype:?}");
    }
}
