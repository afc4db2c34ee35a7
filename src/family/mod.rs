//! Model families: what their models are made of, and how they are stored.

mod architecture;
mod bert;
mod rotary;
mod spec;
mod table;

pub(crate) use architecture::{
    Architecture, Biases, Classified, FamilyDropout, NormPlace, Presence, RelativeScores, SequenceHead,
};
pub(crate) use spec::{
    EMBEDDINGS_PREFIX, FamilySpec, Field, Keys, Renamed, Unsupported, WORD_EMBEDDINGS, key_of, renamed,
};
pub(crate) use table::FAMILIES;

use burn::config::Config;

/// The family of a model, Hugging Face's `model_type`: how it differs from BERT, and how it is stored.
/// DeBERTa-v3 is `DebertaV2` too.
///
/// ```
/// use burn_bert::{BertEmbeddingsConfig, Family, PositionEmbeddingType};
///
/// let config = BertEmbeddingsConfig::roberta_base();
/// assert_eq!(config.family, Family::Roberta);
/// assert_eq!(config.position_embedding_type, PositionEmbeddingType::AfterPadding);
/// ```
#[derive(Config, Debug, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// `bert`
    Bert,
    /// `distilbert`
    DistilBert,
    /// `electra`
    Electra,
    /// `mpnet`
    MpNet,
    /// `albert`
    Albert,
    /// `ernie`
    Ernie,
    /// `roberta`
    Roberta,
    /// `xlm-roberta`
    XlmRoberta,
    /// `camembert`
    Camembert,
    /// `data2vec-text`
    Data2VecText,
    /// `modernbert`
    ModernBert,
    /// `nomic_bert`
    NomicBert,
    /// `gte`
    Gte,
    /// `jina_embeddings_v3`
    JinaEmbeddingsV3,
    /// `deberta-v2`
    DebertaV2,
    /// `eurobert`
    EuroBert,
}

impl Family {
    /// Hugging Face's name: the `model_type` of a `config.json`.
    pub fn model_type(self) -> &'static str {
        self.spec().model_type
    }

    pub(crate) fn architecture(self) -> &'static Architecture {
        &self.spec().architecture
    }

    pub(crate) fn spec(self) -> &'static FamilySpec {
        &FAMILIES[self as usize]
    }
}

/// What a classifier of sequences makes of the tokens' vectors; a field of its config.
///
/// ```
/// use burn_bert::model::{BertForSequenceClassificationConfig, BertModelConfig, ClassifierPooling};
///
/// let config = BertForSequenceClassificationConfig::new(BertModelConfig::eurobert_210m());
/// assert!(config.with_classifier_pooling(Some(ClassifierPooling::Mean)).validate().is_ok());
/// ```
#[derive(Config, Debug, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClassifierPooling {
    /// The head reads the vector at position 0, `cls` of ModernBERT and `bos` of EuroBERT.
    Cls,
    /// The head reads the mean over tokens.
    Mean,
    /// The head reads every token's vector, and its logits are the mean over tokens (EuroBERT).
    Late,
}

/// How a model represents positions; a field of [`BertEmbeddingsConfig`](crate::BertEmbeddingsConfig). Position embeddings are
/// those of [`Absolute`](Self::Absolute) and [`AfterPadding`](Self::AfterPadding) alone.
#[derive(Config, Debug, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PositionEmbeddingType {
    /// Positions K, K+1, … are looked up in a learned table (BERT). K is `past_key_values_length`.
    Absolute,
    /// Relative positions in the attention (Shaw et al. 2018).
    RelativeKey,
    /// Relative positions in the attention (Huang et al. 2020, method 4).
    RelativeKeyQuery,
    /// Positions count the tokens that are not padding, from `pad_token_id + 1` on; padding has position
    /// `pad_token_id`, whose row gets no gradient (RoBERTa and other models from fairseq).
    AfterPadding,
    /// Queries and keys of the attention are turned by angles that grow with the position (Su et al. 2021).
    Rotary,
    /// Distances have vectors of their own, which queries and keys of the attention are multiplied with (He et al. 2021;
    /// DeBERTa-v3). With [`Absolute`](Self::Absolute) DeBERTa has both.
    Disentangled,
}

impl PositionEmbeddingType {
    /// Whether the embedding layer has position embeddings.
    pub fn has_table(self) -> bool {
        matches!(self, Self::Absolute | Self::AfterPadding)
    }

    /// Whether the attention has a vector for each distance, by query or key.
    pub(crate) fn is_relative(self) -> bool {
        matches!(self, Self::RelativeKey | Self::RelativeKeyQuery)
    }
}
