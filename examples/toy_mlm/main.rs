//! A toy masked-language-model training run that shows learned position embeddings updating.
//!
//! Two models see the same batches from the same start; one has its position embeddings held at zero. In the synthetic
//! language a masked letter follows from its position and from nothing else, so only the other can solve the task.
//!
//! ```sh
//! cargo run --example toy_mlm
//! BURN_DEVICE=ndarray cargo run --features ndarray --example toy_mlm -- --seed 7
//! ```

mod language;
mod pictures;
mod table;

use anyhow::{Context, Result, ensure};
use burn::module::Param;
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn_bert::BertEmbeddingsConfig;
use burn_bert::data::MaskedLmCollatorConfig;
use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig, BertModelConfig, MaskedLmBatch};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use language::{LETTERS, Language, MASK, PLACES, SPECIAL_TOKENS};
use std::io::IsTerminal;

const VOCABULARY: usize = (SPECIAL_TOKENS.end + LETTERS) as usize;
/// Rows of the position embeddings: 0 is `[CLS]`'s, 1..=48 are the places, the rest is never used.
const POSITIONS: usize = 64;
const BATCH: usize = 32;
const LEARNING_RATE: f64 = 5e-3;
/// Steps over which the learning rate rises to its full value.
const WARM_UP: f64 = 50.0;

/// Train a small BERT by masked language modelling and show what its position embeddings learn.
#[derive(Parser)]
struct Args {
    /// Seed of the data, the initial weights and dropout.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Training steps.
    #[arg(long, default_value_t = 400)]
    steps: u64,
}

fn main() -> Result<()> {
    let Args { seed, steps } = Args::parse();
    let device = Device::default();
    let training = device.clone().autodiff();
    let language = Language::new(seed);
    println!("{LETTERS} letters at {PLACES} places: a masked letter follows from its position alone");
    println!("device {device:?}, seed {seed}, {steps} steps\n");

    device.seed(seed);
    let model = config().init(&training);
    let initial = model.valid(); // initialises the weights
    let mut learned = Learner::new(model.clone());
    let mut without_positions = Learner::new(hold_positions_at_zero(model));

    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} steps, {elapsed} (left {eta})  {msg}")?;
    let bar = ProgressBar::new(steps).with_style(style);
    let collate = collator().init();
    let mut used = vec![false; POSITIONS];
    for step in 1..=steps {
        let sentences = language.sentences(step, BATCH);
        let positions = sentences.iter().filter_map(|sentence| sentence.position_ids.as_ref()).flatten();
        positions.for_each(|&position| used[position as usize] = true);
        let batch = collate.collate(&sentences, seed.wrapping_add(step), &training)?;
        let learning_rate = LEARNING_RATE * (step as f64 / WARM_UP).min(1.0);
        let [loss, without] = [&mut learned, &mut without_positions].map(|learner| {
            training.seed(seed.wrapping_mul(0x9E37_79B9).wrapping_add(step)); // the same dropout for both
            learner.step(&batch, learning_rate)
        });
        let message = format!("loss {loss:.3}, without positions {without:.3}");
        if !std::io::stderr().is_terminal() && step.is_multiple_of(steps.div_ceil(10)) {
            println!("step {step}: {message}");
        }
        bar.set_message(message);
        bar.inc(1);
    }
    bar.finish();

    // On the held-out sentences every masked token is `[MASK]`.
    let all_masked = collator().with_mask_replace_prob(1.0).with_random_replace_prob(0.0).init();
    let held_out = all_masked.collate(&language.sentences(0, 8 * BATCH), 0, &device)?;
    let models = [&initial, &learned.model, &without_positions.model];
    let scores = models.map(|model| score(model, &held_out));
    let [before, after] = [&initial, &learned.model].map(tables);
    let has_learned = table::print(scores, &before, &after, &used);

    let folder = std::path::Path::new("target").join("toy_mlm");
    std::fs::create_dir_all(&folder).context("cannot create target/toy_mlm")?;
    pictures::losses([&learned.losses, &without_positions.losses], &folder.join("loss.svg"))?;
    pictures::similarities(before, after, &language.positions_by_letter(), &folder.join("positions.svg"))?;
    ensure!(has_learned, "the table does not show that the position embeddings learned");
    println!(
        "The position embeddings were learned; pictures: loss.svg and positions.svg in {}",
        folder.display()
    );
    Ok(())
}

fn config() -> BertForMaskedLmConfig {
    let embeddings = BertEmbeddingsConfig::new()
        .with_vocab_size(VOCABULARY)
        .with_hidden_size(32)
        .with_max_position_embeddings(POSITIONS);
    let bert = BertModelConfig::new(embeddings).with_num_hidden_layers(2);
    let bert = bert.with_num_attention_heads(2).with_intermediate_size(64);
    BertForMaskedLmConfig::new(bert).with_train_padding_row(false)
}

fn collator() -> MaskedLmCollatorConfig {
    MaskedLmCollatorConfig::new(VOCABULARY, MASK, SPECIAL_TOKENS.start, SPECIAL_TOKENS.collect())
}

fn hold_positions_at_zero(mut model: BertForMaskedLm) -> BertForMaskedLm {
    let table = model.bert.embeddings.position_embeddings.as_mut().expect("positions are absolute");
    table.weight = Param::from_tensor(table.weight.val().zeros_like()).set_require_grad(false);
    model
}

/// The word embeddings and the position embeddings.
fn tables(model: &BertForMaskedLm) -> [Tensor<2>; 2] {
    let embeddings = &model.bert.embeddings;
    let positions = embeddings.position_embeddings.as_ref().expect("positions are absolute");
    [&embeddings.word_embeddings, positions].map(|table| table.weight.val().without_autodiff())
}

struct Learner {
    model: BertForMaskedLm,
    optimizer: ModuleOptimizer,
    losses: Vec<f32>,
}

impl Learner {
    fn new(model: BertForMaskedLm) -> Self {
        // No weight decay: it would move rows that no batch has used.
        let optimizer = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.0).init();
        Self { model, optimizer, losses: Vec::new() }
    }

    /// One step, and the loss before it.
    fn step(&mut self, batch: &MaskedLmBatch, learning_rate: f64) -> f32 {
        let loss = self.model.forward(batch).loss;
        self.losses.push(loss.clone().into_scalar());
        let gradients = GradientsParams::from_grads(loss.backward(), &self.model);
        self.model = self.optimizer.step(learning_rate, self.model.clone(), gradients);
        self.losses[self.losses.len() - 1]
    }
}

/// Results on the held-out batch.
struct Score {
    loss: f64,
    accuracy: f64,
}

fn score(model: &BertForMaskedLm, batch: &MaskedLmBatch) -> Score {
    let output = model.valid().forward(batch);
    let (logits, labels) = output.logits.zip(batch.labels()).expect("some tokens are masked");
    let correct = logits.argmax(1).squeeze_dim::<1>(1).equal(labels).int().sum().into_scalar::<i64>();
    Score { loss: output.loss.into_scalar(), accuracy: correct as f64 / batch.num_masked() as f64 }
}
