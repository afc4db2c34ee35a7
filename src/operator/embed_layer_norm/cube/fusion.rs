//! The operator on fusion's lazy devices: queued as one operation, run by [`CubeBackend`] when its turn comes.

use super::setup::Dtypes;
use crate::operator::dropout::Dropout;
use crate::operator::embed_layer_norm::check::summands;
use crate::operator::embed_layer_norm::input::{EmbedLayerNorm, Needs, Rows};
use crate::operator::embed_layer_norm::ops::EmbeddingOps;
use crate::operator::embed_layer_norm::reference;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{ExecutionError, TensorMetadata};
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::fusion::{CubeFusionHandle, FusionCubeRuntime};
use burn_cubecl::tensor::CubeTensor;
use burn_fusion::custom::{
    CustomOpIr, HandleContainer, Operation, OperationIr, OperationOutput, StreamId, TensorId, TensorIr,
};
use burn_fusion::{Client, Fusion};
use std::fmt;

type Lazy = Fusion<CubeBackend>;
type Handles = HandleContainer<CubeFusionHandle>;
type Deferred<T> = Box<dyn Fn(&mut Handles) -> T + Send + Sync>;

impl EmbeddingOps for Lazy {
    fn embed_layer_norm(input: EmbedLayerNorm<Self>) -> FloatTensor<Self> {
        let Some(dtypes) = Dtypes::of(&input) else { return reference::embed_layer_norm::<Self>(input) };
        let outputs = [(y_shape(&input), dtypes.float)];
        let (queue, input) = Queue::new(input);
        let run = move |handles: &mut Handles| vec![CubeBackend::embed_layer_norm(input(handles))];
        queue.register("embed_layer_norm", &outputs, Box::new(run)).output()
    }

    fn embed_layer_norm_with_statistics(
        input: EmbedLayerNorm<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let Some(dtypes) = Dtypes::of(&input) else { return reference::with_statistics::<Self>(input) };
        let [batch, seq] = input.shape;
        let statistic = (Shape::new([batch, seq, 1]), dtypes.wide);
        let outputs = [(y_shape(&input), dtypes.float), statistic.clone(), statistic];
        let (queue, input) = Queue::new(input);
        let run = move |handles: &mut Handles| {
            let (y, mean, rstd) = CubeBackend::embed_layer_norm_with_statistics(input(handles));
            vec![y, mean, rstd]
        };
        let [y, mean, rstd] =
            queue.register("embed_layer_norm_with_statistics", &outputs, Box::new(run)).outputs();
        (y, mean, rstd)
    }

    fn embed_layer_norm_backward(
        input: EmbedLayerNorm<Self>,
        mean: FloatTensor<Self>,
        rstd: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs: Needs,
    ) -> Vec<Option<FloatTensor<Self>>> {
        let Some(dtypes) = Dtypes::of(&input) else {
            return reference::backward::<Self>(input, mean, rstd, grad, needs);
        };
        let shapes = summands(&input)
            .into_iter()
            .map(|(_, rows)| rows.source())
            .chain([Some(&input.gamma), Some(&input.beta)])
            .zip(needs)
            .map(|(operand, needed)| operand.filter(|_| needed).map(TensorMetadata::shape));
        let shapes: Vec<Option<Shape>> = shapes.collect();
        let outputs: Vec<_> = shapes.iter().flatten().map(|shape| (shape.clone(), dtypes.float)).collect();
        if outputs.is_empty() {
            return vec![None; needs.len()];
        }
        let (mut queue, input) = Queue::new(input);
        let [mean, rstd, grad] = [mean, rstd, grad].map(|tensor| queue.float(tensor));
        let run = move |handles: &mut Handles| {
            let input = input(handles);
            let [mean, rstd, grad] = [&mean, &rstd, &grad].map(|tensor| tensor(handles));
            let gradients = CubeBackend::embed_layer_norm_backward(input, mean, rstd, grad, needs);
            gradients.into_iter().flatten().collect()
        };
        let mut gradients = queue.register("embed_layer_norm_backward", &outputs, Box::new(run)).into_iter();
        shapes.into_iter().map(|shape| shape.and_then(|_| gradients.next())).collect()
    }
}

fn y_shape(input: &EmbedLayerNorm<Lazy>) -> Shape {
    let [batch, seq] = input.shape;
    Shape::new([batch, seq, input.gamma.shape[0]])
}

/// The inputs of an operation that is being queued, in the order in which they are handed over.
struct Queue {
    client: Client<FusionCubeRuntime>,
    inputs: Vec<TensorIr>,
}

impl Queue {
    fn new(input: EmbedLayerNorm<Lazy>) -> (Self, Deferred<EmbedLayerNorm<CubeBackend>>) {
        let EmbedLayerNorm { shape, words, token_types, positions, gamma, beta, epsilon, dropout, path } =
            input;
        let mut queue = Self { client: gamma.client.clone(), inputs: Vec::new() };
        let [words, token_types, positions] = [words, token_types, positions].map(|rows| queue.rows(rows));
        let [gamma, beta] = [gamma, beta].map(|tensor| queue.float(tensor));
        let dropout = queue.dropout(dropout);
        let input = move |handles: &mut Handles| EmbedLayerNorm {
            shape,
            words: words(handles),
            token_types: token_types(handles),
            positions: positions(handles),
            gamma: gamma(handles),
            beta: beta(handles),
            epsilon,
            dropout: dropout(handles),
            path,
        };
        (queue, Box::new(input))
    }

    fn rows(&mut self, rows: Rows<Lazy>) -> Deferred<Rows<CubeBackend>> {
        match rows {
            Rows::Absent => Box::new(|_| Rows::Absent),
            Rows::Lookup { table, ids, padding_idx } => {
                let (table, ids) = (self.float(table), self.int(ids));
                Box::new(move |handles| Rows::Lookup {
                    table: table(handles),
                    ids: ids(handles),
                    padding_idx,
                })
            }
            Rows::Range { table, first } => {
                let table = self.float(table);
                Box::new(move |handles| Rows::Range { table: table(handles), first })
            }
            Rows::Row { table, row } => {
                let table = self.float(table);
                Box::new(move |handles| Rows::Row { table: table(handles), row })
            }
            Rows::Values(values) => {
                let values = self.float(values);
                Box::new(move |handles| Rows::Values(values(handles)))
            }
        }
    }

    fn dropout(&mut self, dropout: Dropout<Lazy>) -> Deferred<Dropout<CubeBackend>> {
        match dropout {
            Dropout::Inactive => Box::new(|_| Dropout::Inactive),
            Dropout::Philox { seed, prob } => {
                let seed = self.int(seed);
                Box::new(move |handles| Dropout::Philox { seed: seed(handles), prob })
            }
        }
    }

    fn float(&mut self, tensor: FloatTensor<Lazy>) -> Deferred<CubeTensor> {
        let tensor = self.push(tensor.into_ir());
        Box::new(move |handles| handles.get_float_tensor::<CubeBackend>(&tensor))
    }

    fn int(&mut self, tensor: IntTensor<Lazy>) -> Deferred<CubeTensor> {
        let tensor = self.push(tensor.into_ir());
        Box::new(move |handles| handles.get_int_tensor::<CubeBackend>(&tensor))
    }

    fn push(&mut self, tensor: TensorIr) -> TensorIr {
        self.inputs.push(tensor.clone());
        tensor
    }

    /// Queues `run`, which makes one tensor for each of `outputs`.
    fn register(
        self,
        name: &'static str,
        outputs: &[(Shape, DType)],
        run: Deferred<Vec<CubeTensor>>,
    ) -> Vec<FloatTensor<Lazy>> {
        let Self { client, inputs } = self;
        let outputs: Vec<TensorIr> = outputs
            .iter()
            .map(|(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape.clone(), *dtype))
            .collect();
        let operation = Queued { name, outputs: outputs.iter().map(|output| output.id).collect(), run };
        let description = OperationIr::Custom(CustomOpIr::new(name, &inputs, &outputs));
        client.register(StreamId::current(), description, operation)
    }
}

struct Queued {
    name: &'static str,
    outputs: Vec<TensorId>,
    run: Deferred<Vec<CubeTensor>>,
}

impl fmt::Debug for Queued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Operation<FusionCubeRuntime> for Queued {
    fn execute(&self, handles: &mut Handles) -> Result<(), ExecutionError> {
        for (id, tensor) in self.outputs.iter().zip((self.run)(handles)) {
            handles.register_float_tensor::<CubeBackend>(id, tensor);
        }
        Ok(())
    }
}
