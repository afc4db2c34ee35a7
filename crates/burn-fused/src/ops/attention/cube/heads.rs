//! Between packed rows [N, H] and heads [B, A, L, d]; each value is read and written once.

use burn_cubecl::cubecl::{self, prelude::*};

/// Where the rows of a batch's sequences begin, and what a head is.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Heads<I: Int> {
    /// [B + 1].
    starts: OwnedTensor<I>,
    /// A.
    heads: usize,
    /// L.
    longest: usize,
    /// d.
    columns: usize,
}

/// A place in [B, A, L, d].
#[derive(CubeType)]
struct Place {
    /// Where the value is among those of the rows.
    of_rows: usize,
    /// Whether the sequence is long enough.
    exists: bool,
}

#[cube]
impl<I: Int> Heads<I> {
    fn start(&self, sequence: usize) -> usize {
        u32::cast_from(self.starts[sequence]) as usize
    }

    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The number of keys of a row of scores [B, A, L, L], 0 past the sequence's end.
    pub(super) fn keys(&self, row: usize) -> usize {
        let sequence = row / self.longest / self.heads;
        let length = self.start(sequence + 1) - self.start(sequence);
        select(row % self.longest < length, length, 0usize)
    }

    fn place(&self, index: usize) -> Place {
        let row = index / self.columns;
        let head = row / self.longest;
        let sequence = head / self.heads;
        let token = self.start(sequence) + row % self.longest;
        Place {
            of_rows: (token * self.heads + head % self.heads) * self.columns + index % self.columns,
            exists: token < self.start(sequence + 1),
        }
    }
}

/// The heads of each of `rows`, `stride` apart; 0 past a sequence's end.
#[cube(launch, address_type = "dynamic")]
pub(super) fn fill<T: Float, I: Int>(
    rows: &Sequence<Box<[T]>>,
    layout: &Heads<I>,
    heads: &mut [T],
    count: usize,
    stride: usize,
    #[define(T, I)] _dtypes: [ElemType; 2],
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let place = layout.place(ABSOLUTE_POS);
    #[unroll]
    for i in 0..rows.len() {
        let mut value = T::new(0.0);
        if place.exists {
            value = rows[i][place.of_rows];
        }
        heads[i * stride + ABSOLUTE_POS] = value;
    }
}

/// The rows of each of `heads`, `stride` apart, the first `scaled` times `scale`.
#[cube(launch, address_type = "dynamic")]
pub(super) fn empty<T: Float, W: Float, I: Int>(
    heads: &Sequence<Box<[T]>>,
    layout: &Heads<I>,
    rows: &mut [T],
    scale: InputScalar,
    count: usize,
    stride: usize,
    #[comptime] scaled: usize,
    #[define(T, W, I)] _dtypes: [ElemType; 3],
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let place = layout.place(ABSOLUTE_POS);
    if place.exists {
        #[unroll]
        for i in 0..heads.len() {
            let value = heads[i][ABSOLUTE_POS];
            if comptime!(i < scaled) {
                rows[i * stride + place.of_rows] = T::cast_from(W::cast_from(value) * scale.get::<W>());
            } else {
                rows[i * stride + place.of_rows] = value;
            }
        }
    }
}
