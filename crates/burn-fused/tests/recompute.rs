//! Parts of a model that the backward computes again.

use burn::module::{Param, ParamId};
use burn::prelude::*;
use burn::tensor::Gradients;
use burn_fused::{Error, Norm, add_layer_norm, drop_out, recomputed, recomputed_anywhere, with_one_draw};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const HIDDEN: usize = 6;

/// Tests draw from the generator of one device, one at a time.
fn with_generator() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    let _guard = with_generator();
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

/// Devices on which [`recomputed_anywhere`] is a step of the graph.
fn devices() -> [Device; 2] {
    [Device::flex().autodiff(), Device::flex().autodiff().gradient_checkpointing()]
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}

#[test]
fn parts_within_parts_drop_out_the_same_values_in_the_backward() {
    type Nothing = Vec<Param<Tensor<1>>>;
    fn inner(_: &Nothing, x: Tensor<2>, _: &()) -> Result<Tensor<2>, Error> {
        Ok(drop_out(x, 0.5))
    }
    fn outer(nothing: &Nothing, x: Tensor<2>, _: &()) -> Result<Tensor<2>, Error> {
        let x = recomputed_anywhere(nothing, drop_out(x, 0.5), &(), inner)?;
        Ok(drop_out(recomputed_anywhere(nothing, x, &(), inner)?, 0.5))
    }
    let _guard = with_generator();
    for device in devices() {
        let x = Tensor::<2>::ones([64, 32], &device).require_grad();
        let y = recomputed_anywhere(&Nothing::new(), x.clone(), &(), outer).unwrap();
        let gradients = y.clone().sum().backward();
        // The mask itself, as x is 1: powers of two.
        assert!(values(x.grad(&gradients).unwrap()) == values(y), "{device:?}");
    }
}

#[test]
fn a_tensor_with_a_gradient_reaches_a_part_in_its_module_and_not_in_its_context() {
    type Both = (Param<Tensor<1>>, Param<Tensor<2>>);
    for device in devices() {
        let weight = || Param::from_tensor(Tensor::<1>::from_floats([2.0, 3.0], &device));
        let x = Tensor::<2>::from_floats([[1.0, -1.0], [0.5, 4.0]], &device).require_grad();
        let leaf = Tensor::<2>::from_floats([[5.0, 6.0]], &device).require_grad();
        let multiply = |weight: &Param<Tensor<1>>, x: Tensor<2>, other: &Tensor<2>| {
            Ok::<_, Error>(x * weight.val().unsqueeze() * other.clone())
        };
        // One that has nothing to do with x, and one of its graph.
        for hidden in [leaf.clone(), x.clone() * 2.0] {
            let error = recomputed_anywhere(&weight(), x.clone(), &hidden, multiply).unwrap_err();
            assert_eq!(error, Error::HiddenOperand);
        }
        let constant = Tensor::from_floats([[7.0, 8.0]], &device);
        let y = recomputed_anywhere(&weight(), x.clone(), &constant, multiply).unwrap();
        assert_eq!(values(x.grad(&y.sum().backward()).unwrap()), [14.0, 24.0, 14.0, 24.0]);

        let shared = leaf.clone() * 10.0;
        let both: Both = (weight(), Param::initialized(ParamId::new(), shared));
        let y = recomputed_anywhere(&both, x.clone(), &(), |(weight, shared), x, ()| {
            Ok::<_, Error>(x * weight.val().unsqueeze() * shared.val())
        });
        let gradients = y.unwrap().sum().backward();
        assert_eq!(values(leaf.grad(&gradients).unwrap()), [30.0, 90.0]);
    }
}

#[test]
#[should_panic(expected = "drops out other values in its backward than in its forward")]
fn a_part_that_drops_out_more_values_in_its_backward_panics() {
    let _guard = with_generator();
    let x = Tensor::<2>::ones([2, 3], &Device::flex().autodiff()).require_grad();
    let y = recomputed_anywhere(
        &Part { biases: Vec::new() },
        x,
        &Arc::new(AtomicUsize::new(1)),
        |_, x, calls| {
            let count = calls.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Error>((0..count).fold(x, |x, _| drop_out(x, 0.5)))
        },
    );
    y.unwrap().sum().backward();
}
