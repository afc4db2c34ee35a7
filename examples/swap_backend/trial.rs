//! A saved model, a batch, and the results of one device.

use burn::module::{Module, Param};
use burn::optim::{GradientsParams, ModuleOptimizer, SgdConfig};
use burn::prelude::*;
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};
use std::error::Error;
use std::time::Instant;

const PAD: i32 = 0;
const LEARNING_RATE: f64 = 1e-3;

/// Sizes of a model and its batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub vocab: usize,
    pub hidden: usize,
    pub batch: usize,
    pub seq: usize,
}

impl Size {
    /// Values of a table or a batch at most: 8 GiB.
    const MOST: usize = 1 << 31;

    /// Refuses what does not fit in memory before any of it is made.
    pub fn check(&self) -> Result<(), Box<dyn Error>> {
        let rows = self.vocab.max(self.batch.saturating_mul(self.seq));
        if rows.saturating_mul(self.hidden) <= Self::MOST {
            return Ok(());
        }
        Err(format!("{rows} vectors of length {} are too many; at most {} values", self.hidden, Self::MOST)
            .into())
    }
}

/// The same model and batch for every device.
pub struct Workload {
    config: BertEmbeddingsConfig,
    record: tempfile::NamedTempFile,
    ids: Vec<Vec<i32>>,
    targets: TensorData,
}

/// The results of a device.
pub struct Outcome {
    pub output: Vec<f32>,
    /// Of the word embeddings.
    pub gradient: Vec<f32>,
    /// The word embeddings after the step.
    pub stepped: Vec<f32>,
    /// The largest gradient in the padding row.
    pub pad_gradient: f32,
    pub milliseconds: f64,
}

impl Workload {
    /// Builds the model on `device` and saves it.
    pub fn build(size: Size, seed: u64, device: &Device) -> Result<Self, Box<dyn Error>> {
        let Size { vocab, hidden, batch, seq } = size;
        // Dropout would draw another mask on every device.
        let config = BertEmbeddingsConfig::new()
            .with_vocab_size(vocab)
            .with_hidden_size(hidden)
            .with_hidden_dropout_prob(0.0);
        device.seed(seed);
        let record = tempfile::Builder::new().suffix(".bpk").tempfile()?;
        config.try_init(device)?.save_file(record.path())?;
        // Every sixth token is padding; the others walk through the vocabulary in large steps.
        let id = |n: usize| if n % 6 == 5 { PAD } else { ((n * 7919) % vocab) as i32 };
        let ids = (0..batch).map(|b| (0..seq).map(|s| id(b * seq + s)).collect()).collect();
        let targets: Vec<f32> =
            (0..batch * seq * hidden).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
        Ok(Self { config, record, ids, targets: TensorData::new(targets, [batch, seq, hidden]) })
    }

    /// Loads the model on `device` and runs it: one round to warm up, then the timed ones.
    pub fn run(&self, device: &Device, rounds: usize) -> Result<Outcome, Box<dyn Error>> {
        let device = &device.clone().autodiff();
        let module = self.config.try_init(device)?.try_load_file(self.record.path())?;
        let input = BertEmbeddingsInput::from_rows(&self.ids, device)?;
        let targets = Tensor::<3>::from_data(self.targets.clone(), device);
        let round = || -> Result<_, Box<dyn Error>> {
            let output = module.try_forward(&input)?;
            let loss = (output.clone() - targets.clone()).square().sum();
            let gradients = GradientsParams::from_grads(loss.backward(), &module);
            let gradient =
                gradients.get::<2>(word_table(&module).id).ok_or("the word embeddings have no gradient")?;
            let mut optimizer: ModuleOptimizer = SgdConfig::new().init();
            let stepped = word_table(&optimizer.step(LEARNING_RATE, module.clone(), gradients)).val();
            Ok((output, gradient, stepped))
        };
        let (output, gradient, stepped) = round()?;
        let gradient_rows = gradient.clone();
        let outcome = Outcome {
            pad_gradient: gradient_rows.narrow(0, PAD as usize, 1).abs().max().into_scalar::<f32>(),
            output: host(output)?,
            gradient: host(gradient)?,
            stepped: host(stepped)?,
            milliseconds: 0.0,
        };
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds.max(1) {
            let start = Instant::now();
            let results = round()?;
            device.sync().map_err(|error| format!("{error:?}"))?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            drop(results);
        }
        times.sort_by(f64::total_cmp);
        Ok(Outcome { milliseconds: times[times.len() / 2], ..outcome })
    }
}

fn word_table(module: &BertEmbeddings) -> &Param<Tensor<2>> {
    &module.word_embeddings.weight
}

fn host<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, Box<dyn Error>> {
    tensor.into_data().try_into_vec().map_err(|error| format!("{error:?}").into())
}
