//! Examples in memory, and the names of their classes.

use super::labels::Classes;
use crate::error::{Error, Result};
use burn::data::dataset::{Dataset, DatasetError};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// Classes that are printed, of data that have more.
const PRINTED: usize = 20;

/// Examples in memory, of a file or of the caller: [`LabelledTexts`](super::LabelledTexts),
/// [`LabelledSentences`](super::LabelledSentences) and [`SentencePairs`](super::SentencePairs).
///
/// A [`Dataset`](burn::data::dataset::Dataset) for an [`EpochLoader`](super::EpochLoader) or Burn's `DataLoaderBuilder`.
#[derive(Clone, Debug)]
pub struct Examples<T> {
    pub(super) items: Vec<T>,
    names: Vec<String>,
}

/// An item of [`Examples`].
pub trait Example: Clone + Send + Sync + 'static {
    /// What errors call several of them.
    const NAME: &'static str;

    /// What is wrong with it beside the first one of its data or of its batch.
    fn check(&self, first: &Self) -> Result<(), String>;

    /// Whether it has nothing to learn from, which is refused where it is not of a file.
    fn is_blank(&self) -> bool {
        false
    }

    fn number(&self) -> Option<f32> {
        None
    }

    fn classes(&self) -> &[usize] {
        &[]
    }

    /// Gives each class the id that `ids` has in its place.
    fn rename(&mut self, ids: &[usize]) {
        let _ = ids;
    }

    /// Its length, in any unit.
    fn size(&self) -> usize;
}

/// Refuses examples that no batch can hold, or none.
pub(super) fn check<T: Example>(items: &[T]) -> Result<()> {
    // A batch has one kind of labels, so each is compared with the first one.
    let Some(first) = items.first() else { return Err(Error::Empty { input: T::NAME, shape: vec![0] }) };
    items.iter().enumerate().try_for_each(|(place, item)| {
        item.check(first).map_err(|problem| Error::data(format!("{}[{place}]", T::NAME), problem))
    })
}

impl<T: Example> Examples<T> {
    /// Examples that are in memory already, with the names of their classes; no names for numbers.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] without an example; [`Error::Data`], with the place of the example, if
    ///
    /// - a class has no name, or two have one, or a number is infinite, NaN or outside its range;
    /// - a sentence has no words, or not one tag a word;
    /// - its label is of another kind than the first one's, or only some have a label, a second text or as many negatives.
    pub fn new(items: Vec<T>, names: Vec<String>) -> Result<Self> {
        check(&items)?;
        check_names(&names)?;
        for (place, item) in items.iter().enumerate() {
            let problem = match item.classes().iter().find(|id| **id >= names.len()) {
                _ if item.is_blank() => "has no words".into(),
                Some(id) => format!("has the label {id}, but the labels are {names:?}"),
                None => continue,
            };
            return Err(Error::data(format!("{}[{place}]", T::NAME), problem));
        }
        Ok(Self { items, names })
    }

    /// Those of a file, whose ids were given in its order: the names are only sorted once all are known.
    pub(super) fn of_file(path: &Path, mut items: Vec<T>, classes: Classes) -> Result<Self> {
        let (names, ids) = classes.finish(path)?;
        items.iter_mut().for_each(|item| item.rename(&ids));
        check(&items)?;
        check_names(&names)?; // those of the caller
        Ok(Self { items, names })
    }

    /// The same examples with the classes of a model, whatever their order. Returns [`Error::Data`] if the model lacks one.
    pub(crate) fn of_model(mut self, id2label: &[String]) -> Result<Self> {
        let places = places(&self.names, id2label)?;
        self.items.iter_mut().for_each(|item| item.rename(&places));
        Ok(Self { names: id2label.to_vec(), ..self })
    }

    /// The names of the classes by their ids, transformers' `id2label`; empty for numbers.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The size of each example, in bytes of text or in words: an estimate of its length for [length
    /// bucketing](super::Batches::with_lengths).
    pub fn sizes(&self) -> Vec<usize> {
        self.items.iter().map(T::size).collect()
    }
}

impl<T: Example> Dataset<T> for Examples<T> {
    fn get(&self, index: usize) -> Result<T, DatasetError> {
        Ok(self.items[index].clone())
    }

    fn len(&self) -> usize {
        self.items.len()
    }
}

/// The number of examples, and of each class its id, name and count; of numbers their range.
impl<T: Example> fmt::Display for Examples<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", counted(self.items.len(), T::NAME.trim_end_matches('s')))?;
        let numbers = self.items.iter().filter_map(|item| item.number().map(|number| (number, number)));
        if let Some((least, most)) = numbers.reduce(|(a, b), (c, d)| (a.min(c), b.max(d))) {
            return write!(f, " with numbers from {least} to {most}");
        }
        let mut counts = vec![0_usize; self.names.len()];
        self.items.iter().flat_map(T::classes).for_each(|&id| counts[id] += 1);
        write!(f, " of {} classes", counts.len())?;
        for (id, (name, count)) in self.names.iter().zip(&counts).enumerate().take(PRINTED) {
            write!(f, "\n  {id} {name:?}: {count}")?;
        }
        match counts.len().saturating_sub(PRINTED) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

/// A number of things, such as `1 field` or `2 fields`.
pub(super) fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

fn check_names(names: &[String]) -> Result<()> {
    let mut seen = BTreeSet::new();
    let twice = names.iter().find(|name| !seen.insert(name.as_str()));
    twice.map_or(Ok(()), |name| {
        Err(Error::data(format!("label name {name:?}"), "occurs twice, but label names must be unique"))
    })
}

/// Where the classes `own` are among those of a model. Returns [`Error::Data`] if one of them is not.
fn places(own: &[String], id2label: &[String]) -> Result<Vec<usize>> {
    let place = |name: &String| {
        id2label.iter().position(|label| label == name).ok_or_else(|| {
            let problem = format!("is not one of the model's: {id2label:?}");
            Error::data(format!("the label {name:?} of the data"), problem)
        })
    };
    own.iter().map(place).collect()
}
