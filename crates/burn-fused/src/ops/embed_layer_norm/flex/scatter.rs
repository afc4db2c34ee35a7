//! Rows of a table's gradient, handed out so that no two tokens write to the same one.

use crate::flex::sums::accumulate;
use crate::flex::{Wide, for_each};

/// Above this many tokens in one row, its columns are summed in parallel.
const LONG_RUN: usize = 64;

/// Which token, by its place in the order of work, stores its gradient where.
///
/// The first token of each row stores into the table itself. Further ones store into rows of a buffer of
/// duplicates, which [`merge`](Self::merge) adds in the order of work. Most rows of a batch are read once,
/// so most gradients are written once, to where they belong.
pub(super) struct Scatter {
    /// Row (upper half) and place (lower half), sorted.
    keys: Vec<u64>,
}

impl Scatter {
    /// From the row of each place; `None` stores nothing.
    pub(super) fn new(rows: impl Iterator<Item = Option<usize>>) -> Self {
        let mut keys: Vec<u64> =
            rows.zip(0u64..).filter_map(|(row, place)| Some((row? as u64) << 32 | place)).collect();
        keys.sort_unstable();
        Self { keys }
    }

    /// Rows that the buffer of duplicates needs.
    pub(super) fn duplicates(&self) -> usize {
        self.keys.len() - self.runs().count()
    }

    /// For each of `places` places, the row that it stores into.
    pub(super) fn targets<'a, W>(
        &self,
        places: usize,
        hidden: usize,
        table: &'a mut [W],
        duplicates: &'a mut [W],
    ) -> Vec<Option<&'a mut [W]>> {
        let mut targets = Vec::new();
        targets.resize_with(places, || None);
        let mut firsts = rows_mut(table, hidden, self.runs().map(|run| row(run[0])));
        let mut others = duplicates.chunks_exact_mut(hidden);
        for run in self.runs() {
            for (i, key) in run.iter().enumerate() {
                let target = if i == 0 { firsts.next() } else { others.next() };
                targets[*key as u32 as usize] = Some(target.expect("a row for every token"));
            }
        }
        targets
    }

    /// Adds the duplicates to their rows.
    pub(super) fn merge<W: Wide>(&self, hidden: usize, table: &mut [W], mut duplicates: &[W]) {
        let repeated = || self.runs().filter(|run| run.len() > 1);
        let values = duplicates.len();
        let mut work = Vec::new();
        for (row, run) in rows_mut(table, hidden, repeated().map(|run| row(run[0]))).zip(repeated()) {
            let (own, rest) = duplicates.split_at((run.len() - 1) * hidden);
            duplicates = rest;
            // One long run would keep a single thread busy.
            let columns = if run.len() > LONG_RUN { LONG_RUN } else { hidden };
            work.extend(row.chunks_mut(columns).enumerate().map(|(i, row)| (row, i * columns, own)));
        }
        for_each(values, work.into_iter(), |(row, column, duplicates)| {
            for duplicate in duplicates.chunks_exact(hidden) {
                accumulate(row, &duplicate[column..]);
            }
        });
    }

    fn runs(&self) -> impl Iterator<Item = &[u64]> {
        self.keys.chunk_by(|&a, &b| row(a) == row(b))
    }
}

fn row(key: u64) -> usize {
    (key >> 32) as usize
}

/// The `rows` of `table` [V, H], which must ascend.
fn rows_mut<W>(
    mut table: &mut [W],
    hidden: usize,
    rows: impl Iterator<Item = usize>,
) -> impl Iterator<Item = &mut [W]> {
    let mut start = 0;
    rows.map(move |row| {
        let rest = std::mem::take(&mut table).split_at_mut((row - start) * hidden).1;
        let (found, rest) = rest.split_at_mut(hidden);
        (table, start) = (rest, row + 1);
        found
    })
}
