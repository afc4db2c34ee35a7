//! How `BertForQuestionAnswering` is stored.

use super::classification_stored::{classifier_dropout, dropout_field, name_fields};
use super::config::{BertModelConfig, Classified};
use super::keys::ModelKeys;
use super::question_answering::{BertForQuestionAnswering, BertForQuestionAnsweringConfig};
use super::stored::{Part, Stored, in_file, stored_head};
use crate::checkpoint::Fields;
use crate::error::Result;
use std::path::Path;

impl BertForQuestionAnsweringConfig {
    /// Reads a Hugging Face `config.json`: the file, or the directory that holds it.
    ///
    /// # Errors
    ///
    /// Those of [`BertModelConfig::from_pretrained`]; [`Error::ConfigFile`](crate::Error::ConfigFile) if the dropout is not in
    /// [0, 1).
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_fields(&Fields::at(path.as_ref())?)
    }

    fn from_fields(fields: &Fields) -> Result<Self> {
        let qa_dropout = classifier_dropout(fields, Classified::Answers)?;
        let config = Self { bert: BertModelConfig::from_fields(fields)?, qa_dropout };
        in_file(config.validate(), fields)?;
        Ok(config)
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
        let config = self.config();
        let dropout = dropout_field(&config.bert, Classified::Answers, config.qa_dropout);
        name_fields(&super::labels::numbered(2)).into_iter().chain(dropout).collect()
    }
}
