//! Whole models: every family and kind of positions × every head × every mode × dropout on and off.

mod extremes;
mod invariance;
mod models;
mod sample;
#[path = "../support/mod.rs"]
mod support;

use crate::models::{Architecture, ForHead, Head, Texts, architectures, for_each_head};
use crate::refusals::unless_panics;
use crate::sample::Sample;
use crate::tolerance::{distance, parameters, quantizer, values};
use burn::module::{Lora, Module, ParamGroup};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::functional::{Precision, autocast, on_reference_path};
use burn_bert::{Family, cast_module, quantize_linear_layers};
use std::cell::LazyCell;
use std::collections::BTreeMap;
use support::*;

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
    /// In logits by this share of their length, in all gradients by six times as much, without dropout; and not in every bit, which
    /// shows that something else was computed.
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

impl Mode {
    fn base(&self) -> Option<&'static str> {
        match self.agrees? {
            InEveryBit(name) | WithoutDropout(name) | Nearly(name, _) => Some(name),
        }
    }
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
        mode("reference", AUTODIFF, F32, OnReferencePath, Some(Nearly("autodiff", 1e-3))),
        mode("reference, checkpointing", CHECKPOINTING, F32, OnReferencePath, Some(InEveryBit("reference"))),
        mode("valid", AUTODIFF, F32, Valid, Some(InEveryBit("plain"))),
        mode("checkpointing", CHECKPOINTING, F32, Trained, Some(InEveryBit("autodiff"))),
        mode("bf16", AUTODIFF, Bf16, Trained, Some(Nearly("autodiff", 0.05))),
        mode("bf16, checkpointing", CHECKPOINTING, Bf16, Trained, Some(InEveryBit("bf16"))),
        mode("LoRA", AUTODIFF, F32, Lora, Some(WithoutDropout("autodiff"))),
        mode("LoRA, checkpointing", CHECKPOINTING, F32, Lora, Some(InEveryBit("LoRA"))),
        mode("LoRA, bf16", AUTODIFF, Bf16, Lora, Some(WithoutDropout("bf16"))),
        mode("frozen", AUTODIFF, F32, FrozenEmbeddings, Some(WithoutDropout("autodiff"))),
        mode("frozen, checkpointing", CHECKPOINTING, F32, FrozenEmbeddings, Some(InEveryBit("frozen"))),
        mode("weights in bf16", AUTODIFF, F32, Cast(FloatDType::BF16), Some(Nearly("autodiff", 0.1))),
        mode("weights in f16", AUTODIFF, F32, Cast(FloatDType::F16), Some(Nearly("autodiff", 0.02))),
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
        Change::Cast(dtype) => cast_module(model, dtype).unwrap(),
        Change::Quantized { all: true } => model.quantize_weights(&mut quantizer()),
        Change::Quantized { all: false } => quantize_linear_layers(model),
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

/// The devices of the modes.
fn device(autodiff: Option<bool>) -> Device {
    match autodiff {
        None => Device::default(),
        Some(false) => Device::default().autodiff(),
        Some(true) => Device::default().autodiff().gradient_checkpointing(),
    }
}

/// `model` is on the device of `mode`.
fn run<M: Module>(head: &Head<M>, model: M, architecture: &Architecture, mode: &Mode) -> Ran {
    let device = device(mode.autodiff);
    device.seed(10);
    let model = prepared(model, mode.change);
    let is_trained = mode.autodiff.is_some() && !matches!(mode.change, Change::Valid);
    // Draws what LoRA adds.
    let paths = if is_trained { parameters(&model, None) } else { BTreeMap::new() }.into_keys();
    device.seed(11);
    // Of different lengths, one of a single token; two of them with the same tokens.
    let ids = vec![vec![2, 7, 14, 11, 3], vec![5], vec![2, 19, 7, 7], vec![2, 12, 3]];
    let texts = Texts::new(ids, architecture.pad());
    let forward = || texts.run(head.run, &model, &device);
    let (loss, logits) = autocast(mode.precision, || match mode.change {
        Change::OnReferencePath => on_reference_path(forward),
        _ => forward(),
    });
    assert_eq!(loss.is_autodiff() && loss.is_require_grad() || is_trained, is_trained);
    let loss_values = values(loss.clone());
    // Whatever is drawn between them, the backward drops what the forward dropped.
    device.seed(12);
    let gradients = if is_trained { parameters(&model, Some(&loss.backward())) } else { BTreeMap::new() };
    for path in paths.filter(|path| !gradients.contains_key(path)) {
        let is_frozen = match mode.change {
            Change::Lora => true,
            Change::FrozenEmbeddings => path.starts_with("embeddings.") || path.contains(".embeddings."),
            _ => false,
        };
        assert!(is_frozen, "{path} has no gradient");
    }
    Ran { loss: loss_values, logits, gradients }
}

/// Asserts what `mode` promises, given the runs of the modes before it.
fn check(mode: &Mode, found: &Ran, dropout: f64, reads_again: bool, before: &BTreeMap<&str, Ran>) {
    let all = found.gradients.values().chain([&found.loss, &found.logits]);
    assert!(all.flatten().all(|value| value.is_finite()), "not finite");
    let trains_embeddings = found.gradients.keys().any(|path| path.contains("embeddings."));
    if matches!(mode.change, Change::Lora | Change::FrozenEmbeddings) {
        assert!(!found.gradients.is_empty() && !trains_embeddings, "{:?}", found.gradients.keys());
    }
    let same = |name: &str| {
        let expected = &before[name];
        let of_logits = distance(&found.logits, &expected.logits);
        assert!(found.logits == expected.logits, "logits are {of_logits:.1e} from {name}");
        let [loss, of_other] = [&found.loss, &expected.loss];
        assert!(loss == of_other, "the loss is {loss:?}, not the {of_other:?} of {name}");
        for (path, gradient) in &found.gradients {
            let Some(expected) = expected.gradients.get(path) else { continue };
            // What is read more than twice in a forward has parts that are added in another order where layers are computed
            // again: distances, once for each length of a text, and of DeBERTa once for each layer too; DeBERTa's projections
            // to queries and keys, of tokens and of distances; and adapters of a layer that all layers share, or that projects
            // both. Up to 7.2e-8 were measured; 2⁻²³ is a unit in the last place.
            let is_distance = path.contains("distance_embedding") || path.contains("encoder.distances.");
            let projects_both = found.gradients.keys().any(|path| path.contains("encoder.distances."))
                && [".query.", ".key."].iter().any(|name| path.contains(name));
            let is_summed = is_distance || projects_both || reads_again && path.contains(".lora.");
            let distance = distance(gradient, expected);
            let is_near = is_summed && distance < 2e-7;
            assert!(is_near || gradient == expected, "the gradient of {path} is {distance:.1e} from {name}");
        }
    };
    match mode.agrees {
        Some(InEveryBit(name)) => same(name),
        Some(WithoutDropout(name)) if dropout == 0.0 => same(name),
        Some(WithoutDropout("plain")) => assert!(found.loss != before["plain"].loss, "nothing was dropped"),
        Some(Nearly(name, limit)) if dropout == 0.0 || mode.autodiff.is_none() => {
            let expected = &before[name];
            let all = |ran: &Ran| ran.gradients.values().flatten().copied().collect::<Vec<_>>();
            let of_logits = distance(&found.logits, &expected.logits);
            // Four numbers near 0 are away by the share of what they were added up from: 0.085 in bf16 and 0.13 quantised.
            let of_few = if expected.logits.len() <= 4 { 2.0 } else { 1.0 };
            assert!(of_logits < of_few * limit, "logits are {of_logits:.1e} from {name}");
            let of_gradients = distance(&all(found), &all(expected));
            // On a plain device there are none: 0 / 0. Those of a contrastive loss with a scale of 20 are away the furthest:
            // 0.26 in bf16, 0.36 with weights in bf16.
            let is_far = of_gradients >= 6.0 * limit;
            assert!(!is_far, "gradients are {of_gradients:.1e} from {name}");
            let differs = found.logits != expected.logits || found.gradients != expected.gradients;
            assert!(differs, "every bit is that of {name}");
        }
        _ => {}
    }
}

const DROPOUTS: [f64; 2] = [0.0, 0.3];

struct Cells<'a> {
    sample: &'a Sample,
    number: usize,
    architecture: &'a Architecture,
    red: Vec<String>,
}

impl ForHead for Cells<'_> {
    fn run<M: Module>(&mut self, head: &Head<M>) {
        let architecture = self.architecture;
        let reads_again = [Family::Albert, Family::DebertaV2].contains(&architecture.family());
        for (i, dropout) in DROPOUTS.into_iter().enumerate() {
            let is_taken = |mode: usize| self.sample.has(&[self.number, head.number, i, mode]);
            // Built once for all modes of a device.
            let models = [PLAIN, AUTODIFF, CHECKPOINTING].map(|autodiff| {
                LazyCell::new(move || head.model(architecture.config(dropout), &device(autodiff)).unwrap())
            });
            let mut before = BTreeMap::new();
            for (number, mode) in MODES.iter().enumerate() {
                let is_base =
                    (0..MODES.len()).any(|other| is_taken(other) && MODES[other].base() == Some(mode.name));
                if !is_taken(number) && !is_base {
                    continue;
                }
                let cell = || {
                    let model: &M = match mode.autodiff {
                        PLAIN => &models[0],
                        AUTODIFF => &models[1],
                        CHECKPOINTING => &models[2],
                    };
                    let found = run(head, model.clone(), architecture, mode);
                    if is_taken(number) {
                        check(mode, &found, dropout, reads_again, &before);
                    }
                    found
                };
                match unless_panics(cell) {
                    Ok(found) => drop(before.insert(mode.name, found)),
                    Err(message) => {
                        let [name, head, mode] = [&*architecture.name, head.name, mode.name];
                        self.red.push(format!("{name}, {head}, {mode}, dropout {dropout}: {message}"));
                    }
                }
            }
        }
    }
}

/// The one test here that draws: a device has one generator for all threads.
#[test]
fn every_family_head_and_mode_is_finite_and_agrees_with_the_plain_model() {
    let architectures = architectures(16);
    let sample = Sample::new(&architectures, &[DROPOUTS.len(), MODES.len()]);
    let mut red = Vec::new();
    for (number, architecture) in architectures.iter().enumerate() {
        let mut cells = Cells { sample: &sample, number, architecture, red };
        for_each_head(&mut cells);
        red = cells.red;
    }
    println!("{sample} of {} architectures", architectures.len());
    assert!(red.is_empty(), "{} red, {sample}:\n{}", red.len(), red.join("\n"));
}
