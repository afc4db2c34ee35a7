//! `gradcheck` finds wrong gradients, passes right ones, and refuses what it cannot check.

mod right_gradients;
mod wrong_gradients;

use burn::module::{Module, Param};
use burn::nn::{DropoutConfig, LinearConfig};
use burn::prelude::*;
use burn::tensor::{DType, Distribution, FloatDType};
use burn_gradcheck::{GradCheck, GradCheckError, GradCheckReport, Probe};

fn device() -> Device {
    Device::default().autodiff()
}

fn random<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &device())
}

/// The report of a check without settings.
fn checked<M: Module>(module: &M, loss: impl Fn(&M, &Probe) -> Tensor<1>) -> GradCheckReport {
    GradCheck::new().run(module, loss).unwrap()
}

fn error(loss: impl Fn(Tensor<1>, &Probe) -> Tensor<1>) -> GradCheckError {
    GradCheck::new().run(&Param::from_tensor(random([4])), |x, probe| loss(x.val(), probe)).unwrap_err()
}

#[test]
fn a_loss_that_is_random_not_finite_or_no_scalar_of_the_graph_is_an_error() {
    let found = error(|x, _| x.mul_scalar(0.0).log().sum());
    assert!(matches!(found, GradCheckError::NotFinite { .. }), "{found}");
    let x = Param::from_tensor(Tensor::<1>::from_floats([1.0, 0.0], &device()));
    let found = GradCheck::new().run(&x, |x, _| (x.val() + 1e-9).log().sum()).unwrap_err();
    assert!(found.to_string().contains("[1]"), "{found}");
    assert_eq!(error(|x, _| x.narrow(0, 0, 2)), GradCheckError::NotScalar { found: 2 });
    let rounded = error(|x, _| x.cast(FloatDType::F32).sum());
    assert_eq!(rounded, GradCheckError::LossDtype { found: DType::F32, expected: DType::F64 });
    assert_eq!(error(|x, _| x.inner().sum()), GradCheckError::NoGraph);
    let dropout = DropoutConfig::new(0.5).init();
    let x = Param::from_tensor(random([64]));
    let found = GradCheck::new()
        .run(&(x, dropout), |(x, dropout), probe| probe.weighted_sum(dropout.forward(x.val())))
        .unwrap_err();
    assert!(matches!(found, GradCheckError::NotRepeatable { .. }));
    assert!(found.to_string().contains("dropout"));
}

#[test]
fn a_module_without_gradients_is_an_error_that_says_why() {
    let linear = LinearConfig::new(2, 2).init(&Device::default());
    let found = GradCheck::new().run(&linear, |linear, _| linear.weight.val().sum()).unwrap_err();
    assert_eq!(found, GradCheckError::NoAutodiff { path: "weight".into() });
    assert!(found.to_string().contains("device.autodiff()"));
    let linear = LinearConfig::new(2, 2).init(&device()).no_grad();
    let found = GradCheck::new().run(&linear, |linear, _| linear.weight.val().sum()).unwrap_err();
    assert_eq!(found, GradCheckError::NothingTrained);
    let dropout = DropoutConfig::new(0.5).init();
    let found = GradCheck::new().run(&dropout, |_, _| random([1])).unwrap_err();
    assert_eq!(found, GradCheckError::NothingTrained);
}

#[test]
fn errors_name_parameters_as_the_module_does_beside_an_input_too() {
    let pair = (Param::from_tensor(random([4])), Param::from_tensor(random([2])));
    let without_input = |path: &str, row| {
        let check = GradCheck::new().with_excluded_row(path, row, 0.0);
        check.run(&pair, |(x, _), _| x.val().sum()).unwrap_err()
    };
    assert!(
        matches!(without_input("weight", 0), GradCheckError::UnknownPath { known, .. } if known == "0, 1")
    );
    assert_eq!(without_input("0", 4), GradCheckError::NoSuchRow { path: "0".into(), row: 4, rows: 4 });
    let linear = LinearConfig::new(3, 2).init(&device());
    let excluding = |path: &str, row| {
        let check = GradCheck::new().with_excluded_row(path, row, 0.0);
        check.run_with_input(&linear, random([2, 3]), |_, x, _| x.sum()).unwrap_err()
    };
    assert!(matches!(excluding("0.weight", 0), GradCheckError::UnknownPath { path, known }
        if path == "0.weight" && known == "weight, bias, input"));
    assert_eq!(excluding("weight", 3), GradCheckError::NoSuchRow { path: "weight".into(), row: 3, rows: 3 });
    assert_eq!(excluding("input", 2), GradCheckError::NoSuchRow { path: "input".into(), row: 2, rows: 2 });
    let plain = LinearConfig::new(3, 2).init(&Device::default());
    let found = GradCheck::new().run_with_input(&plain, random([2, 3]), |_, x, _| x.sum()).unwrap_err();
    assert_eq!(found, GradCheckError::NoAutodiff { path: "weight".into() });
    let dropout = DropoutConfig::new(0.5).init();
    let x = Tensor::<1>::ones([2], &Device::default());
    let found = GradCheck::new().run_with_input(&dropout, x, |_, x, _| x.sum()).unwrap_err();
    assert_eq!(found, GradCheckError::NoAutodiff { path: "input".into() });
    let x = Tensor::<1>::from_floats([1.0, 0.0], &device());
    let found = GradCheck::new().run_with_input(&dropout, x, |_, x, _| (x + 1e-9).log().sum()).unwrap_err();
    assert!(found.to_string().contains("away from input [1]"), "{found}");
}

#[test]
fn a_step_or_tolerance_of_no_meaning_and_16_bits_are_errors() {
    let x = Param::from_tensor(random([4]));
    let rounded = "large enough to change";
    for (check, says) in [
        (GradCheck::new().with_step(0.0), ""),
        (GradCheck::new().with_step(f64::NAN), ""),
        // Rounding makes nothing of them.
        (GradCheck::new().with_step(1e-18), rounded),
        (GradCheck::new().with_step(1e-300), rounded),
        (GradCheck::new().with_tolerance(-1.0, 1e-5), ""),
        (GradCheck::new().with_tolerance(0.0, 0.0), ""),
    ] {
        let wrong = |x: &Param<Tensor<1>>, _: &Probe| (x.val() + x.val().detach()).sum();
        let found = check.run(&x, wrong).unwrap_err();
        assert!(matches!(found, GradCheckError::Setting { .. }), "{found}");
        assert!(found.to_string().contains(says), "{found}");
    }
    for dtype in [FloatDType::F16, FloatDType::BF16] {
        let x = Param::from_tensor(random([2]));
        let found = GradCheck::new().with_dtype(dtype).run(&x, |x, _| x.val().sum()).unwrap_err();
        assert_eq!(found, GradCheckError::Dtype { dtype: dtype.into() });
    }
}
