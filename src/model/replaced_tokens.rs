use crate::embeddings::BertEmbeddingsInput;
use crate::encoder::config::BertModelConfig;
use crate::error::Result;
use crate::family::Family;
use crate::layers::{PaddingMask, ensure, linear, linear_activation};
use crate::model::bert::BertModel;
use crate::model::loss::{binary_cross_entropy, zero_loss};
use crate::model::stored::{Stored, stored_head};
use crate::model::tokens::TokenClassificationBatch;
use burn::nn::Linear;
use burn::prelude::*;

/// Configuration of [`ElectraForPreTraining`].
#[derive(Config, Debug, PartialEq)]
#[non_exhaustive]
pub struct ElectraForPreTrainingConfig {
    /// The model below the head, of the family `electra`.
    pub bert: BertModelConfig,
}

impl ElectraForPreTrainingConfig {
    /// Checks that a model can be built from this config. Errors are those of [`BertModelConfig::validate`], and
    /// [`Error::Config`](crate::Error::Config) if the family is not `electra`.
    pub fn validate(&self) -> Result<()> {
        self.bert.validate()?;
        let family = self.bert.embeddings.family;
        ensure(family == Family::Electra, "family", || {
            format!("is {}, but only electra has a head for replaced tokens", family.model_type())
        })
    }

    fn build(&self, device: &Device) -> ElectraForPreTraining {
        ElectraForPreTraining {
            bert: self.bert.build(false, device),
            discriminator_predictions: ReplacedTokenHead {
                dense: self.bert.linear(self.bert.embeddings.hidden_size, device),
                dense_prediction: self.bert.linear(1, device),
            },
        }
    }
}

head!(ElectraForPreTrainingConfig, ElectraForPreTraining, TokenClassificationBatch, ReplacedTokenOutput);

/// ELECTRA's discriminator, which finds the tokens that were replaced: `logits = f(last_hidden_state·P + p)·W + b` with the
/// activation f of the layers.
///
/// The labels of a [`TokenClassificationBatch`] are 1 for a replaced token, 0 for an original one and −100 for one that is
/// ignored, such as padding.
///
/// ```
/// # use burn_bert::{BertEmbeddingsInput, Result, model::{ElectraForPreTraining, TokenClassificationBatch}};
/// # fn example(model: ElectraForPreTraining, input: BertEmbeddingsInput) -> Result<()> {
/// let batch = TokenClassificationBatch::new(input, None, &[[0, 1, 0, 0]])?;
/// let _gradients = model.forward(&batch).loss.backward();
/// # Ok(())
/// # }
/// ```
///
/// Source: `ElectraForPreTraining` of transformers 5.23; Clark et al. 2020, section 2.
#[derive(Module, Debug)]
pub struct ElectraForPreTraining {
    /// The model below the head.
    pub bert: BertModel,
    /// The head.
    pub discriminator_predictions: ReplacedTokenHead,
}

/// The head of [`ElectraForPreTraining`].
#[derive(Module, Debug)]
pub struct ReplacedTokenHead {
    /// P and p, [H, H].
    pub dense: Linear,
    /// W and b, [H, 1].
    pub dense_prediction: Linear,
}

/// The output of [`ElectraForPreTraining::forward`].
#[derive(Debug)]
pub struct ReplacedTokenOutput {
    /// Mean binary cross-entropy over the tokens that have a label, `[1]`; 0 for a batch without any.
    pub loss: Tensor<1>,
    /// The logit of each token, above 0 where it was probably replaced, [B, S].
    pub logits: Tensor<2>,
}

impl ElectraForPreTraining {
    /// The config that builds a model of this shape.
    pub fn config(&self) -> ElectraForPreTrainingConfig {
        ElectraForPreTrainingConfig::new(self.bert.config())
    }

    /// The logit of each token, [B, S]. Errors are those of [`BertModel::try_forward`].
    pub fn logits(&self, input: &BertEmbeddingsInput, padding: Option<&PaddingMask>) -> Result<Tensor<2>> {
        let head = &self.discriminator_predictions;
        // As rows, which the fused activation takes.
        let rows = self.bert.try_forward(input, padding)?.last_hidden_state.flatten::<2>(0, 1); // [B·S, H]
        let dense = linear_activation(&head.dense, rows, self.bert.config().hidden_act);
        Ok(linear(&head.dense_prediction, dense).reshape(input.dims()))
    }

    /// The loss of a batch, and its logits. Errors are those of [`logits`](Self::logits),
    /// [`Error::LabelOutOfRange`](crate::Error::LabelOutOfRange) if a label is not 0, 1 or −100, and another shape or device if
    /// `batch.input` was replaced.
    pub fn try_forward(&self, batch: &TokenClassificationBatch) -> Result<ReplacedTokenOutput> {
        batch.labels.check_classes(&batch.input, 2)?;
        let logits = self.logits(&batch.input, batch.padding.as_ref())?;
        // [B, S, 1], as one class per token.
        let loss = match batch.labelled(logits.clone().unsqueeze_dim(2)) {
            Some((scores, labels)) => binary_cross_entropy(scores, labels.float().unsqueeze_dim(1), None),
            None => zero_loss(logits.clone()),
        };
        Ok(ReplacedTokenOutput { loss, logits })
    }
}

impl Stored for ElectraForPreTraining {
    stored_head!(ElectraForPreTrainingConfig, Some("ForPreTraining"), bert, heads);
}
