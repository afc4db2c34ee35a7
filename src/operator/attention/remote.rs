//! A worker's kernel for the client.

use super::input::{Attention, AttentionNeeds, ScoreBias};
use super::ops::AttentionOps;
use crate::operator::remote::{Call, Received, serve, spec, statistic};
use burn::backend::Remote;
use burn::backend::ir::BackendIr;
use burn::backend::tensor::FloatTensor;
use burn::server::CustomOpRegistry;

const FORWARD: &str = "burn_bert::attention";
const WITH_STATISTICS: &str = "burn_bert::attention_with_statistics";
const BACKWARD: &str = "burn_bert::attention_backward";

impl AttentionOps for Remote {
    fn packed_attention(input: Attention<Self>) -> FloatTensor<Self> {
        let output = spec(&input.query);
        let [output] = input.call().send_for(FORWARD, [output]);
        output
    }

    fn packed_attention_with_statistics(
        input: Attention<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let output = spec(&input.query);
        let of_row = statistic([input.lengths.len(), input.heads, input.longest(), 1], output.1);
        let results = [output, of_row.clone(), of_row];
        let [output, max, inverse_sum] = input.call().send_for(WITH_STATISTICS, results);
        (output, max, inverse_sum)
    }

    fn packed_attention_backward(
        input: Attention<Self>,
        max: FloatTensor<Self>,
        inverse_sum: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs: AttentionNeeds,
    ) -> Vec<Option<FloatTensor<Self>>> {
        let [query, key, value] = [&input.query, &input.key, &input.value].map(|rows| Some(spec(rows)));
        let operands = [query, key, value, input.bias.added().map(spec)];
        let mut call = input.call();
        call.arguments().tensors([max, inverse_sum, grad]);
        call.send_backward(BACKWARD, operands, needs).into()
    }
}

impl Attention<Remote> {
    fn call(self) -> Call {
        let mut call = Call::on(&self.query);
        let to = call.arguments();
        to.tensors([self.query, self.key, self.value]);
        to.tensor(self.starts);
        to.count(self.lengths.len());
        self.lengths.into_iter().for_each(|length| to.count(length));
        to.count(self.heads);
        to.real(self.scale);
        match self.bias {
            ScoreBias::Absent => to.flag(false),
            ScoreBias::Added(bias) => {
                to.flag(true);
                to.tensor(bias);
            }
        }
        to.dropout(self.dropout);
        to.path(self.path);
        call
    }
}

impl<B: BackendIr> Attention<B> {
    fn received(from: &mut Received<'_, B>) -> Self {
        Self {
            query: from.float(),
            key: from.float(),
            value: from.float(),
            starts: from.int(),
            lengths: (0..from.count()).map(|_| from.count()).collect(),
            heads: from.count(),
            scale: from.real(),
            bias: if from.flag() { ScoreBias::Added(from.float()) } else { ScoreBias::Absent },
            dropout: from.dropout(),
            path: from.path(),
        }
    }
}

pub(crate) fn register<B: BackendIr + AttentionOps>(registry: &mut CustomOpRegistry<B>) {
    serve(registry, FORWARD, |from| {
        let input = Attention::received(from);
        from.reply(B::packed_attention(input));
    });
    serve(registry, WITH_STATISTICS, |from| {
        let input = Attention::received(from);
        let (output, max, inverse_sum) = B::packed_attention_with_statistics(input);
        from.reply_all([output, max, inverse_sum]);
    });
    serve(registry, BACKWARD, |from| {
        let input = Attention::received(from);
        let [max, inverse_sum, grad] = from.floats();
        let needs = from.flags();
        from.reply_gradients(B::packed_attention_backward(input, max, inverse_sum, grad, needs));
    });
}
