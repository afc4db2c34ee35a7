//! Shapes and dtypes of the results, for fusion's lazy devices, which queue the operator and run it later.

use crate::operator::dtype::computed_in;
use crate::operator::embed_layer_norm::input::{
    EmbedLayerNormGradientsMetadata, EmbedLayerNormMetadata, GradientMetadata, Needs, RowsMetadata,
};
use burn::backend::fusion::custom::TensorSpec;
use burn::tensor::Shape;

/// Of y, [B, S, H] in the dtype of the sum.
pub(crate) fn y(input: &EmbedLayerNormMetadata) -> TensorSpec {
    let [batch, seq] = input.shape;
    let dtype = summands(input).into_iter().flatten().next().unwrap_or(&input.gamma).dtype;
    TensorSpec::new(Shape::new([batch, seq, input.gamma.shape[0]]), dtype)
}

/// Of y, mean and rstd.
pub(crate) fn with_statistics(input: &EmbedLayerNormMetadata) -> (TensorSpec, TensorSpec, TensorSpec) {
    let [batch, seq] = input.shape;
    let y = y(input);
    let statistic = TensorSpec::new(Shape::new([batch, seq, 1]), computed_in(y.dtype));
    (y, statistic.clone(), statistic)
}

/// Of the gradients.
pub(crate) fn gradients(
    input: &EmbedLayerNormMetadata,
    _mean: &TensorSpec,
    _rstd: &TensorSpec,
    _grad: &TensorSpec,
    needs: &Needs,
) -> EmbedLayerNormGradientsMetadata {
    let [words, token_types, positions] = summands(input);
    let operands = [words, token_types, positions, Some(&input.gamma), Some(&input.beta)];
    let gradient = |i: usize| match operands[i].filter(|_| needs[i]) {
        Some(operand) => GradientMetadata::Of(operand.clone()),
        None => GradientMetadata::Absent,
    };
    EmbedLayerNormGradientsMetadata {
        words: gradient(0),
        token_types: gradient(1),
        positions: gradient(2),
        gamma: gradient(3),
        beta: gradient(4),
    }
}

/// The tables or vectors of the summands.
fn summands(input: &EmbedLayerNormMetadata) -> [Option<&TensorSpec>; 3] {
    [&input.words, &input.token_types, &input.positions].map(|rows| match rows {
        RowsMetadata::Absent => None,
        RowsMetadata::Lookup { table, .. }
        | RowsMetadata::Range { table, .. }
        | RowsMetadata::Row { table, .. } => Some(table),
        RowsMetadata::Values(values) => Some(values),
    })
}
