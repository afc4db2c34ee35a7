use super::labels::Classes;
use crate::error::{Error, Result};
use burn::data::dataset::{Dataset, DatasetError};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::path::Path;
use std::sync::Arc;
use tokenizers::utils::parallelism::MaybeParallelIterator;

/// Classes that are printed, of data that have more.
const PRINTED: usize = 20;

/// Examples in memory, of a file or of the caller: [`LabelledTexts`](super::LabelledTexts),
/// [`LabelledSentences`](super::LabelledSentences) and [`SentencePairs`](super::SentencePairs).
///
/// A [`Dataset`](burn::data::dataset::Dataset) for an [`EpochLoader`](super::EpochLoader) or Burn's `DataLoaderBuilder`.
///
/// ```
/// use burn::data::dataset::Dataset;
/// use burn_bert::data::{Columns, Label, LabelledSentences, LabelledTexts, SentencePairs};
///
/// # let dir = tempfile::tempdir()?;
/// # let [csv, conll, pairs] = ["train.csv", "train.conll", "pairs.csv"].map(|name| dir.path().join(name));
/// std::fs::write(&csv, "review,stars\n\"good, really\",positive\nno,negative\n")?;
/// let texts = LabelledTexts::open(&csv, &Columns::default().with_texts(["review"]).with_label("stars"))?;
/// assert_eq!(texts.names(), ["negative", "positive"]);
/// assert_eq!((texts.get(0)?.text.as_str(), texts.get(0)?.label), ("good, really", Label::Class(1)));
///
/// std::fs::write(&conll, "Ada NNP B-PER\nlaughs VBZ O\n\nHi UH O\n")?;
/// let sentences = LabelledSentences::open(&conll)?;
/// assert_eq!(sentences.names(), ["B-PER", "O"]);
/// assert_eq!(sentences.get(0)?.tags, [0, 1]); // of "Ada" and "laughs"
///
/// std::fs::write(&pairs, "sentence1,sentence2,score\nA cat sleeps.,\"A cat, asleep.\",0.9\n")?;
/// let pair = SentencePairs::open(&pairs, &Columns::default())?.get(0)?;
/// assert_eq!((pair.positive.as_str(), pair.label), ("A cat, asleep.", Some(0.9)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Examples<T> {
    pub(super) items: Vec<T>,
    names: Vec<String>,
    /// What the file says of itself.
    file: DataSummary,
    reread: Option<Arc<Reread>>,
}

/// Reads a file again, whose classes have these names: an error names the row of one that has none of them.
type Reread = dyn Fn(&[String]) -> Result<()> + Send + Sync;

/// The data alone: a resumed run knows by it that they are those that it began with, wherever their file is.
impl<T: Debug> Debug for Examples<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Examples").field("items", &self.items).field("names", &self.names).finish()
    }
}

/// What a dataset was read as: what a [`Trainer`](crate::training::Trainer) prints before its first step. [`Examples::summary`]
/// returns it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DataSummary {
    /// What the items are: "texts", "sentences", "pairs" or "questions".
    pub items: &'static str,
    /// The number of items.
    pub len: usize,
    /// How often each class occurs, by its id.
    pub classes: Vec<(String, usize)>,
    /// The least and the largest number, where labels are numbers.
    pub range: Option<[f32; 2]>,
    /// How tags mark entities, of tagged words.
    pub scheme: Option<&'static str>,
    /// Each column of the file with what it was read as.
    pub columns: Vec<(String, String)>,
    /// What may not be as it was meant.
    pub notes: Vec<String>,
}

impl fmt::Display for DataSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name is a plural.
        write!(f, "{}", counted(self.len, self.items.trim_end_matches('s')))?;
        if let Some([least, most]) = self.range {
            write!(f, " with numbers from {least} to {most}")?;
        } else if !self.classes.is_empty() {
            write!(f, " of {} classes", self.classes.len())?;
        }
        for (id, (name, count)) in self.classes.iter().enumerate().take(PRINTED) {
            write!(f, "\n  {id} {name:?}: {count}")?;
        }
        if let more @ 1.. = self.classes.len().saturating_sub(PRINTED) {
            write!(f, "\n  and {more} more")?;
        }
        self.scheme.map_or(Ok(()), |scheme| write!(f, "\n  tags: {scheme}"))?;
        self.columns.iter().try_for_each(|(name, role)| write!(f, "\n  {name}: {role}"))?;
        self.notes.iter().try_for_each(|note| write!(f, "\n  note: {note}"))
    }
}

/// An item of [`Examples`], which has an example: a text, a sentence of tagged words, or a pair.
pub trait Example: Clone + Send + Sync + 'static {
    /// What errors call several of them.
    const NAME: &'static str;

    /// What is wrong with it next to the first one of its data or of its batch.
    fn check(&self, first: &Self) -> Result<(), String>;

    /// Whether the example has nothing to learn from. `Examples::new` refuses it; a file may have such lines.
    fn is_blank(&self) -> bool {
        false
    }

    /// Whether a text of it is empty or blank.
    fn has_empty_text(&self) -> bool {
        false
    }

    /// How the tags of these names mark entities.
    fn scheme(names: &[String]) -> Option<&'static str> {
        let _ = names;
        None
    }

    /// The label, if it is a number.
    fn number(&self) -> Option<f32> {
        None
    }

    /// The ids of the classes of the example.
    fn classes(&self) -> &[usize] {
        &[]
    }

    /// Gives each class the id that `ids` has at its index.
    fn rename(&mut self, ids: &[usize]) {
        let _ = ids;
    }

    /// The length of the example, in any unit.
    fn size(&self) -> usize;
}

/// Refuses examples that no batch can hold, or none.
pub(super) fn check<T: Example>(items: &[T]) -> Result<()> {
    // A batch has one kind of labels, so each is compared with the first one.
    let Some(first) = items.first() else { return Err(Error::Empty { input: T::NAME, shape: vec![0] }) };
    items.iter().enumerate().try_for_each(|(index, item)| {
        item.check(first).map_err(|problem| Error::data(format!("{}[{index}]", T::NAME), problem))
    })
}

impl<T: Example> Examples<T> {
    /// Examples that are in memory already, with the names of their classes; no names for numbers.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] without an example; [`Error::Data`], with the index of the example, if
    ///
    /// - a class has no name, or two have one, or a number is infinite, NaN or outside its range;
    /// - a sentence has no words, or not one tag a word;
    /// - its label is of another kind than the first one's, or only some have a label, a second text or as many negatives.
    pub fn new(items: Vec<T>, names: Vec<String>) -> Result<Self> {
        check(&items)?;
        check_names(&names)?;
        for (index, item) in items.iter().enumerate() {
            let problem = match item.classes().iter().find(|id| **id >= names.len()) {
                _ if item.is_blank() => "has no words".into(),
                Some(id) => format!("has the label {id}, but the labels are {names:?}"),
                None => continue,
            };
            return Err(Error::data(format!("{}[{index}]", T::NAME), problem));
        }
        Ok(Self { items, names, file: DataSummary::default(), reread: None })
    }

    /// The examples of a file, whose classes are numbered in its order: their names are only sorted once all are known.
    pub(super) fn from_file(
        path: &Path,
        mut items: Vec<T>,
        classes: Classes,
        reread: impl Fn(&[String]) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Self> {
        let (names, ids) = classes.finish(path)?;
        items.iter_mut().for_each(|item| item.rename(&ids));
        check(&items)?;
        check_names(&names)?; // those of the caller
        Ok(Self { items, names, file: DataSummary::default(), reread: Some(Arc::new(reread)) })
    }

    /// Numbers the classes as a model does. Returns [`Error::Row`] or [`Error::Data`], with the first
    /// example of the class, if the model lacks one, or has several of a name.
    pub(crate) fn with_ids_of(mut self, id2label: &[String]) -> Result<Self> {
        let index = |(id, name): (usize, &String)| {
            let mut indices = (0..id2label.len()).filter(|&index| id2label[index] == *name);
            let index = indices.next();
            if indices.next().is_some() {
                let problem =
                    format!("is the name of several of the model's: {id2label:?}; rename them in its config");
                return Err(Error::data(format!("the label {name:?} of the data"), problem));
            }
            index.ok_or_else(|| match self.reread.as_ref().map(|reread| reread(id2label)) {
                Some(Err(row @ Error::Row { .. })) => row,
                _ => {
                    let first = self.items.iter().position(|item| item.classes().contains(&id));
                    let first = first.map_or("no example".into(), |first| format!("{}[{first}]", T::NAME));
                    let problem = format!("is not one of the model's: {id2label:?}; {first} has it");
                    Error::data(format!("the label {name:?} of the data"), problem)
                }
            })
        };
        let indices: Vec<usize> = self.names.iter().enumerate().map(index).collect::<Result<_>>()?;
        self.items.iter_mut().for_each(|item| item.rename(&indices));
        Ok(Self { names: id2label.to_vec(), ..self })
    }

    /// The names of the classes by their ids, transformers' `id2label`; empty for numbers.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Adds what is said of the file: the columns, each with what it was read as, and notes.
    pub(super) fn with_columns(mut self, columns: Vec<(String, String)>, notes: Vec<String>) -> Self {
        (self.file.columns, self.file.notes) = (columns, notes);
        self
    }

    /// What was read: how many examples of each class, which columns, and what may not be as it was meant.
    pub fn summary(&self) -> DataSummary {
        let numbers = self.items.iter().filter_map(|item| item.number().map(|number| [number; 2]));
        let mut classes: Vec<_> = self.names.iter().map(|name| (name.clone(), 0)).collect();
        // A word without a tag has no class.
        let known = |id: &usize| *id < self.names.len();
        self.items.iter().flat_map(T::classes).filter(|id| known(id)).for_each(|&id| classes[id].1 += 1);
        let mut notes = self.file.notes.clone();
        match self.items.iter().filter(|item| item.has_empty_text()).count() {
            0 => {}
            empty => notes.push(format!(
                "{empty} of {} have an empty text",
                counted(self.items.len(), T::NAME.trim_end_matches('s'))
            )),
        }
        let mut alike: BTreeMap<String, Vec<&String>> = BTreeMap::new();
        self.names.iter().for_each(|name| alike.entry(name.to_lowercase()).or_default().push(name));
        let alike = alike.into_values().filter(|names| names.len() > 1);
        notes.extend(
            alike.map(|names| format!("{names:?} differ in case alone, and are classes of their own")),
        );
        DataSummary {
            items: T::NAME,
            len: self.items.len(),
            classes,
            range: numbers.reduce(|[a, b], [c, d]| [a.min(c), b.max(d)]),
            scheme: T::scheme(&self.names),
            columns: self.file.columns.clone(),
            notes,
        }
    }

    /// A weight for each class, in the order of [`names`](Self::names), by which all classes weigh the same together: the number of
    /// labels / (the number of classes · how often the class occurs), as scikit-learn's `"balanced"`; 1 where it never does. For
    /// [`class_weights`](crate::training::TrainingArguments::class_weights).
    pub fn balanced_class_weights(&self) -> Vec<f64> {
        let counts: Vec<usize> = self.summary().classes.into_iter().map(|(_, count)| count).collect();
        let mean = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
        counts.into_iter().map(|count| if count == 0 { 1.0 } else { mean / count as f64 }).collect()
    }

    /// The number of examples of which something holds, looked at in parallel; an error of one, or of `check`, ends it.
    pub(crate) fn count(
        &self,
        check: &(dyn Fn() -> Result<()> + Sync),
        holds: impl Fn(&T) -> Result<bool> + Sync + Send,
    ) -> Result<usize> {
        let held = in_parallel(self.items.len(), check, |index| holds(&self.items[index]))?;
        Ok(held.into_iter().filter(|holds| *holds).count())
    }

    /// Changes each example.
    pub(crate) fn map(mut self, change: impl FnMut(&mut T)) -> Self {
        self.items.iter_mut().for_each(change);
        self
    }

    /// The label of each example as a number; of any number of classes that of the first.
    pub(crate) fn labels(&self) -> Vec<f32> {
        let class = |item: &T| item.classes().first().map_or(f32::NAN, |id| *id as f32);
        self.items.iter().map(|item| item.number().unwrap_or_else(|| class(item))).collect()
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

/// Prints the [`summary`](Self::summary).
impl<T: Example> fmt::Display for Examples<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.summary(), f)
    }
}

/// What `make` makes of each index below `count`, on as many threads as [`BertTokenizer::encode_batch`](crate::text::BertTokenizer);
/// the first error of `make`, or of `check`, which is asked before each, ends it.
pub(super) fn in_parallel<T: Send>(
    count: usize,
    check: &(dyn Fn() -> Result<()> + Sync),
    make: impl Fn(usize) -> Result<T> + Sync + Send,
) -> Result<Vec<T>> {
    let made = (0..count).into_maybe_par_iter().map(|index| check().and_then(|()| make(index)));
    made.collect::<Vec<_>>().into_iter().collect()
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
