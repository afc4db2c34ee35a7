//! Whole models: every family and kind of positions × every head × every mode × dropout on and off.

mod invariance;
mod models;
#[path = "../support/tolerance/mod.rs"]
mod tolerance;

use crate::models::{Architecture, ForHead, Head, Texts, architectures, for_each_head};
use crate::tolerance::values;
use burn::module::{Lora, Module, ModuleVisitor, Param, ParamGroup, Quantizer};
use burn::prelude::*;
use burn::tensor::quantization::{Calibration, QuantScheme, QuantStore};
use burn::tensor::{FloatDType, Gradients};
use burn_bert::PositionEmbeddingType::{RelativeKey, RelativeKeyQuery};
use burn_bert::functional::{Precision, autocast, on_reference_path};
use burn_bert::{Family, cast_module};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What becomes of the model before a run.
#[derive(Clone, Copy, Debug)]
enum Change {
    Trained,
    /// Trained, with every forward on the operators' references; the backward follows it.
    OnReferencePath,
    /// Trained, then `valid()`.
    Valid,
    Lora,
    FrozenEmbeddings,
    Cast(FloatDType),
    /// All, or those of the encoder's linear layers.
    Quantized {
        all: bool,
    },
}

/// How a run must agree with that of an earlier mode.
#[derive(Clone, Copy, Debug)]
enum Agrees {
    /// In logits, loss and the gradients that both have, bit for bit. With dropout too, from the same seed.
    InEveryBit(&'static str),
    /// As that, without dropout.
    WithoutDropout(&'static str),
    /// In logits, by this share of their length, without dropout.
    Nearly(&'static str, f64),
}
use Agrees::*;

struct Mode {
    name: &'static str,
    /// Of the device: plain, or autodiff, with or without gradient checkpointing.
    autodiff: Option<bool>,
    precision: Precision,
    change: Change,
    agrees: Option<Agrees>,
}

const PLAIN: Option<bool> = None;
const AUTODIFF: Option<bool> = Some(false);
const CHECKPOINTING: Option<bool> = Some(true);

/// A mode more is one line. Logits in 16 bits are within 2⁻⁸ of the plain ones a rounding; a quantised weight within half
/// of 1/127 of the largest.
const MODES: [Mode; 19] = {
    use Change::*;
    use Precision::{Bf16, F32};
    const fn mode(
        name: &'static str,
        autodiff: Option<bool>,
        precision: Precision,
        change: Change,
        agrees: Option<Agrees>,
    ) -> Mode {
        Mode { name, autodiff, precision, change, agrees }
    }
    [
        mode("plain", PLAIN, F32, Trained, None),
        mode("autodiff", AUTODIFF, F32, Trained, Some(WithoutDropout("plain"))),
        mode("reference", AUTODIFF, F32, OnReferencePath, Some(Nearly("plain", 1e-3))),
        mode("reference, checkpointing", CHECKPOINTING, F32, OnReferencePath, Some(InEveryBit("reference"))),
        mode("valid", AUTODIFF, F32, Valid, Some(InEveryBit("plain"))),
        mode("checkpointing", CHECKPOINTING, F32, Trained, Some(InEveryBit("autodiff"))),
        mode("bf16", AUTODIFF, Bf16, Trained, Some(Nearly("plain", 0.05))),
        mode("bf16, checkpointing", CHECKPOINTING, Bf16, Trained, Some(InEveryBit("bf16"))),
        mode("LoRA", AUTODIFF, F32, Lora, Some(WithoutDropout("autodiff"))),
        mode("LoRA, checkpointing", CHECKPOINTING, F32, Lora, Some(InEveryBit("LoRA"))),
        mode("LoRA, bf16", AUTODIFF, Bf16, Lora, Some(WithoutDropout("bf16"))),
        mode("frozen embeddings", AUTODIFF, F32, FrozenEmbeddings, Some(WithoutDropout("autodiff"))),
        mode(
            "frozen, checkpointing",
            CHECKPOINTING,
            F32,
            FrozenEmbeddings,
            Some(InEveryBit("frozen embeddings")),
        ),
        mode("weights in bf16", AUTODIFF, F32, Cast(FloatDType::BF16), Some(Nearly("plain", 0.1))),
        mode("weights in f16", AUTODIFF, F32, Cast(FloatDType::F16), Some(Nearly("plain", 0.02))),
        mode("weights in bf16, plain", PLAIN, F32, Cast(FloatDType::BF16), Some(Nearly("plain", 0.1))),
        mode("quantised", PLAIN, F32, Quantized { all: true }, Some(Nearly("plain", 0.1))),
        mode("quantised layers", PLAIN, F32, Quantized { all: false }, Some(Nearly("plain", 0.1))),
        mode("quantised layers, bf16", PLAIN, Bf16, Quantized { all: false }, Some(Nearly("plain", 0.1))),
    ]
};

fn prepared<M: Module>(model: M, change: Change) -> M {
    match change {
        Change::Trained | Change::OnReferencePath => model,
        Change::Valid => model.valid(),
        Change::Lora => model.apply_lora(Lora::new(2, 4.0).set_param_group(adapted())),
        Change::FrozenEmbeddings => {
            model.freeze_group(ParamGroup::from_regex(r"(^|\.)embeddings\.").unwrap())
        }
        Change::Cast(dtype) => cast_module(model, dtype),
        Change::Quantized { all } => {
            let scheme = QuantScheme::default().with_store(QuantStore::Native);
            let mut quantizer = Quantizer::new(Calibration::MinMax, scheme);
            match all {
                true => model.quantize_weights(&mut quantizer),
                false => model.quantize_weights_group(&mut quantizer, adapted()),
            }
        }
    }
}

/// The matrices of the encoder's linear layers.
fn adapted() -> ParamGroup {
    ParamGroup::from_regex(r"encoder\.layers\..*(query|key|value|intermediate|output)\.weight$").unwrap()
}

/// What a run gave.
struct Ran {
    loss: Vec<f64>,
    logits: Vec<f64>,
    /// By the parameter's path; none on a plain device.
    gradients: BTreeMap<String, Vec<f64>>,
}

/// The paths of all parameters, and the gradients of those that have one.
fn gradients(model: &impl Module, gradients: Option<&Gradients>) -> BTreeMap<String, Option<Vec<f64>>> {
    struct Collect<'a>(Vec<String>, Option<&'a Gradients>, BTreeMap<String, Option<Vec<f64>>>);
    impl ModuleVisitor for Collect<'_> {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.0.push(name.into());
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let gradient = self.1.and_then(|gradients| param.grad(gradients));
            self.2.insert(self.0.join("."), gradient.map(values));
        }
    }
    let mut collect = Collect(vec![], gradients, BTreeMap::new());
    model.visit(&mut collect);
    collect.2
}

/// ‖a − b‖ / ‖b‖
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied())
}

/// Four texts of different lengths, one of a single token; two of them with the same tokens.
fn texts(pad: i32) -> Texts {
    let ids = vec![vec![2, 7, 14, 11, 3], vec![5], vec![2, 19, 7, 7], vec![2, 12, 3]];
    Texts::new(ids, pad)
}

fn run<M: Module>(head: &Head<M>, architecture: &Architecture, mode: &Mode, dropout: f64) -> Option<Ran> {
    let device = match mode.autodiff {
        None => Device::default(),
        Some(false) => Device::default().autodiff(),
        Some(true) => Device::default().autodiff().gradient_checkpointing(),
    };
    let model = head.model(architecture.config(dropout), &device)?;
    device.seed(10);
    let model = prepared(model, mode.change);
    gradients(&model, None); // draws what LoRA adds
    device.seed(11);
    let texts = texts(architecture.pad());
    let forward = || texts.run(head.run, &model, &device);
    let (loss, logits) = autocast(mode.precision, || match mode.change {
        Change::OnReferencePath => on_reference_path(forward),
        _ => forward(),
    });
    let is_trained = mode.autodiff.is_some() && !matches!(mode.change, Change::Valid);
    assert_eq!(loss.is_autodiff() && loss.is_require_grad() || is_trained, is_trained);
    let loss_values = values(loss.clone());
    // Whatever is drawn between them, the backward drops what the forward dropped.
    device.seed(12);
    let all = gradients(&model, is_trained.then(|| loss.backward()).as_ref());
    if is_trained {
        let without: Vec<&String> =
            all.iter().filter(|(_, found)| found.is_none()).map(|(path, _)| path).collect();
        for path in without {
            let is_frozen = match mode.change {
                Change::Lora => true,
                Change::FrozenEmbeddings => path.starts_with("embeddings.") || path.contains(".embeddings."),
                _ => false,
            };
            assert!(is_frozen, "{path} has no gradient");
        }
    }
    let with = |(path, found): (String, Option<Vec<f64>>)| Some((path, found?));
    Some(Ran { loss: loss_values, logits, gradients: all.into_iter().filter_map(with).collect() })
}

/// Asserts what `mode` promises, given the runs of the modes before it.
/// `is_summed`: whether a parameter is read several times in a forward; computed again, its parts are added in another order.
fn check(mode: &Mode, found: &Ran, dropout: f64, is_summed: bool, before: &BTreeMap<&str, Ran>) {
    let all = found.gradients.values().chain([&found.loss, &found.logits]);
    assert!(all.flatten().all(|value| value.is_finite()), "not finite");
    let trains_embeddings = found.gradients.keys().any(|path| path.contains("embeddings."));
    match mode.change {
        Change::Lora => {
            assert!(!found.gradients.is_empty() && !trains_embeddings, "{:?}", found.gradients.keys())
        }
        Change::FrozenEmbeddings => assert!(!found.gradients.is_empty() && !trains_embeddings),
        _ => {}
    }
    let same = |name: &str| {
        let expected = &before[name];
        assert!(
            found.logits == expected.logits,
            "logits are {:.1e} from {name}",
            distance(&found.logits, &expected.logits)
        );
        assert!(
            found.loss == expected.loss,
            "the loss is {:?}, not the {:?} of {name}",
            found.loss,
            expected.loss
        );
        for (path, gradient) in &found.gradients {
            let Some(expected) = expected.gradients.get(path) else { continue };
            let distance = distance(gradient, expected);
            let is_near = is_summed && distance < 1e-6;
            assert!(is_near || gradient == expected, "the gradient of {path} is {distance:.1e} from {name}");
        }
    };
    match mode.agrees {
        Some(InEveryBit(name)) => same(name),
        Some(WithoutDropout(name)) if dropout == 0.0 => same(name),
        Some(WithoutDropout("plain")) => assert!(found.loss != before["plain"].loss, "nothing was dropped"),
        Some(Nearly(name, limit)) if dropout == 0.0 || mode.autodiff.is_none() => {
            // Four numbers near 0 are away by the share of what they were added up from.
            let expected = &before[name].logits;
            let is_few = expected.len() <= 4;
            let (distance, limit) =
                (distance(&found.logits, expected), if is_few { 4.0 * limit } else { limit });
            // So few may round to the same numbers; more show that another way was taken.
            assert!((distance > 0.0 || is_few) && distance < limit, "logits are {distance:.1e} from {name}");
        }
        _ => {}
    }
}

/// Waits until the other test no longer draws: a device has one generator for all threads.
fn turn() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Cells<'a> {
    architecture: &'a Architecture,
    count: usize,
    red: Vec<String>,
}

impl ForHead for Cells<'_> {
    fn run<M: Module>(&mut self, head: &Head<M>) {
        let is_summed = self.architecture.family() == Family::Albert
            || matches!(self.architecture.positions(), RelativeKey | RelativeKeyQuery);
        for dropout in [0.0, 0.3] {
            let mut before = BTreeMap::new();
            for mode in &MODES {
                let cell = || {
                    let found = run(head, self.architecture, mode, dropout)?;
                    check(mode, &found, dropout, is_summed, &before);
                    Some(found)
                };
                match catch_unwind(AssertUnwindSafe(cell)) {
                    Ok(None) => return,
                    Ok(Some(found)) => drop(before.insert(mode.name, found)),
                    Err(panic) => {
                        let message = panic.downcast_ref::<String>().cloned();
                        let message =
                            message.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
                        let cell = format!(
                            "{}, {}, {}, dropout {dropout}",
                            self.architecture.name, head.name, mode.name
                        );
                        self.red.push(format!("{cell}: {}", message.unwrap_or_default()));
                    }
                }
                self.count += 1;
            }
        }
    }
}

#[test]
fn every_family_head_and_mode_is_finite_and_agrees_with_the_plain_model() {
    let _turn = turn();
    let (mut count, mut red) = (0, Vec::new());
    let architectures = architectures(16);
    for architecture in &architectures {
        let mut cells = Cells { architecture, count: 0, red: Vec::new() };
        for_each_head(&mut cells);
        count += cells.count;
        red.append(&mut cells.red);
    }
    println!("{count} cells of {} architectures", architectures.len());
    assert!(red.is_empty(), "{} of {count} cells:\n{}", red.len(), red.join("\n"));
}
