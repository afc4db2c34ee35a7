//! Special and added tokens of a tokenizer: looked up, and added to its vocabulary.

use super::check::check_length;
use super::classes::Class;
use super::settings::{ROLES, Settings, corrupt};
use super::tokenizer::SpecialTokens;
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tokenizers::{AddedToken, Model, ModelWrapper, Tokenizer};

/// Adds tokens to a vocabulary. They must get the ids that the files give them.
pub(super) fn add_tokens(
    tokenizer: &mut Tokenizer,
    added: &BTreeMap<u32, AddedToken>,
    path: &Path,
) -> Result<()> {
    // All at once: each call builds the library's search for added tokens again.
    let tokens: Vec<AddedToken> = added.values().cloned().collect();
    tokens.iter().try_for_each(|token| check_token(path, &token.content))?;
    tokenizer.add_tokens(&tokens);
    for (&id, token) in added {
        let found = tokenizer.token_to_id(&token.content);
        if found != Some(id) {
            let problem = format!(
                "{} is an added token of id {id} in the files beside it, but here it has {}",
                token.content,
                found.map_or("none".to_string(), |id| format!("id {id}"))
            );
            return Err(corrupt(path, problem.into()));
        }
    }
    Ok(())
}

/// Without it the model fails at the first word that it does not know. Added tokens do not count: the model has a
/// vocabulary of its own.
pub(super) fn require_unk(tokenizer: &Tokenizer, path: &Path) -> Result<()> {
    let unk_token = match tokenizer.get_model() {
        ModelWrapper::WordPiece(model) => Some(&model.unk_token),
        ModelWrapper::WordLevel(model) => Some(&model.unk_token),
        ModelWrapper::BPE(model) => model.unk_token.as_ref(),
        ModelWrapper::Unigram(_) => None,
    };
    match unk_token.filter(|unk_token| tokenizer.get_model().token_to_id(unk_token).is_none()) {
        None => Ok(()),
        Some(unk_token) => Err(missing_token(path, "unk_token", &[unk_token])),
    }
}

impl SpecialTokens {
    /// Looks each up under the name that the settings or the class give it, and has the tokenizer find it in a text as it is
    /// written. Returns the ids of these and of all that the tokenizer calls special, ascending, too.
    pub(super) fn add(
        tokenizer: &mut Tokenizer,
        class: Class,
        others: Option<Vec<AddedToken>>,
        settings: &Settings,
        path: &Path,
    ) -> Result<(Self, Vec<u32>)> {
        let mut known = tokenizer.get_added_tokens_decoder();
        let mut seen: BTreeSet<String> = known.values().map(|token| token.content.clone()).collect();
        let mut tokens = Vec::new();
        for role in ROLES {
            // A tokenizer of Llama's kind states what begins and ends a text by these names alone.
            let is_stated = class != Class::AsItIs || settings.token(role)?.is_some();
            let name = match role {
                "cls_token" if !is_stated => "bos_token",
                "sep_token" if !is_stated => "eos_token",
                _ => role,
            };
            let of_class = class.token(name, settings)?;
            let usual = class.usual_tokens(role);
            let stated = settings.token(name)?.map(|token| token.content);
            let names = stated.as_deref().map_or(usual.to_vec(), |stated| vec![stated]);
            // Without a class, what the file has added says most.
            let added = names.iter().find(|&&name| of_class.is_none() && seen.contains(name));
            let found = added.or(names.iter().find(|name| tokenizer.token_to_id(name).is_some()));
            let is_needed = ["pad_token", "cls_token", "sep_token", "mask_token"].contains(&role);
            let token = match (found, of_class) {
                (Some(name), Some(token)) if token.content == **name => token,
                (Some(name), of_class) if is_needed || of_class.is_some() || role == "unk_token" => {
                    // What is only guessed is not looked for in texts.
                    seen.extend(of_class.is_none().then(|| name.to_string()));
                    AddedToken::from(*name, true)
                }
                // Vocabularies of SentencePiece leave out what their class adds to them, such as [MASK].
                (None, Some(token)) if !is_needed || others.is_some() => token,
                (None, _) if is_needed => return Err(missing_token(path, role, &names)),
                _ => continue,
            };
            tokens.push((role, token));
        }
        tokens.extend(settings.other_tokens(others)?.into_iter().map(|token| ("", token)));
        tokens.iter().try_for_each(|(_, token)| check_token(path, &token.content))?;
        let missing = tokens.iter().filter(|(_, token)| seen.insert(token.content.clone()));
        let missing: Vec<AddedToken> = missing.map(|(_, token)| token.clone()).collect();
        tokenizer.add_tokens(&missing);

        let id = |token: &AddedToken| tokenizer.token_to_id(&token.content).unwrap_or_default();
        let role = |role| {
            let (_, token) = tokens.iter().find(|(name, _)| *name == role)?;
            Some((token.content.clone(), id(token)))
        };
        let needed = |name| role(name).ok_or_else(|| missing_token(path, name, &[]));
        let special = Self {
            pad: needed("pad_token")?,
            cls: needed("cls_token")?,
            sep: needed("sep_token")?,
            mask: needed("mask_token")?,
            // Optional, as Unigram vocabularies may have none; `require_unk` has checked the other models.
            unk: role("unk_token"),
            bos: role("bos_token"),
            eos: role("eos_token"),
        };
        known.retain(|_, token| token.special);
        // A set, as one token may have several roles.
        let ids: BTreeSet<u32> = tokens.iter().map(|(_, token)| id(token)).chain(known.into_keys()).collect();
        Ok((special, ids.into_iter().collect()))
    }
}

/// A vocabulary that lacks a special token that the model needs, under all names that it was `looked_for`.
fn missing_token(path: &Path, token: &str, looked_for: &[&str]) -> Error {
    let problem = format!(
        "has no {token}: its vocabulary lacks {}; if the token has another name, set {token} in tokenizer_config.json",
        looked_for.join(" and ")
    );
    Error::file(path, problem)
}

/// Refuses a token for which the library would search too long.
fn check_token(path: &Path, content: &str) -> Result<()> {
    check_length(content).map_err(|problem| {
        let start: String = content.chars().take(40).collect();
        corrupt(path, format!("{start:?}…, a token of the files beside it,{problem}").into())
    })
}
