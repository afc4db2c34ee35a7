//! What a run trains on.

use burn_bert::model::BertForMaskedLmConfig;
use burn_bert::training::{MaskedLmCollatorConfig, MaskedLmExample};

/// Ids of the special tokens, first in every vocabulary.
pub const SPECIAL_TOKENS: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
pub const UNK: u32 = 1;
pub const CLS: u32 = 2;
pub const SEP: u32 = 3;
pub const MASK: u32 = 4;

/// A source of sentences with a model that fits them.
pub trait Task {
    /// One line for a person.
    fn description(&self) -> String;

    /// Tells two tasks apart whose runs must not be mixed.
    fn fingerprint(&self) -> String;

    fn model(&self) -> BertForMaskedLmConfig;

    fn learning_rate(&self) -> f64;

    fn default_steps(&self) -> usize;

    /// The sentences of training step `step`, the same at every call.
    fn batch(&self, step: usize) -> Vec<MaskedLmExample>;

    /// Batches that training never sees.
    fn held_out(&self) -> Vec<Vec<MaskedLmExample>>;

    /// Mean cost, in nats, of a guess that looks at nothing, for masked tokens with these labels.
    fn blind_guess(&self, labels: &[u32]) -> f64;

    /// What `blind_guess` knows.
    fn blind_guess_name(&self) -> &'static str;

    /// The positions that are used, in the order in which a picture shows them, each with the label of its tick.
    fn labelled_positions(&self) -> Vec<(usize, String)>;

    /// The title of that axis.
    fn position_axis(&self) -> &'static str;

    /// What the task is there to show.
    fn lesson(&self) -> &'static str;

    /// Whether these held-out results show it.
    fn has_learned(&self, outcome: &Outcome) -> bool;
}

/// Held-out results of the two models.
pub struct Outcome {
    pub loss_before: f64,
    pub loss: f64,
    pub accuracy: f64,
    pub accuracy_without_positions: f64,
    pub blind_loss: f64,
    /// Largest movement of a position vector that no batch used, and of the padding row.
    pub unused_movement: f64,
    pub pad_movement: f64,
}

/// The collator of a task with this vocabulary.
pub fn collator(vocab_size: usize) -> MaskedLmCollatorConfig {
    let special = (0..SPECIAL_TOKENS.len() as u32).collect();
    MaskedLmCollatorConfig::new(vocab_size, MASK, 0, special) // 0 is [PAD]
}
