//! Seeds that follow from one.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Sets dropout's seeds apart from those of the data.
pub(super) const DROPOUT: u64 = 0x6472_6f70_6f75_7421;

/// A seed for the thing number `stream`.
pub(super) fn draw(seed: u64, stream: u64) -> u64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng.next_u64()
}
