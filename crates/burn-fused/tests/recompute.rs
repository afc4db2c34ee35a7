//! Parts of a model that the backward computes again.

use burn::module::Param;
use burn::prelude::*;
use burn::tensor::Gradients;
use burn_fused::{Error, Norm, add_layer_norm, recomputed, recomputed_anywhere, with_one_draw};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const HIDDEN: usize = 6;

/// `LayerNorm(x + Dropout(x + bias))`, with the sum of all biases.
#[derive(Module, Debug)]
struct Part {
    biases: Vec<Param<Tensor<1>>>,
}

impl Part {
    fn new(biases: usize, device: &Device) -> Self {
        let bias = |i| Tensor::from_floats([0.1 * i as f32; HIDDEN], device);
        Self { biases: (0..biases).map(|i| Param::from_tensor(bias(i))).collect() }
    }

    fn compute(&self, x: Tensor<2>, calls: &Arc<AtomicUsize>) -> Tensor<2> {
        calls.fetch_add(1, Ordering::Relaxed);
        let bias = self.biases.iter().map(Param::val).reduce(|sum, bias| sum + bias).unwrap();
        let gamma = Tensor::arange(1..HIDDEN as i64 + 1, &x.device()).float();
        add_layer_norm(x.clone(), Some(bias), x, Norm { gamma, beta: None, epsilon: 1e-6 }, 0.4)
    }
}

/// What two parts behind a layer give with the seeds of one draw, the gradients, and how often the parts were computed.
fn run(biases: usize, device: &Device) -> (Vec<f32>, Vec<Vec<f32>>, usize) {
    device.seed(7);
    let parts = [Part::new(biases, device), Part::new(biases, device)];
    let x = Tensor::<2>::from_floats([[0.5, 2.0, -1.0, 0.0, 3.0, 1.0]; 5], device);
    let calls = Arc::new(AtomicUsize::new(0));
    let y = with_one_draw(3, || {
        // As a model's embeddings: the first seeds are drawn outside the parts.
        let x = parts[0].compute(x, &Arc::default());
        parts.iter().fold(x, |x, part| recomputed(part, x, &calls, |part, x, calls| part.compute(x, calls)))
    });
    let gradients: Gradients = y.clone().powf_scalar(3.0).sum().backward();
    let of =
        |bias: &Param<Tensor<1>>| bias.val().grad(&gradients).unwrap().into_data().try_into_vec().unwrap();
    let found = parts.iter().flat_map(|part| &part.biases).map(of).collect();
    (y.into_data().try_into_vec().unwrap(), found, calls.load(Ordering::Relaxed))
}

#[test]
fn parts_with_dropout_and_any_number_of_parameters_are_computed_again_under_gradient_checkpointing() {
    for biases in [1, 31, 32, 700] {
        let (y, gradients, calls) = run(biases, &Device::flex().autodiff());
        assert_eq!(calls, 2);
        let (again, of_again, calls) = run(biases, &Device::flex().autodiff().gradient_checkpointing());
        assert_eq!((y, gradients), (again, of_again), "{biases} parameters");
        assert_eq!(calls, 4, "{biases} parameters");
    }
}

#[test]
fn more_parameters_than_a_step_can_have_are_an_error() {
    let device = Device::flex().autodiff();
    let part = Part::new(4096, &device);
    let x = Tensor::zeros([2, HIDDEN], &device);
    let compute = |part: &Part, x, calls: &_| Ok::<_, Error>(part.compute(x, calls));
    let error = recomputed_anywhere(&part, x, &Arc::default(), compute).unwrap_err();
    assert_eq!(error, Error::TooManyParameters { found: 4096, most: 4095 });
}
