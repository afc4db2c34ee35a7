//! The layer's arithmetic on tensors, without a module.

use crate::operator::device::is_listed;
use crate::operator::dropout::Dropout;
use crate::operator::embed_layer_norm::check::assert_fits;
use crate::operator::embed_layer_norm::input as ops;
use crate::operator::embed_layer_norm::ops::EmbeddingOps;
use crate::operator::embed_layer_norm::reference;
use burn::backend::Dispatch;
use burn::nn::DropoutConfig;
use burn::prelude::*;

/// One of the three summands of [`embed_layer_norm`]: where each token's vector comes from.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // three are made per forward; boxing them would cost more
pub enum Rows {
    /// Nothing is added.
    Absent,
    /// Row `ids[b, s]` of `table`.
    Lookup {
        /// The table, [V, H].
        table: Tensor<2>,
        /// [B, S], or [1, S] for all sequences alike.
        ids: Tensor<2, Int>,
        /// The row that is read like any other and gets no gradient.
        padding_idx: Option<usize>,
    },
    /// Row `first + s` of `table`: consecutive positions, the same in every sequence.
    Range {
        /// The table, [V, H].
        table: Tensor<2>,
        /// The row of token 0.
        first: usize,
    },
    /// One row of `table` for every token.
    Row {
        /// The table, [V, H].
        table: Tensor<2>,
        /// The row, below V.
        row: usize,
    },
    /// Vectors of the caller's own, [B, S, H].
    Values(Tensor<3>),
}

/// LayerNorm over the last axis; an argument of [`embed_layer_norm`] and
/// [`add_layer_norm`](crate::functional::add_layer_norm).
#[derive(Clone, Debug)]
pub struct Norm {
    /// The scale, `[H]`.
    pub gamma: Tensor<1>,
    /// The shift, `[H]`; `None` is zero.
    pub beta: Option<Tensor<1>>,
    /// ε under the root.
    pub epsilon: f64,
}

/// `Dropout(LayerNorm(words + token_types + positions))` in one pass, with a backward of its own.
///
/// The arithmetic, and its gradient, are those of [`EmbeddingOps`]. Dropout is active as Burn's is: on an
/// autodiff device, with `dropout` > 0. Its mask comes from the device's seed stream, so
/// [`Device::seed`] makes it reproducible; it is computed again in the backward and never stored.
///
/// Quantised tensors are dequantised as a whole first, and get no gradient.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::functional::{Norm, Rows, embed_layer_norm};
///
/// let device = Device::default();
/// let table = Tensor::from_floats([[1.0, 3.0], [5.0, 5.0]], &device);
/// let ids = Tensor::from_ints([[0, 1]], &device);
/// let words = Rows::Lookup { table, ids, padding_idx: None };
/// let norm = Norm { gamma: Tensor::ones([2], &device), beta: None, epsilon: 1e-12 };
/// let y = embed_layer_norm([1, 2], [words, Rows::Absent, Rows::Absent], norm, 0.0);
/// let y: Vec<f32> = y.into_data().try_into_vec().unwrap();
/// assert_eq!(y, [-1.0, 1.0, 0.0, 0.0]);
/// ```
///
/// # Shapes
///
/// - `shape`: [B, S]
/// - `[words, token_types, positions]`: each [B, S, H] once looked up; ids are [B, S], or [1, S] for all sequences
/// - output: [B, S, H]
///
/// # Devices
///
/// A remote device runs what its worker's device does.
///
/// Flex and the CubeCL devices (wgpu, Vulkan, Metal, WebGPU, CUDA, ROCm, cpu) have kernels. NdArray runs the
/// reference with a backward that saves as little, and so does a CubeCL device if dtypes are mixed or it has too
/// few buffer bindings; every other device runs it with Burn's backward. On devices that are not
/// named here, dropout's mask is Burn's own. [`on_reference_path`](crate::functional::on_reference_path) runs the reference everywhere.
///
/// # Panics
///
/// If shapes do not fit, a padding index has no row in its table, or `dropout` is not in [0, 1). Flex's kernel also
/// panics if an id has no row in its table; everything else takes the nearest row. Memory outside the table is never
/// read.
pub fn embed_layer_norm(shape: [usize; 2], rows: [Rows; 3], norm: Norm, dropout: f64) -> Tensor<3> {
    let Norm { gamma, beta, epsilon } = norm;
    let gamma = gamma.dequantize();
    let beta = beta.map_or_else(|| Tensor::zeros_like(&gamma), Tensor::dequantize);
    let (gamma, beta) = (gamma.into_dispatch(), beta.into_dispatch());
    let input = ops::EmbedLayerNorm::new(shape, rows.map(primitive), gamma, beta, epsilon);
    assert_fits(&input);
    let floats = [&input.words, &input.token_types, &input.positions].map(ops::Rows::source);
    match Dropout::choose(dropout, floats.into_iter().flatten().chain([&input.gamma])) {
        Some(dropout) => run(ops::EmbedLayerNorm { dropout, ..input }),
        None => DropoutConfig::new(dropout).init().forward(run(input)),
    }
}

fn run(input: ops::EmbedLayerNorm<Dispatch>) -> Tensor<3> {
    Tensor::from_dispatch(if is_listed(&input.gamma.kind) {
        Dispatch::embed_layer_norm(input)
    } else {
        reference::embed_layer_norm::<Dispatch>(input)
    })
}

/// A summand as the backends take it: dequantised.
fn primitive(rows: Rows) -> ops::Rows<Dispatch> {
    match rows {
        Rows::Absent => ops::Rows::Absent,
        Rows::Lookup { table, ids, padding_idx } => ops::Rows::Lookup {
            table: table.dequantize().into_dispatch(),
            ids: ids.into_dispatch(),
            padding_idx,
        },
        Rows::Range { table, first } => ops::Rows::Range { table: table.dequantize().into_dispatch(), first },
        Rows::Row { table, row } => ops::Rows::Row { table: table.dequantize().into_dispatch(), row },
        Rows::Values(values) => ops::Rows::Values(values.dequantize().into_dispatch()),
    }
}

/// `table[ids]`, [B, S] → [B, S, H]: the reference's lookup, which never leaves the table.
pub(crate) fn lookup(table: Tensor<2>, ids: Tensor<2, Int>, padding_idx: Option<usize>) -> Tensor<3> {
    let table = table.dequantize().into_dispatch();
    Tensor::from_dispatch(reference::lookup::<Dispatch>(&table, &ids.into_dispatch(), padding_idx))
}
