//! `gradcheck` finds wrong gradients, passes right ones, and refuses what it cannot check.

use burn::module::{Lora, Module, Param};
use burn::nn::{DropoutConfig, EmbeddingConfig, LayerNormConfig, LinearConfig};
use burn::prelude::*;
use burn::tensor::{DType, Distribution, FloatDType};
use burn_gradcheck::{Coverage, GradCheck, GradCheckError, GradCheckReport, Place, Probe};

fn device() -> Device {
    Device::default().autodiff()
}

fn random<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &device())
}

fn check<const D: usize>(
    shape: [usize; D],
    function: impl Fn(Tensor<D>) -> Tensor<D>,
) -> Result<GradCheckReport, GradCheckError> {
    GradCheck::new().run(&Param::from_tensor(random(shape)), |x, probe| probe.weighted_sum(function(x.val())))
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

mod wrong_gradients {
    use super::*;

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
    fn an_operator_that_is_its_own_inverse_backward_passes() {
        check([3, 4], |x| scaled_gradient(x, 1.0)).unwrap().assert_passes();
    }

    #[test]
    fn a_doubled_gradient_is_caught() {
        is_caught(check([3, 4], |x| scaled_gradient(x, 2.0)).unwrap());
    }

    #[test]
    fn a_flipped_sign_is_caught() {
        is_caught(check([3, 4], |x| scaled_gradient(x, -1.0)).unwrap());
    }

    #[test]
    fn a_gradient_that_is_off_by_a_part_in_ten_thousand_is_caught() {
        is_caught(check([3, 4], |x| scaled_gradient(x, 1.0001)).unwrap());
    }

    #[test]
    fn a_missing_gradient_is_caught() {
        let pair = (Param::from_tensor(random([3])), Param::from_tensor(random([3])));
        let report = GradCheck::new()
            .run(&pair, |(a, b), probe| probe.weighted_sum(a.val() * b.val().detach()))
            .unwrap();
        assert!(report.parameter("0").unwrap().passed);
        let cut = report.parameter("1").unwrap();
        assert!(!cut.passed && !cut.has_gradient);
        is_caught(report);
    }

    #[test]
    fn a_loss_that_was_detached_as_a_whole_is_caught() {
        is_caught(check([3], |x| x.detach()).unwrap());
    }

    #[test]
    fn a_layer_norm_backward_without_its_mean_term_is_caught() {
        check([3, 5], |x| layer_norm(x, |mean| mean)).unwrap().assert_passes();
        is_caught(check([3, 5], |x| layer_norm(x, |mean| mean.detach())).unwrap());
    }

    #[test]
    fn a_plain_sum_hides_an_error_that_a_weighted_sum_shows() {
        let wrong = |x: Tensor<2>| scaled_gradient(layer_norm(x, |mean| mean), 2.0);
        let x = Param::from_tensor(random([3, 5]));
        GradCheck::new().run(&x, |x, _| wrong(x.val()).sum()).unwrap().assert_passes();
        is_caught(GradCheck::new().run(&x, |x, probe| probe.weighted_sum(wrong(x.val()))).unwrap());
    }

    #[test]
    fn one_wrong_entry_among_a_million_is_found_and_named() {
        let spike = Tensor::<2>::zeros([2000, 500], &device()).slice_fill([1234..1235, 321..322], 1.0);
        let table = Param::from_tensor(random([2000, 500]));
        let report = GradCheck::new()
            .run(&table, |table, probe| {
                let x = table.val();
                let extra = (x.clone() - x.clone().detach()) * probe.constant(spike.clone());
                probe.weighted_sum(x.square() + extra)
            })
            .unwrap();
        assert_eq!(report.parameters[0].coverage, Coverage::Directions(8));
        let worst = report.parameters[0].worst.clone().expect("a comparison");
        assert_eq!(worst.place, Place::Entry(vec![1234, 321]), "{report}");
        is_caught(report);
    }

    #[test]
    fn a_gradient_that_is_not_a_number_is_caught() {
        // The gradient of √x is infinite at 0 and 0·∞ is not a number; the loss is 0 all along.
        let x = Param::from_tensor(Tensor::<1>::zeros([2], &device()));
        let report = GradCheck::new()
            .run(&x, |x, probe| probe.weighted_sum(x.val() + x.val().mul_scalar(0.0).abs().sqrt() * 0.0))
            .unwrap();
        assert!(report.parameters[0].max_absolute_error.is_nan(), "{report}");
        is_caught(report);
    }

    #[test]
    fn a_padding_row_that_gets_a_gradient_is_caught() {
        let table = EmbeddingConfig::new(5, 3).init(&device());
        let ids = Tensor::<2, Int>::from_ints([[0, 2, 4], [1, 0, 2]], &device());
        let report = GradCheck::new()
            .exclude_row("weight", 0, 0.0)
            .run(&table, |table, probe| probe.weighted_sum(table.forward(ids.clone())))
            .unwrap();
        assert!(report.parameters[0].passed && !report.excluded_rows[0].passed, "{report}");
        is_caught(report);
    }
}

mod right_gradients {
    use super::*;

    #[test]
    fn burns_linear_passes_in_f64_with_its_input() {
        let linear = LinearConfig::new(7, 5).init(&device());
        let report = GradCheck::new()
            .run_with_input(&linear, random([4, 7]), |linear, x, probe| probe.weighted_sum(linear.forward(x)))
            .unwrap();
        report.assert_passes();
        assert_eq!(report.dtype, DType::F64);
        let checked: Vec<_> = report.parameters.iter().map(|p| (p.path.as_str(), p.coverage)).collect();
        let expected = [
            ("weight", Coverage::Entries(35)),
            ("bias", Coverage::Entries(5)),
            ("input", Coverage::Entries(28)),
        ];
        assert_eq!(checked, expected);
    }

    #[test]
    fn burns_layer_norm_passes_in_f64_with_its_input() {
        for features in [2, 3, 17] {
            let norm = LayerNormConfig::new(features).with_epsilon(1e-12).init(&device());
            GradCheck::new()
                .run_with_input(&norm, random([2, 3, features]), |norm, x, probe| {
                    probe.weighted_sum(norm.forward(x))
                })
                .unwrap()
                .assert_passes();
        }
    }

    #[test]
    fn burns_linear_and_layer_norm_pass_in_f32() {
        let pair = (LinearConfig::new(6, 8).init(&device()), LayerNormConfig::new(8).init(&device()));
        let report = GradCheck::new()
            .dtype(FloatDType::F32)
            .run_with_input(&pair, random([3, 6]), |(linear, norm), x, probe| {
                probe.weighted_sum(norm.forward(linear.forward(x)))
            })
            .unwrap();
        report.assert_passes();
        assert_eq!(report.dtype, DType::F32);
    }

    #[test]
    fn a_table_too_large_for_every_entry_is_checked_along_directions() {
        let linear = LinearConfig::new(300, 200).init(&device());
        let x = random([2, 300]);
        let report = GradCheck::new()
            .directions(3)
            .run(&linear, |linear, probe| {
                probe.weighted_sum(linear.forward(probe.constant(x.clone())).tanh())
            })
            .unwrap();
        report.assert_passes();
        assert_eq!(report.parameter("weight").unwrap().coverage, Coverage::Directions(3));
        assert_eq!(report.parameter("bias").unwrap().coverage, Coverage::Entries(200));
    }

    #[test]
    fn a_parameter_that_two_fields_share_is_varied_in_both() {
        let shared = LinearConfig::new(4, 4).with_bias(false).init(&device());
        let pair = (shared.clone(), shared);
        let x = random([3, 4]);
        let report = GradCheck::new()
            .run(&pair, |(first, second), probe| {
                probe.weighted_sum(second.forward(first.forward(probe.constant(x.clone())).tanh()))
            })
            .unwrap();
        report.assert_passes();
        assert_eq!(report.parameters.len(), 1);
    }

    #[test]
    fn a_parameter_by_itself_has_no_path_with_an_input_and_without() {
        let weight = Param::from_tensor(random([3, 2]));
        let x = random([2, 3]);
        let alone = GradCheck::new()
            .run(&weight, |weight, probe| probe.weighted_sum(probe.constant(x.clone()).matmul(weight.val())))
            .unwrap();
        let check = GradCheck::new().exclude_row("", 1, 0.0).exclude_row("input", 0, 0.0);
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
    fn a_frozen_parameter_is_listed_and_not_checked() {
        let linear = LinearConfig::new(3, 2).init(&device());
        let linear =
            burn::nn::Linear { bias: linear.bias.map(|bias| bias.set_require_grad(false)), ..linear };
        let x = random([2, 3]);
        let report = GradCheck::new()
            .run(&linear, |linear, probe| probe.weighted_sum(linear.forward(probe.constant(x.clone()))))
            .unwrap();
        report.assert_passes();
        let bias = report.parameter("bias").unwrap();
        assert_eq!((bias.coverage, &bias.worst), (Coverage::Frozen, &None));
        assert!(report.to_string().contains("frozen"), "{report}");
    }

    #[test]
    fn lora_adapters_are_checked_and_their_base_is_listed_as_frozen() {
        let module = LinearConfig::new(6, 5).init(&device()).apply_lora(Lora::new(2, 4.0));
        let x = random([3, 6]);
        let report = GradCheck::new()
            .run(&module, |module, probe| {
                probe.weighted_sum(module.forward(probe.constant(x.clone())).tanh())
            })
            .unwrap();
        report.assert_passes();
        assert_eq!(report.parameter("weight").unwrap().coverage, Coverage::Frozen);
        let adapters = report.parameters.iter().filter(|p| p.path.starts_with("weight.")).collect::<Vec<_>>();
        assert_eq!(adapters.len(), 2, "{report}");
        assert!(adapters.iter().all(|p| matches!(p.coverage, Coverage::Entries(_)) && p.has_gradient));
    }

    #[test]
    fn a_parameter_that_the_loss_does_not_use_has_a_difference_of_zero() {
        let pair = (LinearConfig::new(3, 2).init(&device()), LinearConfig::new(3, 2).init(&device()));
        let x = random([2, 3]);
        let report = GradCheck::new()
            .run(&pair, |(used, _), probe| probe.weighted_sum(used.forward(probe.constant(x.clone()))))
            .unwrap();
        report.assert_passes();
        let unused = report.parameter("1.weight").unwrap();
        assert!(!unused.has_gradient && unused.max_absolute_error == 0.0);
    }

    #[test]
    fn the_report_is_the_same_every_time() {
        let x = Param::from_tensor(random([30, 50]));
        let run = || GradCheck::new().run(&x, |x, probe| probe.weighted_sum(x.val().tanh())).unwrap();
        assert_eq!(run(), run());
    }

    #[test]
    fn the_table_has_a_line_for_each_parameter_with_aligned_columns() {
        let linear = LinearConfig::new(3, 2).init(&device());
        let report = GradCheck::new()
            .exclude_row("weight", 1, 0.0)
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
    }
}

mod what_cannot_be_checked {
    use super::*;

    fn error(loss: impl Fn(Tensor<1>, &Probe) -> Tensor<1>) -> GradCheckError {
        GradCheck::new().run(&Param::from_tensor(random([4])), |x, probe| loss(x.val(), probe)).unwrap_err()
    }

    #[test]
    fn a_random_loss_is_an_error_that_speaks_of_dropout() {
        let dropout = DropoutConfig::new(0.5).init();
        let x = Param::from_tensor(random([64]));
        let found = GradCheck::new()
            .run(&(x, dropout), |(x, dropout), probe| probe.weighted_sum(dropout.forward(x.val())))
            .unwrap_err();
        assert!(matches!(found, GradCheckError::NotRepeatable { .. }));
        assert!(found.to_string().contains("dropout"));
    }

    #[test]
    fn a_loss_that_is_not_finite_is_an_error() {
        let found = error(|x, _| x.mul_scalar(0.0).log().sum());
        assert!(matches!(found, GradCheckError::NotFinite { .. }), "{found}");
    }

    #[test]
    fn a_loss_that_is_not_finite_next_door_is_an_error_that_names_the_entry() {
        let x = Param::from_tensor(Tensor::<1>::from_floats([1.0, 0.0], &device()));
        let found = GradCheck::new().run(&x, |x, _| (x.val() + 1e-9).log().sum()).unwrap_err();
        assert!(found.to_string().contains("[1]"), "{found}");
    }

    #[test]
    fn a_loss_with_two_values_is_an_error() {
        let found = error(|x, _| x.narrow(0, 0, 2));
        assert_eq!(found, GradCheckError::NotScalar { found: 2 });
    }

    #[test]
    fn a_loss_that_was_rounded_to_f32_is_an_error() {
        let found = error(|x, _| x.cast(FloatDType::F32).sum());
        assert_eq!(found, GradCheckError::LossDtype { found: DType::F32, expected: DType::F64 });
    }

    #[test]
    fn a_loss_without_a_graph_is_an_error() {
        assert_eq!(error(|x, _| x.inner().sum()), GradCheckError::NoGraph);
    }

    #[test]
    fn a_module_on_a_plain_device_is_an_error_that_says_how_to_get_gradients() {
        let linear = LinearConfig::new(2, 2).init(&Device::default());
        let found = GradCheck::new().run(&linear, |linear, _| linear.weight.val().sum()).unwrap_err();
        assert_eq!(found, GradCheckError::NoAutodiff { path: "weight".into() });
        assert!(found.to_string().contains("device.autodiff()"));
    }

    #[test]
    fn a_module_with_nothing_to_train_is_an_error() {
        let linear = LinearConfig::new(2, 2).init(&device()).no_grad();
        let found = GradCheck::new().run(&linear, |linear, _| linear.weight.val().sum()).unwrap_err();
        assert_eq!(found, GradCheckError::NothingTrained);
        let dropout = DropoutConfig::new(0.5).init();
        let found = GradCheck::new().run(&dropout, |_, _| random([1])).unwrap_err();
        assert_eq!(found, GradCheckError::NothingTrained);
    }

    #[test]
    fn sixteen_bit_floats_are_refused() {
        for dtype in [FloatDType::F16, FloatDType::BF16] {
            let x = Param::from_tensor(random([2]));
            let found = GradCheck::new().dtype(dtype).run(&x, |x, _| x.val().sum()).unwrap_err();
            assert_eq!(found, GradCheckError::Dtype { dtype: dtype.into() });
        }
    }

    #[test]
    fn a_row_excluded_by_a_wrong_name_or_number_is_an_error() {
        let x = Param::from_tensor(random([4]));
        let run = |path: &str, row| {
            let pair = (x.clone(), Param::from_tensor(random([2])));
            GradCheck::new().exclude_row(path, row, 0.0).run(&pair, |(x, _), _| x.val().sum()).unwrap_err()
        };
        assert!(matches!(run("weight", 0), GradCheckError::UnknownPath { known, .. } if known == "0, 1"));
        assert_eq!(run("0", 4), GradCheckError::NoSuchRow { path: "0".into(), row: 4, rows: 4 });
    }

    #[test]
    fn beside_an_input_errors_name_parameters_as_the_module_does() {
        let linear = LinearConfig::new(3, 2).init(&device());
        let excluding = |path: &str, row| {
            let check = GradCheck::new().exclude_row(path, row, 0.0);
            check.run_with_input(&linear, random([2, 3]), |_, x, _| x.sum()).unwrap_err()
        };
        assert!(matches!(excluding("0.weight", 0), GradCheckError::UnknownPath { path, known }
            if path == "0.weight" && known == "weight, bias, input"));
        assert_eq!(
            excluding("weight", 3),
            GradCheckError::NoSuchRow { path: "weight".into(), row: 3, rows: 3 }
        );
        assert_eq!(
            excluding("input", 2),
            GradCheckError::NoSuchRow { path: "input".into(), row: 2, rows: 2 }
        );
        let plain = LinearConfig::new(3, 2).init(&Device::default());
        let found = GradCheck::new().run_with_input(&plain, random([2, 3]), |_, x, _| x.sum()).unwrap_err();
        assert_eq!(found, GradCheckError::NoAutodiff { path: "weight".into() });
        let dropout = DropoutConfig::new(0.5).init();
        let x = Tensor::<1>::ones([2], &Device::default());
        let found = GradCheck::new().run_with_input(&dropout, x, |_, x, _| x.sum()).unwrap_err();
        assert_eq!(found, GradCheckError::NoAutodiff { path: "input".into() });
        let x = Tensor::<1>::from_floats([1.0, 0.0], &device());
        let found =
            GradCheck::new().run_with_input(&dropout, x, |_, x, _| (x + 1e-9).log().sum()).unwrap_err();
        assert!(found.to_string().contains("away from input [1]"), "{found}");
    }

    #[test]
    fn a_step_or_tolerance_of_no_meaning_is_an_error() {
        let x = Param::from_tensor(random([4]));
        for check in [
            GradCheck::new().step(0.0),
            GradCheck::new().step(f64::NAN),
            GradCheck::new().tolerance(-1.0, 1e-5),
            GradCheck::new().tolerance(0.0, 0.0),
        ] {
            let found = check.run(&x, |x, _| x.val().sum()).unwrap_err();
            assert!(matches!(found, GradCheckError::Setting { .. }), "{found}");
        }
    }
}
