//! The summands as the kernels read them.

use crate::operator::cube::ids::nearest_row;
use burn_cubecl::cubecl::{self, prelude::*};

/// A summand: a table, and which of its rows a token reads.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Source<T: Float, I: Int> {
    table: OwnedTensor<T>,
    /// The row by id, one for each token or one for each place of a sequence.
    ids: ComptimeOption<OwnedTensor<I>>,
    /// Without ids: the row of token 0, ...
    first: usize,
    /// ... and the number of tokens after which the rows repeat.
    period: usize,
    last: u32,
}

#[cube]
impl<T: Float, I: Int> Source<T, I> {
    /// Where in the table the row of `token` begins.
    fn start(&self, token: usize) -> usize {
        #[comptime]
        let row = match &self.ids {
            ComptimeOption::Some(ids) => nearest_row(ids, token, self.last) as usize,
            ComptimeOption::None => self.first + token % self.period,
        };
        row * self.table.stride(0)
    }
}

/// words, token_types and positions.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Sources<T: Float, I: Int> {
    words: ComptimeOption<Source<T, I>>,
    token_types: ComptimeOption<Source<T, I>>,
    positions: ComptimeOption<Source<T, I>>,
}

/// Where the rows begin that one token reads.
#[derive(CubeType)]
pub(super) struct Starts {
    words: usize,
    token_types: usize,
    positions: usize,
}

#[cube]
impl<T: Float, I: Int> Sources<T, I> {
    pub(super) fn starts(&self, token: usize) -> Starts {
        Starts {
            words: start::<T, I>(&self.words, token),
            token_types: start::<T, I>(&self.token_types, token),
            positions: start::<T, I>(&self.positions, token),
        }
    }

    /// One value of the sum, rounded to `T` after each addition.
    pub(super) fn sum<W: Float>(&self, starts: &Starts, column: usize) -> W {
        let x = W::new(0.0);
        let x = add::<T, W, I>(x, &self.words, starts.words + column);
        let x = add::<T, W, I>(x, &self.token_types, starts.token_types + column);
        add::<T, W, I>(x, &self.positions, starts.positions + column)
    }
}

#[cube]
fn start<T: Float, I: Int>(source: &ComptimeOption<Source<T, I>>, token: usize) -> usize {
    #[comptime]
    match source {
        ComptimeOption::Some(source) => source.start(token),
        ComptimeOption::None => 0usize,
    }
}

#[cube]
fn add<T: Float, W: Float, I: Int>(x: W, source: &ComptimeOption<Source<T, I>>, place: usize) -> W {
    #[comptime]
    match source {
        ComptimeOption::Some(source) => W::cast_from(T::cast_from(x + W::cast_from(source.table[place]))),
        ComptimeOption::None => x,
    }
}
