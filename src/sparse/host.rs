//! A step on tables in host memory: one pass over the touched rows, in place.
//!
//! As tensor operations a step goes through some fifteen temporaries of the size of the touched rows, and fresh
//! memory for them costs a CPU more than the arithmetic does. Flex gives the memory of a tensor that nothing else
//! holds to the host and takes it back without a copy, so the rows can be changed in it. The arithmetic is that of
//! [`crate::optim`] on tensors, operation by operation, and the results are the same bit for bit.

use crate::operator::parallel;
use crate::optim::{Adam, HostTensor, Moments, Step, is_on_host};
use burn::prelude::*;
use burn::tensor::DType;

/// Rows of a task.
const ROWS_A_TASK: usize = 64;

/// Whether a table, outside autodiff, is f32 in the host's memory.
fn is_ours(table: &Tensor<2>) -> bool {
    table.dtype() == DType::F32 && is_on_host(table)
}

/// A step of SGD on rows `ids`, ascending, of a table; `gradient` is [ids.len(), H].
/// Gives the gradient back, with nothing changed, if the table is not f32 in memory that the host may write.
pub(super) fn sgd(
    step: Step,
    table: &mut Tensor<2>,
    ids: &[usize],
    gradient: Tensor<2>,
) -> Option<Tensor<2>> {
    if !is_ours(table) {
        return Some(gradient);
    }
    let [_, hidden] = table.dims();
    let (mut table, gradient) = (Borrowed::take(table), HostTensor::take(gradient));
    let (Some(w), Some(g)) = (table.values(), gradient.values::<f32>()) else {
        return Some(gradient.into_tensor());
    };
    let rate = step.learning_rate as f32;
    let mut rows: Vec<_> = rows(w, hidden, ids).zip(g.chunks_exact(hidden)).collect();
    parallel::for_each(g.len(), rows.chunks_mut(ROWS_A_TASK), |rows| {
        for (w, g) in rows {
            w.iter_mut().zip(*g).for_each(|(w, &g)| *w -= g * rate);
        }
    });
    None
}

/// A step of Adam on rows `ids`, ascending, of a table and of its moments; `gradient` is [ids.len(), H].
/// Gives the gradient back, with nothing changed, if they are not f32 in memory that the host may write.
pub(super) fn adam(
    adam: &Adam,
    step: Step,
    table: &mut Tensor<2>,
    moments: &mut Moments<2>,
    ids: &[usize],
    gradient: Tensor<2>,
) -> Option<Tensor<2>> {
    if !is_ours(table) {
        return Some(gradient);
    }
    let [_, hidden] = table.dims();
    let (mut table, gradient) = (Borrowed::take(table), HostTensor::take(gradient));
    let (mut mean, mut square) = (Borrowed::take(&mut moments.mean), Borrowed::take(&mut moments.square));
    let (Some(w), Some(m), Some(v), Some(g)) =
        (table.values(), mean.values(), square.values(), gradient.values::<f32>())
    else {
        return Some(gradient.into_tensor());
    };
    let step = adam.host_step::<f32>(step, 1.0);
    let moments = rows(m, hidden, ids).zip(rows(v, hidden, ids));
    let mut rows: Vec<_> = rows(w, hidden, ids).zip(moments).zip(g.chunks_exact(hidden)).collect();
    parallel::for_each(g.len(), rows.chunks_mut(ROWS_A_TASK), |rows| {
        for ((w, (m, v)), g) in rows {
            step.run(w, m, v, g);
        }
    });
    None
}

/// Rows `ids`, ascending, of a table.
fn rows<'a>(table: &'a mut [f32], hidden: usize, ids: &'a [usize]) -> impl Iterator<Item = &'a mut [f32]> {
    let mut rows = table.chunks_exact_mut(hidden);
    let mut passed = 0;
    ids.iter().map(move |&id| {
        let row = rows.nth(id - passed).expect("ids ascend and have rows");
        passed = id + 1;
        row
    })
}

/// A tensor whose memory is the host's for a while; it goes back when this is dropped.
struct Borrowed<'a> {
    tensor: &'a mut Tensor<2>,
    host: Option<HostTensor>,
}

impl<'a> Borrowed<'a> {
    fn take(tensor: &'a mut Tensor<2>) -> Self {
        let host = Some(HostTensor::take(tensor.extract()));
        Self { tensor, host }
    }

    fn values(&mut self) -> Option<&mut [f32]> {
        self.host.as_mut()?.values_mut()
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(host) = self.host.take() {
            *self.tensor = host.into_tensor();
        }
    }
}
