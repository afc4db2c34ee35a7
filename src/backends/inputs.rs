//! What kernels ask of their inputs.

use crate::ops::{EmbedLayerNorm, Path, Rows};
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::DType;

/// The three summands, and what a message calls the index of each.
pub(crate) fn summands<B: Backend>(input: &EmbedLayerNorm<B>) -> [(&'static str, &Rows<B>); 3] {
    [("input_ids", &input.words), ("token_type_ids", &input.token_types), ("position_ids", &input.positions)]
}

/// The dtype that all float inputs share, unless there is nothing to compute or kernels are not wanted.
pub(crate) fn kernel_dtype<B: Backend>(input: &EmbedLayerNorm<B>) -> Option<DType> {
    let dtype = input.gamma.dtype();
    let floats = || summands(input).into_iter().filter_map(|(_, rows)| rows.source()).chain([&input.gamma]);
    let alike = floats().chain([&input.beta]).all(|tensor| tensor.dtype() == dtype);
    let empty = input.shape.contains(&0) || floats().any(|tensor| tensor.shape()[0] == 0);
    (alike && !empty && input.path == Path::Fused).then_some(dtype)
}

/// Panics unless every summand has a row for every token, as far as shapes tell.
pub(crate) fn assert_fits<B: Backend>(input: &EmbedLayerNorm<B>) {
    let [batch, seq] = input.shape;
    let hidden = input.gamma.shape()[0];
    for (name, rows) in summands(input) {
        let Some(source) = rows.source() else { continue };
        let shape = source.shape();
        let needed = match rows {
            Rows::Absent => 0,
            Rows::Lookup { ids, .. } => {
                let [sequences, length] = ids.shape().dims();
                assert!(
                    (sequences == batch || sequences == 1) && length == seq,
                    "{name}: ids of shape [{sequences}, {length}] do not fit a batch of [{batch}, {seq}]"
                );
                0
            }
            Rows::Range { first, .. } => first + seq,
            Rows::Row { row, .. } => row + 1,
            Rows::Values(_) => batch * seq,
        };
        let found = shape.num_elements() / hidden.max(1);
        assert!(found >= needed, "{name}: row {} is needed, but there are {found}", needed - 1);
        assert_eq!(shape[shape.num_dims() - 1], hidden, "{name}: the length of a row, against gamma's");
    }
}
