//! CubeCL's devices, in two ways: by [tiles](by_tiles), with no [L, L] in memory, and by Burn's autotuned
//! [matmuls](by_matmuls), where those reach matrix units, which the kernels of the first do not.

mod by_matmuls;
mod by_tiles;
mod kernels;
mod tile;
mod tiled;

use super::{Attention, AttentionOp};
use crate::cube::launch::{RowLaunch, buffer, contiguous, int_tensor, output};
use crate::cube::row::Split;
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use burn::backend::cubecl::dtype_to_elem_type;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::ir::ElemType;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::tensor::CubeTensor;
use kernels::{HeadsLaunch, ScoresLaunch, StatisticsLaunch};

type Input = Attention<CubeBackend>;

/// Buffers that a launch binds at most, CubeCL's own for sizes and scalars among them.
const BINDINGS: u32 = 18;

/// The launches for one input.
struct Setup<'a> {
    input: &'a Input,
    /// On the rows of logits [B · A · L, L].
    on: RowLaunch,
    /// [B, A, L, d].
    dims: [usize; 4],
    bias: Option<CubeTensor>,
    /// Of query, key and value, if one of them has a bias.
    biases: Vec<CubeTensor>,
}

impl<'a> Setup<'a> {
    /// `None` for inputs that the kernels do not take, or that the device has too few bindings for.
    fn new(input: &'a Input) -> Option<Self> {
        let (batch, heads, longest) = (input.lengths.len(), input.heads, input.longest());
        let [_, hidden] = input.query.meta.shape().dims();
        let dims = [batch, heads, longest, hidden / heads];
        let Attention { query, key, value, query_bias, key_bias, value_bias, bias, .. } = input;
        let mut on = RowLaunch::of(&[query, key, value], [batch * heads * longest, longest], BINDINGS)?;
        let biases = [query_bias, key_bias, value_bias];
        if let Some(bias) = bias {
            on.of_vectors([bias])?;
        }
        let biases = match biases.iter().copied().flatten().next() {
            None => Vec::new(),
            Some(first) => {
                on.of_vectors(biases.iter().copied().flatten())?;
                let zeros = || on.zeros(first.meta.shape().clone(), first.dtype);
                biases.map(|bias| bias.clone().unwrap_or_else(zeros)).into()
            }
        };
        // A power of two: a kernel is compiled for each split, and lengths vary from batch to batch.
        let units = on.max_units.min((16 * longest.div_ceil(64)).next_power_of_two());
        on.split = Split::new(longest, units);
        // `fill` writes up to four tensors to one buffer.
        on.address_type = on.address_type.max(AddressType::from_len(4 * dims.iter().product::<usize>()));
        Some(Self {
            input,
            on,
            dims,
            bias: bias.clone().map(|bias| contiguous(bias.clone(), bias.dtype)),
            biases,
        })
    }

    fn heads(&self) -> HeadsLaunch {
        let [_, heads, longest, columns] = self.dims;
        HeadsLaunch::new(int_tensor(self.input.starts.clone()), heads, longest, columns)
    }

    /// The dtype of the biases of rows.
    fn of_biases(&self) -> DType {
        self.biases.first().map_or(self.on.float, |bias| bias.dtype)
    }

    /// Of values in `dtype`, of the logits' bias and of the arithmetic.
    fn dtypes(&self, dtype: DType) -> [ElemType; 3] {
        let of_bias = self.bias.as_ref().map_or(self.on.float, |bias| bias.dtype);
        [dtype, of_bias, self.on.wide].map(dtype_to_elem_type)
    }

    fn scores<V: Float>(&self) -> ScoresLaunch<V> {
        let bias = output(&self.bias);
        ScoresLaunch::new(self.on.scalar(self.input.scale), bias.into(), self.heads())
    }

    /// The gradients of the biases of rows, of those that are asked for: the sums of the rows' gradients.
    fn sums(&self, rows: &[Option<CubeTensor>; 3], needs: [bool; 3]) -> [Option<CubeTensor>; 3] {
        let needed =
            rows.iter().zip(needs).filter(|(_, needed)| *needed).filter_map(|(rows, _)| rows.clone());
        let on = RowLaunch::new(&self.input.query, self.input.query.meta.shape().dims());
        let mut sums = on.sums_of_rows(needed.collect(), self.of_biases()).into_iter();
        needs.map(|needed| if needed { sums.next() } else { None })
    }
}

fn arguments<W: Float>([max, inverse_sum]: [CubeTensor; 2]) -> StatisticsLaunch<W> {
    StatisticsLaunch::new(buffer(max), buffer(inverse_sum))
}

impl Kernels<CubeBackend> for AttentionOp {
    fn forward(input: Input) -> Output<Self, CubeBackend> {
        let Some(setup) = Setup::new(&input) else { return Self::reference(input) };
        let (output, [max, inverse_sum]) = match setup.tiles() {
            Some(tiles) => setup.forward_by_tiles(tiles),
            None => setup.forward_by_matmuls(),
        };
        (output.clone(), [max, inverse_sum, output])
    }

    fn backward(input: Input, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        let Some(setup) = Setup::new(&input) else { return Self::reference_backward(input, upstream) };
        let needs @ [of_query, of_key, of_value, of_biases @ .., of_bias] = upstream.needs;
        // A bias's gradient is the sum of its rows'.
        let computed = [of_query || of_biases[0], of_key || of_biases[1], of_value || of_biases[2]];
        let of_bias = of_bias && setup.bias.is_some();
        let (rows, bias) = match setup.tiles() {
            Some(tiles) => setup.backward_by_tiles(tiles, upstream, of_bias),
            None => setup.backward_by_matmuls(upstream, computed, of_bias),
        };
        let sums = setup.sums(&rows, of_biases);
        let rows = rows.into_iter().zip(needs).map(|(rows, needed)| rows.filter(|_| needed));
        rows.chain(sums).chain([bias]).collect()
    }
}
