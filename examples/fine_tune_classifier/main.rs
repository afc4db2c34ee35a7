//! Trains a classifier on labelled texts: `cargo run --release --features tokenizers,train --example
//! fine_tune_classifier -- --checkpoint DIR --train FILE --valid FILE --output DIR`.
//!
//! Takes a Hugging Face directory with any head or none, and files in CSV, TSV or JSON lines; writes a directory that
//! `classify` and transformers' `AutoModelForSequenceClassification` read. `OUTPUT/training` holds the trainer's
//! checkpoints and logs and two pictures: the loss and the confusion matrix. The model with the best validation is
//! saved. Ctrl-C stops after the current batch; `--resume` continues from the last validation.
//!
//! `mpirun -n 4 fine_tune_classifier …`, built with the feature `mpi`, trains on four processes; see docs/distributed.md.

#[path = "../command_line/mod.rs"]
mod command_line;
#[path = "../pictures/confusion.rs"]
mod confusion;
#[path = "../pictures/loss.rs"]
mod loss;

use anyhow::{Context, Result, bail, ensure};
use burn::data::dataloader::DataLoader;
use burn::data::dataset::Dataset;
use burn::module::{Lora, Module, ParamGroup};
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{
    ExecutionStrategy, Interrupter, Learner, LearningResult, SupervisedTraining, TrainingStrategy,
};
use burn_bert::data::{Column, EpochLoader, LabelKind, LabelNames, LabelledTexts};
use burn_bert::data::{SequenceBatcher, TextColumns};
use burn_bert::distributed::{Ranks, Wire};
use burn_bert::functional::Precision;
use burn_bert::metrics::{ConfusionMatrix, ConfusionMetric};
use burn_bert::model::{BertForSequenceClassification, BertForSequenceClassificationConfig, BertModelConfig};
use burn_bert::model::{PretrainedModel, SequenceClassificationBatch};
use burn_bert::optim::{AdamWConfig, adamw, layer_wise_decay, linear_warmup_decay};
use burn_bert::text::BertTokenizer;
use burn_bert::training::{Patience, Run, Training};
use clap::{Parser, builder::RangedU64ValueParser};
use command_line::{count, factor, not_negative, print_line, print_lines};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// An allocator that keeps its pages makes training faster; see docs/performance.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    settings: Settings,
}

/// A run is resumed with the settings that it began with.
#[derive(clap::Args, Debug)]
struct Settings {
    /// Passes over the texts; each is followed by a validation.
    #[arg(long, default_value_t = 3, value_parser = count())]
    epochs: usize,
    /// Texts in a batch.
    #[arg(long, default_value_t = 16, value_parser = count())]
    batch_size: usize,
    /// Batches in an optimiser step (gradient accumulation).
    #[arg(long, default_value_t = 1, value_parser = count())]
    accumulation: usize,
    /// Tokens of a text, [CLS] and [SEP] included; longer texts are cut.
    #[arg(long, default_value_t = 128, value_parser = RangedU64ValueParser::<usize>::new().range(3..))]
    max_length: usize,
    /// The peak learning rate: warm-up over the first tenth of the steps, then linear decay to 0.
    #[arg(long, default_value_t = 5e-5, value_parser = factor)]
    learning_rate: f64,
    /// What each layer's learning rate is of that of the layer above it, in (0, 1]; the head has the highest.
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    layer_decay: Option<f64>,
    /// AdamW's weight decay; biases and LayerNorm are not decayed.
    #[arg(long, default_value_t = 0.01, value_parser = not_negative)]
    weight_decay: f64,
    /// What matmuls are computed in: f32 or bf16.
    #[arg(long, default_value_t)]
    precision: Precision,
    /// A part of the model that is not trained.
    #[arg(long, value_parser = ["embeddings"])]
    freeze: Option<String>,
    /// Train LoRA adapters of this rank in the layers, and the head, instead of all parameters.
    #[arg(long, value_name = "RANK", value_parser = count())]
    lora: Option<usize>,
    /// Stop when the validation loss has not fallen for this many epochs.
    #[arg(long, value_name = "EPOCHS", value_parser = count())]
    patience: Option<usize>,
    /// The seed of all random numbers.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// The column of the text, by name or by index from 0.
    #[arg(long, default_value = "text", value_parser = column)]
    text: Column,
    /// The column of the second text of a pair.
    #[arg(long, value_parser = column)]
    pair: Option<Column>,
    /// The column of the label.
    #[arg(long, default_value = "label", value_parser = column)]
    label: Column,
    /// The names of the classes, in the order of their ids, for a file whose labels are other numbers than 0, 1, 2, ….
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    labels: Vec<String>,
    /// The first row of a table is data and not a header.
    #[arg(long)]
    no_header: bool,
}

fn column(name: &str) -> Result<Column, std::convert::Infallible> {
    Ok(name.parse().map_or_else(|_| Column::Name(name.into()), Column::Index))
}

fn main() -> Result<()> {
    let args = Args::parse();
    Ranks::run(Wire::Full, |ranks| fine_tune(&args, ranks))
}

fn fine_tune(args: &Args, ranks: &Ranks) -> Result<()> {
    print_lines(ranks.is_first());
    let (settings, device) = (&args.settings, &ranks.device());
    settings.precision.check(device)?;
    let open = if args.resume { Run::resume } else { Run::create };
    let run = open(&args.output, settings)?.shared(ranks)?;
    let patience = settings.patience.map(|epochs| Patience::new(epochs).shared(ranks));
    let (losses, finished) = (run.losses()?, run.finished_epochs());
    if patience.as_ref().is_some_and(|patience| patience.is_over(&losses, finished)) {
        print_line("the run stopped early and is done; its best model is saved");
        return Ok(());
    }

    // The data, and the names of its classes.
    let columns = TextColumns::default()
        .with_text(settings.text.clone())
        .with_label(settings.label.clone(), LabelKind::Class);
    let columns = if settings.no_header { columns.without_header() } else { columns };
    let columns = settings.pair.iter().cloned().fold(columns, TextColumns::with_pair);
    let train = match &settings.labels[..] {
        [] => LabelledTexts::open(&args.train, &columns)?,
        names => LabelledTexts::open_with_names(&args.train, &columns, &LabelNames::new(names)?)?,
    };
    let valid = LabelledTexts::open_with_names(&args.valid, &columns, train.names())?;
    print_line(format_args!("to train on: {train}\nto validate on: {valid}"));
    let (texts, names) = (train.len(), train.names().clone());

    // The model: what the checkpoint has, and a new classifier.
    device.seed(settings.seed);
    let bert = BertModelConfig::from_pretrained(&args.checkpoint)?;
    let (rank, width) = (settings.lora.unwrap_or(0), bert.embeddings.hidden_size);
    ensure!(rank <= width, "--lora is {rank}, but must be at most the hidden_size of the model, {width}");
    let config = BertForSequenceClassificationConfig::new(bert).with_id2label(names.names().to_vec());
    let autodiff = device.clone().autodiff();
    let (model, report) =
        BertForSequenceClassification::from_pretrained_with_new_head(&config, &args.checkpoint, &autodiff)?;
    print_line(&report);
    let model = select_trained(model, settings);

    // The batches.
    let tokenizer = model.limit_tokenizer(BertTokenizer::from_pretrained(&args.checkpoint)?)?;
    let tokenizer = tokenizer.with_model_max_length(settings.max_length);
    let batcher = SequenceBatcher::new(tokenizer, names.len());
    let lengths = train.sizes();
    let train = EpochLoader::new(train, batcher.clone(), settings.batch_size, device)?
        .with_shuffling(settings.seed)
        .with_length_bucketing(lengths)?
        .shard(ranks.rank(), ranks.size())?
        .starting_after(run.finished_epochs());
    let valid = EpochLoader::new(valid, batcher, settings.batch_size, device)?;
    let (before, _) = validate(&model, &valid)?;
    run.begin(before, &[&args.train, &args.valid])?;
    run.copy_companions(&args.checkpoint)?; // the tokenizer

    // The training.
    let batches = texts.div_ceil(settings.batch_size * ranks.size());
    let steps = batches.div_ceil(settings.accumulation).saturating_mul(settings.epochs);
    let schedule = linear_warmup_decay(settings.learning_rate, steps / 10, steps)?;
    let schedule = match settings.layer_decay {
        Some(decay) => layer_wise_decay(schedule, model.bert.encoder.layers.len(), decay)?,
        None => schedule,
    };
    let optimizer = adamw(&AdamWConfig::new().with_weight_decay(settings.weight_decay))?;
    let interrupter = Interrupter::new();
    let model = Training::new(model)
        .with_max_grad_norm(1.0)
        .with_precision(settings.precision)
        .with_ranks(ranks, &interrupter)?;
    let training = SupervisedTraining::new(run.folder(), Arc::new(train), Arc::new(valid.clone()))
        .metrics((
            LossMetric::new(),
            AccuracyMetric::new(),
            ConfusionMetric::macro_f1(),
            ConfusionMetric::matthews(),
        ))
        .grads_accumulation(settings.accumulation)
        .num_epochs(settings.epochs)
        .with_training_strategy(TrainingStrategy::Default(ExecutionStrategy::single(autodiff.clone())))
        .renderer(run.progress(&interrupter))
        .with_interrupter(model.interrupter());
    let training = run.checkpointed(training, &model)?; // the last two, and the best
    let training = patience.into_iter().fold(training, SupervisedTraining::early_stopping);
    ctrlc::set_handler(move || interrupter.stop(Some("Ctrl-C"))).context("cannot listen for Ctrl-C")?;
    let start = Instant::now();
    let LearningResult { model, renderer, interrupted, error } =
        training.launch(Learner::new(model, optimizer, schedule));
    drop(renderer); // gives the terminal back
    let seconds = start.elapsed().as_secs_f64();

    if !ranks.is_first() {
        return error.map_or(Ok(()), |error| bail!("training stopped: {error}"));
    }

    // The best model is saved, or what there is if the training was broken off.
    let losses = run.losses()?;
    let best = losses.best_epoch().filter(|_| error.is_none() && interrupted.is_none());
    let model = match best {
        Some(best) => run.model_of(best, model)?,
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
    let which = best.map_or(String::new(), |best| format!(", the model of validation {best}"));
    print_line(format_args!("{seconds:.0} s of training; saved {}{which}", args.output.display()));
    if let Some(error) = error {
        bail!("training stopped: {error}");
    }
    if interrupted.is_some() {
        print_line(format_args!("stopped; --resume goes on from validation {}", run.last_checkpoint()?));
    }
    Ok(())
}

/// All parameters, all but the embeddings, or low-rank adapters of the layers and the head.
fn select_trained(
    model: BertForSequenceClassification,
    settings: &Settings,
) -> BertForSequenceClassification {
    let group = |pattern: &str| ParamGroup::from_regex(pattern).expect("the pattern is valid");
    let model = match settings.lora {
        Some(rank) => {
            let lora = Lora::new(rank, 2.0 * rank as f64);
            model
                .apply_lora(lora.set_param_group(group(r"encoder\.layers\..*\.weight$")))
                .set_require_grad_group(group(r"^(bert\.pooler|classifier)\."), true)
        }
        None => model,
    };
    match settings.freeze {
        Some(_) => model.set_require_grad_group(group(r"^bert\.embeddings\."), false),
        None => model,
    }
}

/// The mean loss and the confusion matrix.
fn validate(
    model: &BertForSequenceClassification,
    loader: &dyn DataLoader<SequenceClassificationBatch>,
) -> Result<(f64, ConfusionMatrix)> {
    let (model, mut matrix, mut total) = (model.clone().valid(), ConfusionMatrix::default(), 0.0);
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
