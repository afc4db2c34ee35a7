//! DistilBERT, ELECTRA, MPNet and ALBERT with adapters, frozen parts, layers that the backward computes again, 16 bits, a
//! learning rate for each layer and records, against transformers' gradients.

use crate::hugging_face_families::{FAMILIES, Head, case, collected, key, read};
use crate::tolerance::{F64, MODEL_F32, TRAINING, assert_close, values};
use crate::whole_model::File;
use burn::module::{Lora, Module, ParamGroup};
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::optim::{GradientsParams, ModuleOptimizer, SgdConfig};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::cast_module;
use burn_bert::functional::{Precision, autocast};
use burn_bert::model::{BertForMaskedLm, MaskedLmBatch, PretrainedModel};
use burn_bert::optim::{AdamWConfig, adamw, layer_wise_decay};

/// Runs a test for each family, with and without gradient checkpointing.
fn for_each(dtype: FloatDType, test: impl Fn(&str, BertForMaskedLm, &MaskedLmBatch, &File)) {
    let device = Device::default().autodiff();
    for device in [device.clone(), device.gradient_checkpointing()] {
        for (family, _) in FAMILIES {
            let case = case(family, BertForMaskedLm::NAME);
            let batch = BertForMaskedLm::batch(&case, &device);
            test(family, read(family, dtype, &device), &batch, &case);
        }
    }
}

fn golden(case: &File, family: &str, path: &str) -> Vec<f64> {
    case.values(&format!("grad.{}", key(family, path)))
}

#[test]
fn adapters_get_their_part_of_the_gradient_of_what_they_adapt() {
    for_each(FloatDType::F64, |family, model, batch, case| {
        let group = ParamGroup::from_any_predicates(vec!["query.weight", "value.weight"]);
        let mut adapted = model.apply_lora(Lora::new(2, 6.0).set_param_group(group));
        let before = collected(&adapted, None);
        let output = adapted.forward(batch);
        assert_close(&values(output.loss.clone()), &case.values("loss"), F64);
        let gradients = output.loss.backward();
        let found = collected(&adapted, Some(&gradients));
        assert_eq!(found.len(), 4 * adapted.bert.encoder.layers.len(), "{family}: {:?}", found.keys());
        for (i, layer) in adapted.bert.encoder.layers.iter().enumerate() {
            for (name, linear) in [("query", &layer.attention.query), ("value", &layer.attention.value)] {
                let adapter = linear.weight.adapter().unwrap();
                // dL/dB = s·Aᵀ·G and, with B zero, dL/dA = 0, for the gradient G of the weight; PyTorch keeps Gᵀ.
                let path = format!("bert.encoder.layers.{i}.attention.{name}.weight");
                let gradient = TensorData::new(golden(case, family, &path), [8, 8]);
                let gradient = Tensor::<2>::from_data(gradient, (&Device::default(), FloatDType::F64.into()));
                let a = adapter.a.val().inner();
                let expected = a.transpose().matmul(gradient.transpose()).mul_scalar(3.0);
                assert_close(&values(adapter.b.grad(&gradients).unwrap()), &values(expected), F64);
                assert!(values(adapter.a.grad(&gradients).unwrap()).iter().all(|&value| value == 0.0));
            }
        }
        let first = values(adapted.forward(batch).loss)[0];
        let mut optimizer = SgdConfig::new().init();
        for _ in 0..3 {
            let gradients = GradientsParams::from_grads(adapted.forward(batch).loss.backward(), &adapted);
            adapted = optimizer.step(0.05, adapted, gradients);
        }
        let last = adapted.forward(batch);
        assert!(values(last.loss)[0] < first, "{family}");
        for (path, values) in collected(&adapted, None) {
            let is_adapter = found.contains_key(&path);
            let is_base = path.ends_with("query.weight") || path.ends_with("value.weight");
            assert!(is_adapter || is_base || values == before[&path], "{family} {path}");
        }
        // Added to the weights, saved and read by anyone.
        let dir = tempfile::tempdir().unwrap();
        cast_module(adapted.materialize(), FloatDType::F32).save_pretrained(dir.path()).unwrap();
        let config = BertForMaskedLm::undropped(dir.path());
        let (saved, report) =
            BertForMaskedLm::from_pretrained_with(&config, dir.path(), &batch.input.device()).unwrap();
        assert!(report.is_complete() && report.unused.is_empty(), "{report}");
        let logits = values(saved.forward(batch).logits.unwrap());
        assert_close(&logits, &values(last.logits.unwrap()), MODEL_F32);
    });
}

#[test]
fn frozen_parts_get_no_gradient_and_pass_it_on() {
    for_each(FloatDType::F64, |family, model, batch, case| {
        for part in ["bert.embeddings", "bert.encoder", "head"] {
            let frozen = model.clone().freeze_group(ParamGroup::from_predicate(part));
            let gradients = collected(&frozen, Some(&frozen.forward(batch).loss.backward()));
            let trained: Vec<String> =
                collected(&model, None).into_keys().filter(|path| !path.starts_with(part)).collect();
            assert_eq!(gradients.keys().collect::<Vec<_>>(), trained.iter().collect::<Vec<_>>(), "{family}");
            for (path, gradient) in gradients {
                assert_close(&gradient, &golden(case, family, &path), F64);
            }
        }
    });
}

#[test]
fn gradients_in_16_bits_are_those_of_32_up_to_rounding() {
    let all: std::cell::RefCell<Vec<Vec<f64>>> = Default::default();
    for_each(FloatDType::F32, |family, model, batch, case| {
        let loss = autocast(Precision::Bf16, || model.forward(batch)).loss;
        let gradients = collected(&model, Some(&loss.backward()));
        let expected: Vec<f64> = gradients.keys().flat_map(|path| golden(case, family, path)).collect();
        let found: Vec<f64> = gradients.into_values().flatten().collect();
        let length =
            |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
        let distance = length(&mut found.iter().zip(&expected).map(|(a, b)| a - b));
        let distance = distance / length(&mut expected.iter().copied());
        println!("{family}: a distance of {distance:.1e}");
        assert!(distance > 1e-5 && distance < 3e-2, "{family}: {distance}");
        all.borrow_mut().push(found);
    });
    let all = all.into_inner();
    assert!(all[..4] == all[4..], "layers are rounded again as they were");
}

#[test]
fn every_parameter_moves_at_the_rate_of_its_layer() {
    for_each(FloatDType::F64, |family, model, batch, case| {
        let layers = model.bert.encoder.layers.len();
        let before = collected(&model, None);
        let gradients = GradientsParams::from_grads(model.forward(batch).loss.backward(), &model);
        let mut schedule = layer_wise_decay(ConstantLr::new(0.1).into(), layers, 0.5).unwrap();
        let after = collected(&SgdConfig::new().init().step(schedule.step(), model, gradients), None);
        for (path, values) in before {
            let power = match path.strip_prefix("bert.encoder.layers.") {
                Some(rest) => layers - rest.split('.').next().unwrap().parse::<usize>().unwrap(),
                None if path.starts_with("bert.") => layers + 1,
                None => 0,
            };
            let rate = 0.1 * 0.5f64.powi(power as i32);
            let gradient = golden(case, family, &path);
            let expected: Vec<f64> =
                values.iter().zip(gradient).map(|(value, slope)| value - rate * slope).collect();
            assert_close(&after[&path], &expected, F64);
        }
    });
}

#[test]
fn a_run_that_was_stopped_goes_on_as_transformers_does() {
    for_each(FloatDType::F64, |family, model, batch, case| {
        let new = || adamw(&AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01));
        let train = |mut model: BertForMaskedLm, optimizer: &mut ModuleOptimizer, steps: usize| {
            let mut losses = Vec::new();
            for _ in 0..steps {
                let loss = model.forward(batch).loss;
                losses.extend(values(loss.clone()));
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                model = optimizer.step(1e-3, model, gradients);
            }
            (model, losses)
        };
        let dir = tempfile::tempdir().unwrap();
        let files = ["model.bpk", "optimizer.bpk"].map(|name| dir.path().join(name));
        let device = model.bert.embeddings.word_embeddings.weight.lazy_device();
        let fresh = cast_module(model.config().init(&device), FloatDType::F64);
        let mut optimizer = new();
        let (model, mut losses) = train(model, &mut optimizer, 4);
        model.save_file(&files[0]).unwrap();
        optimizer.save(&files[1]).unwrap();
        let mut optimizer = new().load(&files[1]).unwrap();
        losses.extend(train(fresh.load_file(&files[0]), &mut optimizer, 6).1);
        println!("{family}: {losses:.4?}");
        assert_close(&losses, &case.values("losses"), TRAINING);
    });
}
