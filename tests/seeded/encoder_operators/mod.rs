//! The encoder's fused operators: against naive loops, against the reference made of Burn's operations, by central
//! differences, and on any number of threads.

mod add_layer_norm;
mod attention;
mod bias_gelu;
mod cross_entropy;
mod leaves;
mod linear;

use crate::devices::flex;
use burn::prelude::*;
use burn::tensor::Distribution;
use burn_bert::functional::{Norm, add_layer_norm, bias_gelu};

/// An operator's output takes the place of its input only if nobody else holds that.
#[test]
fn an_input_that_something_else_holds_keeps_its_values() {
    let device = flex();
    let values = |rows: Tensor<2>| rows.into_data().try_into_vec::<f32>().unwrap();
    let random = |shape: [usize; 2]| Tensor::<2>::random(shape, Distribution::Default, &device);
    let (all, residual, vector) = (random([80, 24]), random([70, 24]), Tensor::<1>::ones([24], &device));
    let norm = || Norm { gamma: vector.clone(), beta: None, epsilon: 1e-12 };
    let operators: [&dyn Fn(Tensor<2>) -> Tensor<2>; 2] = [&|x| bias_gelu(x, vector.clone()), &|x| {
        add_layer_norm(x, Some(vector.clone()), residual.clone(), norm(), 0.0)
    }];
    for operator in operators {
        let alone = || Tensor::<2>::from_data(all.to_data(), &device);
        let x = all.clone().narrow(0, 3, 70);
        let expected = values(operator(x.clone()));
        assert_eq!(values(x), values(alone().narrow(0, 3, 70)), "the input changed");
        // Of a tensor that is gone, a part that does not begin where it did, and one whose rows are columns in memory.
        assert_eq!(values(operator(alone().narrow(0, 3, 70))), expected);
        let transposed = Tensor::<2>::from_data(all.clone().transpose().to_data(), &device).transpose();
        assert_eq!(values(operator(transposed.narrow(0, 3, 70))), expected);
    }
}
