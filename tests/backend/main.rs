//! One behaviour suite, run on every device that is compiled in.
//!
//! Each behaviour is written once, as a function of a device and its tolerance; the list below makes a test of
//! it on every device, and on devices with kernels of their own a second one without them.
//! `cargo test --test backend -- wgpu::` runs one device's, `-- wgpu::fused::` those with its kernels.

mod case;
mod errors;
mod golden;
mod models;
mod randomness;
mod results;
#[path = "../support/mod.rs"]
mod support;
mod training;

use support::*;

macro_rules! tests {
    ($name:ident, $path:path, $device:expr, $tolerance:expr, [$($($needs:literal)? $file:ident::$behaviour:ident,)*]) => {
        mod $name {
            $(
                #[test]
                $(
                    #[cfg_attr(
                        not(any(
                            all(feature = "flex", any(feature = "ndarray", feature = "wgpu", feature = "cpu")),
                            all(feature = "ndarray", any(feature = "wgpu", feature = "cpu")),
                            all(feature = "wgpu", feature = "cpu"),
                        )),
                        ignore = $needs
                    )]
                )?
                fn $behaviour() {
                    let case = crate::case::Case { device: $device, tolerance: $tolerance };
                    $path(|| crate::$file::$behaviour(&case));
                }
            )*
        }
    };
}

macro_rules! every_behaviour {
    ($name:ident, $path:path, $device:expr, $tolerance:expr) => {
        tests!(
            $name,
            $path,
            $device,
            $tolerance,
            [
                results::outputs_gradients_and_ten_steps_of_adamw_equal_hugging_faces,
                results::ids_of_every_int_dtype_give_the_same_values_and_gradients,
                results::a_lookup_returns_the_rows_bit_for_bit,
                results::a_row_that_is_looked_up_8192_times_gets_the_sum_of_its_gradients,
                results::attention_has_the_values_and_gradients_of_the_reference_up_to_rounding_in_every_dtype,
                randomness::dropout_is_the_identity_bit_for_bit_outside_training,
                randomness::the_same_seed_gives_the_same_bits,
                randomness::a_new_table_is_normal_with_a_zero_padding_row,
                errors::an_id_without_a_row_is_named_with_its_place,
                errors::a_sequence_past_the_position_table_is_an_error,
                errors::shapes_that_do_not_fit_are_errors,
                "needs a second device, such as ndarray's feature" errors::a_batch_on_another_device_is_an_error,
                errors::labels_of_an_input_that_was_replaced_are_refused,
                errors::autodiff_makes_no_other_device,
                errors::an_id_that_is_not_checked_takes_the_nearest_row_of_a_table_of_its_own,
                errors::a_dtype_that_the_device_does_not_compute_in_is_refused_by_name,
                training::a_zero_padding_row_stays_zero_under_adamw_and_no_used_row_stays,
                training::records_and_clones_keep_their_values_while_training_goes_on,
                training::a_record_saved_here_loads_on_every_device,
                training::a_parameter_that_two_fields_share_is_clipped_once,
                training::gradients_of_every_dtype_are_clipped_by_one_norm,
                training::a_gradient_that_is_not_a_number_reaches_all_that_are_clipped_beside_it,
                "needs a second device, such as ndarray's feature" training::a_batch_moves_between_devices_with_what_is_known_of_it,
                models::every_head_equals_transformers,
                models::a_training_step_in_16_bits_has_the_gradients_of_f64_up_to_rounding_or_is_refused,
                models::sentence_embeddings_equal_sentence_transformers,
            ]
        );
    };
}

/// A device with kernels: every behaviour with them, and without.
macro_rules! both_paths {
    ($name:ident, $device:expr, $tolerance:expr) => {
        mod $name {
            every_behaviour!(fused, crate::on_fused_path, $device, $tolerance);
            every_behaviour!(reference, burn_bert::functional::on_reference_path, $device, $tolerance);
        }
    };
}

#[cfg(feature = "flex")]
both_paths!(flex, crate::devices::flex(), crate::tolerance::F32);
#[cfg(feature = "ndarray")]
every_behaviour!(ndarray, crate::on_fused_path, crate::devices::ndarray(), crate::tolerance::F32);
#[cfg(feature = "wgpu")]
both_paths!(wgpu, crate::devices::wgpu(), crate::tolerance::GPU);
#[cfg(feature = "vulkan")]
both_paths!(vulkan, crate::devices::vulkan(), crate::tolerance::GPU);
#[cfg(feature = "cuda")]
both_paths!(cuda, crate::devices::cuda(), crate::tolerance::GPU);
#[cfg(feature = "rocm")]
both_paths!(rocm, crate::devices::rocm(), crate::tolerance::GPU);
#[cfg(feature = "cpu")]
both_paths!(cpu, crate::devices::cpu(), crate::tolerance::GPU);

/// The path that the device takes by itself.
fn on_fused_path(behaviour: impl FnOnce()) {
    behaviour();
}
