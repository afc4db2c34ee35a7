//! A worker's kernel for the client.

use super::input::CrossEntropy;
use super::ops::CrossEntropyOps;
use crate::operator::remote::{Call, Received, serve, spec, statistic};
use burn::backend::Remote;
use burn::backend::ir::BackendIr;
use burn::backend::tensor::FloatTensor;
use burn::server::CustomOpRegistry;
use burn::tensor::Shape;

const FORWARD: &str = "burn_bert::cross_entropy";
const WITH_STATISTICS: &str = "burn_bert::cross_entropy_with_statistics";
const BACKWARD: &str = "burn_bert::cross_entropy_backward";

impl CrossEntropyOps for Remote {
    fn cross_entropy(input: CrossEntropy<Self>) -> FloatTensor<Self> {
        let (_, dtype) = spec(&input.logits);
        let [loss] = input.call().send_for(FORWARD, [(Shape::new([1]), dtype)]);
        loss
    }

    fn cross_entropy_with_statistics(
        input: CrossEntropy<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let (shape, dtype) = spec(&input.logits);
        let of_row = statistic([shape[0], 1], dtype);
        let results = [(Shape::new([1]), dtype), of_row.clone(), of_row];
        let [loss, largest, log_sums] = input.call().send_for(WITH_STATISTICS, results);
        (loss, largest, log_sums)
    }

    fn cross_entropy_backward(
        input: CrossEntropy<Self>,
        largest: FloatTensor<Self>,
        log_sums: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let logits = spec(&input.logits);
        let mut call = input.call();
        call.arguments().tensors([largest, log_sums, grad]);
        let [gradient] = call.send_for(BACKWARD, [logits]);
        gradient
    }
}

impl CrossEntropy<Remote> {
    fn call(self) -> Call {
        let mut call = Call::on(&self.logits);
        let to = call.arguments();
        to.tensor(self.logits);
        to.tensor(self.labels);
        to.path(self.path);
        call
    }
}

impl<B: BackendIr> CrossEntropy<B> {
    fn received(from: &mut Received<'_, B>) -> Self {
        Self { logits: from.float(), labels: from.int(), path: from.path() }
    }
}

pub(crate) fn register<B: BackendIr + CrossEntropyOps>(registry: &mut CustomOpRegistry<B>) {
    serve(registry, FORWARD, |from| {
        let input = CrossEntropy::received(from);
        from.reply(B::cross_entropy(input));
    });
    serve(registry, WITH_STATISTICS, |from| {
        let input = CrossEntropy::received(from);
        let (loss, largest, log_sums) = B::cross_entropy_with_statistics(input);
        from.reply_all([loss, largest, log_sums]);
    });
    serve(registry, BACKWARD, |from| {
        let input = CrossEntropy::received(from);
        let [largest, log_sums, grad] = from.floats();
        from.reply(B::cross_entropy_backward(input, largest, log_sums, grad));
    });
}
