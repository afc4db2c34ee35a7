//! Saving and loading the state of a row optimiser.

use super::optimizer::{Kept, RowMoments, Rule, SparseOptimizer, TableState};
use crate::error::{Error, Result};
use crate::optim::Moments;
use crate::regular_file;
use burn::prelude::*;
use burn::tensor::Bytes;
use burn_pack::{Reader, Scalar, Writer};
use std::collections::BTreeMap;
use std::path::Path;

/// What messages call a state.
const STATE: &str = "the state of the row optimiser";

/// Metadata key of the rule that a state belongs to.
const RULE: &str = "row_optimizer";

impl SparseOptimizer {
    /// Saves the state as a burnpack file, which is what Burn's optimisers save.
    ///
    /// For each table it holds the step count, the ids of the rows that were ever touched, and their moments. Learning
    /// rate, β and ε are not in it. As in Burn, `.bpk` is appended to a path without an extension.
    ///
    /// # Errors
    ///
    /// [`Error::RowStateFile`] if the file cannot be written; an older one is then left as it was.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let action = || format!("save {STATE} to {}", path.display());
        let failed = |source| Error::RowStateFile { action: action(), source };
        self.to_writer().write_to_file(path).map_err(failed)
    }

    /// The bytes that [`save`](Self::save) writes.
    ///
    /// # Errors
    ///
    /// [`Error::RowStateFile`] if the state is larger than the format allows.
    pub fn to_bytes(&self) -> Result<Bytes> {
        let failed = |source| Error::RowStateFile { action: format!("pack {STATE}"), source };
        self.to_writer().into_bytes().map_err(failed)
    }

    /// Loads a saved state onto `device`. Training continues with the same results as without the interruption.
    ///
    /// # Errors
    ///
    /// - [`Error::RowStateFile`] if the file cannot be read;
    /// - [`Error::Data`] if it holds the state of an optimiser of another kind, or is damaged.
    pub fn load(self, path: impl AsRef<Path>, device: &Device) -> Result<Self> {
        let path = path.as_ref();
        let action = || format!("load {STATE} from {}", path.display());
        let failed = |source| Error::RowStateFile { action: action(), source };
        // Burn's own loading leaves tensors tied to the file, which may change before they are read.
        let path =
            if path.extension().is_none() && !path.exists() { &path.with_extension("bpk") } else { path };
        let bytes = regular_file::read(path, u64::MAX).map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            burn_pack::Error::IoError(format!("{error}{}", cause.unwrap_or_default()))
        });
        let reader = bytes.and_then(|bytes| Reader::from_bytes(Bytes::from_bytes_vec(bytes)));
        let saved = reader.and_then(Saved::read).map_err(failed)?;
        self.with_state(saved, device)
    }

    /// This optimiser with a state from [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load).
    pub fn from_bytes(self, bytes: Bytes, device: &Device) -> Result<Self> {
        let failed = |source| Error::RowStateFile { action: format!("unpack {STATE}"), source };
        let saved = Reader::from_bytes(bytes).and_then(Saved::read).map_err(failed)?;
        self.with_state(saved, device)
    }

    fn to_writer(&self) -> Writer {
        let mut tensors = Vec::new();
        let mut scalars = Vec::new();
        for (table, state) in [("words", &self.words), ("positions", &self.positions)] {
            scalars.push((format!("{table}.time"), Scalar::from(state.time)));
            let Some(kept) = &state.moments else { continue };
            let RowMoments { shape: [table_rows, _], ids, moments: Moments { mean, square } } = kept.rows();
            scalars.push((format!("{table}.table_rows"), Scalar::from(table_rows)));
            let moments = [("mean", mean.into_data()), ("square", square.into_data())];
            let ids: Vec<i64> = ids.into_iter().map(|id| id as i64).collect();
            for (name, data) in moments.into_iter().chain([("ids", TensorData::from(ids.as_slice()))]) {
                let (bytes, shape, dtype) = data.into_parts();
                tensors.push(burn_pack::Tensor::new(format!("{table}.{name}"), dtype, shape, None, bytes));
            }
        }
        let writer = Writer::new(tensors).with_metadata(RULE, self.rule.name());
        scalars.iter().fold(writer, |writer, (key, value)| writer.with_scalar(key, *value))
    }

    fn with_state(self, mut saved: Saved, device: &Device) -> Result<Self> {
        let ours = self.rule.name();
        match saved.rule.as_deref() {
            Some(theirs) if theirs == ours => {}
            Some(theirs) => {
                return Err(damaged(format!("belongs to {theirs}, but this optimiser is {ours}")));
            }
            None => return Err(damaged(format!("has no `{RULE}`, so it is not row-optimiser state"))),
        }
        let words = saved.take_table("words", &self.rule, device)?;
        let positions = saved.take_table("positions", &self.rule, device)?;
        Ok(Self { rule: self.rule, words, positions })
    }
}

/// What a file holds.
struct Saved {
    rule: Option<String>,
    scalars: BTreeMap<String, Scalar>,
    tensors: BTreeMap<String, TensorData>,
}

impl Saved {
    fn read(reader: Reader) -> Result<Self, burn_pack::Error> {
        let rule = reader.metadata().get(RULE).cloned();
        let scalars = reader.scalars().clone();
        let mut tensors = BTreeMap::new();
        for tensor in reader.into_tensors()? {
            let (name, dtype, shape, _, bytes) = tensor.into_parts()?;
            tensors.insert(name, TensorData::from_bytes(bytes, shape, dtype));
        }
        Ok(Self { rule, scalars, tensors })
    }

    fn take_table(&mut self, table: &str, rule: &Rule, device: &Device) -> Result<TableState> {
        let time = self.scalar(&format!("{table}.time"))?;
        let moments = match rule {
            Rule::Adam(_) if self.scalars.contains_key(&format!("{table}.table_rows")) => {
                Some(Kept::Rows(self.take_moments(table, device)?))
            }
            Rule::Adam(_) | Rule::Sgd => None,
        };
        Ok(TableState { param: None, time, moments })
    }

    fn take_moments(&mut self, table: &str, device: &Device) -> Result<RowMoments> {
        let table_rows: usize = self.scalar(&format!("{table}.table_rows"))?;
        let ids: Vec<i64> = self.tensor(&format!("{table}.ids"))?.iter().collect();
        if let Some(id) = ids.iter().find(|&&id| usize::try_from(id).map_or(true, |id| id >= table_rows)) {
            return Err(damaged(format!("names row {id} of `{table}`, a table of {table_rows} rows")));
        }
        if !ids.is_sorted_by(|a, b| a < b) {
            return Err(damaged(format!("names a row of `{table}` twice, or rows out of order")));
        }
        let ids: Vec<usize> = ids.into_iter().map(|id| id as usize).collect();
        let [mean, square] = [format!("{table}.mean"), format!("{table}.square")];
        let (mean, square) = (self.moment(&mean, ids.len())?, self.moment(&square, ids.len())?);
        if mean.shape() != square.shape() {
            return Err(damaged(format!("has moments of different shapes for `{table}`")));
        }
        let (hidden, dtype) = (mean.shape()[1], mean.dtype());
        let rows = |data: TensorData| Tensor::<2>::from_data(data, (device, dtype));
        Ok(RowMoments {
            shape: [table_rows, hidden],
            ids,
            moments: Moments { mean: rows(mean), square: rows(square) },
        })
    }

    fn scalar<T: TryFrom<Scalar>>(&self, name: &str) -> Result<T> {
        let scalar = self.scalars.get(name).and_then(|&scalar| scalar.try_into().ok());
        scalar.ok_or_else(|| damaged(format!("has no count `{name}`")))
    }

    fn tensor(&mut self, name: &str) -> Result<TensorData> {
        self.tensors.remove(name).ok_or_else(|| damaged(format!("has no `{name}`")))
    }

    fn moment(&mut self, name: &str, rows: usize) -> Result<TensorData> {
        let moment = self.tensor(name)?;
        match moment.shape().as_slice() {
            &[found, _] if found == rows && moment.dtype().is_float() => Ok(moment),
            found => Err(damaged(format!("has `{name}` of shape {found:?}, but names {rows} rows"))),
        }
    }
}

fn damaged(problem: String) -> Error {
    Error::data("the saved state of the row optimiser", problem)
}
