//! The mean of several batches' gradients.

use crate::prelude::*;
use burn_bert::optim::MeanGradients;

#[test]
fn the_mean_is_over_the_batches_that_were_added_be_it_one_or_weighed_by_what_their_losses_count() {
    let device = autodiff();
    let model: Param<Tensor<1>> = Param::from_tensor(Tensor::ones([2], &device));
    let gradients = |slopes: [f64; 2]| {
        let loss = (model.val() * Tensor::from_floats(slopes, &device)).sum();
        GradientsParams::from_grads(loss.backward(), &model)
    };
    let mut mean = MeanGradients::new();
    for batches in [1usize, 2, 3, 1] {
        for batch in (0..batches).map(|batch| batch as f64) {
            mean.add(&model, gradients([batch, 2.0 * batch + 5.0]));
        }
        assert_eq!(mean.batches(), batches);
        let found = mean.take(&model).get::<1>(model.id).unwrap();
        let middle = (batches - 1) as f64 / 2.0;
        assert_eq!(values(found), [middle, 2.0 * middle + 5.0]);
    }
    assert!(mean.take(&model).get::<1>(model.id).is_none());
    // The count and the gradient of each batch, and Σ count · gradient / Σ count.
    for (batches, expected) in [
        (vec![(5.0, 3.0)], 3.0),
        (vec![(6.0, 1.0), (2.0, 5.0)], 2.0),
        (vec![(0.0, 7.0), (2.0, 5.0)], 5.0),
        (vec![(0.0, 7.0)], 0.0),
    ] {
        batches.iter().for_each(|&(count, slope)| mean.add_counted(&model, gradients([slope; 2]), count));
        assert_eq!(mean.count(), batches.iter().map(|(count, _)| count).sum::<f64>());
        let found = mean.take(&model).get::<1>(model.id).unwrap();
        assert_eq!(values(found), [expected; 2], "{batches:?}");
    }
}
