//! What is asked of the operator's inputs.

use crate::operator::embed_layer_norm::EmbedLayerNorm;
use crate::operator::embed_layer_norm::rows::Rows;
use burn::backend::{Backend, TensorMetadata};

/// The three summands, and what a message calls the index of each.
pub(crate) fn summands<B: Backend>(input: &EmbedLayerNorm<B>) -> [(&'static str, &Rows<B>); 3] {
    [("input_ids", &input.words), ("token_type_ids", &input.token_types), ("position_ids", &input.positions)]
}

/// Panics unless every summand has a row of length H for every token, gamma and beta are of that length, and padding
/// indices have a row.
pub(crate) fn assert_fits<B: Backend>(input: &EmbedLayerNorm<B>) {
    let [batch, seq] = input.shape;
    let [hidden] = input.gamma.shape().dims();
    assert_eq!(input.beta.shape().dims(), [hidden], "beta must have the shape of gamma");
    for (name, rows) in summands(input) {
        let (source, needed) = match rows {
            Rows::Absent => continue,
            Rows::Values(values) => {
                let expected = [batch, seq, hidden];
                assert_eq!(values.shape().dims(), expected, "{name} must have shape [B, S, H]");
                continue;
            }
            Rows::Lookup { table, ids, padding_idx } => {
                let [sequences, length] = ids.shape().dims();
                assert!(
                    (sequences == batch || sequences == 1) && length == seq,
                    "{name}: ids of shape [{sequences}, {length}] do not fit a batch of [{batch}, {seq}]"
                );
                if let Some(pad) = padding_idx {
                    let rows = table.shape()[0];
                    assert!(*pad < rows, "{name}: the padding index is {pad}, but there are {rows} rows");
                }
                (table, 0)
            }
            Rows::Range { table, first } => (table, first + seq),
            Rows::Row { table, row } => (table, row + 1),
        };
        let [found, length] = source.shape().dims();
        assert!(found >= needed, "{name}: row {} is needed, but there are {found}", needed - 1);
        assert_eq!(length, hidden, "{name}: rows must be as long as gamma");
    }
}
