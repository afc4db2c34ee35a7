//! ε under the root of LayerNorm.

use crate::error::{Error, Result};
use crate::operator::dtype::computed_in;
use burn::module::{Content, DisplaySettings, ModuleDisplay};
use burn::nn::LayerNorm;
use burn::tensor::DType;

/// Whether ε is above 0 in the dtype that the statistics over tables of `dtype` are computed in.
///
/// Were it 0, a constant row would be divided by 0.
pub(crate) fn check_epsilon(epsilon: f64, dtype: DType) -> Result<()> {
    let invalid = |problem| Err(Error::Config { field: "layer_norm_eps", problem });
    if !(epsilon.is_finite() && epsilon > 0.0) {
        return invalid(format!("is {epsilon}, but must be finite and above 0"));
    }
    let statistics = computed_in(dtype);
    if statistics == DType::F32 && epsilon < f64::from(f32::MIN_POSITIVE) {
        let smallest = f32::MIN_POSITIVE;
        return invalid(format!(
            "is {epsilon:e}, but statistics are computed in {statistics:?}, whose smallest normal number is \
             {smallest:.1e}"
        ));
    }
    Ok(())
}

/// ε of a LayerNorm. Burn keeps the field private; what the module displays is exact.
///
/// # Panics
///
/// If Burn's LayerNorm no longer displays its `epsilon`.
pub(crate) fn layer_norm_epsilon(norm: &LayerNorm) -> f64 {
    let content = norm.custom_content(Content::new(DisplaySettings::new()));
    let attributes = content.map(|content| content.attributes).unwrap_or_default();
    let epsilon = attributes.into_iter().find(|attribute| attribute.name == "epsilon");
    epsilon.and_then(|epsilon| epsilon.value.parse().ok()).expect("LayerNorm displays its epsilon")
}
