//! A worker's kernel for the client.

use super::input::{AddLayerNorm, AddLayerNormNeeds};
use super::ops::AddLayerNormOps;
use crate::operator::remote::{Call, Received, Spec, serve, spec, statistic};
use burn::backend::Remote;
use burn::backend::ir::BackendIr;
use burn::backend::tensor::FloatTensor;
use burn::server::CustomOpRegistry;

const FORWARD: &str = "burn_bert::add_layer_norm";
const WITH_STATISTICS: &str = "burn_bert::add_layer_norm_with_statistics";
const BACKWARD: &str = "burn_bert::add_layer_norm_backward";

impl AddLayerNormOps for Remote {
    fn add_layer_norm(input: AddLayerNorm<Self>) -> FloatTensor<Self> {
        let y = spec(&input.x);
        let [y] = input.call().send_for(FORWARD, [y]);
        y
    }

    fn add_layer_norm_with_statistics(
        input: AddLayerNorm<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let y = spec(&input.x);
        let of_row: Spec = statistic([y.0[0], 1], y.1);
        let [y, mean, rstd] = input.call().send_for(WITH_STATISTICS, [y, of_row.clone(), of_row]);
        (y, mean, rstd)
    }

    fn add_layer_norm_backward(
        input: AddLayerNorm<Self>,
        mean: FloatTensor<Self>,
        rstd: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs: AddLayerNormNeeds,
    ) -> Vec<Option<FloatTensor<Self>>> {
        let operands = input.operands().map(|operand| Some(spec(operand)));
        let mut call = input.call();
        call.arguments().tensors([mean, rstd, grad]);
        call.send_backward(BACKWARD, operands, needs).into()
    }
}

impl AddLayerNorm<Remote> {
    fn call(self) -> Call {
        let mut call = Call::on(&self.x);
        let to = call.arguments();
        to.tensors([self.x, self.bias, self.residual, self.gamma, self.beta]);
        to.real(self.epsilon);
        to.dropout(self.dropout);
        to.path(self.path);
        call
    }
}

impl<B: BackendIr> AddLayerNorm<B> {
    fn received(from: &mut Received<'_, B>) -> Self {
        Self {
            x: from.float(),
            bias: from.float(),
            residual: from.float(),
            gamma: from.float(),
            beta: from.float(),
            epsilon: from.real(),
            dropout: from.dropout(),
            path: from.path(),
        }
    }
}

pub(crate) fn register<B: BackendIr + AddLayerNormOps>(registry: &mut CustomOpRegistry<B>) {
    serve(registry, FORWARD, |from| {
        let input = AddLayerNorm::received(from);
        from.reply(B::add_layer_norm(input));
    });
    serve(registry, WITH_STATISTICS, |from| {
        let input = AddLayerNorm::received(from);
        let (y, mean, rstd) = B::add_layer_norm_with_statistics(input);
        from.reply_all([y, mean, rstd]);
    });
    serve(registry, BACKWARD, |from| {
        let input = AddLayerNorm::received(from);
        let [mean, rstd, grad] = from.floats();
        let needs = from.flags();
        from.reply_gradients(B::add_layer_norm_backward(input, mean, rstd, grad, needs));
    });
}
