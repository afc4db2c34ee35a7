//! Trains a classifier on labelled texts: `cargo run --release --features tokenizers,train --example
//! fine_tune_classifier -- --checkpoint DIR --train FILE --valid FILE --output DIR`.
//!
//! Takes a Hugging Face directory with any head or none, and files in CSV, TSV or JSON lines; writes a directory that
//! `classify` and transformers' `AutoModelForSequenceClassification` read. `OUTPUT/training` holds the trainer's
//! checkpoints and logs and two pictures: the loss and the confusion matrix. The model with the best validation is
//! saved. Ctrl-C stops after the current batch; `--resume` continues from the last validation.

#[path = "../command_line/mod.rs"]
mod command_line;
#[path = "../pictures/confusion.rs"]
mod confusion;
#[path = "../devices/mod.rs"]
mod devices;
#[path = "../pictures/loss.rs"]
mod loss;
mod settings;

use anyhow::{Context, Result, bail};
use burn::data::dataloader::DataLoader;
use burn::data::dataset::Dataset;
use burn::module::{Lora, Module, ParamGroup};
use burn::prelude::*;
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{Interrupter, Learner, LearningResult, SupervisedTraining, TrainingStrategy};
use burn_bert::model::{
    BertForSequenceClassification, BertForSequenceClassificationConfig, BertModelConfig, PretrainedModel,
    SequenceClassificationBatch,
};
use burn_bert::optim::{AdamWConfig, adamw, layer_wise_decay, linear_warmup_decay};
use burn_bert::text::BertTokenizer;
use burn_bert::training::{
    ConfusionMatrix, ConfusionMetric, LabelledLoader, LabelledTexts, Patience, Run, SequenceBatcher,
    TextColumns, Training,
};
use clap::Parser;
use command_line::print_line;
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
#[command(about = "Fine-tunes a BERT to classify texts")]
struct Args {
    /// A Hugging Face directory: config.json, weights, and a tokenizer.json or vocab.txt.
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,

    /// Texts with labels: a .csv, .tsv or .jsonl file with the columns text and label.
    #[arg(long, value_name = "FILE")]
    train: PathBuf,

    /// Texts with labels for the validation after each epoch.
    #[arg(long, value_name = "FILE")]
    valid: PathBuf,

    /// The output directory, in Hugging Face's format; new or empty, except with --resume.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,

    /// Continue the run that was stopped in this output directory.
    #[arg(long)]
    resume: bool,

    #[command(flatten)]
    workers: devices::Workers,

    #[command(flatten)]
    settings: Settings,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let workers = args.workers.clone();
    workers.train(|| Ok(vec![Device::default()]), move |devices| fine_tune(&args, &devices))
}

fn fine_tune(args: &Args, devices: &[Device]) -> Result<()> {
    let settings = &args.settings;
    let device = devices[0].clone();
    let run =
        if args.resume { Run::resume(&args.output, settings) } else { Run::create(&args.output, settings) }?;
    let patience = settings.patience.map(|epochs| Patience { epochs });
    if let Some(patience) = &patience
        && patience.is_over(&run.losses()?, run.finished_epochs())
    {
        print_line("the run stopped early and is done; its best model is saved");
        return Ok(());
    }

    // The data, and the names of its classes.
    let columns = settings.columns();
    let train = LabelledTexts::open(&args.train, &columns)?;
    let valid = LabelledTexts::open_with_names(&args.valid, &columns, train.names())?;
    let names = train.names().clone();
    let (count, held_out) = (train.len(), valid.len());
    print_line(format_args!("{count} texts to train on, {held_out} to validate on, of {:?}", names.names()));

    // The model: what the checkpoint has, and a new classifier.
    device.seed(settings.seed);
    let bert = BertModelConfig::from_pretrained(&args.checkpoint)?;
    let config = BertForSequenceClassificationConfig::new(bert).with_id2label(names.names().to_vec());
    let (model, report) = BertForSequenceClassification::from_pretrained_with(
        &config,
        &args.checkpoint,
        &device.clone().autodiff(),
    )?;
    let _ = write!(stderr(), "{report}");
    let model = adapt(model, settings);

    // The batches.
    let tokenizer =
        BertTokenizer::from_pretrained(&args.checkpoint)?.for_model(&model.bert.config().embeddings)?;
    let tokenizer = match tokenizer.model_max_length() {
        Some(longest) if longest <= settings.max_length => tokenizer,
        _ => tokenizer.with_model_max_length(settings.max_length),
    };
    let batcher = SequenceBatcher::new(tokenizer, names.len());
    let (texts, lengths) = (train.len(), train.sizes());
    let train = LabelledLoader::new(train, batcher.clone(), settings.batch_size, &device)?
        .with_shuffling(settings.seed)
        .with_length_bucketing(lengths)?
        .starting_after(run.finished_epochs());
    let valid = LabelledLoader::new(valid, batcher, settings.batch_size, &device)?;
    let (before, _) = validate(&model, &valid)?;
    run.begin(before, &[&args.train, &args.valid])?;
    run.copy_companions(&args.checkpoint)?;

    // The training.
    // Each device has its share of the texts, the last one also what is left.
    let most = texts - texts / devices.len() * (devices.len() - 1);
    let batches = most.div_ceil(settings.batch_size);
    let steps = batches.div_ceil(settings.accumulation) * settings.epochs;
    let schedule = linear_warmup_decay(settings.learning_rate, steps / 10, steps)?;
    let schedule = match settings.layer_decay {
        Some(decay) => layer_wise_decay(schedule, model.bert.encoder.layers.len(), decay)?,
        None => schedule,
    };
    let optimizer = adamw(&AdamWConfig::new().with_weight_decay(settings.weight_decay));
    let interrupter = Interrupter::new();
    let training = SupervisedTraining::new(run.folder(), Arc::new(train), Arc::new(valid.clone()))
        .metrics((
            LossMetric::new(),
            AccuracyMetric::new(),
            ConfusionMetric::macro_f1(),
            ConfusionMetric::matthews(),
        ))
        .grads_accumulation(settings.accumulation)
        .num_epochs(settings.epochs)
        .with_training_strategy(TrainingStrategy::Default(devices::strategy(devices)))
        .renderer(args.workers.progress(&interrupter, run.finished_epochs()))
        .with_interrupter(interrupter.clone());
    let model = Training::new(model).with_max_grad_norm(1.0);
    let mut training = run.checkpointed(training, &model)?; // the last two, and the best
    if let Some(patience) = patience {
        training = training.early_stopping(patience);
    }
    ctrlc::set_handler(move || interrupter.stop(Some("Ctrl-C"))).context("cannot listen for Ctrl-C")?;
    let start = Instant::now();
    let learner = Learner::new(model, optimizer, schedule);
    let LearningResult { model, renderer, interrupted, error } = training.launch(learner);
    drop(renderer); // gives the terminal back
    let seconds = start.elapsed().as_secs_f64();

    // The best model is saved, or what there is if the training was broken off.
    let losses = run.losses()?;
    let was_stopped = error.is_some() || interrupted.is_some();
    let model = match losses.best_epoch().filter(|_| !was_stopped) {
        Some(best) => {
            print_line(format_args!("of {} validations number {best} was the best", losses.valid.len()));
            run.model_of(best, model)?
        }
        None => model,
    };
    let model = model.model.materialize(); // merges LoRA's adapters, if there are any
    model.save_pretrained(&args.output)?;

    let (after, matrix) = validate(&model, &valid)?;
    loss::draw(&losses, batches, before, "Cross-entropy", &run.folder().join("loss.svg"))?;
    confusion::draw(&matrix, &names, &run.folder().join("confusion.svg"))?;
    print_line(matrix.to_text(&names).trim_end());
    let accuracy = matrix.accuracy();
    print_line(format_args!("validation loss {after:.4} (before: {before:.4}), accuracy {accuracy:.4}"));
    print_line(format_args!("{seconds:.0} s of training; saved {}", args.output.display()));
    if let Some(error) = error {
        bail!("training stopped: {error}");
    }
    if interrupted.is_some() {
        print_line(format_args!("stopped; --resume goes on from validation {}", run.last_checkpoint()?));
    }
    Ok(())
}

/// Selects the trained parameters: all, all but the embeddings, or low-rank adapters of the layers and the head.
fn adapt(model: BertForSequenceClassification, settings: &Settings) -> BertForSequenceClassification {
    let group = |pattern: &str| ParamGroup::from_regex(pattern).expect("the pattern is valid");
    let model = match settings.lora {
        Some(rank) => {
            let layers = group(r"encoder\.layers\..*\.weight$");
            let lora = Lora::new(rank, 2.0 * rank as f64).set_param_group(layers);
            model.apply_lora(lora).set_require_grad_group(group(r"^(bert\.pooler|classifier)\."), true)
        }
        None => model,
    };
    match settings.freeze {
        Some(settings::Part::Embeddings) => {
            model.set_require_grad_group(group(r"^bert\.embeddings\."), false)
        }
        None => model,
    }
}

/// The mean loss and the confusion matrix.
fn validate(
    model: &BertForSequenceClassification,
    loader: &dyn DataLoader<SequenceClassificationBatch>,
) -> Result<(f64, ConfusionMatrix)> {
    let model = model.clone().valid();
    let mut matrix = ConfusionMatrix::default();
    let mut total = 0.0;
    for batch in loader.iter() {
        let batch = batch?;
        let truth = batch.classes().context("the labels are not classes")?.into_data();
        let output = model.try_forward(&batch)?;
        total += output.loss.into_scalar::<f64>() * truth.num_elements() as f64;
        let predicted = output.logits.argmax(1).into_data();
        for (truth, predicted) in truth.iter::<i64>().zip(predicted.iter::<i64>()) {
            matrix.add(truth as usize, predicted as usize);
        }
    }
    Ok((total / matrix.total() as f64, matrix))
}
