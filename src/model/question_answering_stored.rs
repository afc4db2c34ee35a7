//! How `BertForQuestionAnswering` is stored.

use super::config::BertModelConfig;
use super::keys::ModelKeys;
use super::question_answering::{BertForQuestionAnswering, BertForQuestionAnsweringConfig};
use super::stored::{Part, Stored, stored_head};
use crate::checkpoint::Fields;
use crate::error::Result;
use std::path::Path;

impl BertForQuestionAnsweringConfig {
    /// Reads a Hugging Face `config.json`: the file, or the directory that holds it.
    ///
    /// # Errors
    ///
    /// Those of [`BertModelConfig::from_pretrained`].
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_fields(&Fields::at(path.as_ref())?)
    }

    fn from_fields(fields: &Fields) -> Result<Self> {
        Ok(Self::new(BertModelConfig::from_fields(fields)?))
    }
}

impl Stored for BertForQuestionAnswering {
    stored_head!(BertForQuestionAnsweringConfig);

    const CLASS: Option<&'static str> = Some("ForQuestionAnswering");

    fn parts<'a>(&'a self, _keys: &ModelKeys) -> Vec<Part<'a>> {
        vec![Part::linear("qa_outputs", &self.qa_outputs)]
    }

    /// The head has two outputs, and transformers makes as many as there are labels.
    fn head_fields(&self) -> Vec<(&'static str, serde_json::Value)> {
        let names = super::labels::numbered(2);
        super::classification_stored::name_fields(&names).into()
    }
}
