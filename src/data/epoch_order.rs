//! Which items make up the batches of an epoch.

use super::batches::Items;
use crate::error::{Error, Result};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;

/// Batches among which items are sorted by length, as in transformers' `LengthGroupedSampler`, or searched for other texts.
const BUCKET: usize = 50;

/// The order of an epoch is in memory, eight bytes an item.
const MAX_EPOCH: usize = 1 << 28;

/// What a random stream is for. Streams of different purposes are independent of each other.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(super) enum Purpose {
    Order = 0,
    Buckets = 0x6275_636b_6574_7321,
    Batch = 0x6d61_736b_6261_7463,
    Dropout = 0x6472_6f70_6f75_7421,
}

/// The order of items and their division into batches, ranks and devices. Batches depend on these fields and the epoch's
/// number alone, so that ranks agree without communication and a resumed run continues as it would have.
#[derive(Clone, Debug)]
pub(super) struct EpochOrder {
    pub(super) items: Items,
    /// Of one rank; the last batch of an epoch may have fewer.
    pub(super) batch_size: usize,
    /// `None` for one pass over the items.
    pub(super) batches_per_epoch: Option<usize>,
    /// The number of the first epoch.
    pub(super) first_epoch: usize,
    /// Items of all ranks before it; by default those of as many epochs as there are before it.
    pub(super) items_read: Option<usize>,
    pub(super) seed: u64,
    pub(super) is_shuffled: bool,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// Which of the rank's items in an epoch are this device's; `None` for all.
    pub(super) range: Option<Range<usize>>,
}

impl EpochOrder {
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |field, problem| Err(Error::Config { field, problem });
        if self.batch_size == 0 {
            return invalid("batch_size", "is 0, but must be at least 1".into());
        }
        if self.rank >= self.ranks {
            return invalid("rank", format!("is {}, but must be below ranks, {}", self.rank, self.ranks));
        }
        let most = MAX_EPOCH / self.step_items();
        if let Some(batches) = self.batches_per_epoch.filter(|batches| !(1..=most).contains(batches)) {
            let problem =
                format!("is {batches}, but must be at least 1, of at most {MAX_EPOCH} items together");
            return invalid("batches_per_epoch", problem);
        }
        // A rank without an item takes no step, and the others would wait for it.
        if self.epoch_items() < self.ranks {
            let problem = format!("is {}, but an epoch has only {} items", self.ranks, self.epoch_items());
            return invalid("ranks", problem);
        }
        Ok(())
    }

    /// Items of one step, of all ranks.
    fn step_items(&self) -> usize {
        self.batch_size.saturating_mul(self.ranks)
    }

    /// Items of an epoch, of all ranks.
    fn epoch_items(&self) -> usize {
        self.batches_per_epoch.map_or(self.items.places.len(), |batches| batches * self.step_items())
    }

    /// Items of all ranks before an epoch. Wrapping: whoever starts after usize::MAX epochs gets some epoch.
    fn items_before(&self, epoch: usize) -> usize {
        let items = |epochs: usize| epochs.wrapping_mul(self.epoch_items());
        let read = self.items_read.unwrap_or_else(|| items(self.first_epoch));
        read.wrapping_add(items(epoch.wrapping_sub(self.first_epoch)))
    }

    /// Items of an epoch that are this rank's and device's.
    pub(super) fn len(&self) -> usize {
        let (steps, rest) = (self.epoch_items() / self.step_items(), self.epoch_items() % self.step_items());
        // The rest of an incomplete step is dealt out in turn, from rank 0 on.
        let of_rank = steps * self.batch_size + (rest + self.ranks - 1 - self.rank) / self.ranks;
        self.range.as_ref().map_or(of_rank, Range::len)
    }

    /// The items of each batch of an epoch. Every rank has as many batches.
    pub(super) fn batches(&self, epoch: usize) -> Vec<Vec<usize>> {
        let items = self.items(epoch);
        let size = self.step_items();
        let steps = steps(items.len(), size, self.ranks);
        let batches = (0..steps).map(|step| {
            let end = if step + 1 == steps { items.len() } else { (step + 1) * size };
            // In turn, because items of a step are sorted by length: so all ranks have about as many tokens.
            items[step * size..end].iter().skip(self.rank).step_by(self.ranks).copied()
        });
        match &self.range {
            None => batches.map(Iterator::collect).collect(),
            Some(range) => {
                // A device's share begins anywhere, so its batches are cut anew.
                let items: Vec<usize> = batches.flatten().skip(range.start).take(range.len()).collect();
                items.chunks(self.batch_size).map(<[usize]>::to_vec).collect()
            }
        }
    }

    /// The items of an epoch, of all ranks. Epochs follow each other through the passes over all items.
    fn items(&self, epoch: usize) -> Vec<usize> {
        let (before, places) = (self.items_before(epoch), &self.items.places);
        let pass = |pass: usize| {
            let mut order = places.to_vec();
            if self.is_shuffled {
                order.shuffle(&mut stream(self.seed, Purpose::Order, pass));
            }
            order
        };
        // Epochs need not end where passes do: this one may begin and end within a pass.
        let passes = (0..).flat_map(|number| pass((before / places.len()).wrapping_add(number)));
        let mut items: Vec<usize> = passes.skip(before % places.len()).take(self.epoch_items()).collect();
        if let Some(lengths) = self.items.lengths.as_ref().filter(|_| self.is_shuffled) {
            let mut rng = stream(self.seed, Purpose::Buckets, epoch);
            let size = self.step_items();
            for bucket in items.chunks_mut(size.saturating_mul(BUCKET)) {
                bucket.sort_by_key(|&item| Reverse(lengths[item]));
                // The last batch of an epoch may be smaller, so it stays where it is.
                let mut steps: Vec<Vec<usize>> = bucket.chunks_exact(size).map(<[usize]>::to_vec).collect();
                steps.shuffle(&mut rng);
                bucket.iter_mut().zip(steps.into_iter().flatten()).for_each(|(place, item)| *place = item);
            }
        }
        match &self.items.texts {
            Some(texts) if self.is_shuffled => distinct(&items, self.step_items(), texts),
            _ => items,
        }
    }

    /// A seed for the batch that begins with this rank's and device's item number `done` of an epoch. Without shuffling it is
    /// the same in every epoch, so that every validation masks the same tokens.
    pub(super) fn seed(&self, purpose: Purpose, epoch: usize, done: usize) -> u64 {
        // Counted over all epochs and ranks: no two batches of a run draw from one stream.
        let before = if self.is_shuffled { self.items_before(epoch) } else { 0 };
        let start = self.range.as_ref().map_or(0, |range| range.start);
        let own = (start + done).wrapping_mul(self.ranks).wrapping_add(self.rank);
        stream(self.seed, purpose, before.wrapping_add(own)).next_u64()
    }
}

/// The steps of an epoch of so many items, `size` in each, on some ranks.
pub(crate) fn steps(items: usize, size: usize, ranks: usize) -> usize {
    let (full, rest) = (items / size, items % size);
    // A rest that leaves some rank without an item joins the step before it: all ranks take part in every step.
    if full > 0 && rest < ranks { full } else { full + 1 }
}

fn stream(seed: u64, purpose: Purpose, number: usize) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ purpose as u64);
    rng.set_stream(number as u64);
    rng
}

/// Moves items such that no two of a batch share a text, as long as there are others to choose from nearby. `texts` has hashes of
/// the texts of each item. Items keep their order where nothing stands in the way.
///
/// Source: `NoDuplicatesBatchSampler` of sentence-transformers 6.2, whose last batches have fewer items instead.
fn distinct(items: &[usize], batch_size: usize, texts: &[Vec<u64>]) -> Vec<usize> {
    let mut left: VecDeque<usize> = items.iter().copied().collect();
    let mut chosen = Vec::with_capacity(items.len());
    while !left.is_empty() {
        let (mut seen, mut skipped) = (HashSet::new(), Vec::new());
        let end = chosen.len() + batch_size.min(left.len());
        while chosen.len() < end
            // Where most items share a text, a batch would otherwise look at all that are left.
            && skipped.len() < BUCKET * batch_size
            && let Some(item) = left.pop_front()
        {
            // Both texts of one item may be equal.
            let own: HashSet<u64> = texts[item].iter().copied().collect();
            if seen.is_disjoint(&own) {
                seen.extend(own);
                chosen.push(item);
            } else {
                skipped.push(item);
            }
        }
        // All that were looked at share a text with one of the batch.
        let missing = end - chosen.len();
        chosen.extend(skipped.drain(..missing));
        // From the last on, so that they keep their order.
        skipped.into_iter().rev().for_each(|item| left.push_front(item));
    }
    chosen
}
