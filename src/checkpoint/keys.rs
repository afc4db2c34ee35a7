//! Which key of a checkpoint holds which parameter.

use super::fields::Fields;
use super::{BUFFERS, Checkpoint, EMBEDDINGS_PREFIX, GAMMA_BETA, POSITION, TOKEN_TYPE, ambiguous, is_known};
use crate::error::{Error, Result, shown};
use crate::family::Family;
use crate::family::{FamilySpec, Keys};
use std::collections::BTreeSet;

/// The keys of a checkpoint that is read or written: its model's prefix and its family's names.
pub struct ModelKeys {
    /// The prefix of the keys of the embedding layer: `bert.embeddings.`, `embeddings.`, or nothing in a file of it alone.
    pub(super) layer_prefix: String,
    /// The names of γ and β in every LayerNorm.
    gamma_beta: [&'static str; 2],
    pub(crate) family: &'static FamilySpec,
    /// The keys of the checkpoint that is read; `None` of one that is written.
    pub(crate) stored: Option<BTreeSet<String>>,
}

const EMBEDDINGS_NORM: &str = "embeddings.layer_norm";

impl ModelKeys {
    /// The keys of a checkpoint that has an embedding layer.
    pub(crate) fn find(checkpoint: &Checkpoint, family: Family) -> Result<Self> {
        let names = family.spec();
        let word @ [layer, table] = names.word();
        let tables = checkpoint.keys().filter_map(|key| key.strip_suffix(table));
        let (known, unknown): (Vec<&str>, Vec<&str>) = tables.partition(|prefix| is_known(prefix, word));
        let prefix = match known[..] {
            [prefix] => prefix,
            [] => {
                let hint = match unknown.first() {
                    Some(prefix) => {
                        format!(
                            "there is {}{table}, but that prefix is of no supported family",
                            shown(prefix)
                        )
                    }
                    None => "is this a BERT or RoBERTa checkpoint?".into(),
                };
                return Err(Error::missing_key(&checkpoint.path, format!("{layer}{table}"), hint));
            }
            _ => {
                let keys: Vec<_> = known.iter().map(|prefix| format!("{prefix}{table}")).collect();
                return Err(ambiguous(&checkpoint.path, &keys));
            }
        };
        // A copy, so that the public type has no lifetime.
        let stored = Some(checkpoint.keys().map(String::from).collect());
        let layer_prefix = prefix.to_string();
        let mut keys = Self { layer_prefix, gamma_beta: GAMMA_BETA[0], family: names, stored };
        let norm = keys.key(EMBEDDINGS_NORM);
        let gammas = GAMMA_BETA.map(|[gamma, _]| format!("{norm}.{gamma}"));
        match gammas.each_ref().map(|gamma| keys.is_stored(gamma)) {
            [true, true] => return Err(ambiguous(&checkpoint.path, &gammas)),
            [false, true] => keys.gamma_beta = GAMMA_BETA[1],
            // With neither, the error of the load names today's keys.
            _ => {}
        }
        Ok(keys)
    }

    /// The keys of a checkpoint that has a whole model, whose config has these fields.
    pub(crate) fn find_in_model(checkpoint: &Checkpoint, family: Family, fields: &Fields) -> Result<Self> {
        let keys = Self::find(checkpoint, family)?;
        if keys.model_prefix().is_none() {
            let key = keys.layer_query(0);
            let hint = "these are the tensors of an embedding layer alone; load them with BertEmbeddings";
            return Err(Error::missing_key(&checkpoint.path, key, hint));
        }
        // Before anything is read: keys of another family may have the same shapes.
        keys.agree(family, fields)?;
        Ok(keys)
    }

    /// The keys that transformers writes, with what the model's start with.
    pub(crate) fn written(prefix: &str, family: Family) -> Self {
        let family = family.spec();
        let layer_prefix = format!("{prefix}{}", family.word()[0]);
        Self { layer_prefix, gamma_beta: GAMMA_BETA[0], family, stored: None }
    }

    /// The prefix of all keys but the head's, `bert.` or nothing; `None` for a file of the embedding layer alone.
    pub(crate) fn model_prefix(&self) -> Option<&str> {
        self.layer_prefix.strip_suffix(self.family.word()[0])
    }

    /// The first family that uses this prefix; `None` for an empty one.
    pub(crate) fn stated_family(&self) -> Option<Family> {
        FamilySpec::with_prefix(&self.layer_prefix, self.family.word()).map(|spec| spec.family)
    }

    /// The key of a parameter or module of the model that has this name in the family.
    pub(crate) fn named(&self, name: &str) -> String {
        match name.strip_prefix(EMBEDDINGS_PREFIX) {
            Some(name) => format!("{}{name}", self.layer_prefix),
            None => format!("{}{name}", self.model_prefix().unwrap_or_default()),
        }
    }

    /// The key of the parameter or module at a path below the model.
    pub(crate) fn key(&self, path: &str) -> String {
        self.named(&self.family.name(path))
    }

    /// The first of a layer's own keys.
    pub(crate) fn layer_query(&self, layer: usize) -> String {
        self.key(&format!("encoder.layers.{layer}.attention.query.weight"))
    }

    /// The names of the masked-language-model head: the first or the other ones, or those that are stored.
    pub(crate) fn masked_lm(&self, is_first: bool) -> Keys {
        let first = self.family.masked_lm;
        let Some(other) = self.family.other_masked_lm else { return first };
        let [stated, other] = if is_first { [first, other] } else { [other, first] };
        let is_stored = |names: Keys| self.is_stored(&format!("{}.weight", names[0].1));
        // The published models have them under the names of the class that their config does not name.
        if is_stored(other) && !is_stored(stated) { other } else { stated }
    }

    pub(crate) fn is_stored(&self, key: &str) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.contains(key))
    }

    /// A parameter's key, whose last part Burn calls `gamma` or `beta` in a LayerNorm, as this checkpoint calls it.
    pub(super) fn with_norm_names(&self, key: String) -> String {
        let [gamma, beta] = self.gamma_beta;
        match key.rsplit_once('.') {
            Some((norm, "gamma")) => format!("{norm}.{gamma}"),
            Some((norm, "beta")) => format!("{norm}.{beta}"),
            _ => key,
        }
    }

    /// The prefixes of the keys that a save replaces, and removes where the model has no such module.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = String> {
        let of_all = self.family.lines().filter(|(path, _)| !path.starts_with("pooler."));
        of_all.map(|(_, name)| self.named(name.split('*').next().unwrap_or(name)))
    }

    /// Whether a stored tensor belongs to the embedding layer: a save replaces it, or removes it if it is an old buffer.
    pub(crate) fn is_of_layer(&self, key: &str, has_positions: bool) -> bool {
        if let Some((norm, part)) = key.rsplit_once('.')
            && norm == self.key(EMBEDDINGS_NORM)
        {
            return GAMMA_BETA.as_flattened().contains(&part);
        }
        let Some(name) = key.strip_prefix(&self.layer_prefix) else { return false };
        match name == POSITION {
            // A table that the module does not have is another program's.
            true => has_positions,
            false => [self.family.word()[1], TOKEN_TYPE].contains(&name) || BUFFERS.contains(&name),
        }
    }

    /// Refuses a file or keys of a family whose positions are not those of `family`.
    pub(super) fn agree(&self, family: Family, fields: &Fields) -> Result<()> {
        let positions = |family: Family| family.architecture().positions;
        // Positions alone are compared: they change what is computed, and no shape would show it.
        // Jina embeddings v3 has RoBERTa's prefix, and layers of other names, which tell the two apart.
        let query = |family: &FamilySpec| family.name("encoder.layers.0.attention.query");
        let found = self.stated_family().filter(|&found| query(found.spec()) == query(self.family));
        let problem = match (fields.spec.family, found) {
            (stated, _) if positions(stated) != positions(family) => format!(
                "gives {:?} positions, but the config's family is {family:?}, which has {:?} ones; correct its family",
                positions(stated),
                positions(family)
            ),
            (_, Some(found)) if positions(found) != positions(family) => format!(
                "gives {:?} positions, but the weights' keys start with {}, whose family has {:?} ones; correct it",
                positions(family),
                self.layer_prefix,
                positions(found)
            ),
            _ => return Ok(()),
        };
        Err(fields.invalid("model_type", problem))
    }
}
