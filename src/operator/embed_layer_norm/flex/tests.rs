//! What Flex promises beyond equality with the reference.

use super::source::{rows, sources};
use super::*;
use crate::operator::embed_layer_norm::rows::Rows;
use crate::operator::embed_layer_norm::tests::{Ids, bert, float, int, run_all};
use crate::operator::kernels::Kernels;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

#[test]
fn thread_count_changes_no_bit() {
    let case = bert([4, 129], 127, Ids::Random);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (input, grad) = (case.input(&mut rng), float(&[4, 129, 127], &mut rng));
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run_all::<Flex>(&input, &grad))
    };
    let alone = run(1);
    assert_eq!(alone.len(), 6);
    for threads in [2, 3, 8] {
        assert_eq!(run(threads), alone, "{threads} threads");
    }
}

#[test]
#[should_panic(expected = "input_ids[0][1] is 30522, but the table has 30522 rows (valid ids: 0..=30521)")]
fn unchecked_id_out_of_range_panics_and_says_where() {
    let case = bert([1, 2], 3, Ids::All(0));
    let mut input = case.input(&mut ChaCha8Rng::seed_from_u64(0));
    if let Rows::Lookup { ids, .. } = &mut input.words {
        *ids = int(vec![30521, 30522], [1, 2]);
    }
    <EmbedLayerNormOp as Kernels<Flex>>::forward(input);
}

/// A row that is missing must not become a summand that is missing.
#[test]
#[should_panic(expected = "range start index 3 out of range")]
fn a_row_that_the_values_lack_panics() {
    let input = bert([1, 2], 3, Ids::All(1)).input(&mut ChaCha8Rng::seed_from_u64(0));
    let sources = sources(&input);
    let words = sources[0].as_ref().map(|words| (words, [0.0f32; 2].as_slice()));
    rows(&[words, None, None], 0, 3);
}
