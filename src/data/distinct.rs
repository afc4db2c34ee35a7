//! Batches without two equal texts.

use std::collections::{HashSet, VecDeque};

/// Moves items such that no two of a batch share a text, as long as there are others to choose from. `texts` has hashes of the
/// texts of each item. Items keep their order where nothing stands in the way.
///
/// Source: `NoDuplicatesBatchSampler` of sentence-transformers 6.2, whose last batches have fewer items instead.
pub(super) fn distinct(items: &[usize], batch_size: usize, texts: &[Vec<u64>]) -> Vec<usize> {
    let mut left: VecDeque<usize> = items.iter().copied().collect();
    let mut chosen = Vec::with_capacity(items.len());
    while !left.is_empty() {
        let (mut seen, mut skipped) = (HashSet::new(), VecDeque::new());
        let end = chosen.len() + batch_size.min(left.len());
        while chosen.len() < end
            && let Some(item) = left.pop_front()
        {
            // Both texts of one item may be equal.
            let own: HashSet<u64> = texts[item].iter().copied().collect();
            if seen.is_disjoint(&own) {
                seen.extend(own);
                chosen.push(item);
            } else {
                skipped.push_back(item);
            }
        }
        // All that are left share a text with one of the batch.
        let missing = end - chosen.len();
        chosen.extend(skipped.drain(..missing));
        skipped.append(&mut left);
        left = skipped;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_have_no_two_equal_texts_until_there_is_no_other_choice() {
        let texts = [&[1, 2][..], &[1, 3], &[4, 4], &[5, 2], &[6, 7], &[1, 8]].map(<[u64]>::to_vec);
        let items = [0, 1, 2, 3, 4, 5];
        assert_eq!(distinct(&items, 2, &texts), [0, 2, 1, 3, 4, 5]);
        assert_eq!(distinct(&items, 3, &texts), [0, 2, 4, 1, 3, 5], "the last batch has text 1 twice");
        assert_eq!(distinct(&items, 1, &texts), items);
        assert_eq!(distinct(&[0, 1, 5], 3, &texts), [0, 1, 5]);
        assert_eq!(distinct(&items, 10, &texts).len(), 6);
        assert_eq!(distinct(&[], 2, &texts), [0; 0]);
    }
}
