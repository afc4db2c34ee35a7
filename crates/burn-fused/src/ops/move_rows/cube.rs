//! CubeCL's devices: one kernel for forward and backward, of which each unit writes one value.

use super::{MoveRows, MoveRowsOp};
use crate::cube::launch::{RowLaunch, buffer, int_tensor};
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use burn::backend::cubecl::dtype_to_elem_type;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};

/// The buffers of the kernel: x, indices and y.
const BUFFERS: usize = 3;

impl Kernels<CubeBackend> for MoveRowsOp {
    fn forward(input: MoveRows<CubeBackend>) -> Output<Self, CubeBackend> {
        let ([of_x, columns], rows) = (input.x.meta.shape().dims(), input.from.meta.shape()[0]);
        let on = RowLaunch::for_rows(&[&input.x], [rows.max(of_x), columns], BUFFERS);
        let Some(on) = on.filter(|_| rows > 0 && of_x > 0) else { return Self::reference(input) };
        let y = on.empty([rows, columns], on.float);
        gather::launch(
            &on.client,
            on.cubes((rows * columns).div_ceil(on.max_units)),
            CubeDim::new_1d(on.max_units as u32),
            on.address_type,
            buffer(input.x),
            int_tensor(input.from),
            y.clone().into_buffer_arg(),
            of_x,
            columns,
            dtype_to_elem_type(on.float),
        );
        (y, [])
    }

    fn backward(
        input: MoveRows<CubeBackend>,
        upstream: Upstream<Self, CubeBackend>,
    ) -> Gradients<CubeBackend> {
        vec![Some(<Self as Kernels<CubeBackend>>::forward(input.back(upstream.grad)).0)]
    }
}

/// The rows of `x` with these indices, zero behind the last.
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
