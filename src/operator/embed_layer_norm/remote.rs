//! A worker's kernel for the client.

use super::input::{EmbedLayerNorm, EmbedLayerNormGradients, Needs, Rows};
use super::ops::EmbeddingOps;
use crate::operator::remote::{Arguments, Call, Received, Spec, serve, spec, statistic};
use burn::backend::Remote;
use burn::backend::TensorMetadata;
use burn::backend::ir::BackendIr;
use burn::backend::tensor::FloatTensor;
use burn::server::CustomOpRegistry;
use burn::tensor::Shape;

const FORWARD: &str = "burn_bert::embed_layer_norm";
const WITH_STATISTICS: &str = "burn_bert::embed_layer_norm_with_statistics";
const BACKWARD: &str = "burn_bert::embed_layer_norm_backward";

impl EmbeddingOps for Remote {
    fn embed_layer_norm(input: EmbedLayerNorm<Self>) -> FloatTensor<Self> {
        let y = input.y();
        let [y] = input.call().send_for(FORWARD, [y]);
        y
    }

    fn embed_layer_norm_with_statistics(
        input: EmbedLayerNorm<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let y = input.y();
        let [batch, seq] = input.shape;
        let of_token = statistic([batch, seq, 1], y.1);
        let [y, mean, rstd] = input.call().send_for(WITH_STATISTICS, [y, of_token.clone(), of_token]);
        (y, mean, rstd)
    }

    fn embed_layer_norm_backward(
        input: EmbedLayerNorm<Self>,
        mean: FloatTensor<Self>,
        rstd: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs: Needs,
    ) -> EmbedLayerNormGradients<Self> {
        let [words, token_types, positions] = input.sources().map(|source| source.map(spec));
        let operands = [words, token_types, positions, Some(spec(&input.gamma)), Some(spec(&input.beta))];
        let mut call = input.call();
        call.arguments().tensors([mean, rstd, grad]);
        EmbedLayerNormGradients::new(call.send_backward(BACKWARD, operands, needs))
    }
}

impl EmbedLayerNorm<Remote> {
    /// The tables or vectors of the summands.
    fn sources(&self) -> [Option<&FloatTensor<Remote>>; 3] {
        [&self.words, &self.token_types, &self.positions].map(Rows::source)
    }

    /// Of y, [B, S, H] in the dtype of the sum.
    fn y(&self) -> Spec {
        let [batch, seq] = self.shape;
        let dtype = self.sources().into_iter().flatten().next().unwrap_or(&self.gamma).dtype();
        (Shape::new([batch, seq, self.gamma.shape()[0]]), dtype)
    }

    fn call(self) -> Call {
        let mut call = Call::on(&self.gamma);
        let to = call.arguments();
        self.shape.into_iter().for_each(|axis| to.count(axis));
        [self.words, self.token_types, self.positions].into_iter().for_each(|rows| rows.send(to));
        to.tensors([self.gamma, self.beta]);
        to.real(self.epsilon);
        to.dropout(self.dropout);
        to.path(self.path);
        call
    }
}

impl<B: BackendIr> EmbedLayerNorm<B> {
    fn received(from: &mut Received<'_, B>) -> Self {
        Self {
            shape: [from.count(), from.count()],
            words: Rows::received(from),
            token_types: Rows::received(from),
            positions: Rows::received(from),
            gamma: from.float(),
            beta: from.float(),
            epsilon: from.real(),
            dropout: from.dropout(),
            path: from.path(),
        }
    }
}

impl Rows<Remote> {
    fn send(self, to: &mut Arguments) {
        match self {
            Self::Absent => to.count(0),
            Self::Lookup { table, ids, padding_idx } => {
                to.count(1);
                to.tensor(table);
                to.tensor(ids);
                to.flag(padding_idx.is_some());
                padding_idx.into_iter().for_each(|row| to.count(row));
            }
            Self::Range { table, first } => {
                to.count(2);
                to.tensor(table);
                to.count(first);
            }
            Self::Row { table, row } => {
                to.count(3);
                to.tensor(table);
                to.count(row);
            }
            Self::Values(values) => {
                to.count(4);
                to.tensor(values);
            }
        }
    }
}

impl<B: BackendIr> Rows<B> {
    fn received(from: &mut Received<'_, B>) -> Self {
        match from.count() {
            1 => Self::Lookup {
                table: from.float(),
                ids: from.int(),
                padding_idx: if from.flag() { Some(from.count()) } else { None },
            },
            2 => Self::Range { table: from.float(), first: from.count() },
            3 => Self::Row { table: from.float(), row: from.count() },
            4 => Self::Values(from.float()),
            _ => Self::Absent,
        }
    }
}

pub(crate) fn register<B: BackendIr + EmbeddingOps>(registry: &mut CustomOpRegistry<B>) {
    serve(registry, FORWARD, |from| {
        let input = EmbedLayerNorm::received(from);
        from.reply(B::embed_layer_norm(input));
    });
    serve(registry, WITH_STATISTICS, |from| {
        let input = EmbedLayerNorm::received(from);
        let (y, mean, rstd) = B::embed_layer_norm_with_statistics(input);
        from.reply_all([y, mean, rstd]);
    });
    serve(registry, BACKWARD, |from| {
        let input = EmbedLayerNorm::received(from);
        let [mean, rstd, grad] = from.floats();
        let needs = from.flags();
        let gradients = B::embed_layer_norm_backward(input, mean, rstd, grad, needs);
        from.reply_gradients(gradients.into_array());
    });
}
