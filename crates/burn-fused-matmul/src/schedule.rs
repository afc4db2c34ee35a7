//! What is packed and multiplied when, and by how many items: from sizes and threads alone.

use std::ops::Range;

/// Tiles along K whose products are added up in registers: what an entry of C is made of is cut there, whatever the threads.
const CHUNK: usize = 24;

/// Tiles along K in a phase.
const PHASE_DEPTH: usize = 48;

/// Tiles of A in a phase.
const PHASE_A: usize = 4 * 1024;

/// Tiles of B in a phase, for each thread and in all: they are multiplied while they are in the second cache.
const PHASE_B: usize = 256;
const LARGEST_PHASE_B: usize = 8 * PHASE_B;

/// The largest items of packing: panels, and tiles along K. In the order in which the operand is in memory, either along its lines
/// or across them.
const ALONG: [usize; 2] = [1, 16];
const ACROSS: [usize; 2] = [8, 2];

/// The largest blocks of C, in panels.
const BLOCK: [usize; 2] = [32, 8];

/// Blocks for each of several threads, so that none waits long for the last one.
const BLOCKS: usize = 16;

/// What is packed and multiplied at a time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Phase {
    /// Panels of A and of B.
    pub(crate) rows: Range<usize>,
    pub(crate) columns: Range<usize>,
    /// Tiles along K, and how many of them are added up in registers.
    pub(crate) depth: Range<usize>,
    pub(crate) chunk: usize,
    /// Of A and of B, if they are packed, panels and tiles along K of an item: A may have been packed for the phase before, and
    /// either may be multiplied where it is.
    item: [Option<[usize; 2]>; 2],
    /// Panels of A and B in a block of C.
    block: [usize; 2],
    /// Whether rows of A and K are those of the phase before.
    is_alike: bool,
    /// Of two buffers for B, this phase's.
    pub(crate) buffer: usize,
}

impl Phase {
    /// The phases of a matmul of so many panels of A and of B, of `depth` tiles each. `packs`: whether A and B are packed, and if so,
    /// along their lines; `is_whole`: whether each phase has all of K.
    pub(crate) fn all(
        [rows, columns]: [usize; 2],
        depth: usize,
        packs: [Option<bool>; 2],
        is_whole: bool,
        threads: usize,
    ) -> Vec<Self> {
        // From K alone, as are the results.
        let chunk = even(depth, CHUNK);
        let depth_step = if is_whole { depth } else { chunk * (PHASE_DEPTH / chunk) };
        let longest = depth.min(depth_step);
        let [row_step, column_step] = [(rows, PHASE_A), (columns, LARGEST_PHASE_B.min(threads * PHASE_B))]
            .map(|(panels, tiles)| even(panels, tiles / longest));
        let mut phases = Vec::<Self>::new();
        for depth in steps(0..depth, depth_step) {
            for rows in steps(0..rows, row_step) {
                for columns in steps(0..columns, column_step) {
                    let last = phases.last();
                    let is_alike = last.is_some_and(|last| (&last.rows, &last.depth) == (&rows, &depth));
                    let mut phase = Self {
                        item: [packs[0].filter(|_| !is_alike), packs[1]]
                            .map(|packs| packs.map(|is_along| if is_along { ALONG } else { ACROSS })),
                        block: BLOCK,
                        is_alike,
                        buffer: phases.len() % 2,
                        rows: rows.clone(),
                        columns,
                        depth: depth.clone(),
                        chunk,
                    };
                    while threads > 1 && phase.blocks() < BLOCKS * threads && phase.block != [1, 1] {
                        let larger = if phase.block[1] > phase.block[0] { 1 } else { 0 };
                        phase.block[larger] /= 2;
                    }
                    phases.push(phase);
                }
            }
        }
        phases
    }

    /// The most tiles of A and of B that a phase of `phases` packs.
    pub(crate) fn tiles(phases: &[Self]) -> [usize; 2] {
        [0, 1].map(|operand| {
            let tiles = |phase: &Self| phase.panels(operand).len() * phase.depth.len();
            phases.iter().filter(|phase| phase.item[operand].is_some()).map(tiles).max().unwrap_or(0)
        })
    }

    /// The phases whose blocks must be computed before phase `index`, this one, begins: what is written again nobody may read any
    /// more, B of the phase before the last, and A of both, and C has what comes first along K.
    pub(crate) fn waits_for(&self, index: usize) -> Range<usize> {
        index.saturating_sub(2)..index.saturating_sub(usize::from(self.is_alike))
    }

    /// Panels of A or of B.
    pub(crate) fn panels(&self, operand: usize) -> &Range<usize> {
        [&self.rows, &self.columns][operand]
    }

    /// Items of packing.
    pub(crate) fn items(&self) -> usize {
        self.items_of(0) + self.items_of(1)
    }

    fn items_of(&self, operand: usize) -> usize {
        self.item[operand].map_or(0, |[panels, along]| {
            self.panels(operand).len().div_ceil(panels) * self.depth.len().div_ceil(along)
        })
    }

    /// The operand of an item of packing, 0 for A and 1 for B, its panels, and its tiles along K.
    pub(crate) fn item(&self, item: usize) -> (usize, [Range<usize>; 2]) {
        let (operand, item) = match item.checked_sub(self.items_of(0)) {
            None => (0, item),
            Some(item) => (1, item),
        };
        let [panels, along] = self.item[operand].expect("a packed operand");
        let count = self.depth.len().div_ceil(along);
        (operand, [part(self.panels(operand), item / count, panels), part(&self.depth, item % count, along)])
    }

    /// Blocks of C.
    pub(crate) fn blocks(&self) -> usize {
        self.rows.len().div_ceil(self.block[0]) * self.columns.len().div_ceil(self.block[1])
    }

    /// The panels of A and of B of a block.
    pub(crate) fn block(&self, block: usize) -> [Range<usize>; 2] {
        let down = self.rows.len().div_ceil(self.block[0]);
        [part(&self.rows, block % down, self.block[0]), part(&self.columns, block / down, self.block[1])]
    }

    /// The tiles along K of each chunk, counted from the phase's first.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Range<usize>> {
        steps(0..self.depth.len(), self.chunk)
    }
}

/// `count` in equal steps of at most `largest`, or of 1: the length of a step.
fn even(count: usize, largest: usize) -> usize {
    count.div_ceil(count.div_ceil(largest.max(1)))
}

/// A range cut into steps.
fn steps(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(step).map(move |first| first..range.end.min(first + step))
}

/// Step `index` of a range.
fn part(range: &Range<usize>, index: usize, step: usize) -> Range<usize> {
    let first = range.start + index * step;
    first..range.end.min(first + step)
}
