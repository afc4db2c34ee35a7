use crate::error::{Error, Result};
use crate::family::{Family, PositionEmbeddingType, Presence};
use crate::layers::{
    EmbeddingInitializer, LayerNorm, MAX_ROWS, MAX_WIDTH, check_dropout, check_epsilon, check_num_params,
    check_sizes, ensure,
};
use burn::prelude::*;
use std::fmt::Debug;

/// `embedding_size` of ELECTRA's and ALBERT's config classes.
pub(crate) const EMBEDDING_SIZE: usize = 128;
const INITIALIZER_RANGE: f64 = 0.02;

/// Configuration of [`BertEmbeddings`](crate::BertEmbeddings). Field names are those of Hugging Face's `config.json`; the
/// defaults are BERT-base uncased.
///
/// ```
/// let config = burn_bert::BertEmbeddingsConfig::new().with_hidden_size(256).with_hidden_dropout_prob(0.0);
/// assert_eq!(config.num_params(), (30522 + 512 + 2 + 2) * 256);
/// ```
#[derive(Config, Debug, PartialEq)]
#[non_exhaustive]
pub struct BertEmbeddingsConfig {
    /// The architecture, and how the model is stored.
    #[config(default = "Family::Bert")]
    pub family: Family,
    /// Rows of the word embeddings.
    #[config(default = 30522)]
    pub vocab_size: usize,
    /// Length of the model's vectors, H.
    #[config(default = 768)]
    pub hidden_size: usize,
    /// Length of every embedding vector, E, in a family that projects them to H (ALBERT, and ELECTRA where E is not H);
    /// `None` for H.
    pub embedding_size: Option<usize>,
    /// Rows of the position embeddings.
    #[config(default = 512)]
    pub max_position_embeddings: usize,
    /// Rows of the token-type (segment) embeddings; 0 in a family without token types.
    #[config(default = 2)]
    pub type_vocab_size: usize,
    /// Rows of ERNIE's task-type embeddings, of which every token has the first; 0 for none (a config without `use_task_id`).
    #[config(default = 0)]
    pub task_type_vocab_size: usize,
    /// The word id whose row is initialised to zero and gets no gradient through the lookup; `None` for no such row.
    #[config(default = "Some(0)")]
    pub pad_token_id: Option<usize>,
    /// ε under the root of LayerNorm.
    #[config(default = 1e-12)]
    pub layer_norm_eps: f64,
    /// Probability that dropout zeroes an element in training, in [0, 1).
    #[config(default = 0.1)]
    pub hidden_dropout_prob: f64,
    /// Distribution of the tables before training, and of the linear layers of a model around them.
    #[config(default = "EmbeddingInitializer::Normal { std: 0.02 }")]
    pub initializer: EmbeddingInitializer,
    /// How the model represents positions.
    #[config(default = "PositionEmbeddingType::Absolute")]
    pub position_embedding_type: PositionEmbeddingType,
}

impl Default for BertEmbeddingsConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// The numbers of a config that its `config.json` has under the names of the fields.
pub(crate) const NUMBERS: [&str; 6] = [
    "vocab_size",
    "hidden_size",
    "max_position_embeddings",
    "type_vocab_size",
    "layer_norm_eps",
    "hidden_dropout_prob",
];

impl BertEmbeddingsConfig {
    /// The defaults of the family's config class in transformers.
    pub(crate) fn default_for(family: Family) -> Self {
        let spec = family.spec();
        Self {
            family,
            vocab_size: spec.vocab_size,
            hidden_size: spec.hidden_size,
            embedding_size: (spec.architecture.projection == Presence::Always).then_some(EMBEDDING_SIZE),
            max_position_embeddings: spec.max_position_embeddings,
            type_vocab_size: spec.type_vocab_size,
            task_type_vocab_size: 0,
            pad_token_id: Some(spec.pad_token_id),
            layer_norm_eps: spec.layer_norm_eps,
            hidden_dropout_prob: spec.dropout,
            initializer: match spec.initializer_bound {
                Some(bound) => EmbeddingInitializer::TruncatedNormal { std: INITIALIZER_RANGE, bound },
                None => EmbeddingInitializer::Normal { std: INITIALIZER_RANGE },
            },
            position_embedding_type: spec.architecture.positions,
        }
    }

    /// Length of the vectors that the tables hold: `embedding_size`, or else `hidden_size`.
    pub(crate) fn width(&self) -> usize {
        self.embedding_size.unwrap_or(self.hidden_size)
    }

    /// The padding id that positions are counted from, as RoBERTa's are.
    pub(super) fn padding_of_positions(&self) -> Option<usize> {
        // A padding id alone does not count: BERT has one too.
        let is_counted = self.position_embedding_type == PositionEmbeddingType::AfterPadding;
        self.pad_token_id.filter(|_| is_counted)
    }

    /// Number of trainable values: all tables, γ and β.
    pub fn num_params(&self) -> usize {
        self.count_params() as usize
    }

    /// A LayerNorm for vectors of length `width`, as the model's are.
    pub(crate) fn layer_norm(&self, width: usize, device: &Device) -> LayerNorm {
        let architecture = self.family.architecture();
        let kind = [architecture.norms_have_bias(), architecture.has_rms_norm];
        LayerNorm::new(width, self.layer_norm_eps, kind, device)
    }

    /// [`num_params`](Self::num_params) of a config that may be invalid, in a type that holds any.
    pub(crate) fn count_params(&self) -> u128 {
        let has_positions = self.position_embedding_type.has_table();
        let positions = if has_positions { self.max_position_embeddings } else { 0 };
        let architecture = self.family.architecture();
        let of_norm = usize::from(architecture.embeddings_have_norm) // γ, and β
            * (1 + usize::from(architecture.norms_have_bias()));
        let types = [self.type_vocab_size, self.task_type_vocab_size];
        let rows = [self.vocab_size, positions, types[0], types[1], of_norm].map(|rows| rows as u128);
        rows.iter().sum::<u128>() * self.width() as u128
    }

    /// Tokens that the longest sequence can have; `None` for positions that are computed for any length,
    /// [`Rotary`](PositionEmbeddingType::Rotary) and [`Disentangled`](PositionEmbeddingType::Disentangled) ones. A tokenizer cuts
    /// texts to `max_position_embeddings` there, unless it or its caller states another length.
    ///
    /// [`AfterPadding`](PositionEmbeddingType::AfterPadding) does not use the rows up to that of the padding: RoBERTa's
    /// 514 rows are 512 tokens.
    pub fn max_sequence_length(&self) -> Option<usize> {
        let first = self.padding_of_positions().map_or(0, |pad| pad + 1);
        let longest = self.max_position_embeddings.saturating_sub(first);
        let scheme = self.position_embedding_type;
        (scheme.has_table() || scheme.is_relative()).then_some(longest)
    }

    /// Checks that a module can be built from this config.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], naming the field, if
    /// - a size that the family or position scheme uses is 0 or too large: H and E are at most 2²⁰, the rows of a table
    ///   at most 2³¹ − 1, and all parameters together at most 2⁴⁰;
    /// - the family has no `embedding_size`, needs one, or always has another value, such as 0 token types;
    /// - `pad_token_id` is not below `vocab_size`, or positions are counted from it and it is `None` or leaves no row of
    ///   the position embeddings for a token;
    /// - `layer_norm_eps` is not finite or below 1.2e-38, `hidden_dropout_prob` is not in [0, 1), or `initializer` is not a
    ///   distribution ([`EmbeddingInitializer::validate`]).
    pub fn validate(&self) -> Result<()> {
        self.check_family()?;
        check_sizes([
            ("hidden_size", self.hidden_size, MAX_WIDTH),
            // Of a family without a field it is hidden_size, which was checked.
            ("embedding_size", self.width(), MAX_WIDTH),
            ("vocab_size", self.vocab_size, MAX_ROWS),
        ])?;
        // A table that is not built may have any size.
        if self.family.architecture().token_types == Presence::Always || self.type_vocab_size > 0 {
            check_sizes([("type_vocab_size", self.type_vocab_size, MAX_ROWS)])?;
        }
        if self.position_embedding_type.has_table() {
            check_sizes([("max_position_embeddings", self.max_position_embeddings, MAX_ROWS)])?;
        }
        // Each size may be allowed and all of them together too much.
        check_num_params("vocab_size", self.count_params())?;
        if let Some(pad) = self.pad_token_id {
            let words = self.vocab_size;
            ensure(pad < words, "pad_token_id", || {
                format!("is {pad}, but vocab_size is {words} (use None for no padding row)")
            })?;
        }
        check_epsilon(self.layer_norm_eps)?;
        check_dropout("hidden_dropout_prob", self.hidden_dropout_prob)?;
        self.initializer.validate()?;
        if self.position_embedding_type != PositionEmbeddingType::AfterPadding {
            return Ok(());
        }
        let Some(pad) = self.pad_token_id else {
            return Err(Error::config("pad_token_id", "is None, but AfterPadding counts positions from it"));
        };
        let (rows, first) = (self.max_position_embeddings, pad + 1);
        ensure(first < rows, "max_position_embeddings", || {
            format!("is {rows}, but positions after padding start at pad_token_id + 1 = {first}")
        })
    }

    /// Whether the family has such models.
    fn check_family(&self) -> Result<()> {
        let (architecture, name) = (self.family.architecture(), self.family.model_type());
        let fixed = |is_valid, field, found: &dyn Debug, always: &dyn Debug| {
            ensure(is_valid, field, || {
                format!("is {found:?}, but in the family {name} it is always {always:?}")
            })
        };
        let can_have_types = architecture.token_types != Presence::Never;
        let types = self.type_vocab_size;
        fixed(types == 0 || can_have_types, "type_vocab_size", &types, &0)?;
        let tasks = self.task_type_vocab_size;
        fixed(tasks == 0 || self.family == Family::Ernie, "task_type_vocab_size", &tasks, &0)?;
        let dropout = self.hidden_dropout_prob;
        fixed(dropout == 0.0 || architecture.embeddings_have_norm, "hidden_dropout_prob", &dropout, &0.0)?;
        let (eps, own) = (self.layer_norm_eps, architecture.layer_norm_eps);
        fixed(own.is_none_or(|own| own == eps), "layer_norm_eps", &eps, &own.unwrap_or(eps))?;
        use PositionEmbeddingType::{Absolute, Disentangled, Rotary};
        let both @ [scheme, own] = [self.position_embedding_type, architecture.positions];
        let is_of_attention = both.iter().any(|scheme| matches!(scheme, Disentangled | Rotary));
        let is_valid = !is_of_attention || scheme == own || both == [Absolute, Disentangled];
        fixed(is_valid, "position_embedding_type", &scheme, &own)?;
        let problem = match (architecture.projection, self.embedding_size) {
            (Presence::Never, Some(size)) => {
                format!("is {size}, but the family {name} has tables as wide as its model; use None")
            }
            (Presence::IfStated, Some(size)) if size == self.hidden_size => {
                format!("is hidden_size {size}, which the family {name} does not project; use None")
            }
            (Presence::Always, None) => {
                format!("is None, but the family {name} projects its embeddings; give their length")
            }
            _ => return Ok(()),
        };
        Err(Error::Config { field: "embedding_size", problem })
    }
}
