//! BERT and its heads, from Hugging Face checkpoints and back.

/// The constructors of a model with a head, from its config's private `build`, which cannot fail after `validate`, and its
/// `forward`.
macro_rules! head {
    ($config:ident, $model:ident, $batch:ident, $output:ident) => {
        impl $config {
            /// [`try_init`](Self::try_init), which panics with its error.
            pub fn init(&self, device: &Device) -> $model {
                self.try_init(device).unwrap_or_else(|error| panic!("{error}"))
            }

            /// Builds the model on `device`. Errors are those of [`validate`](Self::validate).
            pub fn try_init(&self, device: &Device) -> $crate::error::Result<$model> {
                self.validate()?;
                Ok(self.build(device))
            }

            /// Reads a Hugging Face `config.json`: the file, or the directory that holds it. Errors are those of
            /// [`BertModelConfig::from_pretrained`], and [`Error::ConfigFile`](crate::Error::ConfigFile), naming the field, if
            /// one of the head cannot be read or [`validate`](Self::validate) refuses it.
            pub fn from_pretrained(path: impl AsRef<std::path::Path>) -> $crate::error::Result<Self> {
                let fields = $crate::checkpoint::Fields::at(path.as_ref())?;
                let config = <$model as $crate::model::Stored>::config_of(&fields)?;
                fields.in_file(config.validate())?;
                Ok(config)
            }
        }

        impl $model {
            /// [`try_forward`](Self::try_forward), which panics with its error.
            pub fn forward(&self, batch: &$batch) -> $output {
                self.try_forward(batch).unwrap_or_else(|error| panic!("{error}"))
            }
        }
    };
}

mod adapter;
mod answers;
mod bert;
mod classification;
mod classifier;
mod config_fields;
mod labels;
mod load_report;
mod loss;
mod masked_lm;
mod pretrained;
mod replaced_tokens;
mod sentence;
mod sentence_transformers;
mod stored;
mod tokens;

pub use crate::checkpoint::Fields;
pub use crate::encoder::config::BertModelConfig;
pub use crate::encoder::disentangled::DisentangledConfig;
pub use crate::encoder::rotary::RotaryConfig;
pub use crate::family::ClassifierPooling;
#[cfg(feature = "train")]
pub(crate) use adapter::adapter_of;
pub use answers::{
    BertForQuestionAnswering, BertForQuestionAnsweringConfig, QuestionAnsweringBatch, QuestionAnsweringOutput,
};
pub use bert::{BertModel, BertModelOutput, BertPooler};
pub use classification::batch::{ProblemType, SequenceClassificationBatch};
pub use classification::{
    BertForSequenceClassification, BertForSequenceClassificationConfig, SequenceClassificationHead,
    SequenceClassifierOutput,
};
pub use classifier::ClassifierTransform;
pub use load_report::LoadReport;
pub use masked_lm::{BertForMaskedLm, BertForMaskedLmConfig, MaskedLmBatch, MaskedLmHead, MaskedLmOutput};
pub use pretrained::PretrainedModel;
pub use replaced_tokens::{
    ElectraForPreTraining, ElectraForPreTrainingConfig, ReplacedTokenHead, ReplacedTokenOutput,
};
pub use sentence::pooling::Pooling;
pub use sentence::sentence_loss::{
    CoSentLoss, MatryoshkaLoss, MultipleNegativesRankingLoss, SentenceLoss, TripletLoss,
};
pub use sentence::sentence_module::{
    SentenceDense, SentenceDenseConfig, SentenceModule, SentenceModuleConfig, SentenceNormalize,
};
pub use sentence::similarity::Similarity;
#[cfg(feature = "tokenizers")]
pub(crate) use sentence::similarity::{layer_normed, normalized};
pub use sentence::{
    BertForSentenceEmbedding, BertForSentenceEmbeddingConfig, SentenceEmbeddingOutput, SentencePairBatch,
};
pub use sentence_transformers::Prompts;
pub use stored::Stored;
#[cfg(feature = "train")]
pub(crate) use stored::check_savable;
pub use tokens::{
    BertForTokenClassification, BertForTokenClassificationConfig, TokenClassificationBatch,
    TokenClassifierOutput,
};
