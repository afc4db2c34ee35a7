//! How much memory forward and backward hold at their peak, counted by the allocator.

use burn::prelude::*;
use burn::tensor::module::embedding;
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator, which counts what is held.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn count(more: usize) {
    let held = HELD.fetch_add(more, Relaxed) + more;
    PEAK.fetch_max(held, Relaxed);
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        HELD.fetch_sub(layout.size(), Relaxed);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const HIDDEN: usize = 768;
const FLOAT: usize = size_of::<f32>();

/// Bytes at the peak of forward and backward, beyond what was held before and what must be: the output, the
/// gradient that comes in, and those of the parameters.
fn overhead(forward: impl Fn() -> Tensor<3>, parameters: usize) -> usize {
    let mut overhead = 0;
    for _ in 0..2 {
        // The second run has warm caches.
        let before = HELD.load(Relaxed);
        PEAK.store(before, Relaxed);
        let y = forward();
        let tokens = y.dims()[0] * y.dims()[1];
        let gradients = y.backward();
        overhead = PEAK.load(Relaxed) - before - (parameters + 2 * tokens * HIDDEN) * FLOAT;
        drop(gradients);
    }
    overhead
}

fn composed(module: &BertEmbeddings, input: &BertEmbeddingsInput) -> Tensor<3> {
    let [_, seq] = input.dims();
    let positions = module.position_embeddings.as_ref().unwrap().weight.val();
    let types = module.token_type_embeddings.weight.val();
    let sum = embedding(module.word_embeddings.weight.val(), input.input_ids().unwrap())
        + types.narrow(0, 0, 1).unsqueeze()
        + positions.narrow(0, 0, seq).unsqueeze();
    module.dropout.forward(module.layer_norm.forward(sum))
}

/// Bert-base, 8 × 128 tokens, an eighth of them padding, every fourth of the others a frequent word.
#[test]
fn forward_and_backward_hold_less_than_one_more_output() {
    let device = Device::flex().autodiff();
    let config = BertEmbeddingsConfig::new();
    let module = config.init(&device);
    let [batch, seq] = [8, 128];
    let rows: Vec<Vec<i32>> = (0..batch)
        .map(|b| {
            let word = |s: usize| match s {
                112.. => 0,
                s if s % 4 == 0 => 1000 + (s % 16) as i32,
                s => 2000 + ((b * seq + s) * 7919 % 28_000) as i32,
            };
            (0..seq).map(word).collect()
        })
        .collect();
    let input = BertEmbeddingsInput::from_rows(&rows, &device).unwrap();

    let fused = overhead(|| module.forward(&input), config.num_params());
    let composed = overhead(|| composed(&module, &input), config.num_params());
    let tokens = batch * seq;
    let output = tokens * HIDDEN * FLOAT;
    println!("beyond what must be held: fused {fused} B, composed {composed} B; an output is {output} B");
    assert!(fused < output + 64 * tokens, "{fused} B");
    assert!(fused < composed / 4, "{fused} B against {composed} B");
}
