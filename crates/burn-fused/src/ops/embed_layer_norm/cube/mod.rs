//! CubeCL's devices: the kernels of `cube/layer_norm.rs`, with rows of tables as summands.
//!
//! The forward is one launch. The backward is one, and one or two for each gradient that is asked for; four for a table that
//! is looked up by id, with one more for each factor of eight in tokens beyond 1,024.

mod scatter;

pub(super) use scatter::scatter;

use crate::cube::launch::{RowLaunch, address_type};
use crate::cube::layer_norm::{SummandsLaunch, source};
use crate::engine::inputs::OperatorInputs;
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use crate::ops::embed_layer_norm::{EmbedLayerNorm, EmbedLayerNormOp, Index, Summand, summands};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::cast;
use scatter::scatter_cyclic;

type Input = EmbedLayerNorm<CubeBackend>;

/// `None` for inputs that the kernels do not take, or that the device has too few bindings for.
fn launch(input: &Input) -> Option<RowLaunch> {
    let shape = [input.shape.iter().product(), input.gamma.meta.shape()[0]];
    let floats: Vec<_> = EmbedLayerNormOp::operands::<CubeBackend>(input).into_iter().flatten().collect();
    let has_ids = |summand: &&Summand<CubeBackend>| matches!(summand.rows, Index::Ids { .. });
    let ids = summands(input).into_iter().filter(has_ids).count();
    // At most, in the backward: mean, rstd, grad and two outputs, but no beta.
    let buffers = floats.len() + ids + usize::from(input.dropout.0.is_some()) + 4;
    // A table without rows has none that is nearest to an id.
    if floats.iter().any(|float| float.meta.shape()[0] == 0) {
        return None;
    }
    let tables: Vec<_> = summands(input).into_iter().filter_map(|rows| rows.table.as_ref()).collect();
    let mut on = RowLaunch::for_norm(&tables, [&input.gamma, &input.beta], shape, buffers)?;
    on.address_type = on.address_type.max(address_type(floats));
    Some(on)
}

fn sources<T: Float>(input: &Input) -> SummandsLaunch<T> {
    let [words, token_types, positions] = summands(input).map(|summand| {
        let (ids, rows) = match &summand.rows {
            Index::Ids { ids, .. } => (Some(ids.clone()), [0, 1]),
            Index::Cyclic { first, period } => (None, [*first, *period]),
        };
        summand.table.clone().map(|table| source(table, ids, rows)).into()
    });
    SummandsLaunch::new(words, token_types, positions, false)
}

impl Kernels<CubeBackend> for EmbedLayerNormOp {
    fn forward(input: Input) -> Output<Self, CubeBackend> {
        let Some(on) = launch(&input) else { return Self::reference(input) };
        on.layer_norm(&input.shape, sources(&input), [input.gamma, input.beta], input.epsilon, &input.dropout)
    }

    fn backward(input: Input, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        let Some(on) = launch(&input) else { return Self::reference_backward(input, upstream) };
        let Upstream { statistics, grad, needs: [words, token_types, positions, gamma, beta] } = upstream;
        let tables = summands(&input).into_iter().zip([words, token_types, positions]);
        let is_total =
            |summand: &Summand<CubeBackend>| matches!(summand.rows, Index::Cyclic { period: 1, .. });
        let has = |total: bool| tables.clone().any(|(summand, needed)| needed && is_total(summand) == total);
        // A row that all tokens read gets the total of ∂L/∂x: nothing is stored for it.
        let partials = on.partials(if gamma || beta || has(true) { 3 } else { 0 });
        // Wide: tables add up the gradients of many tokens, which are rounded after that.
        let sum = has(false).then(|| on.empty([on.rows, on.hidden], on.wide));
        let (sources, outputs) = (sources(&input), [&sum, &None, &partials]);
        on.layer_norm_backward(sources, input.gamma.clone(), &input.dropout, statistics, grad, outputs);

        let gradient = |(summand, needed): (&Summand<CubeBackend>, bool)| {
            let table = summand.table.as_ref().filter(|_| needed)?;
            Some(match &summand.rows {
                Index::Cyclic { first, period: 1 } => {
                    let output = on.zeros(table.meta.shape().clone(), on.float);
                    let start = first * output.meta.strides()[0];
                    on.total(partials.clone()?, 2..3, output.clone(), start, 0);
                    output
                }
                // Each row of the table is one token's.
                Index::Cyclic { period, .. } if [*period, table.meta.shape()[0]] == [on.rows; 2] => {
                    cast(sum.clone()?, on.float)
                }
                Index::Cyclic { first, period } => scatter_cyclic(&on, sum.clone()?, table, *first, *period),
                Index::Ids { ids, padding_idx } => scatter(&on, sum.clone()?, table, ids, *padding_idx),
            })
        };
        let mut gradients: Vec<_> = tables.map(gradient).collect();
        let dtype = input.gamma.dtype;
        let vectors = partials.filter(|_| gamma || beta).map(|partials| on.totals(&partials, 2, dtype));
        let vector = |needed: bool, i: usize| vectors.as_ref().filter(|_| needed).map(|all| all[i].clone());
        gradients.extend([vector(gamma, 0), vector(beta, 1).map(|total| cast(total, input.beta.dtype))]);
        gradients
    }
}
