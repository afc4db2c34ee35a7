//! Special tokens.

use super::settings::{Settings, check_token};
use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::path::Path;
use tokenizers::{AddedToken, Tokenizer};

/// A special token and its id.
#[derive(Clone, Debug)]
pub(super) struct SpecialToken {
    pub(super) content: String,
    pub(super) id: u32,
}

/// The special tokens of a vocabulary.
#[derive(Clone, Debug)]
pub(super) struct SpecialTokens {
    pub(super) pad: SpecialToken,
    pub(super) cls: SpecialToken,
    pub(super) sep: SpecialToken,
    pub(super) mask: SpecialToken,
    pub(super) unk: Option<SpecialToken>,
    /// Other special tokens, which are never masked.
    others: Vec<SpecialToken>,
}

impl SpecialTokens {
    /// Looks each up under the name that the settings give it; without one, under BERT's and RoBERTa's names.
    pub(super) fn find(tokenizer: &Tokenizer, settings: &Settings, path: &Path) -> Result<Self> {
        let look_up = |content: &str| {
            let id = tokenizer.token_to_id(content)?;
            Some(SpecialToken { content: content.to_string(), id })
        };
        let find = |role: &str, usual: [&str; 2]| {
            let stated = settings.token(role)?;
            let looked_for = stated.as_deref().map_or(usual.to_vec(), |stated| vec![stated]);
            let found = looked_for.iter().find_map(|content| look_up(content));
            found.ok_or_else(|| missing_token(path, role, &looked_for))
        };
        let special = Self {
            pad: find("pad_token", ["[PAD]", "<pad>"])?,
            cls: find("cls_token", ["[CLS]", "<s>"])?,
            sep: find("sep_token", ["[SEP]", "</s>"])?,
            mask: find("mask_token", ["[MASK]", "<mask>"])?,
            unk: find("unk_token", ["[UNK]", "<unk>"]).ok(),
            others: settings.other_tokens()?.iter().filter_map(|token| look_up(token)).collect(),
        };
        special.all().try_for_each(|token| check_token(path, &token.content))?;
        Ok(special)
    }

    fn all(&self) -> impl Iterator<Item = &SpecialToken> {
        [&self.pad, &self.cls, &self.sep, &self.mask].into_iter().chain(&self.unk).chain(&self.others)
    }

    /// Has the tokenizer find them in a text as they are written, where its file does not say how.
    pub(super) fn register(&self, tokenizer: &mut Tokenizer) {
        let known: BTreeSet<u32> = tokenizer.get_added_tokens_decoder().into_keys().collect();
        let missing = self.all().filter(|token| !known.contains(&token.id));
        let missing: Vec<_> = missing.map(|token| AddedToken::from(&token.content, true)).collect();
        tokenizer.add_special_tokens(&missing);
    }

    /// The ids of these and of all that the tokenizer calls special, ascending.
    pub(super) fn ids(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let added = tokenizer.get_added_tokens_decoder().into_iter();
        let called_special = added.filter_map(|(id, token)| token.special.then_some(id));
        let ids: BTreeSet<u32> = self.all().map(|token| token.id).chain(called_special).collect();
        ids.into_iter().collect()
    }
}

/// A vocabulary that lacks a special token that the model needs, under all names that it was `looked_for`.
pub(super) fn missing_token(path: &Path, token: &str, looked_for: &[&str]) -> Error {
    let problem = format!(
        "has no {token}: its vocabulary lacks {}; if the token has another name, set {token} in tokenizer_config.json",
        looked_for.join(" and ")
    );
    Error::file(path, problem)
}
