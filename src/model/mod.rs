//! BERT and its heads, from Hugging Face checkpoints and back.

/// `init` and `forward` of a model with a head: its `try_init` and `try_forward` with an error as a panic.
macro_rules! init_and_forward {
    ($config:ident, $model:ident, $batch:ident, $output:ident) => {
        impl $config {
            /// Builds the model on `device`.
            ///
            /// # Panics
            ///
            /// Where [`try_init`](Self::try_init) returns an error, with the same message.
            pub fn init(&self, device: &Device) -> $model {
                self.try_init(device).unwrap_or_else(|error| panic!("{error}"))
            }
        }

        impl $model {
            /// The loss of a batch, and the scores that it is computed from.
            ///
            /// # Panics
            ///
            /// Where [`try_forward`](Self::try_forward) returns an error, with the same message.
            pub fn forward(&self, batch: &$batch) -> $output {
                self.try_forward(batch).unwrap_or_else(|error| panic!("{error}"))
            }
        }
    };
}

/// What the classifiers of sequences and of tokens have in common.
macro_rules! classifier {
    ($kind:ident, $config:ident, $model:ident, $batch:ident, $output:ident) => {
        init_and_forward!($config, $model, $batch, $output);

        impl $config {
            /// `count` labels called `LABEL_0`, `LABEL_1`, ….
            pub fn with_num_labels(self, count: usize) -> Self {
                Self { id2label: numbered(count), ..self }
            }

            /// Number of labels, C.
            pub fn num_labels(&self) -> usize {
                self.id2label.len()
            }

            fn dropout_prob(&self) -> f64 {
                self.classifier_dropout.unwrap_or_else(|| self.bert.classifier_dropout(Classified::$kind))
            }
        }

        impl $model {
            /// The name of each label, by id.
            pub fn id2label(&self) -> &[String] {
                &self.id2label
            }

            /// The id of a label.
            pub fn label2id(&self, label: &str) -> Option<usize> {
                self.id2label.iter().position(|name| name == label)
            }
        }
    };
}

#[cfg(feature = "tokenizers")]
mod answers;
mod bert;
mod classification_batch;
#[cfg(feature = "checkpoint")]
mod classification_stored;
mod config;
mod dense;
#[cfg(feature = "tokenizers")]
mod encode;
#[cfg(feature = "tokenizers")]
mod entities;
#[cfg(feature = "checkpoint")]
mod keys;
mod labels;
mod loss;
mod masked_lm;
mod masked_lm_batch;
mod masked_lm_head;
#[cfg(feature = "checkpoint")]
mod masked_lm_stored;
mod pooling;
#[cfg(feature = "checkpoint")]
mod pretrained;
mod prompts;
mod question_answering;
#[cfg(feature = "checkpoint")]
mod question_answering_stored;
#[cfg(feature = "tokenizers")]
mod ranking;
mod ranking_loss;
mod replaced_tokens;
#[cfg(feature = "checkpoint")]
mod report;
#[cfg(feature = "tokenizers")]
mod scored_labels;
mod sentence_embedding;
mod sentence_loss;
mod sentence_pair_batch;
#[cfg(feature = "checkpoint")]
mod sentence_stored;
mod sequence_classification;
mod similarity;
#[cfg(feature = "checkpoint")]
mod stored;
mod token_classification;
#[cfg(feature = "tokenizers")]
mod windows;

#[cfg(feature = "checkpoint")]
pub use crate::checkpoint::Fields;
#[cfg(feature = "tokenizers")]
pub use answers::{Answer, AnswersConfig};
pub use bert::{BertModel, BertModelOutput, BertPooler};
pub use classification_batch::{SequenceClassificationBatch, TokenClassificationBatch};
pub use config::BertModelConfig;
pub use dense::{DenseActivation, SentenceDense, SentenceDenseConfig};
#[cfg(feature = "tokenizers")]
pub use encode::EncodeConfig;
#[cfg(feature = "tokenizers")]
pub use entities::{Aggregation, EntitiesConfig, Entity};
#[cfg(feature = "checkpoint")]
pub use keys::ModelKeys;
pub use masked_lm::{BertForMaskedLm, BertForMaskedLmConfig, MaskedLmOutput};
pub use masked_lm_batch::MaskedLmBatch;
pub use masked_lm_head::MaskedLmHead;
pub use pooling::Pooling;
#[cfg(feature = "checkpoint")]
pub use pretrained::PretrainedModel;
pub use prompts::Prompts;
pub use question_answering::{
    BertForQuestionAnswering, BertForQuestionAnsweringConfig, QuestionAnsweringBatch, QuestionAnsweringOutput,
};
#[cfg(feature = "tokenizers")]
pub use ranking::Ranked;
pub use ranking_loss::MultipleNegativesRankingLoss;
pub use replaced_tokens::{
    ElectraForPreTraining, ElectraForPreTrainingConfig, ReplacedTokenHead, ReplacedTokenOutput,
};
#[cfg(feature = "checkpoint")]
pub use report::LoadReport;
#[cfg(feature = "tokenizers")]
pub use scored_labels::ScoredLabel;
pub use sentence_embedding::{
    BertForSentenceEmbedding, BertForSentenceEmbeddingConfig, SentenceEmbeddingOutput,
};
pub use sentence_loss::{CoSentLoss, MatryoshkaLoss, SentenceLoss, TripletLoss};
pub use sentence_pair_batch::SentencePairBatch;
pub use sequence_classification::{
    BertForSequenceClassification, BertForSequenceClassificationConfig, ProblemType, ScoreActivation,
    SequenceClassificationHead, SequenceClassifierOutput,
};
pub use similarity::Similarity;
#[cfg(feature = "checkpoint")]
pub use stored::{Part, Stored};
pub use token_classification::{
    BertForTokenClassification, BertForTokenClassificationConfig, TokenClassifierOutput,
};
