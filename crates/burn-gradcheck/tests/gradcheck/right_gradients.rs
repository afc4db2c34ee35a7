//! Burn's own modules pass, and the report says what was compared.

use super::{checked, device, random};
use burn::module::{Lora, Module, Param};
use burn::nn::{LayerNormConfig, LinearConfig};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use burn_gradcheck::{Coverage, GradCheck, GradCheckReport, Probe};

#[test]
fn burns_linear_passes_in_f64_with_its_input() {
    let linear = LinearConfig::new(7, 5).init(&device());
    let report = GradCheck::new()
        .run_with_input(&linear, random([4, 7]), |linear, x, probe| probe.weighted_sum(linear.forward(x)))
        .unwrap();
    report.assert_passes();
    assert_eq!(report.dtype, DType::F64);
    let checked: Vec<_> = report.parameters.iter().map(|p| (p.path.as_str(), p.coverage)).collect();
    let expected =
        [("weight", Coverage::Entries(35)), ("bias", Coverage::Entries(5)), ("input", Coverage::Entries(28))];
    assert_eq!(checked, expected);
}

#[test]
fn burns_layer_norm_passes_with_its_input_behind_a_linear_layer_in_f32_too() {
    for (features, dtype) in
        [(2, FloatDType::F64), (3, FloatDType::F64), (17, FloatDType::F64), (8, FloatDType::F32)]
    {
        let norm =
            LayerNormConfig::new(features).with_epsilon(if dtype == FloatDType::F64 { 1e-12 } else { 1e-5 });
        let pair = (LinearConfig::new(6, features).init(&device()), norm.init(&device()));
        let report = GradCheck::new()
            .with_dtype(dtype)
            .run_with_input(&pair, random([3, 6]), |(linear, norm), x, probe| {
                probe.weighted_sum(norm.forward(linear.forward(x)))
            })
            .unwrap();
        report.assert_passes();
        assert_eq!(report.dtype, dtype.into());
    }
}

#[test]
fn a_parameter_that_two_fields_share_is_varied_in_both_and_an_unused_one_has_a_difference_of_zero() {
    let shared = LinearConfig::new(4, 4).with_bias(false).init(&device());
    let pair = (shared.clone(), shared);
    let x = random([3, 4]);
    let report = checked(&pair, |(first, second), probe| {
        probe.weighted_sum(second.forward(first.forward(probe.constant(x.clone())).tanh()))
    });
    report.assert_passes();
    assert_eq!(report.parameters.len(), 1);
    let pair = (LinearConfig::new(3, 2).init(&device()), LinearConfig::new(3, 2).init(&device()));
    let x = random([2, 3]);
    let report =
        checked(&pair, |(used, _), probe| probe.weighted_sum(used.forward(probe.constant(x.clone()))));
    report.assert_passes();
    let unused = report.parameter("1.weight").unwrap();
    assert!(!unused.has_gradient && unused.max_absolute_error == 0.0);
}

#[test]
fn a_parameter_by_itself_has_no_path_with_an_input_and_without() {
    let weight = Param::from_tensor(random([3, 2]));
    let x = random([2, 3]);
    let alone =
        checked(&weight, |weight, probe| probe.weighted_sum(probe.constant(x.clone()).matmul(weight.val())));
    let check = GradCheck::new().with_excluded_row("", 1, 0.0).with_excluded_row("input", 0, 0.0);
    let beside = check
        .run_with_input(&weight, x.clone(), |weight, x, probe| probe.weighted_sum(x.matmul(weight.val())))
        .unwrap();
    let paths = |report: &GradCheckReport| -> Vec<String> {
        report.parameters.iter().map(|parameter| parameter.path.clone()).collect()
    };
    assert_eq!(paths(&alone), [""]);
    assert_eq!(paths(&beside), ["", "input"]);
    let excluded: Vec<_> = beside.excluded_rows.iter().map(|row| (row.path.as_str(), row.row)).collect();
    assert_eq!(excluded, [("", 1), ("input", 0)]);
}

#[test]
fn lora_adapters_are_checked_and_their_base_is_listed_as_frozen() {
    let module = LinearConfig::new(6, 5).init(&device()).apply_lora(Lora::new(2, 4.0));
    let x = random([3, 6]);
    let report = checked(&module, |module, probe| {
        probe.weighted_sum(module.forward(probe.constant(x.clone())).tanh())
    });
    report.assert_passes();
    let frozen = report.parameter("weight").unwrap();
    assert_eq!((frozen.coverage, &frozen.worst), (Coverage::Frozen, &None));
    assert!(report.to_string().contains("frozen"), "{report}");
    let adapters = report.parameters.iter().filter(|p| p.path.starts_with("weight.")).collect::<Vec<_>>();
    assert_eq!(adapters.len(), 2, "{report}");
    assert!(adapters.iter().all(|p| matches!(p.coverage, Coverage::Entries(_)) && p.has_gradient));
}

#[test]
fn the_report_is_the_same_every_time_and_has_an_aligned_line_for_each_parameter() {
    let linear = LinearConfig::new(3, 2).init(&device());
    let report = GradCheck::new()
        .with_excluded_row("weight", 1, 0.0)
        .run_with_input(&linear, random([2, 3]), |linear, x, probe| probe.weighted_sum(linear.forward(x)))
        .unwrap();
    let text = report.to_string();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    let starts = ["parameter", "weight", "  row 1", "bias", "input"];
    assert_eq!(lines.len(), starts.len(), "{text}");
    let verdict =
        |line: &str| line.chars().count() - line.split(' ').next_back().map_or(0, |w| w.chars().count());
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{text}");
        assert_eq!(verdict(line), verdict(lines[0]), "{text}");
    }
    let x = Param::from_tensor(random([30, 50]));
    let run = || checked(&x, |x, probe| probe.weighted_sum(x.val().tanh()));
    assert_eq!(run(), run());
}

#[test]
fn what_a_large_loss_rounds_away_is_no_error() {
    // Losses near 1e9 are 1e-7 apart in f64: their quotients are off by up to 1e-2.
    let x = Param::from_tensor(random([5]));
    let report = checked(&x, |x, probe| probe.weighted_sum(x.val()).add_scalar(1e9));
    let x = &report.parameters[0];
    assert!(x.max_absolute_error > 1e-4 && x.worst.is_some(), "{report}");
    report.assert_passes();
}

#[test]
fn the_rounding_of_the_loss_is_in_the_tolerance_of_each_parameter_and_in_the_table() {
    let pair = (
        Param::from_tensor(Tensor::<1>::from_floats([0.02, -0.02], &device())),
        Param::from_tensor(Tensor::<1>::from_floats([1.0, -1.0], &device())),
    );
    let report = |dtype| {
        let check = GradCheck::new().with_dtype(dtype);
        check.run(&pair, |(a, b), _| (a.val() * b.val()).sum().add_scalar(1000.0)).unwrap()
    };
    let in_f32 = report(FloatDType::F32);
    let [small, large] = &in_f32.parameters[..] else { panic!("{in_f32}") };
    // 1e-3 + 4·2⁻²³·1000 / h, for h = 2e-4 and 1e-2.
    assert!((2.3..2.5).contains(&small.tolerance.absolute), "{in_f32}");
    assert!((0.04..0.06).contains(&large.tolerance.absolute), "{in_f32}");
    assert_eq!((small.tolerance.relative, in_f32.tolerance.absolute), (1e-2, 1e-3));
    let line = in_f32.to_string().lines().nth(2).unwrap().to_owned();
    assert!(line.contains("2.4e0"), "{line}");
    let in_f64 = report(FloatDType::F64);
    assert!(in_f64.parameters.iter().all(|p| (1e-7..2e-6).contains(&p.tolerance.absolute)), "{in_f64}");
}

#[test]
fn a_large_parameter_whose_rows_are_all_excluded_is_reported_as_not_compared() {
    let pair = (Param::from_tensor(random([2, 3])), Param::from_tensor(random([3])));
    for max_entries in [1, 1024] {
        let report = GradCheck::new()
            .with_max_entries(max_entries)
            .with_excluded_row("0", 0, 1.0)
            .with_excluded_row("0", 1, 1.0)
            .run(&pair, |(table, x), _| table.val().sum() + x.val().sum())
            .unwrap();
        let table = &report.parameters[0];
        assert_eq!((table.coverage, &table.worst), (Coverage::Entries(0), &None), "{report}");
        assert!(report.to_string().lines().nth(2).unwrap().ends_with("not compared"), "{report}");
        report.assert_passes();
    }
}

#[test]
fn a_parameter_of_more_entries_than_asked_for_is_checked_along_directions() {
    let pair = (Param::from_tensor(random([40, 50])), Param::from_tensor(random([4])));
    let coverage = |check: GradCheck| {
        let loss = |(table, vector): &(Param<Tensor<2>>, Param<Tensor<1>>), probe: &Probe| {
            probe.weighted_sum(table.val().tanh()) + probe.weighted_sum(vector.val().square())
        };
        let report = check.run(&pair, loss).unwrap();
        report.assert_passes();
        [&report.parameters[0], &report.parameters[1]].map(|parameter| parameter.coverage)
    };
    use Coverage::{Directions, Entries};
    assert_eq!(coverage(GradCheck::new().with_directions(3)), [Directions(3), Entries(4)]);
    assert_eq!(coverage(GradCheck::new().with_max_entries(4)), [Directions(8), Entries(4)]);
    assert_eq!(coverage(GradCheck::new().with_max_entries(3)), [Directions(8); 2]);
    assert_eq!(coverage(GradCheck::new().with_max_entries(3).with_directions(0)), [Directions(1); 2]);
}

#[test]
fn no_difference_is_no_relative_error_without_an_absolute_tolerance() {
    let x = Param::from_tensor(random([3]));
    let check = GradCheck::new().with_tolerance(0.0, 1e-5);
    let report = check.run(&x, |x, _| x.val().mul_scalar(0.0).sum()).unwrap();
    report.assert_passes();
    assert_eq!(report.parameters[0].max_relative_error, 0.0, "{report}");
}
