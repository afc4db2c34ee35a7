//! One lookup table: reading a few of its rows, and writing them back in place.

use crate::embeddings::is_quantized;
use crate::error::{EmbeddingTable, Error, Result};
use burn::module::{Param, ParamId};
use burn::prelude::*;
use burn::tensor::IndexingUpdateOp;

/// Rows `ids` of a table, [U, H]: a copy.
pub(super) fn gather(table: Tensor<2>, ids: &[usize]) -> Tensor<2> {
    let index = index(ids, &table.device());
    table.select(0, index)
}

/// The table with rows `ids`, all different, replaced by `rows`.
///
/// On every device the table is changed in place if nothing else holds it; if something does, a clone of
/// the module for one, the holder keeps the old values and the table is copied once.
pub(super) fn assign(table: Tensor<2>, ids: &[usize], rows: Tensor<2>) -> Tensor<2> {
    let index = index(ids, &table.device());
    table.select_assign(0, index, rows, IndexingUpdateOp::Assign)
}

/// The table with `rows` added to its rows `ids`, all different; in place as [`assign`].
pub(super) fn add(table: Tensor<2>, ids: &[usize], rows: Tensor<2>) -> Tensor<2> {
    let index = index(ids, &table.device());
    table.select_assign(0, index, rows, IndexingUpdateOp::Add)
}

fn index(ids: &[usize], device: &Device) -> Tensor<1, Int> {
    let ids: Vec<i64> = ids.iter().map(|&id| id as i64).collect();
    Tensor::from_data(TensorData::from(ids.as_slice()), device)
}

/// Changes the value of a parameter without a second handle to it, so that `change` may work in place.
///
/// The parameter keeps its id, its load and save mappers, whether it is trained, and its gradient-checkpointing
/// strategy.
pub(super) fn change_in_place(param: &mut Param<Tensor<2>>, change: impl FnOnce(Tensor<2>) -> Tensor<2>) {
    // Moving the parameter out from behind the reference needs something to leave there.
    let nothing = Param::initialized(ParamId::new(), Tensor::empty([0, 0], &param.lazy_device()));
    let taken = std::mem::replace(param, nothing);
    *param = taken.map(|tensor| {
        let autodiff = Autodiff::of(&tensor);
        autodiff.restore(change(tensor.inner()))
    });
}

/// What a tensor's autodiff wrapper knows, taken off before a change outside autodiff and put back after it.
pub(super) struct Autodiff {
    require_grad: bool,
    strategy: Option<burn::tensor::GradientCheckpointingStrategy>,
}

impl Autodiff {
    pub(super) fn of(tensor: &Tensor<2>) -> Self {
        Self { require_grad: tensor.is_require_grad(), strategy: tensor.gradient_checkpointing_strategy() }
    }

    pub(super) fn restore(self, inner: Tensor<2>) -> Tensor<2> {
        let Some(strategy) = self.strategy else { return inner };
        let tensor = Tensor::from_inner(inner).with_gradient_checkpointing_strategy(strategy);
        tensor.set_require_grad(self.require_grad)
    }
}

/// Whether the rows of a table can be trained by themselves.
pub(super) fn check(table: EmbeddingTable, weight: &Param<Tensor<2>>) -> Result<()> {
    let reason = if weight.adapter().is_some() {
        "has a LoRA adapter, whose gradient reaches every row; train it with BertEmbeddings::forward"
    } else if is_quantized(weight) {
        "is quantised, and rows cannot be written back without quantising others anew; train first and quantise \
         afterwards"
    } else if weight.is_autodiff() && weight.is_distributed() {
        "is distributed, and gradients of rows are not reduced across devices; train it with \
         BertEmbeddings::forward"
    } else {
        return Ok(());
    };
    Err(Error::NotRowSparse { table, reason })
}
