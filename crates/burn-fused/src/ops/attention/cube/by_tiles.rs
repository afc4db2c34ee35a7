//! Attention by the kernels of [`tiled`]: one launch forward, two backward. Bytes do not grow with L².

use super::tile::Tile;
use super::{Input, Setup, arguments, tiled};
use crate::cube::launch::{buffer, output, written};
use crate::engine::operator::Upstream;
use crate::ops::attention::AttentionOp;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::ir::{ElemType, FloatKind};
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::tensor::CubeTensor;
use std::sync::LazyLock;

/// The tiles of the three kernels.
pub(super) struct Tiles {
    forward: Tile,
    queries: Tile,
    keys: Tile,
}

/// What the environment asks for, on any device.
static CHOICE: LazyLock<Option<bool>> =
    LazyLock::new(|| match std::env::var("BURN_FUSED_ATTENTION").as_deref() {
        Ok("tiles") => Some(true),
        Ok("matmuls") => Some(false),
        _ => None,
    });

impl Setup<'_> {
    /// `None` where Burn's matmuls compute attention: where they reach matrix units, or a tile fits nowhere.
    pub(super) fn tiles(&self) -> Option<Tiles> {
        if !CHOICE.unwrap_or_else(|| !self.has_matrix_units()) {
            return None;
        }
        let hardware = &self.on.client.properties().hardware;
        let size = hardware.max_shared_memory_size / self.on.wide.size();
        let [.., columns] = self.dims;
        let tile =
            |heads: usize, logits: usize| Tile::fitting(columns, [heads, logits], size, self.on.max_units);
        // Beside weights, the forward shares what units found of a row: fewer values than a tile of logits has.
        Some(Tiles { forward: tile(2, 2)?, queries: tile(3, 1)?, keys: tile(4, 2)? })
    }

    /// Whether matmuls of rows of this dtype can run on tensor cores and the like: f32 as TF32.
    fn has_matrix_units(&self) -> bool {
        let operand = match self.input.operands {
            DType::F32 => ElemType::Float(FloatKind::TF32),
            dtype => dtype_to_elem_type(dtype),
        };
        let matmul = &self.on.client.properties().features.matmul;
        matmul.cmma.iter().chain(&matmul.mma).any(|units| units.a_type == operand)
    }

    /// Cubes of a launch, and tiles of the longest sequence.
    fn grid(&self, tile: Tile) -> [usize; 2] {
        let [batch, heads, longest, _] = self.dims;
        let tiles = longest.div_ceil(tile.rows());
        [batch * heads * tiles, tiles]
    }

    fn cube_dim(tile: Tile) -> CubeDim {
        CubeDim::new_1d((tile.side * tile.side) as u32)
    }

    fn biases(&self) -> [Option<BufferArg>; 3] {
        [0, 1, 2].map(|i| self.biases.get(i).cloned().map(buffer))
    }

    /// The dtypes of rows, of their biases, of the logits' bias and of the arithmetic.
    fn all_dtypes(&self) -> [ElemType; 4] {
        let [rows, of_bias, wide] = self.dtypes(self.on.float);
        [rows, dtype_to_elem_type(self.of_biases()), of_bias, wide]
    }

    /// O and the statistics.
    pub(super) fn forward_by_tiles(&self, tiles: Tiles) -> (CubeTensor, [CubeTensor; 2]) {
        let (on, tile, Input { query, key, value, .. }) = (&self.on, tiles.forward, self.input);
        let output = on.empty(query.meta.shape().clone(), on.float);
        let [batch, heads, longest, _] = self.dims;
        let statistics = [(); 2].map(|()| on.empty([batch, heads, longest, 1], on.wide));
        let [query_bias, key_bias, value_bias] = self.biases();
        let [cubes, of_head] = self.grid(tile);
        tiled::forward::launch(
            &on.client,
            on.cubes(cubes),
            Self::cube_dim(tile),
            on.address_type,
            buffer(query.clone()),
            buffer(key.clone()),
            buffer(value.clone()),
            query_bias.into(),
            key_bias.into(),
            value_bias.into(),
            self.scores(),
            on.mask(&self.input.dropout).into(),
            written(&output),
            arguments(statistics.clone()),
            of_head,
            cubes,
            tile,
            self.all_dtypes(),
        );
        (output, statistics)
    }

    /// The gradients of the rows and, if it is asked for, of the logits' bias.
    pub(super) fn backward_by_tiles(
        &self,
        tiles: Tiles,
        upstream: Upstream<AttentionOp, CubeBackend>,
        of_bias: bool,
    ) -> ([Option<CubeTensor>; 3], Option<CubeTensor>) {
        let Upstream { statistics: [max, inverse_sum, context], grad, .. } = upstream;
        let (on, Input { query, key, value, .. }) = (&self.on, self.input);
        let [query_grad, key_grad, value_grad] =
            [(); 3].map(|()| on.empty(query.meta.shape().clone(), on.float));
        let along = on.empty(max.meta.shape().clone(), on.wide);
        let [query_bias, key_bias, value_bias] = self.biases();
        let [cubes, of_head] = self.grid(tiles.queries);
        tiled::backward_of_queries::launch(
            &on.client,
            on.cubes(cubes),
            Self::cube_dim(tiles.queries),
            on.address_type,
            buffer(query.clone()),
            buffer(key.clone()),
            buffer(value.clone()),
            query_bias.into(),
            key_bias.into(),
            value_bias.into(),
            buffer(context),
            buffer(grad.clone()),
            self.scores(),
            on.mask(&self.input.dropout).into(),
            arguments([max.clone(), inverse_sum.clone()]),
            written(&along),
            written(&query_grad),
            of_head,
            cubes,
            tiles.queries,
            self.all_dtypes(),
        );
        let bias = self.bias.as_ref().filter(|_| of_bias);
        // The kernel writes no place past a sequence's end.
        let bias_grad = bias.map(|bias| on.zeros(bias.meta.shape().clone(), bias.dtype));
        let [query_bias, key_bias, value_bias] = self.biases();
        let [cubes, of_head] = self.grid(tiles.keys);
        tiled::backward_of_keys::launch(
            &on.client,
            on.cubes(cubes),
            Self::cube_dim(tiles.keys),
            on.address_type,
            buffer(query.clone()),
            buffer(key.clone()),
            buffer(value.clone()),
            query_bias.into(),
            key_bias.into(),
            value_bias.into(),
            buffer(grad),
            self.scores(),
            on.mask(&self.input.dropout).into(),
            arguments([max, inverse_sum]),
            buffer(along),
            written(&key_grad),
            written(&value_grad),
            output(&bias_grad).into(),
            of_head,
            cubes,
            tiles.keys,
            self.all_dtypes(),
        );
        ([query_grad, key_grad, value_grad].map(Some), bias_grad)
    }
}
