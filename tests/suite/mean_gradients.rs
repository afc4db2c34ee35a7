//! The mean of several batches' gradients.

use crate::tolerance::values;
use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn_bert::optim::MeanGradients;

#[derive(Module, Debug)]
struct Vector {
    vector: Param<Tensor<1>>,
}

#[test]
fn the_mean_is_over_the_batches_that_were_added_be_it_one() {
    let device = Device::default().autodiff();
    let model = Vector { vector: Param::from_tensor(Tensor::ones([2], &device)) };
    let mut mean = MeanGradients::new();
    for batches in [1usize, 2, 3, 1] {
        for batch in 0..batches {
            // The gradient is [batch, 2 · batch + 5].
            let batch = batch as f64;
            let slopes = Tensor::<1>::from_floats([batch, 2.0 * batch + 5.0], &device);
            let loss = (model.vector.val() * slopes).sum();
            mean.add(&model, GradientsParams::from_grads(loss.backward(), &model));
        }
        assert_eq!(mean.batches(), batches);
        let found = mean.take(&model).get::<1>(model.vector.id).unwrap();
        let middle = (batches - 1) as f64 / 2.0;
        assert_eq!(values(found), [middle, 2.0 * middle + 5.0]);
    }
    assert!(mean.take(&model).get::<1>(model.vector.id).is_none());
}

#[test]
fn batches_are_weighed_by_what_their_losses_count() {
    let device = Device::default().autodiff();
    let model = Vector { vector: Param::from_tensor(Tensor::ones([2], &device)) };
    let mut mean = MeanGradients::new();
    // The count and the gradient of each batch, and Σ count · gradient / Σ count.
    for (batches, expected) in [
        (vec![(5.0, 3.0)], 3.0),
        (vec![(6.0, 1.0), (2.0, 5.0)], 2.0),
        (vec![(0.0, 7.0), (2.0, 5.0)], 5.0),
        (vec![(0.0, 7.0)], 0.0),
    ] {
        for (count, gradient) in &batches {
            let loss = model.vector.val().sum().mul_scalar(*gradient);
            mean.add_counted(&model, GradientsParams::from_grads(loss.backward(), &model), *count);
        }
        assert_eq!(mean.count(), batches.iter().map(|(count, _)| count).sum::<f64>());
        let found = mean.take(&model).get::<1>(model.vector.id).unwrap();
        assert_eq!(values(found), [expected; 2], "{batches:?}");
    }
}
