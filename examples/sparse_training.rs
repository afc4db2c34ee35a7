//! Trains one small classifier twice, densely and row-sparsely, and shows time, memory, loss and accuracy side by
//! side.
//!
//!     cargo run --release --example sparse_training
//!     cargo run --release --example sparse_training -- --seeds 5
//!
//! The data are synthetic: words follow Zipf's law, each belongs to one of four topics, and a text contains words of
//! its own topic slightly more often than others. Both runs see the same texts, start from the same weights and use the
//! same dropout masks. Exits with an error if their accuracies differ by more than noise, or by more than five points.

use anyhow::ensure;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn_bert::sparse::{LazyAdamWConfig, RowGradients, RowSgdConfig, SparseAdamConfig, SparseOptimizer};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};
use clap::{Parser, ValueEnum};
use counting_allocator::{Counting, count};
use mimalloc::MiMalloc;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Instant;

#[path = "../tests/support/counting_allocator/mod.rs"]
mod counting_allocator;

#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

const TOPICS: usize = 4;
const SEQ: usize = 32;
const BATCH: usize = 32;
const TEST_BATCHES: usize = 64; // 2048 texts: one standard deviation of an accuracy of 85 % is 0.8 points
const OWN_TOPIC: f64 = 0.2; // share of words that come from the text's topic for sure
const LARGEST_NOISE: f64 = 5.0; // points: a larger difference is none, however far apart the seeds are
const WARM_UP: usize = 3; // steps that are not timed: they make the optimisers' state

/// Row-sparse training beside dense training.
#[derive(Parser)]
struct Arguments {
    /// How many times to train, from different weights and on different texts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..))]
    seeds: u64,
    /// Steps of a training.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Rows of the word table.
    #[arg(long, default_value_t = 30_522, value_parser = clap::value_parser!(u32).range(100..))]
    vocabulary: u32,
    /// Length of the vectors.
    #[arg(long, default_value_t = 128)]
    hidden: usize,
    /// What updates the rows.
    #[arg(long, value_enum, default_value_t = Rows::SparseAdam)]
    rows: Rows,
    /// Learning rate of both trainings (for `--rows sgd` try 3).
    #[arg(long, default_value_t = 2e-3)]
    learning_rate: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Rows {
    SparseAdam,
    LazyAdamw,
    Sgd,
}

impl Rows {
    fn init(self) -> SparseOptimizer {
        match self {
            Self::SparseAdam => SparseAdamConfig::new().init(),
            Self::LazyAdamw => LazyAdamWConfig::new().init(),
            Self::Sgd => RowSgdConfig::new().init(),
        }
    }
}

/// The layer, the mean of its vectors, and scores of the topics.
#[derive(Module, Debug)]
struct Classifier {
    embeddings: BertEmbeddings,
    output: Linear,
}

impl Classifier {
    fn new(arguments: &Arguments, device: &Device) -> Self {
        let config = BertEmbeddingsConfig::new()
            .with_vocab_size(arguments.vocabulary as usize)
            .with_hidden_size(arguments.hidden)
            .with_max_position_embeddings(SEQ);
        Self {
            embeddings: config.init(device),
            output: LinearConfig::new(arguments.hidden, TOPICS).init(device),
        }
    }

    fn scores(&self, hidden: Tensor<3>) -> Tensor<2> {
        let [batch, _, size] = hidden.dims();
        self.output.forward(hidden.mean_dim(1).reshape([batch, size]))
    }

    fn loss(&self, hidden: Tensor<3>, topics: Tensor<1, Int>) -> Tensor<1> {
        let scores = self.scores(hidden);
        CrossEntropyLossConfig::new().init(&scores.device()).forward(scores, topics)
    }
}

struct Batch {
    input: BertEmbeddingsInput,
    topics: Vec<i64>,
}

impl Batch {
    fn draw(vocabulary: u32, random: &mut impl Rng, device: &Device) -> anyhow::Result<Self> {
        let topics: Vec<i64> = (0..BATCH).map(|_| random.random_range(0..TOPICS as i64)).collect();
        let texts: Vec<Vec<u32>> = topics
            .iter()
            .map(|&topic| (0..SEQ).map(|_| word(vocabulary, topic as u32, random)).collect())
            .collect();
        Ok(Self { input: BertEmbeddingsInput::from_rows(&texts, device)?, topics })
    }

    fn targets(&self, device: &Device) -> Tensor<1, Int> {
        Tensor::from_ints(self.topics.as_slice(), device)
    }
}

/// A word by Zipf's law (its rank is log-uniform); word w belongs to topic w mod 4, and 0 is padding.
fn word(vocabulary: u32, topic: u32, random: &mut impl Rng) -> u32 {
    let ranks = f64::from(vocabulary - TOPICS as u32);
    let rank = ranks.powf(random.random::<f64>()) as u32;
    let rank = if random.random_bool(OWN_TOPIC) { rank - rank % TOPICS as u32 + topic } else { rank };
    rank.max(1)
}

/// What a training came to.
struct Outcome {
    milliseconds: f64,
    memory: usize,
    loss: f64,
    accuracy: f64,
}

/// One step of training at a learning rate: the model after it, and the loss before it.
type Step<'a> = dyn FnMut(Classifier, &Batch, f64) -> anyhow::Result<(Classifier, Tensor<1>)> + 'a;

fn train(
    mut model: Classifier,
    arguments: &Arguments,
    seed: u64,
    step: &mut Step<'_>,
) -> anyhow::Result<Outcome> {
    let device = Device::default().autodiff();
    device.seed(seed);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut times, mut memory, mut losses) = (Vec::new(), 0, Vec::new());
    for i in 0..arguments.steps as usize {
        let batch = Batch::draw(arguments.vocabulary, &mut random, &device)?;
        let start = Instant::now();
        let (stepped, used) = count(|| step(model, &batch, arguments.learning_rate));
        let (stepped, loss) = stepped?;
        model = stepped;
        if i >= WARM_UP {
            times.push(start.elapsed().as_secs_f64() * 1e3);
            memory = memory.max(used.peak);
        }
        losses.push(loss.into_scalar::<f32>().into());
    }
    times.sort_by(f64::total_cmp);
    let last = &losses[losses.len() - losses.len().min(50)..];
    Ok(Outcome {
        milliseconds: times.get(times.len() / 2).copied().unwrap_or(f64::NAN),
        memory,
        loss: mean(last),
        accuracy: accuracy(&model.valid(), arguments.vocabulary, seed)?,
    })
}

/// Share of fresh texts whose topic is found.
fn accuracy(model: &Classifier, vocabulary: u32, seed: u64) -> anyhow::Result<f64> {
    let device = Device::default();
    let mut random = ChaCha8Rng::seed_from_u64(u64::MAX - seed);
    let mut right = 0;
    for _ in 0..TEST_BATCHES {
        let batch = Batch::draw(vocabulary, &mut random, &device)?;
        let guesses = model.scores(model.embeddings.try_forward(&batch.input)?).argmax(1);
        let guesses = guesses.into_data().iter::<i64>().collect::<Vec<_>>();
        right += guesses.iter().zip(&batch.topics).filter(|(guess, topic)| guess == topic).count();
    }
    Ok(right as f64 / (TEST_BATCHES * BATCH) as f64)
}

fn adamw() -> ModuleOptimizer {
    AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01).init()
}

fn dense(model: Classifier, arguments: &Arguments, seed: u64) -> anyhow::Result<Outcome> {
    let mut optimizer = adamw();
    train(model, arguments, seed, &mut |model, batch, learning_rate| {
        let hidden = model.embeddings.try_forward(&batch.input)?;
        let loss = model.loss(hidden, batch.targets(&batch.input.device()));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        Ok((optimizer.step(learning_rate, model, gradients), loss))
    })
}

fn sparse(model: Classifier, arguments: &Arguments, seed: u64) -> anyhow::Result<Outcome> {
    let (mut optimizer, mut row_optimizer) = (adamw(), arguments.rows.init());
    train(model, arguments, seed, &mut |mut model, batch, learning_rate| {
        let rows = model.embeddings.touched_rows(&batch.input)?;
        let loss = model.loss(rows.try_forward()?, batch.targets(&batch.input.device()));
        let mut gradients = loss.backward();
        let row_gradients = RowGradients::from_grads(&mut gradients, rows, &model.embeddings)?;
        row_optimizer.step(learning_rate, &mut model.embeddings, row_gradients)?;
        let gradients = GradientsParams::from_grads(gradients, &model);
        Ok((optimizer.step(learning_rate, model, gradients), loss))
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let device = Device::default().autodiff();
    println!("            ms a step    MB a step    loss    accuracy");
    let mut differences = Vec::new();
    for seed in 0..arguments.seeds {
        device.seed(seed);
        let initial = || -> anyhow::Result<Classifier> {
            device.seed(seed);
            let model = Classifier::new(&arguments, &device);
            let first = BertEmbeddingsInput::from_rows(&[[1]], &device)?;
            model.scores(model.embeddings.try_forward(&first)?); // draws all parameters, in one order
            Ok(model)
        };
        let outcomes = [
            ("dense", dense(initial()?, &arguments, seed)?),
            ("sparse", sparse(initial()?, &arguments, seed)?),
        ];
        for (name, Outcome { milliseconds, memory, loss, accuracy }) in &outcomes {
            let (memory, accuracy) = (*memory as f64 / 1e6, 100.0 * accuracy);
            println!("{name:>6} {seed:<3}{milliseconds:>11.2}{memory:>13.1}{loss:>8.3}{accuracy:>10.2} %");
        }
        let [(_, dense), (_, sparse)] = &outcomes;
        differences.push(100.0 * (sparse.accuracy - dense.accuracy));
    }
    let difference = mean(&differences);
    let squares: Vec<f64> = differences.iter().map(|d| (d - difference).powi(2)).collect();
    let error =
        (squares.iter().sum::<f64>() / (differences.len() - 1) as f64 / differences.len() as f64).sqrt();
    // Three standard errors, and a point for what so few seeds do not show.
    let noise = (3.0 * error + 1.0).min(LARGEST_NOISE);
    println!("accuracy, sparse − dense: {difference:+.2} points; up to {noise:.2} are noise");
    ensure!(
        difference.abs() <= noise,
        "the accuracies differ by {difference:+.2} points, but at most {noise:.2} are noise; the row-sparse training is \
         wrong, or --steps, --seeds and --learning-rate are too far from the defaults to compare"
    );
    Ok(())
}
