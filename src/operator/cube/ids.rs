//! Ids that address rows.

use burn_cubecl::cubecl::{self, prelude::*};

/// The id of `token`, moved to the nearest row that the table has.
#[cube]
pub(crate) fn nearest_row<I: Int>(ids: &OwnedTensor<I>, token: usize, last: u32) -> u32 {
    let mut id = ids[token % ids.len()];
    if id < I::cast_from(0u32) {
        id = I::cast_from(0u32);
    }
    if id > I::cast_from(last) {
        id = I::cast_from(last);
    }
    u32::cast_from(id)
}
