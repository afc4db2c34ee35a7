//! Fine-tunes a BERT: `cargo run --release --features hub,train --example fine_tune -- TASK --model MODEL --train FILE
//! --valid FILE --output DIR`. The tasks, and their files:
//!
//! - `classifier`: texts with a label, several labels (a list, or a column of zeros and ones for each) or a number, in CSV, TSV or
//!   JSON;
//! - `reranker`: a query, a text and a relevance in [0, 1], in the same formats (`--text`, `--pair`, `--label`: the columns);
//! - `tokens`: words with tags, in CoNLL's columns, CoNLL-U or JSON lines;
//! - `answers`: SQuAD's JSON, or its rows as Hugging Face's `datasets` write them;
//! - `sentences`: (anchor, positive, negative, …) or (sentence, sentence, score), in CSV, TSV or JSON (`--columns`, `--label`);
//! - `masked-lm`: any UTF-8 text.
//!
//! `MODEL` is a Hugging Face directory with any head or none, or with the feature `hub` a name such as `owner/name`. `predict`,
//! transformers and sentence-transformers read the output, whose folder `training` has checkpoints, metrics and a picture of the loss.
//! `predict`'s names of the tasks serve here too. Ctrl-C stops after the current step, a second one at once; `--resume` continues
//! from the last evaluation. `mpirun -n 4 fine_tune …`, built with the feature `mpi`, trains on four processes.

mod pictures;
mod scores;

use anyhow::Result;
use burn_bert::data::{Column, Columns, LabelKind, LabelledTexts};
use burn_bert::data::{LabelledSentences, PlainText, SentencePairs, SquadExample};
use burn_bert::distributed::{Ranks, Wire};
use burn_bert::functional::Precision;
use burn_bert::metrics::SquadScores;
use burn_bert::model::{CoSentLoss, MatryoshkaLoss, MultipleNegativesRankingLoss, SentenceLoss, TripletLoss};
use burn_bert::training::{
    EvalStrategy, JsonLines, TrainableModel, Trained, Trainer, TrainingArguments, TrainingData,
    TrainingPrompts, Tuning,
};
use clap::{Args, Parser};
use std::fmt::Display;
use std::fs;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

/// An allocator that does not return freed pages to the OS makes training faster; see "Troubleshooting" in docs/training.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Fine-tunes a BERT")]
enum Task {
    /// Classify texts, or predict a number
    #[command(visible_alias = "classify")]
    Classifier {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        columns: ColumnOptions,
        /// What a text has: a class, several classes or a number
        #[arg(long, default_value = "class", value_parser = ["class", "classes", "number"])]
        kind: String,
        /// Class names in id order, needed if labels are numbers other than 0, 1, 2, …
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        labels: Vec<String>,
        /// Weigh rare classes more in the loss, so that all weigh the same together
        #[arg(long)]
        balanced: bool,
    },
    /// Rank texts for a query (cross-encoder)
    #[command(visible_alias = "rank")]
    Reranker {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        columns: ColumnOptions,
        #[command(flatten)]
        prompts: PromptOptions,
    },
    /// Tag words, such as named entities
    #[command(visible_alias = "tag")]
    Tokens {
        #[command(flatten)]
        settings: Settings,
    },
    /// Find answers in texts (SQuAD)
    #[command(visible_alias = "answer")]
    Answers {
        #[command(flatten)]
        settings: Settings,
        /// Tokens that the windows of a long text share
        #[arg(long, default_value_t = 128)]
        doc_stride: usize,
        /// Leave out the questions whose answers are not at their places in the text
        #[arg(long)]
        skip_misplaced: bool,
    },
    /// Embed sentences
    #[command(visible_alias = "embed")]
    Sentences {
        #[command(flatten)]
        settings: Settings,
        /// The columns of the sentences in their order; by default all but that of the label and those that number the rows
        #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
        columns: Vec<Column>,
        /// The column of the score; by default one called label, score or similarity, if --columns is not given
        #[arg(long)]
        label: Option<Column>,
        /// By default co-sent if the sentences have scores, else multiple-negatives
        #[arg(long, value_parser = ["multiple-negatives", "co-sent", "cosine-similarity", "triplet"])]
        loss: Option<String>,
        /// Widths at which the first values of the embeddings are trained too, such as 384,192
        #[arg(long, value_delimiter = ',', requires = "loss")]
        matryoshka: Vec<usize>,
        /// Sentences that are in memory at once; the rest of the batch is computed again
        #[arg(long)]
        mini_batch_size: Option<usize>,
        #[command(flatten)]
        prompts: PromptOptions,
    },
    /// Predict masked tokens (masked language modelling)
    #[command(visible_alias = "fill-mask")]
    MaskedLm {
        #[command(flatten)]
        settings: Settings,
        /// The share of tokens that are masked
        #[arg(long, default_value_t = 0.15)]
        mlm_probability: f64,
        /// Mask whole words instead of single tokens
        #[arg(long)]
        whole_words: bool,
    },
}

#[derive(Args)]
struct PromptOptions {
    /// What comes before all sentences, or before the queries of a reranker; if given several times, before the sentences of the
    /// first, the second and further columns
    #[arg(long, conflicts_with = "prompt_names")]
    prompts: Vec<String>,
    /// The model's own prompts by name, such as query,document, for each column
    #[arg(long, value_delimiter = ',')]
    prompt_names: Vec<String>,
}

impl PromptOptions {
    fn read(&self) -> Option<TrainingPrompts> {
        match (&self.prompts[..], &self.prompt_names[..]) {
            ([], []) => None,
            ([], names) => Some(TrainingPrompts::Names(names.to_vec())),
            (texts, _) => Some(TrainingPrompts::Texts(texts.to_vec())),
        }
    }
}

/// The columns of a table, by name or by index from 0.
#[derive(Args)]
struct ColumnOptions {
    /// The column of the text, or of the query
    #[arg(long, default_value = "text")]
    text: Column,
    /// The column of the second text of a pair
    #[arg(long)]
    pair: Option<Column>,
    /// The column of the label; given several times, a column of zeros and ones for each class
    #[arg(long, default_value = "label")]
    label: Vec<Column>,
    /// The first row of a table is data and not a header
    #[arg(long)]
    no_header: bool,
}

impl ColumnOptions {
    fn with_kind(&self, kind: LabelKind) -> Columns {
        let texts = [&self.text].into_iter().chain(&self.pair).cloned();
        let columns =
            Columns::default().with_texts(texts).with_labels(self.label.iter().cloned()).with_kind(kind);
        if self.no_header { columns.without_header() } else { columns }
    }
}

#[derive(Args)]
struct Settings {
    /// A Hugging Face directory, or with the feature hub a name such as owner/name
    #[arg(long)]
    model: PathBuf,
    #[arg(long, value_name = "FILE")]
    train: PathBuf,
    /// Data for the evaluations; by default a tenth of the training data
    #[arg(long, value_name = "FILE")]
    valid: Option<PathBuf>,
    /// The output directory; new or empty, except with --resume and --overwrite
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Continue the run that was stopped in the output directory
    #[arg(long)]
    resume: bool,
    /// Replace the run in the output directory
    #[arg(long)]
    overwrite: bool,
    #[arg(long, default_value_t = 3)]
    epochs: usize,
    /// Optimizer steps, instead of --epochs; a multiple of --eval-every
    #[arg(long, value_name = "STEPS", requires = "eval_every")]
    steps: Option<usize>,
    /// Optimizer steps between evaluations; by default an epoch
    #[arg(long, value_name = "STEPS")]
    eval_every: Option<usize>,
    /// The most items of an evaluation
    #[arg(long, value_name = "ITEMS")]
    eval_samples: Option<usize>,
    #[arg(long, default_value_t = 16)]
    batch_size: usize,
    /// Batches in an optimizer step
    #[arg(long, default_value_t = 1)]
    accumulation: usize,
    /// Tokens of a text, at which it is cut, or of a window of masked-lm
    #[arg(long)]
    max_length: Option<usize>,
    /// The peak: warm-up over the first tenth of the steps, then linear decay to 0
    #[arg(long, default_value_t = 5e-5)]
    learning_rate: f64,
    /// Factor by which the learning rate shrinks from layer to layer, top to bottom
    #[arg(long, value_name = "FACTOR")]
    layer_decay: Option<f64>,
    #[arg(long, default_value_t = 0.01)]
    weight_decay: f64,
    /// The largest norm of all gradients together; inf for no limit
    #[arg(long, default_value_t = 1.0)]
    max_grad_norm: f64,
    /// What matmuls are computed in: f32 or bf16
    #[arg(long, default_value_t)]
    precision: Precision,
    /// Do not train the embedding layer
    #[arg(long)]
    freeze_embeddings: bool,
    /// Train LoRA adapters of this rank, and the head
    #[arg(long, value_name = "RANK", conflicts_with = "freeze_embeddings")]
    lora: Option<usize>,
    /// The metric by which the best model is chosen
    #[arg(long, value_name = "METRIC", default_value = "Loss")]
    best: String,
    /// Stop after so many evaluations without an improvement
    #[arg(long, value_name = "EVALUATIONS")]
    patience: Option<usize>,
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Optimizer steps between two lines of progress
    #[arg(long, value_name = "STEPS", default_value_t = 10)]
    log_every: usize,
    /// Show Burn's dashboard in place of a progress bar
    #[arg(long)]
    dashboard: bool,
    /// GPUs that share each optimizer step, each with batches of its own
    #[arg(long, default_value_t = 1)]
    devices: usize,
}

impl Settings {
    fn arguments(&self, ranks: &Ranks) -> Result<TrainingArguments> {
        let tuning = match self.lora {
            Some(rank) => Tuning::Lora { rank, alpha: 2.0 * rank as f64, target_modules: Vec::new() },
            None if self.freeze_embeddings => Tuning::FrozenEmbeddings,
            None => Tuning::Full,
        };
        let arguments = TrainingArguments::new(&self.output)
            .with_ranks(ranks)
            .with_resume(self.resume)
            .with_overwrite_output_dir(self.overwrite)
            .with_epochs(self.epochs)
            .with_max_steps(self.steps)
            .with_eval_strategy(self.eval_every.map_or(EvalStrategy::Epoch, EvalStrategy::Steps))
            .with_max_eval_samples(self.eval_samples)
            .with_batch_size(self.batch_size)
            .with_gradient_accumulation_steps(self.accumulation)
            .with_max_length(self.max_length)
            .with_learning_rate(self.learning_rate)
            .with_layer_decay(self.layer_decay)
            .with_weight_decay(self.weight_decay)
            .with_max_grad_norm(self.max_grad_norm)
            .with_precision(self.precision)
            .with_tuning(tuning)
            .with_metric_for_best_model(&self.best)
            .with_early_stopping_patience(self.patience)
            .with_seed(self.seed)
            .with_logging_steps(self.log_every)
            .with_dashboard(self.dashboard);
        Ok(arguments.with_num_devices(self.devices)?)
    }

    /// Trains the model on what `open` reads.
    fn train<M: TrainableModel, D: TrainingData<M>>(
        &self,
        arguments: TrainingArguments,
        open: impl Fn(&Path) -> burn_bert::Result<D>,
    ) -> Result<Trained<M>> {
        let is_first = arguments.ranks.is_first();
        let trainer = Trainer::from_pretrained(&self.model, open(&self.train)?, arguments)?;
        let log = JsonLines::new(self.output.join("training/log.jsonl"));
        let trainer = match &self.valid {
            Some(valid) => trainer.with_validation(open(valid)?),
            None => trainer.with_validation_share(0.1),
        };
        let trained = trainer.with_ctrl_c().with_callback(log).train()?;
        if is_first {
            fs::write(self.output.join("training/loss.svg"), pictures::loss(&trained.history))?;
            print(format_args!("{}\nsaved {}", trained.history, self.output.display()));
            if trained.interrupted.is_some() {
                print("stopped; --resume goes on from the last evaluation");
            }
        }
        Ok(trained)
    }
}

fn main() -> Result<()> {
    let task = Task::parse();
    Ranks::run(Wire::Full, |ranks| run(&task, ranks))
}

fn run(task: &Task, ranks: &Ranks) -> Result<()> {
    match task {
        Task::Classifier { settings, columns, kind, labels, balanced } => {
            let columns = columns.with_kind(match kind.as_str() {
                "classes" => LabelKind::Classes,
                "number" => LabelKind::Value,
                _ => LabelKind::Class,
            });
            let open = |path: &Path| match &labels[..] {
                [] => LabelledTexts::open(path, &columns),
                names => LabelledTexts::open_with_names(path, &columns, names),
            };
            let weights = balanced.then(|| open(&settings.train)).transpose()?;
            let weights = weights.map(|train| train.balanced_class_weights());
            let trained = settings.train(settings.arguments(ranks)?.with_class_weights(weights), open)?;
            match &settings.valid {
                Some(valid) if kind != "number" && ranks.is_first() => {
                    print(scores::by_class(&trained.pipeline, &open(valid)?)?);
                    Ok(())
                }
                _ => Ok(()),
            }
        }
        Task::Reranker { settings, columns, prompts } => {
            let columns = columns.with_kind(LabelKind::Relevance);
            let open = |path: &Path| LabelledTexts::open(path, &columns);
            let arguments = TrainingArguments { prompts: prompts.read(), ..settings.arguments(ranks)? };
            settings.train(arguments, open).map(drop)
        }
        Task::Tokens { settings } => {
            settings.train(settings.arguments(ranks)?, |path| LabelledSentences::open(path)).map(drop)
        }
        Task::Answers { settings, doc_stride, skip_misplaced } => {
            let arguments = settings.arguments(ranks)?.with_doc_stride(*doc_stride);
            let read = |path: &Path| {
                if !skip_misplaced {
                    return SquadExample::read(path);
                }
                let (placed, misplaced) = SquadExample::read_placed(path)?;
                misplaced.iter().for_each(|problem| eprintln!("{}: skipped {problem}", path.display()));
                Ok(placed)
            };
            let trained = settings.train(arguments, read)?;
            let Some(valid) = settings.valid.as_ref().filter(|_| ranks.is_first()) else { return Ok(()) };
            let (valid, _) = SquadExample::read_placed(valid)?;
            let SquadScores { exact, f1 } =
                scores::squad(&trained.pipeline, &valid, settings.max_length, *doc_stride)?;
            print(format_args!("exact match {exact:.2}, F1 {f1:.2}"));
            Ok(())
        }
        Task::Sentences { settings, columns, label, loss, matryoshka, mini_batch_size, prompts } => {
            let loss = loss.as_deref().map(|loss| -> SentenceLoss {
                let loss = match loss {
                    "co-sent" => CoSentLoss::new().into(),
                    "cosine-similarity" => SentenceLoss::CosineSimilarity,
                    "triplet" => TripletLoss::new().into(),
                    _ => MultipleNegativesRankingLoss::new().into(),
                };
                match &matryoshka[..] {
                    [] => loss,
                    widths => MatryoshkaLoss::new(loss, widths.to_vec()).into(),
                }
            });
            let arguments = settings.arguments(ranks)?.with_sentence_loss(loss);
            let arguments = arguments.with_mini_batch_size(*mini_batch_size);
            let arguments = TrainingArguments { prompts: prompts.read(), ..arguments };
            let chosen =
                (!columns.is_empty()).then(|| Columns::default().with_texts(columns.iter().cloned()));
            let columns = chosen.unwrap_or_default();
            let columns = label.iter().cloned().fold(columns, Columns::with_label);
            settings.train(arguments, |path| SentencePairs::open(path, &columns)).map(drop)
        }
        Task::MaskedLm { settings, mlm_probability, whole_words } => {
            let open = |path: &Path| {
                let text = PlainText::open(path)?.with_mlm_probability(*mlm_probability);
                Ok(text.with_whole_word_masking(*whole_words))
            };
            settings.train(settings.arguments(ranks)?, open).map(drop)
        }
    }
}

/// Prints a line, if anybody reads it: a training run does not end because its output was closed.
fn print(line: impl Display) {
    let _ = writeln!(stdout(), "{line}");
}
