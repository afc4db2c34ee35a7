use crate::error::{EmbeddingTable, Error, Result};
use burn::backend::{ExecutionError, try_read_sync};
use burn::prelude::*;
use burn::tensor::{DType, IntDType};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// What [`BertEmbeddingsInput`](crate::BertEmbeddingsInput) takes as ids besides the tokens, and
/// [`PaddingMask::from_attention_mask`](crate::PaddingMask::from_attention_mask) as a mask: rows on the host, one per
/// sequence, of any integer type `I` (`&[[0, 0, 1]]`, `&Vec<Vec<u32>>` and the like), or a `Tensor<2, Int>` on the
/// batch's device. The trait is sealed.
pub trait IntoIds<I>: sealed::IntoIds<I> {}

impl<I, T: sealed::IntoIds<I>> IntoIds<I> for T {}

mod sealed {
    use super::*;

    pub trait IntoIds<I> {
        /// The ids, [B, S], which messages call `name`. Rows of the host go to `device`.
        fn into_ids(self, name: &'static str, device: &Device) -> Result<Ids>
        where
            Self: Sized,
        {
            let (values, dims) = self.into_values(name)?;
            let device = device.clone().without_autodiff(); // see `tensor`
            let tensor = Tensor::from_data(TensorData::new(values.clone(), dims), &device);
            Ok(Ids { name, tensor, host: Some(Arc::new(values.into())) })
        }

        /// The ids on the host, row-major, and their shape.
        fn into_values(self, name: &'static str) -> Result<(Vec<i64>, [usize; 2])>;
    }

    impl IntoIds<i64> for Tensor<2, Int> {
        fn into_ids(self, name: &'static str, _device: &Device) -> Result<Ids> {
            Ok(Ids::from_tensor(name, self))
        }

        fn into_values(self, name: &'static str) -> Result<(Vec<i64>, [usize; 2])> {
            Ok((host_values(name, try_read_sync(self.to_data_async()))?, self.dims()))
        }
    }

    impl<I: Copy + TryInto<i32>, R: AsRef<[I]>> IntoIds<I> for &[R] {
        fn into_values(self, name: &'static str) -> Result<(Vec<i64>, [usize; 2])> {
            values_of_rows(name, self)
        }
    }

    impl<I: Copy + TryInto<i32>, R: AsRef<[I]>, const B: usize> IntoIds<I> for &[R; B] {
        fn into_values(self, name: &'static str) -> Result<(Vec<i64>, [usize; 2])> {
            values_of_rows(name, self)
        }
    }

    impl<I: Copy + TryInto<i32>, R: AsRef<[I]>> IntoIds<I> for &Vec<R> {
        fn into_values(self, name: &'static str) -> Result<(Vec<i64>, [usize; 2])> {
            values_of_rows(name, self)
        }
    }
}

/// Ids on a device, [B, S], with a host copy from which they are checked: the rows they were made from, or, for a tensor,
/// its values, read back once at the first check for all clones.
#[derive(Clone, Debug)]
pub struct Ids {
    name: &'static str,
    /// Without autodiff, which would pass from here to all that a plain model computes.
    tensor: Tensor<2, Int>,
    /// Row-major; `None` where the caller guarantees the range.
    host: Option<Arc<OnceLock<Vec<i64>>>>,
}

impl Ids {
    /// Ids in a tensor. Nothing is read until [`check`](Self::check).
    pub(crate) fn from_tensor(name: &'static str, tensor: Tensor<2, Int>) -> Self {
        let tensor = tensor.without_autodiff();
        // A padding id or a number of rows may exceed the range of 8 and 16 bits.
        let tensor = match tensor.dtype() {
            DType::I8 | DType::U8 | DType::I16 | DType::U16 => tensor.cast(IntDType::I32),
            _ => tensor,
        };
        Self { name, tensor, host: Some(Arc::default()) }
    }

    pub(crate) fn from_rows<I>(name: &'static str, rows: impl IntoIds<I>, device: &Device) -> Result<Self> {
        rows.into_ids(name, device)
    }

    pub(crate) fn tensor(&self) -> Tensor<2, Int> {
        self.tensor.clone()
    }

    pub(crate) fn dims(&self) -> [usize; 2] {
        self.tensor.dims()
    }

    pub(crate) fn unchecked(self) -> Self {
        Self { host: None, ..self }
    }

    pub(crate) fn to_device(&self, device: &Device) -> Self {
        Self { tensor: self.tensor.clone().to_device(device), ..self.clone() }
    }

    pub(crate) fn sequences(&self, range: Range<usize>) -> Result<Self> {
        let [rows, columns] = self.dims();
        // One row of positions serves every sequence.
        if rows == 1 {
            return Ok(self.clone());
        }
        // The copy is cut as well, so that checks of the part read nothing back.
        let host = self.host()?.map(|host| host[range.start * columns..range.end * columns].to_vec());
        let tensor = self.tensor.clone().narrow(0, range.start, range.len());
        Ok(Self { name: self.name, tensor, host: host.map(|host| Arc::new(host.into())) })
    }

    /// Whether `table`, of `rows` rows, has a row for every id.
    pub(crate) fn check(&self, table: EmbeddingTable, rows: usize) -> Result<()> {
        // Unchecked ids have no copy, and pass.
        let ids = self.host()?.unwrap_or_default();
        let is_valid = |id: i64| usize::try_from(id).is_ok_and(|id| id < rows);
        let Some(at) = ids.iter().position(|&id| !is_valid(id)) else { return Ok(()) };
        let index = unravel(at, &self.dims());
        Err(Error::IdOutOfRange { input: self.name, index, id: ids[at], table, rows })
    }

    /// The largest number of ids in one sequence that are not `id`, and the sequence; `None` where unchecked.
    pub(crate) fn longest_without(&self, id: usize) -> Result<Option<(usize, usize)>> {
        let [_, columns] = self.dims();
        let Some(host) = self.host()? else { return Ok(None) };
        let count = |row: &[i64]| row.iter().filter(|&&found| found != id as i64).count();
        let lengths = host.chunks(columns).map(count).enumerate();
        Ok(lengths.map(|(row, length)| (length, row)).max_by_key(|&(length, _)| length))
    }

    /// The values on the host, row-major, also of unchecked ids.
    pub(crate) fn values(&self) -> Result<Vec<i64>> {
        match self.host()? {
            Some(values) => Ok(values.to_vec()),
            None => host_values(self.name, try_read_sync(self.tensor.to_data_async())),
        }
    }

    fn host(&self) -> Result<Option<&[i64]>> {
        let Some(copy) = &self.host else { return Ok(None) };
        if copy.get().is_none() {
            let read = try_read_sync(self.tensor.to_data_async());
            // Another thread may have read them meanwhile: the copies are the same.
            let _ = copy.set(host_values(self.name, read)?);
        }
        Ok(copy.get().map(Vec::as_slice))
    }
}

/// The ids of rows, which are of one length, row-major; and their shape.
fn values_of_rows<I>(name: &'static str, rows: &[impl AsRef<[I]>]) -> Result<(Vec<i64>, [usize; 2])>
where
    I: Copy + TryInto<i32>,
{
    let columns = rows.first().map_or(0, |row| row.as_ref().len());
    if columns == 0 {
        return Err(Error::Empty { input: name, shape: vec![rows.len(), 0] });
    }
    let mut values = Vec::with_capacity(rows.len() * columns);
    for (row, ids) in rows.iter().map(AsRef::as_ref).enumerate() {
        if ids.len() != columns {
            return Err(Error::RaggedRows { input: name, row, found: ids.len(), expected: columns });
        }
        for (column, &id) in ids.iter().enumerate() {
            let id =
                id.try_into().map_err(|_| Error::IdOverflow { input: name, index: vec![row, column] })?;
            values.push(i64::from(id));
        }
    }
    Ok((values, [rows.len(), columns]))
}

/// The ids that were `read` from a device; `None` is a device that cannot be read at once.
fn host_values(
    name: &'static str,
    read: Option<std::result::Result<TensorData, ExecutionError>>,
) -> Result<Vec<i64>> {
    let unreadable = |source| Error::UnreadableIds { input: name, source };
    let data = read.ok_or_else(|| unreadable(None))?.map_err(|source| unreadable(Some(source)))?;
    // Only u64 holds ids that i64 does not.
    if data.dtype() != DType::U64 {
        return Ok(data.iter::<i64>().collect());
    }
    let fits = |(flat, id): (usize, u64)| {
        let index = || unravel(flat, &data.shape().to_vec());
        i64::try_from(id).map_err(|_| Error::IdOverflow { input: name, index: index() })
    };
    data.iter::<u64>().enumerate().map(fits).collect()
}

/// The index, axis by axis, of the `flat`-th element of a row-major tensor.
pub(crate) fn unravel(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, &size) in index.iter_mut().zip(shape).rev() {
        *i = flat % size;
        flat /= size;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_read(ids: &Ids) -> bool {
        ids.host.as_ref().is_some_and(|host| host.get().is_some())
    }

    #[test]
    fn ids_from_the_host_are_never_read_back_and_tensors_once_for_all_clones() {
        let device = Device::default();
        assert!(is_read(&Ids::from_rows("ids", &[[1, 2]], &device).unwrap()));

        let ids = Ids::from_tensor("ids", Tensor::from_data([[1, 2]], &device));
        let clone = ids.to_device(&device);
        assert!(!is_read(&ids));
        clone.check(EmbeddingTable::Word, 3).unwrap();
        assert!(is_read(&ids));
    }

    #[test]
    fn unchecked_ids_are_not_read() {
        let ids = Ids::from_tensor("ids", Tensor::from_data([[7]], &Device::default())).unchecked();
        ids.check(EmbeddingTable::Word, 3).unwrap();
        assert!(ids.host().unwrap().is_none());
    }

    #[test]
    fn ids_that_cannot_be_read_back_are_an_error() {
        let failed = || ExecutionError::WithContext { reason: "the device is lost".into() };
        for (read, source) in [(None, None), (Some(Err(failed())), Some("the device is lost"))] {
            let error = host_values("input_ids", read).unwrap_err();
            let message = "input_ids cannot be read back from its device, so the ids cannot be checked; make the batch from \
                           host data, or skip the check (unchecked_ids, forward_unchecked)";
            assert_eq!(error.to_string(), message);
            let found = std::error::Error::source(&error).map(ToString::to_string);
            assert_eq!(found.is_some(), source.is_some());
            assert!(found.unwrap_or_default().contains(source.unwrap_or_default()));
        }
    }
}
