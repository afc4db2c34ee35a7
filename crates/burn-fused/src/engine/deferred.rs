//! Operators on CubeCL's devices behind fusion's queue, which computes results when they are read.

use crate::engine::call::Path;
use crate::engine::inputs::Tensors;
use crate::engine::operator::{Gradients, Kernels, Output, Spec, Upstream};
use crate::engine::run::OnCube;
use burn::backend::fusion::client::GlobalFusionClient;
use burn::backend::fusion::custom::{CustomOpIr, HandleContainer, OperationFn, OperationIr, StreamId};
use burn::backend::fusion::{FusionBackend, FusionRuntime};
use burn::backend::ir::TensorIr;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Cube, TensorMetadata};
use burn_cubecl::CubeBackend;
use burn_std::ExecutionError;
use std::any::type_name;
use std::cell::RefCell;

type Client = GlobalFusionClient<<CubeBackend as FusionBackend>::FusionRuntime>;
pub(crate) type Handles =
    HandleContainer<<<CubeBackend as FusionBackend>::FusionRuntime as FusionRuntime>::FusionHandle>;

/// Inputs whose tensors are entries of the queue.
#[derive(Clone, Debug)]
struct Queued;

impl Tensors for Queued {
    type Float = TensorIr;
    type Int = TensorIr;
}

impl<O: OnCube> Kernels<Cube> for O {
    fn compute(path: Path, inputs: O::On<Cube>) -> Output<O, Cube> {
        let results = O::specs::<Cube>(&inputs);
        let mut results = queue::<O>(path, inputs, results, Vec::new(), None).into_iter();
        (results.next().expect("an output"), array(results))
    }

    fn compute_backward(path: Path, inputs: O::On<Cube>, upstream: Upstream<O, Cube>) -> Gradients<Cube> {
        let Upstream { statistics, grad, needs } = upstream;
        let operands = O::operands::<Cube>(&inputs).into_iter().zip(needs.clone());
        let specs: Vec<_> =
            operands.map(|(operand, needed)| operand.filter(|_| needed).map(Spec::of)).collect();
        let others = statistics.into_iter().chain([grad]).collect();
        // The queue has results for what is needed alone.
        let results = specs.iter().flatten().cloned().collect();
        let mut results = queue::<O>(path, inputs, results, others, Some(needs)).into_iter();
        specs.into_iter().map(|spec| spec.and_then(|_| results.next())).collect()
    }
}

/// Queues a forward, or, with `needs`, the backward of statistics and a gradient, which are `others`.
fn queue<O: OnCube>(
    path: Path,
    inputs: O::On<Cube>,
    results: Vec<Spec>,
    others: Vec<FloatTensor<Cube>>,
    needs: Option<O::Needs>,
) -> Vec<FloatTensor<Cube>> {
    let client = O::operand::<Cube>(&inputs).client.clone();
    let tensors = RefCell::new(Vec::new());
    let queued = |tensor: FloatTensor<Cube>| {
        let tensor = tensor.into_ir();
        tensors.borrow_mut().push(tensor.clone());
        tensor
    };
    let inputs = O::map::<Cube, Queued>(inputs, &mut |float| queued(float), &mut |int| queued(int));
    let others: Vec<_> = others.into_iter().map(queued).collect();
    let id = if needs.is_some() { type_name::<Upstream<O, Cube>>() } else { type_name::<O>() };
    register(&client, id, &tensors.into_inner(), uninit(&client, results), move |handles| {
        // Both closures of `map` read from it.
        let from = RefCell::new(handles);
        let mut float = |tensor: TensorIr| from.borrow_mut().get_float_tensor::<CubeBackend>(&tensor);
        let mut int = |tensor: TensorIr| from.borrow_mut().get_int_tensor::<CubeBackend>(&tensor);
        let inputs = O::map::<Queued, CubeBackend>(inputs.clone(), &mut float, &mut int);
        let mut others: Vec<_> = others.iter().cloned().map(float).collect();
        let Some(needs) = needs.clone() else {
            let (output, statistics) = <O as Kernels<CubeBackend>>::compute(path, inputs);
            return [output].into_iter().chain(statistics).collect();
        };
        // Behind the statistics: see `compute_backward` above.
        let grad = others.pop().expect("the output's gradient");
        let upstream = Upstream { statistics: array(others), grad, needs };
        let gradients = <O as Kernels<CubeBackend>>::compute_backward(path, inputs, upstream);
        gradients.into_iter().flatten().collect()
    })
}

/// Queues what `run` computes from `inputs`, as `outputs`.
pub(crate) fn register(
    client: &Client,
    id: &'static str,
    inputs: &[TensorIr],
    outputs: Vec<TensorIr>,
    run: impl Fn(&mut Handles) -> Vec<FloatTensor<CubeBackend>> + Send + Sync + 'static,
) -> Vec<FloatTensor<Cube>> {
    let ir = CustomOpIr::new(id, inputs, &outputs);
    let operation = OperationFn(move |handles: &mut Handles| {
        for (result, computed) in outputs.iter().zip(run(handles)) {
            let found = (computed.shape(), computed.dtype());
            debug_assert_eq!(found, (result.shape.clone(), result.dtype), "{id}");
            handles.register_float_tensor::<CubeBackend>(&result.id, computed);
        }
        Ok(())
    });
    client.register(StreamId::current(), OperationIr::Custom(ir), operation)
}

/// What is still to be computed.
pub(crate) fn uninit(client: &Client, results: Vec<Spec>) -> Vec<TensorIr> {
    let output = |Spec { shape, dtype }| TensorIr::uninit(client.create_empty_handle(), shape, dtype);
    results.into_iter().map(output).collect()
}

/// The tensors of `outputs`, which an entry computes that is queued later. What reads one before fails for the `reason`.
pub(crate) fn promise(client: &Client, outputs: &[TensorIr], reason: &'static str) -> Vec<FloatTensor<Cube>> {
    let ir = CustomOpIr::new(reason, &[], outputs);
    // The error stays with the tensors until they are computed.
    let operation = OperationFn(move |_: &mut Handles| Err(ExecutionError::with_context(reason)));
    client.register(StreamId::current(), OperationIr::Custom(ir), operation)
}

pub(crate) fn array<X, A: TryFrom<Vec<X>>>(items: impl IntoIterator<Item = X>) -> A {
    let array = A::try_from(items.into_iter().collect());
    array.ok().expect("as many items as the operator declares")
}
