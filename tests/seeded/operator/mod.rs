//! What the operator promises beyond its arithmetic, on every device that is compiled in: padding, frozen and adapted
//! tables, dropout's mask.

mod dropout;
mod dtypes;
mod gradients;
mod refused;

use crate::tolerance::Tolerance;
use burn::prelude::*;
use burn::tensor::Distribution;

/// A device, and how exact it is in f32.
struct Case {
    device: Device,
    tolerance: Tolerance,
    /// For sums over tokens.
    sums: Tolerance,
}

fn weights(shape: [usize; 3], device: &Device) -> Tensor<3> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

macro_rules! on {
    ($name:ident, $tolerance:expr, $sums:expr, [$($file:ident::$test:ident,)*]) => {
        mod $name {
            $(
                #[test]
                fn $test() {
                    let device = crate::devices::$name();
                    crate::operator::$file::$test(&crate::operator::Case { device, tolerance: $tolerance, sums: $sums });
                }
            )*
        }
    };
}

macro_rules! every_test {
    ($name:ident, $tolerance:expr, $sums:expr) => {
        on!(
            $name,
            $tolerance,
            $sums,
            [
                gradients::pad_row_gradient_is_exactly_zero_for_any_number_of_pads,
                gradients::frozen_tables_get_no_gradient_and_change_nobody_elses,
                gradients::gradient_flows_through_a_table_that_is_computed,
                gradients::gradients_are_the_same_under_checkpointing,
                dtypes::quantised_tensors_give_what_they_dequantise_to,
                dtypes::quantised_module_gives_what_it_dequantises_to,
                dtypes::gradients_come_back_in_the_dtype_of_their_parameter,
                dropout::share_of_kept_values_is_right_in_every_call_and_every_column,
                dropout::neighbouring_calls_rows_and_columns_do_not_correlate,
                dropout::backward_drops_what_the_forward_dropped,
                dropout::mask_does_not_depend_on_the_dtype,
                refused::shapes_that_do_not_fit_are_refused,
                refused::dropout_outside_its_range_is_refused,
            ]
        );
    };
}

#[cfg(feature = "flex")]
every_test!(flex, crate::tolerance::F32, crate::tolerance::F32_SUM);

#[cfg(feature = "ndarray")]
every_test!(ndarray, crate::tolerance::F32, crate::tolerance::F32_SUM);

#[cfg(feature = "wgpu")]
every_test!(wgpu, crate::tolerance::GPU, crate::tolerance::GPU);

#[cfg(feature = "cpu")]
every_test!(cpu, crate::tolerance::GPU, crate::tolerance::GPU);
