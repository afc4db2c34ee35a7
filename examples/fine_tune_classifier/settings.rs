//! The settings of a run.

use crate::TextColumns;
use crate::command_line::{count, not_negative};
use burn_bert::training::{Column, LabelKind};
use clap::{Args, ValueEnum};

/// A run is resumed with the settings that it began with.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// Passes over the texts; each is followed by a validation.
    #[arg(long, default_value_t = 3, value_parser = count())]
    pub epochs: usize,

    /// Texts in a batch.
    #[arg(long, default_value_t = 16, value_parser = count())]
    pub batch_size: usize,

    /// Batches in an optimiser step (gradient accumulation).
    #[arg(long, default_value_t = 1, value_parser = count())]
    pub accumulation: usize,

    /// Tokens of a text, [CLS] and [SEP] included; longer texts are cut.
    #[arg(long, default_value_t = 128, value_parser = count())]
    pub max_length: usize,

    /// The peak learning rate: warm-up over the first tenth of the steps, then linear decay to 0.
    #[arg(long, default_value_t = 5e-5, value_parser = not_negative)]
    pub learning_rate: f64,

    /// What each layer's learning rate is of that of the layer above it, in (0, 1]; the head has the highest.
    #[arg(long, value_name = "FACTOR")]
    pub layer_decay: Option<f64>,

    /// AdamW's weight decay; biases and LayerNorm are not decayed.
    #[arg(long, default_value_t = 0.01, value_parser = not_negative)]
    pub weight_decay: f64,

    /// A part of the model that is not trained.
    #[arg(long, value_enum)]
    pub freeze: Option<Part>,

    /// Train LoRA adapters of this rank in the layers, and the head, instead of all parameters.
    #[arg(long, value_name = "RANK", value_parser = count())]
    pub lora: Option<usize>,

    /// Stop when the validation loss has not fallen for this many epochs.
    #[arg(long, value_name = "EPOCHS", value_parser = count())]
    pub patience: Option<usize>,

    /// The seed of all random numbers.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,

    /// The column of the text, by name or by index from 0.
    #[arg(long, default_value = "text")]
    pub text: String,

    /// The column of the second text of a pair.
    #[arg(long)]
    pub pair: Option<String>,

    /// The column of the label.
    #[arg(long, default_value = "label")]
    pub label: String,

    /// The first row of a table is data and not a header.
    #[arg(long)]
    pub no_header: bool,
}

/// A part of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Word, position and token-type tables, and their LayerNorm.
    Embeddings,
}

impl Settings {
    /// Where texts and labels are.
    pub fn columns(&self) -> TextColumns {
        let columns = TextColumns::default()
            .with_text(column(&self.text))
            .with_label(column(&self.label), LabelKind::Class);
        let columns = if self.no_header { columns.without_header() } else { columns };
        match &self.pair {
            Some(pair) => columns.with_pair(column(pair)),
            None => columns,
        }
    }
}

fn column(name: &str) -> Column {
    name.parse().map_or_else(|_| Column::Name(name.into()), Column::Index)
}
