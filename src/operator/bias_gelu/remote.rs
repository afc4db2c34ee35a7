//! A worker's kernel for the client.

use super::input::{BiasGelu, BiasGeluNeeds};
use super::ops::BiasGeluOps;
use crate::operator::remote::{Call, Received, serve, spec};
use burn::backend::Remote;
use burn::backend::ir::BackendIr;
use burn::backend::tensor::FloatTensor;
use burn::server::CustomOpRegistry;

const FORWARD: &str = "burn_bert::bias_gelu";
const BACKWARD: &str = "burn_bert::bias_gelu_backward";

impl BiasGeluOps for Remote {
    fn bias_gelu(input: BiasGelu<Self>) -> FloatTensor<Self> {
        let y = spec(&input.x);
        let [y] = input.call().send_for(FORWARD, [y]);
        y
    }

    fn bias_gelu_backward(
        input: BiasGelu<Self>,
        grad: FloatTensor<Self>,
        needs: BiasGeluNeeds,
    ) -> Vec<Option<FloatTensor<Self>>> {
        let operands = [&input.x, &input.bias].map(|operand| Some(spec(operand)));
        let mut call = input.call();
        call.arguments().tensor(grad);
        call.send_backward(BACKWARD, operands, needs).into()
    }
}

impl BiasGelu<Remote> {
    fn call(self) -> Call {
        let mut call = Call::on(&self.x);
        let to = call.arguments();
        to.tensor(self.x);
        to.tensor(self.bias);
        to.path(self.path);
        call
    }
}

impl<B: BackendIr> BiasGelu<B> {
    fn received(from: &mut Received<'_, B>) -> Self {
        Self { x: from.float(), bias: from.float(), path: from.path() }
    }
}

pub(crate) fn register<B: BackendIr + BiasGeluOps>(registry: &mut CustomOpRegistry<B>) {
    serve(registry, FORWARD, |from| {
        let input = BiasGelu::received(from);
        from.reply(B::bias_gelu(input));
    });
    serve(registry, BACKWARD, |from| {
        let (input, grad) = (BiasGelu::received(from), from.float());
        let needs = from.flags();
        from.reply_gradients(B::bias_gelu_backward(input, grad, needs));
    });
}
