//! The learning rate's schedule.

use crate::prelude::*;
use burn_bert::optim::LrSchedule;

#[test]
fn the_rate_grows_to_its_peak_and_falls_to_zero() {
    for (peak, warmup, total) in [(0.8, 3, 7), (1.0, 0, 4), (5e-5, 1, 2)] {
        let mut schedule = LrSchedule::Linear.with_warmup(peak, warmup, total).unwrap();
        for step in 0..total + 3 {
            let expected = if step <= warmup {
                peak * (step + 1) as f64 / (warmup + 1) as f64
            } else {
                peak * total.saturating_sub(step) as f64 / (total - warmup) as f64
            };
            let found = schedule.step().base();
            assert!((found - expected).abs() < 1e-12, "step {step} of {total}: {found}, not {expected}");
        }
    }
}

#[test]
fn a_schedule_that_cannot_be_is_an_error_that_names_the_argument() {
    let what =
        |peak: f64, warmup: usize, total: usize| match LrSchedule::Linear.with_warmup(peak, warmup, total) {
            Err(Error::Data { what, .. }) => what,
            other => panic!("{:?}", other.map(|_| ())),
        };
    for peak in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY] {
        assert_eq!(what(peak, 1, 2), "peak", "{peak}");
    }
    assert_eq!(what(1.0, 2, 2), "warmup");
    assert_eq!(what(1.0, 0, 0), "warmup");
}
