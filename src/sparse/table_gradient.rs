//! Gradients of some rows of one table.

use super::table;
use crate::error::{EmbeddingTable, Error, Result};
use burn::prelude::*;

/// Gradients of some rows of one table.
#[derive(Clone, Debug)]
pub(super) struct TableGradient {
    /// The table's shape, [V, H].
    pub(super) shape: [usize; 2],
    /// Which rows, ascending, each once.
    pub(super) ids: Vec<usize>,
    /// Their gradients, [ids.len(), H]; `None` if there are none: a batch of padding alone.
    pub(super) rows: Option<Tensor<2>>,
}

/// The sum of two gradients of one table.
pub(super) fn merge(
    table: EmbeddingTable,
    ours: Option<TableGradient>,
    theirs: Option<TableGradient>,
) -> Result<Option<TableGradient>> {
    let (ours, theirs) = match (ours, theirs) {
        (Some(ours), Some(theirs)) => (ours, theirs),
        (ours, theirs) => return Ok(ours.or(theirs)),
    };
    check_shape("row gradient", table, theirs.shape, ours.shape)?;
    let (Some(our_rows), Some(their_rows)) = (&ours.rows, &theirs.rows) else {
        return Ok(Some(if ours.rows.is_some() { ours } else { theirs }));
    };
    let mut ids = [ours.ids.as_slice(), &theirs.ids].concat();
    ids.sort_unstable();
    ids.dedup();
    let [_, hidden] = ours.shape;
    let place = |id: &usize| ids.binary_search(id).expect("ids has those of both");
    let zeros = Tensor::zeros([ids.len(), hidden], (&our_rows.device(), our_rows.dtype()));
    let our_places: Vec<usize> = ours.ids.iter().map(place).collect();
    let their_places: Vec<usize> = theirs.ids.iter().map(place).collect();
    let rows = table::assign(zeros, &our_places, our_rows.clone());
    let rows = table::add(rows, &their_places, their_rows.clone());
    Ok(Some(TableGradient { shape: ours.shape, ids, rows: Some(rows) }))
}

/// Whether rows, or their state, belong to a table of this shape, [V, H].
pub(super) fn check_shape(
    what: &str,
    table: EmbeddingTable,
    expected: [usize; 2],
    found: [usize; 2],
) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let problem = format!(
        "is for a {table} table of shape {expected:?}, but this one has shape {found:?}; was the model resized or another \
         one passed?"
    );
    Err(Error::data(format!("the {what}"), problem))
}
