//! Calls from many threads at once: each has the bits that it has alone.

use burn::module::Param;
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::DType;
use burn_bert::model::{BertModel, BertModelConfig};
use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput, quantize_linear_layers};
use burn_fused::{Error, Precision, autocast, drop_out, linear, recomputed_anywhere};
use rayon::ThreadPoolBuilder;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::{env, thread};

/// `BURN_BERT_CALLS` is another number of them.
fn jobs() -> usize {
    env::var("BURN_BERT_CALLS").map_or(1500, |number| number.parse().unwrap())
}

/// Rows and columns whose matmuls are shared among threads, in as few multiplications as those take.
const TOKENS: usize = 512;
const HIDDEN: usize = 130;

/// A matmul that a job multiplies in one of three ways, and models in two.
struct Models {
    x: Tensor<2>,
    weight: Tensor<2>,
    identity: Tensor<2>,
    quantized: Linear,
    bert: BertModel,
    ids: BertEmbeddingsInput,
    device: Device,
}

/// Threads enough for calls outside pools to have helpers, however many make them, on every machine.
fn set_threads() {
    // The test that begins first sets them.
    let _ = ThreadPoolBuilder::new().num_threads(12).build_global();
    assert_eq!(rayon::current_num_threads(), 12);
}

/// What a job computes, by its number.
const KINDS: usize = 6;

impl Models {
    fn new(device: &Device) -> Self {
        let draw = |shape: [usize; 2]| Tensor::random(shape, burn::tensor::Distribution::Default, device);
        let embeddings = BertEmbeddingsConfig::new().with_vocab_size(50).with_hidden_size(64);
        let bert = BertModelConfig::new(embeddings)
            .with_num_hidden_layers(1)
            .with_num_attention_heads(2)
            .with_intermediate_size(256);
        let ids: Vec<Vec<i32>> = (0..8).map(|row| (0..64).map(|i| (row * i) % 50).collect()).collect();
        Self {
            x: draw([TOKENS, HIDDEN]),
            weight: draw([HIDDEN, HIDDEN]),
            identity: Tensor::eye(HIDDEN, device),
            quantized: quantize_linear_layers(LinearConfig::new(HIDDEN, HIDDEN).init(device)),
            bert: bert.init(device),
            ids: BertEmbeddingsInput::from_rows(&ids, device).unwrap(),
            device: device.clone(),
        }
    }

    /// The bits of what a job of this kind computes. f32 is not stated: it is what holds where nothing else does.
    fn compute(&self, kind: usize) -> Vec<f32> {
        let product = || linear(self.x.clone(), self.weight.clone(), None);
        match kind {
            0 => values(product()),
            1 => values(autocast(Precision::Bf16, product)),
            2 => values(linear(self.x.clone(), self.quantized.weight.val(), None)),
            3 => values(self.bert.forward(&self.ids, None).last_hidden_state),
            4 => self.train(),
            _ => self.drop_out(),
        }
    }

    /// The gradients of a model of its own, without dropout, which would draw.
    fn train(&self) -> Vec<f32> {
        let bert = self.bert.clone().fork(&self.device.clone().autodiff());
        let mut bert = bert.train();
        bert.embeddings.set_dropout(0.0).unwrap();
        bert.encoder.set_dropout(0.0, 0.0).unwrap();
        let hidden = autocast(Precision::Bf16, || bert.forward(&self.ids, None).last_hidden_state);
        let gradients = hidden.powf_scalar(2.0).sum().backward();
        values(bert.encoder.layers[0].intermediate.weight.val().grad(&gradients).unwrap())
    }

    /// Zeros where the backward of a recomputed part drops out what its forward did.
    fn drop_out(&self) -> Vec<f32> {
        let device = self.device.clone().autodiff();
        let identity = Param::from_tensor(self.identity.clone().autodiff());
        let x = Tensor::<2>::ones([TOKENS, HIDDEN], &device).require_grad();
        let part = |identity: &Param<Tensor<2>>, x: Tensor<2>, _: &()| {
            let x = drop_out(linear(x, identity.val(), None), 0.5);
            Ok::<_, Error>(drop_out(linear(x, identity.val(), None), 0.5))
        };
        let y = recomputed_anywhere(&identity, x.clone(), &(), part).unwrap();
        let gradients = y.clone().sum().backward();
        // The mask itself, as all else is 1.
        values(x.grad(&gradients).unwrap() - y.inner())
    }
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}

#[test]
fn each_of_many_calls_at_once_has_the_bits_that_it_has_alone() {
    set_threads();
    let jobs = jobs();
    let models = Arc::new(Models::new(&Device::flex()));
    let alone: Arc<Vec<_>> = Arc::new((0..KINDS).map(|kind| models.compute(kind)).collect());
    assert!(alone[0] != alone[1], "bf16 rounds");
    assert!(alone[5].iter().all(|&difference| difference == 0.0));

    let (wrong, all) = channel();
    let run = {
        let (models, alone) = (models.clone(), alone.clone());
        move |job: usize, wrong: &Sender<usize>| {
            // Of the slow ones few.
            let kind = if job % 40 < 3 { 3 + job % 40 } else { job % 3 };
            if models.compute(kind) != alone[kind] {
                wrong.send(kind).unwrap();
            }
        }
    };
    let pool = ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(3).build().unwrap();
    let next = Arc::new(AtomicUsize::new(0));
    for job in 0..jobs / 3 {
        let [(run, wrong), (again, wrong_again)] = [(); 2].map(|()| (run.clone(), wrong.clone()));
        pool.spawn(move || run(job, &wrong));
        runtime.spawn_blocking(move || again(job, &wrong_again));
    }
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (run, wrong, next) = (run.clone(), wrong.clone(), next.clone());
            thread::spawn(move || {
                let next = || 2 * (jobs / 3) + next.fetch_add(1, Ordering::Relaxed);
                let mut job = next();
                while job < jobs {
                    run(job, &wrong);
                    job = next();
                }
            })
        })
        .collect();
    drop(wrong);
    let wrong: Vec<_> = all.iter().collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let count = |kind| wrong.iter().filter(|&&found| found == kind).count();
    assert!(wrong.is_empty(), "wrong of each kind: {:?}", [0, 1, 2, 3, 4, 5].map(count));
}

#[test]
fn a_job_that_rayon_runs_while_an_operator_waits_in_burn_finds_the_settings_of_no_other() {
    set_threads();
    let device = Device::flex();
    // Burn multiplies f64, by rayon.
    let square = Tensor::<2>::ones([400, 400], (&device, DType::F64));
    let pool = ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    let (found, all) = channel();
    for job in 0..600 {
        let (square, found) = (square.clone(), found.clone());
        pool.spawn(move || {
            found.send(Precision::current()).unwrap();
            if job % 2 == 0 {
                autocast(Precision::Bf16, || linear(square.clone(), square, None));
            }
        });
    }
    drop(found);
    let of_others = all.iter().filter(|&precision| precision != Precision::F32).count();
    assert_eq!(of_others, 0, "jobs began with the precision of another");
}
