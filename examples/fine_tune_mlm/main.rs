//! Trains a BERT on your own text: `cargo run --release --features tokenizers,train --example fine_tune_mlm --
//! --checkpoint DIR --text FILE --output DIR`.
//!
//! Takes a Hugging Face directory and a UTF-8 text, trains by masked language modelling with Burn's own trainer, and
//! writes a Hugging Face directory. `OUTPUT/training` holds the trainer's checkpoints and logs and a picture of the
//! loss. Ctrl-C (in the dashboard `q`, then `s`) stops after the current batch and saves; `--resume` continues from the
//! last validation.

#[path = "../command_line/mod.rs"]
mod command_line;
#[path = "../devices/mod.rs"]
mod devices;
#[path = "../pictures/loss.rs"]
mod picture;
mod settings;

use anyhow::{Context, Result, bail, ensure};
use burn::data::dataloader::DataLoader;
use burn::data::dataset::InMemDataset;
use burn::prelude::*;
use burn::train::metric::{AccuracyMetric, LossMetric, PerplexityMetric};
use burn::train::{Interrupter, Learner, LearningResult, SupervisedTraining, TrainingStrategy};
use burn_bert::data::{Corpus, EpochLoader, MaskedLmCollator, MaskedLmCollatorConfig};
use burn_bert::distributed::{Ranks, Wire};
use burn_bert::model::{BertForMaskedLm, PretrainedModel};
use burn_bert::optim::{AdamWConfig, adamw, linear_warmup_decay};
use burn_bert::text::BertTokenizer;
use burn_bert::training::{Patience, Run, Training};
use clap::Parser;
use command_line::{print_line, print_lines};
use mimalloc::MiMalloc;
use settings::Settings;
use std::io::{Write, stderr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// An allocator that keeps its pages makes training faster; see docs/performance.md.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[derive(Parser)]
#[command(about = "Fine-tunes a BERT on a text by masked language modelling")]
struct Args {
    /// A Hugging Face directory: config.json, weights, and a tokenizer.json or vocab.txt.
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,

    /// A UTF-8 text file. Its tokens are kept in memory, in about as many bytes as an English text has.
    #[arg(long, value_name = "FILE")]
    text: PathBuf,

    /// The output directory, in Hugging Face's format; new or empty, except with --resume.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,

    /// Continue the run that was stopped in this output directory.
    #[arg(long)]
    resume: bool,

    #[command(flatten)]
    settings: Settings,
}

fn main() -> Result<()> {
    let args = Args::parse();
    args.settings.validate()?;
    Ranks::run(Wire::Full, |ranks| fine_tune(&args, ranks))
}

fn fine_tune(args: &Args, ranks: &Ranks) -> Result<()> {
    print_lines(ranks.is_first());
    let settings = &args.settings;
    ensure!(
        ranks.size() == 1 || settings.devices == 1,
        "--devices is for one process; start a rank for each"
    );
    let devices = if ranks.size() == 1 { devices::devices(settings.devices)? } else { vec![ranks.device()] };
    let device = devices[0].clone();
    settings.precision.check(&device)?;
    let open = if args.resume { Run::resume } else { Run::create };
    let run = open(&args.output, settings)?.shared(ranks)?;
    let patience = settings.patience.map(|epochs| Patience::new(epochs).shared(ranks));
    if let Some(patience) = &patience
        && patience.is_over(&run.losses()?, run.finished_epochs())
    {
        print_line("the run stopped early and is done; its best model is saved");
        return Ok(());
    }
    let schedule = linear_warmup_decay(settings.learning_rate, settings.warmup(), settings.steps)?;
    device.seed(settings.seed); // for a head that the checkpoint lacks
    let (model, report) = BertForMaskedLm::from_pretrained(&args.checkpoint, &device.clone().autodiff())?;
    if ranks.is_first() {
        let _ = write!(stderr(), "{report}");
    }
    let tokenizer = model.limit_tokenizer(BertTokenizer::from_pretrained(&args.checkpoint)?)?;
    let collator = MaskedLmCollatorConfig::for_tokenizer(&tokenizer)
        .with_mlm_probability(settings.mlm_probability)
        .with_whole_word_masking(settings.whole_words)
        .try_init()?;
    let corpus = Corpus::open(&args.text, tokenizer, settings.seq_len)?;
    let held_out = corpus.held_out(settings.held_out);
    print_line(format_args!(
        "{}: {} parameters; {} windows of {} tokens held out",
        args.checkpoint.display(),
        model.num_params(),
        held_out.len(),
        settings.seq_len
    ));
    let batches = settings.batches(devices.len())?;
    let train = EpochLoader::new(corpus, collator.clone(), settings.batch_size, &device)?
        .with_shuffling(settings.seed)
        .with_batches_per_epoch(batches)?
        .shard(ranks.rank(), ranks.size())?
        .starting_after(run.finished_epochs());
    let valid = EpochLoader::new(InMemDataset::new(held_out), collator, settings.batch_size, &device)?;
    let before = held_out_loss(&model, &valid)?;
    print_line(format_args!("held out before: loss {before:.3}, perplexity {:.2}", before.exp()));
    run.begin(before, &[&args.text])?;
    run.copy_companions(&args.checkpoint)?;

    let optimizer = adamw(&AdamWConfig::new().with_weight_decay(settings.weight_decay))?;
    let interrupter = Interrupter::new();
    let model = Training::new(model)
        .with_max_grad_norm(settings.max_grad_norm())
        .with_precision(settings.precision)
        .with_ranks(ranks, &interrupter)?;
    let training = SupervisedTraining::new(run.folder(), Arc::new(train), Arc::new(valid.clone()))
        .metrics((LossMetric::new(), AccuracyMetric::new(), PerplexityMetric::new()))
        .grads_accumulation(settings.accumulation)
        .num_epochs(settings.epochs())
        .with_training_strategy(TrainingStrategy::Default(devices::strategy(&devices)));
    let mut training = run.checkpointed(training, &model)?;
    if let Some(patience) = patience.clone() {
        training = training.early_stopping(patience);
    }
    let training = training.with_interrupter(model.interrupter()).renderer(run.progress(&interrupter));
    ctrlc::set_handler(move || interrupter.stop(Some("Ctrl-C"))).context("cannot listen for Ctrl-C")?;

    let start = Instant::now();
    let LearningResult { model, renderer, interrupted, error } =
        training.launch(Learner::new(model, optimizer, schedule));
    drop(renderer); // gives the terminal back
    let seconds = start.elapsed().as_secs_f64();
    if !ranks.is_first() {
        return error.map_or(Ok(()), |error| bail!("training stopped: {error}"));
    }
    // Whatever ended the run, what was learned is saved first.
    model.model.save_pretrained(&args.output)?;
    let losses = run.losses()?;
    let was_stopped = error.is_some() || interrupted.is_some();
    let best = losses.best_epoch().filter(|_| patience.is_some() && !was_stopped);
    let model = match best {
        Some(best) => {
            let model = run.model_of(best, model)?.model;
            model.save_pretrained(&args.output)?;
            print_line(format_args!(
                "of {} validations number {best} was the best; its model is saved",
                losses.valid.len()
            ));
            model
        }
        None => model.model,
    };
    let after = held_out_loss(&model, &valid)?;
    let picture = run.folder().join("loss.svg");
    picture::draw(&losses, batches, before, "Masked-language-model loss", &picture)?;

    print_line(format_args!(
        "held out after:  loss {after:.3}, perplexity {:.2} (before: {:.2})",
        after.exp(),
        before.exp()
    ));
    let tokens = losses.train.len().saturating_sub(run.finished_epochs().saturating_mul(batches))
        * settings.batch_size
        * settings.seq_len
        * ranks.size();
    print_line(format_args!(
        "{tokens} tokens in {seconds:.0} s, validation included: {:.0} tokens/s",
        tokens as f64 / seconds
    ));
    print_line(format_args!("saved {} and {}", args.output.display(), picture.display()));
    if let Some(error) = error {
        bail!("training stopped: {error}");
    }
    if interrupted.is_some() {
        let step = run.last_checkpoint()? * settings.eval_every;
        print_line(format_args!("stopped; --resume goes on from the last validation, after step {step}"));
    }
    Ok(())
}

/// Mean loss per masked token, in nats.
fn held_out_loss(model: &BertForMaskedLm, loader: &EpochLoader<MaskedLmCollator>) -> Result<f64> {
    let model = model.clone().valid();
    let (mut total, mut tokens) = (0.0, 0);
    for batch in loader.iter() {
        let batch = batch?;
        let loss = model.try_forward(&batch)?.loss.into_scalar::<f64>();
        total += loss * batch.num_masked() as f64;
        tokens += batch.num_masked();
    }
    ensure!(tokens > 0, "no held-out token is masked; raise --mlm-probability or --held-out");
    Ok(total / tokens as f64)
}
