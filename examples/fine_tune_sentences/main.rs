//! Trains a model of sentence vectors: `cargo run --release --features tokenizers,train --example fine_tune_sentences --
//! --checkpoint DIR --train FILE --valid FILE --output DIR`.
//!
//! Takes a directory of sentence-transformers or of transformers, and files in CSV, TSV or JSON lines: (anchor, positive),
//! (anchor, positive, negative, …) or (sentence, sentence, score). Writes a directory that `predict embed`
//! and `SentenceTransformer` read. `OUTPUT/training` holds the trainer's checkpoints and logs. The model with the lowest validation
//! loss is saved. Ctrl-C stops after the current batch; `--resume` continues from the last validation.

#[path = "../command_line/mod.rs"]
mod command_line;

use anyhow::{Context, Result, bail};
use burn::data::dataloader::{DataLoader, Progress};
use burn::data::dataset::Dataset;
use burn::module::Module;
use burn::train::metric::{Adaptor, LossMetric, Metric, MetricMetadata, Numeric};
use burn::train::{Interrupter, Learner, LearningResult, SupervisedTraining};
use burn_bert::data::{EpochLoader, SentenceColumns, SentencePairBatcher, SentencePairs};
use burn_bert::distributed::{Ranks, Wire};
use burn_bert::functional::Precision;
use burn_bert::metrics::{RetrievalMetric, SpearmanMetric, TripletMetric};
use burn_bert::model::{
    BertForSentenceEmbedding, BertForSentenceEmbeddingConfig, CoSentLoss, MatryoshkaLoss,
    MultipleNegativesRankingLoss, PretrainedModel, SentenceLoss, TripletLoss,
};
use burn_bert::optim::{AdamWConfig, adamw, linear_warmup_decay};
use burn_bert::text::BertTokenizer;
use burn_bert::training::{Run, SentenceEmbeddingItem, Training};
use clap::{Parser, ValueEnum};
use command_line::{count, factor, print_line, print_lines};
use std::path::PathBuf;
use std::sync::Arc;

/// An allocator that keeps its pages makes training faster; see docs/performance.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Fine-tunes a BERT to embed sentences")]
struct Args {
    /// A directory of sentence-transformers or of transformers, with a tokenizer.
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// Sentences: a .csv, .tsv or .jsonl file. A column label or score has similarities, all others are sentences.
    #[arg(long, value_name = "FILE")]
    train: PathBuf,
    /// Sentences for the validation after each epoch: by Spearman's correlation if they have scores, by the accuracy of
    /// triplets if they have negatives, else by how often the positive of an anchor is the nearest of all.
    #[arg(long, value_name = "FILE")]
    valid: PathBuf,
    /// The output directory, new or empty, except with --resume.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Continue the run that was stopped in this output directory.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    settings: Settings,
}

/// A run is resumed with the settings that it began with.
#[derive(clap::Args, Debug)]
struct Settings {
    /// By default co-sent if the sentences have scores, else multiple-negatives.
    #[arg(long)]
    loss: Option<Loss>,
    /// Widths at which the first values of the vectors are trained too, such as 384,192,96 (Matryoshka).
    #[arg(long, value_delimiter = ',', value_parser = count())]
    matryoshka: Vec<usize>,
    /// Passes over the sentences; each is followed by a validation.
    #[arg(long, default_value_t = 3, value_parser = count())]
    epochs: usize,
    /// Rows of the file in a batch; other rows are negatives of multiple-negatives.
    #[arg(long, default_value_t = 16, value_parser = count())]
    batch_size: usize,
    /// Sentences that are in memory at once; the rest of the batch is computed again.
    #[arg(long, value_parser = count())]
    mini_batch_size: Option<usize>,
    /// Tokens of a sentence; longer ones are cut. By default what the checkpoint says.
    #[arg(long, value_parser = count())]
    max_length: Option<usize>,
    /// The peak learning rate: warm-up over the first tenth of the steps, then linear decay to 0.
    #[arg(long, default_value_t = 2e-5, value_parser = factor)]
    learning_rate: f64,
    /// What matmuls are computed in: f32 or bf16.
    #[arg(long, default_value_t)]
    precision: Precision,
    /// The seed of all random numbers.
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Loss {
    MultipleNegatives,
    CoSent,
    CosineSimilarity,
    Triplet,
}

impl Settings {
    fn loss(&self, has_labels: bool) -> SentenceLoss {
        let usual = if has_labels { Loss::CoSent } else { Loss::MultipleNegatives };
        let loss = match self.loss.unwrap_or(usual) {
            Loss::MultipleNegatives => MultipleNegativesRankingLoss::new().into(),
            Loss::CoSent => CoSentLoss::new().into(),
            Loss::CosineSimilarity => SentenceLoss::CosineSimilarity,
            Loss::Triplet => TripletLoss::new().into(),
        };
        match self.matryoshka.is_empty() {
            true => loss,
            false => MatryoshkaLoss::new(loss, self.matryoshka.clone()).into(),
        }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let columns = SentenceColumns::default();
    let [train, valid] = [&args.train, &args.valid].map(|path| SentencePairs::open(path, &columns));
    let (train, valid) = (train?, valid?);
    Ranks::run(Wire::Full, |ranks| match (valid.has_labels(), valid.num_negatives()) {
        (true, _) => fine_tune(&args, ranks, train, valid, SpearmanMetric::new()),
        (false, 0) => fine_tune(&args, ranks, train, valid, RetrievalMetric::accuracy(1)),
        (false, _) => fine_tune(&args, ranks, train, valid, TripletMetric::new()),
    })
}

fn fine_tune<M>(
    args: &Args,
    ranks: &Ranks,
    train: SentencePairs,
    valid: SentencePairs,
    metric: M,
) -> Result<()>
where
    M: Metric + Numeric + 'static,
    SentenceEmbeddingItem: Adaptor<M::Input>,
{
    print_lines(ranks.is_first());
    let (settings, device) = (&args.settings, ranks.device());
    settings.precision.check(&device)?;
    let run = if args.resume { Run::resume } else { Run::create }(&args.output, settings)?.shared(ranks)?;

    // The model, and the batches.
    device.seed(settings.seed);
    let config = BertForSentenceEmbeddingConfig::from_pretrained(&args.checkpoint)?;
    let max_length = settings.max_length.or(config.max_seq_length);
    let config = config
        .with_loss(settings.loss(train.has_labels()))
        .with_mini_batch_size(settings.mini_batch_size)
        .with_max_seq_length(max_length);
    let autodiff = device.clone().autodiff();
    let (model, report) =
        BertForSentenceEmbedding::from_pretrained_with(&config, &args.checkpoint, &autodiff)?;
    print_line(&report);
    print_line(format_args!("{} rows to train on, {} to validate on", train.len(), valid.len()));
    let tokenizer = model.limit_tokenizer(BertTokenizer::from_pretrained(&args.checkpoint)?)?;
    let batcher = SentencePairBatcher::new(tokenizer);
    let steps = train.len().div_ceil(settings.batch_size * ranks.size()).saturating_mul(settings.epochs);
    let train = EpochLoader::new(train, batcher.clone(), settings.batch_size, &device)?
        .with_shuffling(settings.seed)
        .shard(ranks.rank(), ranks.size())?
        .starting_after(run.finished_epochs());
    let valid = EpochLoader::new(valid, batcher, settings.batch_size, &device)?;
    if let Some(batch) = train.clone().iter().next() {
        model.clone().valid().try_forward(&batch?).context("the loss cannot read the training file")?;
    }
    let before =
        validate(&model, &valid, metric.clone()).context("the loss cannot read the validation file")?;
    run.begin(before.0, &[&args.train, &args.valid])?;
    run.copy_companions(&args.checkpoint)?; // the tokenizer

    // The training.
    let schedule = linear_warmup_decay(settings.learning_rate, steps / 10, steps)?;
    let optimizer = adamw(&AdamWConfig::new().with_weight_decay(0.01))?;
    let interrupter = Interrupter::new();
    let model = Training::new(model).with_precision(settings.precision).with_ranks(ranks, &interrupter)?;
    let training = SupervisedTraining::new(run.folder(), Arc::new(train), Arc::new(valid.clone()))
        .metrics((LossMetric::new(), metric.clone()))
        .num_epochs(settings.epochs)
        .renderer(run.progress(&interrupter))
        .with_interrupter(model.interrupter());
    let training = run.checkpointed(training, &model)?; // the last two, and the best
    ctrlc::set_handler(move || interrupter.stop(Some("Ctrl-C"))).context("cannot listen for Ctrl-C")?;
    let LearningResult { model, renderer, interrupted, error } =
        training.launch(Learner::new(model, optimizer, schedule));
    drop(renderer); // gives the terminal back

    if !ranks.is_first() {
        return error.map_or(Ok(()), |error| bail!("training stopped: {error}"));
    }

    // The best model is saved, or what there is if the training was broken off.
    let best = run.losses()?.best_epoch().filter(|_| error.is_none() && interrupted.is_none());
    let model = best.map_or_else(|| Ok(model.clone()), |best| run.model_of(best, model.clone()))?.model;
    model.save_pretrained(&args.output)?;
    let after = validate(&model, &valid, metric.clone())?;
    print_line(format_args!("validation loss {:.4} (before: {:.4})", after.0, before.0));
    print_line(format_args!("{} {:.4} (before: {:.4})", metric.name(), after.1, before.1));
    let which = best.map_or(String::new(), |best| format!(", the model of validation {best}"));
    print_line(format_args!("saved {}{which}", args.output.display()));
    if let Some(error) = error {
        bail!("training stopped: {error}");
    }
    if interrupted.is_some() {
        print_line(format_args!("stopped; --resume goes on from validation {}", run.last_checkpoint()?));
    }
    Ok(())
}

/// The mean loss, and the score.
fn validate<M>(
    model: &BertForSentenceEmbedding,
    loader: &EpochLoader<SentencePairBatcher>,
    mut metric: M,
) -> Result<(f64, f64)>
where
    M: Metric + Numeric,
    SentenceEmbeddingItem: Adaptor<M::Input>,
{
    let (model, mut total, mut rows) = (model.clone().valid(), 0.0, 0.0);
    let metadata = MetricMetadata { progress: Progress::new(1, 1, None), iteration: None, lr: None };
    let similarity = model.config().similarity;
    for batch in loader.iter() {
        let batch = batch?;
        let output = model.try_forward(&batch)?;
        let [count, _] = output.anchors.dims();
        total += output.loss.clone().into_scalar::<f64>() * count as f64;
        rows += count as f64;
        let item = SentenceEmbeddingItem {
            loss: output.loss,
            anchors: output.anchors,
            candidates: output.candidates,
            labels: batch.labels,
            similarity,
        };
        metric.update(&item.adapt(), &metadata)?;
    }
    Ok((total / rows, metric.final_value().current()))
}
