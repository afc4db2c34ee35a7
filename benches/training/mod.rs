//! A training step of the layer at BERT-base sizes, dense and row-sparse: what the benches of it have in common.

use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn_bert::optim::{AdamWConfig, adamw};
use burn_bert::sparse::{RowGradients, SparseAdamConfig, SparseOptimizer};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub const VOCABULARIES: [usize; 3] = [30_522, 119_547, 250_002]; // BERT-base, mBERT, XLM-R
const BATCH: usize = 8;
const SEQ: usize = 128;
pub const BATCHES: usize = 16; // different ones, in turn, so that steps touch other rows
const LEARNING_RATE: f64 = 1e-4;

pub struct Training {
    embeddings: Option<BertEmbeddings>,
    inputs: Vec<BertEmbeddingsInput>,
    upstream: Tensor<3>, // [B, S, H], the gradient that comes from the rest of a model
    optimizer: ModuleOptimizer,
    rows: SparseOptimizer,
    step: usize,
}

impl Training {
    pub fn new(vocab_size: usize) -> Self {
        let device = Device::default().autodiff();
        device.seed(0);
        let config = BertEmbeddingsConfig::new().with_vocab_size(vocab_size);
        // Uniform ids: nearly all of a batch's tokens are different words, the worst case for a sparse step.
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut batch = || -> BertEmbeddingsInput {
            let mut sequence =
                || (0..SEQ).map(|_| rng.random_range(1..vocab_size as i32)).collect::<Vec<_>>();
            let ids: Vec<Vec<i32>> = (0..BATCH).map(|_| sequence()).collect();
            BertEmbeddingsInput::from_rows(&ids, &device).expect("ids of one length")
        };
        let inputs = (0..BATCHES).map(|_| batch()).collect();
        let normal = burn::tensor::Distribution::Normal(0.0, 1.0);
        Self {
            embeddings: Some(config.init(&device)),
            inputs,
            upstream: Tensor::random([BATCH, SEQ, config.hidden_size], normal, &device),
            optimizer: adamw(&AdamWConfig::new()),
            rows: SparseAdamConfig::new().init(),
            step: 0,
        }
    }

    fn next_input(&mut self) -> BertEmbeddingsInput {
        self.step += 1;
        self.inputs[self.step % BATCHES].clone()
    }

    pub fn dense_step(&mut self) {
        let input = self.next_input();
        let embeddings = self.embeddings.take().expect("the layer");
        let gradients = (embeddings.forward(&input) * self.upstream.clone()).sum().backward();
        let gradients = GradientsParams::from_grads(gradients, &embeddings);
        self.embeddings = Some(self.optimizer.step(LEARNING_RATE, embeddings, gradients));
    }

    pub fn sparse_step(&mut self) {
        let input = self.next_input();
        let mut embeddings = self.embeddings.take().expect("the layer");
        let touched = embeddings.touched_rows(&input).expect("ids in range");
        let mut gradients = (touched.forward() * self.upstream.clone()).sum().backward();
        let row_gradients =
            RowGradients::from_grads(&mut gradients, touched, &embeddings).expect("no tied head");
        self.rows.step(LEARNING_RATE, &mut embeddings, row_gradients).expect("rows of this layer");
        let gradients = GradientsParams::from_grads(gradients, &embeddings);
        self.embeddings = Some(self.optimizer.step(LEARNING_RATE, embeddings, gradients));
    }
}
