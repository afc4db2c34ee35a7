//! CubeCL's devices: one kernel for forward and backward, of which each unit writes one value.

use super::{MoveRows, MoveRowsOp};
use crate::cube::launch::{RowLaunch, buffer, int_tensor};
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use burn::backend::cubecl::dtype_to_elem_type;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::tensor::CubeTensor;

const BINDINGS: u32 = 5;

impl Kernels<CubeBackend> for MoveRowsOp {
    fn forward(input: MoveRows<CubeBackend>) -> Output<Self, CubeBackend> {
        let Some(y) = gathered(&input.x, &input.from) else { return Self::reference(input) };
        (y, [])
    }

    fn backward(
        input: MoveRows<CubeBackend>,
        upstream: Upstream<Self, CubeBackend>,
    ) -> Gradients<CubeBackend> {
        let dx = gathered(&upstream.grad, &input.to);
        if dx.is_some() { vec![dx] } else { Self::reference_backward(input, upstream) }
    }
}

/// The rows of `x` with these indices, zero behind the last; `None` for what the kernel does not take.
fn gathered(x: &CubeTensor, index: &CubeTensor) -> Option<CubeTensor> {
    let ([of_x, columns], rows) = (x.meta.shape().dims(), index.meta.shape()[0]);
    let on = RowLaunch::of(&[x], [rows.max(of_x), columns], BINDINGS)?;
    if rows == 0 || of_x == 0 {
        return None;
    }
    let y = on.empty([rows, columns], on.float);
    gather::launch(
        &on.client,
        on.cubes((rows * columns).div_ceil(on.max_units)),
        CubeDim::new_1d(on.max_units as u32),
        on.address_type,
        buffer(x.clone()),
        int_tensor(index.clone()),
        y.clone().into_buffer_arg(),
        of_x,
        columns,
        dtype_to_elem_type(on.float),
    );
    Some(y)
}

#[cube(launch, address_type = "dynamic")]
fn gather<T: Float>(
    x: &[T],
    index: &OwnedTensor<i32>,
    y: &mut [T],
    rows: usize,
    columns: usize,
    #[define(T)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= y.len() {
        terminate!();
    }
    let row = u32::cast_from(index[ABSOLUTE_POS / columns]) as usize;
    // Indices behind the last row ask for zeros.
    let value = if row < rows { x[row * columns + ABSOLUTE_POS % columns] } else { T::new(0.0) };
    y[ABSOLUTE_POS] = value;
}
