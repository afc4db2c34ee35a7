//! A backward pass with an error in it does not pass.

use super::{checked, device, random};
use burn::module::Param;
use burn::nn::{EmbeddingConfig, LinearConfig};
use burn::prelude::*;
use burn::tensor::{Distribution, FloatDType};
use burn_gradcheck::{Coverage, GradCheck, GradCheckReport, Place};

fn check<const D: usize>(shape: [usize; D], function: impl Fn(Tensor<D>) -> Tensor<D>) -> GradCheckReport {
    checked(&Param::from_tensor(random(shape)), |x, probe| probe.weighted_sum(function(x.val())))
}

/// y = x forward, `factor` times the gradient backward: an operator with a broken backward.
fn scaled_gradient<const D: usize>(x: Tensor<D>, factor: f64) -> Tensor<D> {
    x.clone().mul_scalar(factor) + x.detach().mul_scalar(1.0 - factor)
}

fn layer_norm(x: Tensor<2>, cut: impl Fn(Tensor<2>) -> Tensor<2>) -> Tensor<2> {
    let centred = x.clone() - cut(x.mean_dim(1));
    let variance = centred.clone().square().mean_dim(1);
    centred / (variance + 1e-12).sqrt()
}

fn is_caught(report: GradCheckReport) {
    assert!(!report.passes(), "{report}");
    let text = std::panic::catch_unwind(|| report.assert_passes()).unwrap_err();
    let text = text.downcast_ref::<String>().expect("a message");
    assert!(text.contains("FAIL"), "{text}");
}

#[test]
fn a_wrong_gradient_of_an_input_is_caught_whichever_device_the_input_lies_on() {
    let plain = Tensor::random([2, 3], Distribution::Normal(0.0, 1.0), &Device::default());
    for x in [random([2, 3]), plain] {
        let linear = LinearConfig::new(3, 2).init(&device());
        let report = GradCheck::new()
            .run_with_input(&linear, x, |linear, x, probe| {
                probe.weighted_sum(linear.forward(scaled_gradient(x, 2.0)))
            })
            .unwrap();
        assert!(report.parameter("weight").unwrap().passed, "{report}");
        let input = report.parameter("input").unwrap();
        assert_eq!(input.coverage, Coverage::Entries(6));
        is_caught(report);
    }
}

#[test]
fn a_gradient_that_is_doubled_or_of_the_wrong_sign_or_off_by_a_part_in_ten_thousand_is_caught() {
    check([3, 4], |x| scaled_gradient(x, 1.0)).assert_passes();
    for factor in [2.0, -1.0, 1.0001] {
        is_caught(check([3, 4], |x| scaled_gradient(x, factor)));
    }
}

/// Of a bias after the first steps of fine-tuning, beside a loss of this size.
fn small_parameter_in_f32(factor: f64, loss: f64) -> GradCheckReport {
    let bias = Param::from_tensor(Tensor::<1>::from_floats([2e-5, -2e-5, 1e-5], &device()));
    let check = GradCheck::new().with_dtype(FloatDType::F32);
    check.run(&bias, |x, _| scaled_gradient(x.val(), factor).tanh().sum().add_scalar(loss)).unwrap()
}

#[test]
fn a_halved_gradient_of_a_small_parameter_is_caught_in_f32() {
    small_parameter_in_f32(1.0, 10.0).assert_passes();
    is_caught(small_parameter_in_f32(0.5, 10.0));
}

#[test]
fn a_gradient_that_the_rounding_of_the_loss_hides_does_not_pass_and_the_report_says_why() {
    for factor in [1.0, 0.5] {
        let report = small_parameter_in_f32(factor, 1000.0);
        let found = &report.parameters[0];
        assert!(found.lost_in_rounding && !found.passed && !report.passes(), "{report}");
        assert!(report.to_string().lines().nth(2).unwrap().ends_with("LOST IN ROUNDING"), "{report}");
        let text = std::panic::catch_unwind(|| report.assert_passes()).unwrap_err();
        let text = text.downcast_ref::<String>().expect("a message");
        let expected =
            "gradients are lost in the rounding of the loss: make the loss smaller, or check in f64\n";
        assert!(text.starts_with(expected), "{text}");
    }
}

#[test]
fn a_missing_gradient_a_detached_loss_and_a_backward_without_a_term_are_caught() {
    let pair = (Param::from_tensor(random([3])), Param::from_tensor(random([3])));
    let report = checked(&pair, |(a, b), probe| probe.weighted_sum(a.val() * b.val().detach()));
    assert!(report.parameter("0").unwrap().passed);
    let cut = report.parameter("1").unwrap();
    assert!(!cut.passed && !cut.has_gradient);
    is_caught(report);
    is_caught(check([3], |x| x.detach()));
    check([3, 5], |x| layer_norm(x, |mean| mean)).assert_passes();
    is_caught(check([3, 5], |x| layer_norm(x, |mean| mean.detach())));
}

#[test]
fn a_plain_sum_hides_an_error_that_a_weighted_sum_shows() {
    let wrong = |x: Tensor<2>| scaled_gradient(layer_norm(x, |mean| mean), 2.0);
    let x = Param::from_tensor(random([3, 5]));
    checked(&x, |x, _| wrong(x.val()).sum()).assert_passes();
    is_caught(checked(&x, |x, probe| probe.weighted_sum(wrong(x.val()))));
}

#[test]
fn one_wrong_entry_among_a_million_is_found_and_named() {
    let spike = Tensor::<2>::zeros([2000, 500], &device()).slice_fill([1234..1235, 321..322], 1.0);
    let table = Param::from_tensor(random([2000, 500]));
    let report = checked(&table, |table, probe| {
        let x = table.val();
        let extra = (x.clone() - x.clone().detach()) * probe.constant(spike.clone());
        probe.weighted_sum(x.square() + extra)
    });
    assert_eq!(report.parameters[0].coverage, Coverage::Directions(8));
    let worst = report.parameters[0].worst.clone().expect("a comparison");
    assert_eq!(worst.place, Place::Entry(vec![1234, 321]), "{report}");
    is_caught(report);
}

#[test]
fn a_gradient_that_is_not_a_number_is_caught() {
    // The gradient of √x is infinite at 0 and 0·∞ is not a number; the loss is 0 all along.
    let x = Param::from_tensor(Tensor::<1>::zeros([2], &device()));
    let report =
        checked(&x, |x, probe| probe.weighted_sum(x.val() + x.val().mul_scalar(0.0).abs().sqrt() * 0.0));
    assert!(report.parameters[0].max_absolute_error.is_nan(), "{report}");
    is_caught(report);
}

/// 0 forward; its gradient overflows to infinity.
fn infinite_gradient<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    (x.clone() - x.detach()).mul_scalar(1e200).mul_scalar(1e200)
}

#[test]
fn an_infinite_gradient_is_caught_and_named() {
    for sign in [1.0, -1.0] {
        let x = Param::from_tensor(random([3]));
        let report = checked(&x, |x, _| (x.val() + infinite_gradient(x.val()).mul_scalar(sign)).sum());
        let x = &report.parameters[0];
        assert_eq!((x.max_absolute_error, x.max_relative_error), (f64::INFINITY, f64::INFINITY), "{report}");
        let worst = x.worst.clone().expect("a comparison");
        assert_eq!((worst.place, worst.analytic), (Place::Entry(vec![0]), sign * f64::INFINITY));
        is_caught(report);
    }
}

#[test]
fn one_infinite_entry_of_a_large_table_is_found_and_named() {
    for place in [3, 1996] {
        let table = Param::from_tensor(random([2000]));
        let report = checked(&table, |table, probe| {
            let x = table.val();
            let entry = x.clone().narrow(0, place, 1);
            probe.weighted_sum(x.square()) + infinite_gradient(entry).sum()
        });
        let worst = report.parameters[0].worst.clone().expect("a comparison");
        assert_eq!(worst.place, Place::Entry(vec![place]), "{report}");
        is_caught(report);
    }
}

#[test]
fn a_padding_row_that_gets_a_gradient_is_caught() {
    let table = EmbeddingConfig::new(5, 3).init(&device());
    let ids = Tensor::<2, Int>::from_ints([[0, 2, 4], [1, 0, 2]], &device());
    let report = GradCheck::new()
        .with_excluded_row("weight", 0, 0.0)
        .run(&table, |table, probe| probe.weighted_sum(table.forward(ids.clone())))
        .unwrap();
    assert!(report.parameters[0].passed && !report.excluded_rows[0].passed, "{report}");
    is_caught(report);
}

#[test]
fn the_entry_of_an_excluded_row_that_is_furthest_from_what_is_expected_is_named() {
    let x = Param::from_tensor(random([2, 4]));
    let gradients = Tensor::<2>::from_floats([[3.0, 1.0, 5.0, 4.9], [1.0, 1.0, 1.0, 1.0]], &device());
    let report = GradCheck::new()
        .with_excluded_row("", 0, 2.0)
        .run(&x, |x, probe| (x.val() * probe.constant(gradients.clone())).sum())
        .unwrap();
    assert_eq!(report.excluded_rows[0].furthest, (2, 5.0), "{report}");
}
