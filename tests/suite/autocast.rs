//! Whole models in 16 bits beside PyTorch's autocast.

use crate::hugging_face_masked_lm::{BERT, Family, ROBERTA, folder};
use crate::tolerance::values;
use crate::whole_model::File;
use burn::module::{Lora, Module, ModuleVisitor, Param, ParamGroup};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use burn_bert::cast_module;
use burn_bert::functional::{Precision, autocast, on_reference_path};
use burn_bert::model::{BertForMaskedLm, MaskedLmBatch, MaskedLmOutput};
use burn_bert::optim::{AdamWConfig, LossScale, adamw, clip_by_global_norm};

fn batch(family: &Family, device: &Device) -> MaskedLmBatch {
    let case = File::at(&folder().join(format!("{}_f32.safetensors", family.cases)));
    let (input, padding) = case.batch(device);
    let [_, seq] = input.dims();
    let (places, labels) = case.labels(device);
    let places: Vec<_> = places.iter().map(|&place| [place as usize / seq, place as usize % seq]).collect();
    let labels: Vec<u32> = labels.into_data().iter::<u32>().collect();
    MaskedLmBatch::new(input, Some(padding), &places, &labels).unwrap()
}

/// In training: f16 with the scale that it begins with.
fn compute(model: &BertForMaskedLm, batch: &MaskedLmBatch, precision: Precision) -> MaskedLmOutput {
    match precision {
        Precision::F16 => LossScale::new().autocast(|| model.forward(batch)),
        _ => autocast(precision, || model.forward(batch)),
    }
}

/// ‖a − b‖ / ‖b‖.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied()).max(f64::MIN_POSITIVE)
}

/// Both are away from f64 by rounding; ours by no more than PyTorch's, which rounds also what this crate keeps in f32.
fn assert_as_near_as_pytorch(family: &Family, precision: Precision) {
    let device = Device::default().autodiff();
    let mut model = family.load(FloatDType::F32, &device);
    let batch = batch(family, &device);
    let output = compute(&model, &batch, precision);
    assert_eq!((output.loss.dtype(), output.logits.as_ref().unwrap().dtype()), (DType::F32, DType::F32));
    let torch = format!("../autocast/{}_{precision}.safetensors", family.cases);
    let torch = File::at(&folder().join(torch));

    let mut exact = family.load(FloatDType::F64, &device);
    let exact_output = exact.forward(&batch);
    let mut found = vec![
        ("loss".to_string(), values(output.loss.clone())),
        ("logits".to_string(), values(output.logits.unwrap())),
    ];
    let mut expected = vec![values(exact_output.loss.clone()), values(exact_output.logits.unwrap())];
    let (gradients, exact_gradients) = (output.loss.backward(), exact_output.loss.backward());
    let slots = family.slots(&mut model).into_iter().zip(family.slots(&mut exact));
    for ((name, slot), (_, exact)) in slots {
        found.push((format!("grad.{name}"), slot.gradient(&gradients)));
        expected.push(exact.gradient(&exact_gradients));
    }
    let (mut ours, mut theirs, mut worst) = (0.0, 0.0, 0.0f64);
    for ((name, found), expected) in found.iter().zip(&expected) {
        let theirs_values = torch.values(name);
        let [our, their] = [found, &theirs_values].map(|values| distance(values, expected));
        // The gradient of a key's bias is 0 but for rounding.
        if name.ends_with("key.bias") {
            continue;
        }
        worst = worst.max(our / their);
        // Eight times half a unit in the last place: which way a model of two layers is rounded is a matter of chance.
        let limit = if precision == Precision::Bf16 { 3.2e-2 } else { 4e-3 };
        assert!(our <= (2.0 * their).max(limit), "{name}: {our:.1e}, PyTorch's {their:.1e}");
        (ours, theirs) = (ours + our, theirs + their);
    }
    let count = found.len() as f64;
    println!(
        "{precision}, {}: mean distance from f64 {:.1e}, PyTorch's {:.1e}; the worst is {worst:.2} times PyTorch's",
        family.cases,
        ours / count,
        theirs / count
    );
    // A rounding at the beginning moves all gradients, so both sums vary.
    assert!(ours <= 1.5 * theirs, "{ours:.1e}, PyTorch's {theirs:.1e}");
    assert!(ours >= 0.2 * theirs, "{ours:.1e}: nothing is rounded");
}

#[test]
fn logits_loss_and_every_gradient_are_as_near_to_f64_as_pytorchs_autocast() {
    for family in [&BERT, &ROBERTA] {
        for precision in [Precision::Bf16, Precision::F16] {
            assert_as_near_as_pytorch(family, precision);
            on_reference_path(|| assert_as_near_as_pytorch(family, precision));
        }
    }
}

/// Gradients by the order of parameters, without those that have none.
fn gradients(model: &BertForMaskedLm, found: &GradientsParams) -> Vec<Vec<f64>> {
    struct Collect<'a>(&'a GradientsParams, Vec<Vec<f64>>);
    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.0.get::<D>(param.id) {
                assert_eq!(gradient.dtype(), DType::F32);
                self.1.push(values(gradient));
            }
        }
    }
    let mut collect = Collect(found, Vec::new());
    model.visit(&mut collect);
    collect.1
}

#[test]
fn lora_and_frozen_parameters_get_the_gradients_of_f32_up_to_rounding() {
    let device = Device::default().autodiff();
    let batch = batch(&BERT, &device);
    let group = |pattern| ParamGroup::from_regex(pattern).unwrap();
    let load = || BERT.load(FloatDType::F32, &device);
    device.seed(3);
    let frozen =
        load().set_require_grad_group(group(r"word_embeddings|gamma|attention.*bias|layers\.0"), false);
    let lora = Lora::new(2, 4.0).set_param_group(group(r"encoder\.layers\..*\.weight$"));
    for (model, expected) in [(load(), 42), (frozen, 17), (load().apply_lora(lora), 24)] {
        let run = |precision| {
            let loss = compute(&model, &batch, precision).loss;
            gradients(&model, &GradientsParams::from_grads(loss.backward(), &model))
        };
        let exact = run(Precision::F32);
        assert_eq!(exact.len(), expected);
        for precision in [Precision::Bf16, Precision::F16] {
            let found = run(precision).concat();
            let distance = distance(&found, &exact.concat());
            let limit = if precision == Precision::Bf16 { 3e-2 } else { 4e-3 };
            assert!(distance > 1e-5 && distance < limit, "{precision}: {distance:.1e}");
        }
    }
}

#[test]
fn a_training_loop_in_16_bits_stays_beside_that_in_f32() {
    let device = Device::default().autodiff();
    let batch = batch(&BERT, &device);
    let train = |precision| {
        let mut model = BERT.load(FloatDType::F32, &device);
        let mut optimizer = adamw(&AdamWConfig::new());
        let mut losses = Vec::new();
        for _ in 0..10 {
            let loss = compute(&model, &batch, precision).loss;
            losses.extend(values(loss.clone()));
            let mut gradients = GradientsParams::from_grads(loss.backward(), &model);
            clip_by_global_norm(&model, &mut gradients, 1.0).unwrap();
            model = optimizer.step(1e-3, model, gradients);
        }
        losses
    };
    let exact = train(Precision::F32);
    for (precision, limit) in [(Precision::Bf16, 2e-2), (Precision::F16, 2e-3)] {
        let found = train(precision);
        for (found, exact) in found.iter().zip(&exact) {
            assert!((found - exact).abs() < limit * exact, "{precision}: {found} beside {exact}");
        }
        assert_ne!(found, exact);
    }
}

/// Takes a step, one of whose gradients is `value`, and says whether it is to be taken.
fn update(scale: &mut LossScale, value: f32) -> bool {
    let device = Device::default();
    let model = vec![Param::from_tensor(Tensor::<1>::ones([2], &device))];
    let mut gradients = GradientsParams::new();
    gradients.register(model[0].id, Tensor::<1>::from_floats([1.0, value], &device));
    scale.update(&model, &mut gradients)
}

#[test]
fn the_scale_doubles_after_2000_steps_and_resumes_where_it_was() {
    let mut scale = LossScale::new();
    for _ in 0..1999 {
        assert!(update(&mut scale, 2.0));
    }
    assert_eq!(scale.scale(), 65536.0);
    let mut again: LossScale = serde_json::from_str(&serde_json::to_string(&scale).unwrap()).unwrap();
    assert_eq!(again, scale);
    assert!(update(&mut again, 2.0));
    assert_eq!(again.scale(), 131072.0);
    for value in [f32::INFINITY, f32::NAN] {
        assert!(!update(&mut again, value));
    }
    assert_eq!(again.scale(), 32768.0);
    for _ in 0..2000 {
        assert!(update(&mut again, 2.0));
    }
    assert_eq!(again.scale(), 65536.0);
}

/// From infinity or 0 it would never come back.
#[test]
fn the_scale_and_its_reciprocal_stay_normal_numbers_of_f32() {
    let at = |scale: f64, steps: usize| -> LossScale {
        serde_json::from_value(serde_json::json!({ "scale": scale, "steps": steps })).unwrap()
    };
    let [smallest, largest] = [2f64.powi(-126), 2f64.powi(126)];
    let mut scale = at(largest, 1999);
    assert!(update(&mut scale, 2.0));
    assert_eq!(scale, at(largest, 0));
    for _ in 0..300 {
        assert!(!update(&mut scale, f32::INFINITY));
    }
    assert_eq!(scale, at(smallest, 0));
    let mut scale = at(smallest, 1999);
    assert!(update(&mut scale, 2.0));
    assert_eq!(scale.scale(), 2.0 * smallest);
}

#[test]
fn a_model_of_16_bits_and_one_of_f64_compute_as_ever_in_autocast() {
    let device = Device::default();
    let batch = batch(&BERT, &device);
    for dtype in [FloatDType::BF16, FloatDType::F16, FloatDType::F64] {
        let model = cast_module(BERT.load(FloatDType::F32, &device), dtype);
        let run = |precision| values(autocast(precision, || model.forward(&batch)).logits.unwrap());
        assert!(run(Precision::Bf16) == run(Precision::F32), "{dtype:?}");
    }
}

#[cfg(feature = "tokenizers")]
#[test]
#[ignore = "needs a checkpoint: BURN_BERT_CHECKPOINT"]
fn sentence_vectors_of_a_real_checkpoint_in_16_bits_are_those_of_f32() {
    use crate::transformers::real_checkpoint;
    use burn_bert::model::{BertForSentenceEmbedding, PretrainedModel};
    use burn_bert::text::BertTokenizer;

    let (device, checkpoint) = (Device::default(), real_checkpoint());
    let (model, _) = BertForSentenceEmbedding::from_pretrained(&checkpoint, &device).unwrap();
    let tokenizer = model.limit_tokenizer(BertTokenizer::from_pretrained(&checkpoint).unwrap()).unwrap();
    let texts =
        ["A first sentence.", "And a second one, which is longer than the first.", "Quantum chromodynamics!"];
    let batch = tokenizer.batch(&tokenizer.encode_batch(&texts).unwrap(), &device).unwrap();
    let embed =
        |model: &BertForSentenceEmbedding| values(model.embed(&batch.input, batch.padding.as_ref()).unwrap());
    let exact = embed(&model);
    let held = embed(&cast_module(model.clone(), FloatDType::BF16));
    let rounded = autocast(Precision::Bf16, || embed(&model));
    for (name, found) in [("held in bf16", held), ("in autocast", rounded)] {
        let largest = found.iter().zip(&exact).fold(0.0f64, |largest, (a, b)| largest.max((a - b).abs()));
        println!(
            "vectors of length 1, {name}: largest difference {largest:.1e}, distance {:.1e}",
            distance(&found, &exact)
        );
        assert!(largest < 1e-2, "{name}: {largest}");
    }
}

#[test]
fn layers_that_the_backward_computes_again_are_rounded_again() {
    let device = Device::default().autodiff();
    for precision in [Precision::Bf16, Precision::F16] {
        let run = |device: &Device| {
            let model = BERT.load(FloatDType::F32, device);
            let loss = compute(&model, &batch(&BERT, device), precision).loss;
            gradients(&model, &GradientsParams::from_grads(loss.backward(), &model))
        };
        assert!(run(&device) == run(&device.clone().gradient_checkpointing()), "{precision}");
    }
}
