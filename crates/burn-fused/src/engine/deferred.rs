//! The operators on devices that are asked now and compute later: fusion's queue.

use crate::cube::squares;
use crate::engine::inputs::{Spec, Specs, Tensors};
use crate::engine::operator::{Kernels, Operator, Output};
use crate::engine::run::OnCube;
use crate::numerics::dropout::DropoutOps;
use burn::backend::fusion::client::GlobalFusionClient;
use burn::backend::fusion::custom::{CustomOpIr, HandleContainer, OperationFn, OperationIr, StreamId};
use burn::backend::fusion::{FusionBackend, FusionRuntime};
use burn::backend::ir::{TensorId, TensorIr};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Cube, TensorMetadata};
use burn_cubecl::CubeBackend;
use std::cell::RefCell;

/// Inputs whose tensors are known by name.
#[derive(Clone, Debug)]
pub(crate) struct Names;

impl Tensors for Names {
    type Float = TensorIr;
    type Int = TensorIr;
}

/// A backend that is asked for operators.
pub(crate) trait Later: DropoutOps {
    /// Whom to ask.
    type Client;

    fn client(tensor: &FloatTensor<Self>) -> Self::Client;
    fn float(tensor: FloatTensor<Self>) -> TensorIr;
    fn int(tensor: IntTensor<Self>) -> TensorIr;

    /// The results of a call, which come when they are read.
    fn ask<O: OnCube>(client: Self::Client, call: Call<O>) -> Vec<FloatTensor<Self>>;
}

impl<O: OnCube, B: Later> Kernels<B> for O {
    fn forward(inputs: O::On<B>) -> Output<O, B> {
        let mut results = ask::<O, B>(inputs, Vec::new(), None).into_iter();
        (results.next().expect("an output"), array(results))
    }

    fn backward(
        inputs: O::On<B>,
        statistics: O::Statistics<FloatTensor<B>>,
        grad: FloatTensor<B>,
        needs: O::Needs,
    ) -> Vec<Option<FloatTensor<B>>> {
        let operands = O::operands::<B>(&inputs).into_iter().zip(needs.clone());
        let asked: Vec<_> = operands.map(|(operand, needed)| needed && operand.is_some()).collect();
        let others = statistics.into_iter().chain([grad]).collect();
        let mut results = ask::<O, B>(inputs, others, Some(needs)).into_iter();
        asked.into_iter().map(|asked| if asked { results.next() } else { None }).collect()
    }
}

fn ask<O: OnCube, B: Later>(
    inputs: O::On<B>,
    others: Vec<FloatTensor<B>>,
    needs: Option<O::Needs>,
) -> Vec<FloatTensor<B>> {
    let client = B::client(O::operands::<B>(&inputs).into_iter().flatten().next().expect("an operand"));
    let tensors = RefCell::new(Vec::new());
    let named = |tensor: TensorIr| {
        tensors.borrow_mut().push(tensor.clone());
        tensor
    };
    let inputs = O::map::<B, Names>(inputs, &mut |tensor| named(B::float(tensor)), &mut |tensor| {
        named(B::int(tensor))
    });
    let others = others.into_iter().map(B::float).collect();
    B::ask(client, Call::<O> { inputs, own: tensors.into_inner(), others, needs })
}

/// What is asked for: a forward or a backward of operator `O`.
pub(crate) struct Call<O: Operator> {
    pub(crate) inputs: O::On<Names>,
    /// The inputs' tensors in the order of the declaration.
    own: Vec<TensorIr>,
    /// A backward's statistics and gradient.
    pub(crate) others: Vec<TensorIr>,
    /// The gradients that a backward is asked for.
    pub(crate) needs: Option<O::Needs>,
}

impl<O: Operator> Call<O> {
    pub(crate) fn id(&self) -> &'static str {
        O::IDS[usize::from(self.needs.is_some())]
    }

    /// All tensors, those of the inputs first.
    pub(crate) fn tensors(&self) -> Vec<TensorIr> {
        [&*self.own, &*self.others].concat()
    }

    /// The results' names, of which `new` makes ids: an output and its statistics, or the gradients.
    pub(crate) fn outputs(&self, new: impl Fn() -> TensorId) -> Vec<TensorIr> {
        let spec = |TensorIr { shape, dtype, .. }| Spec { shape, dtype };
        let inputs = O::map::<Names, Specs>(self.inputs.clone(), &mut |tensor| spec(tensor), &mut |_| ());
        let results: Vec<Spec> = match self.needs.clone() {
            None => {
                let (output, statistics) = O::specs(&inputs);
                [output].into_iter().chain(statistics).collect()
            }
            Some(needs) => {
                let operands = O::operands::<Specs>(&inputs).into_iter().zip(needs);
                operands.filter_map(|(operand, needed)| operand.filter(|_| needed).cloned()).collect()
            }
        };
        results.into_iter().map(|Spec { shape, dtype }| TensorIr::uninit(new(), shape, dtype)).collect()
    }
}

/// The results of a call on the backend that computes it; `others` are a backward's statistics and gradient.
pub(crate) fn compute<O: Kernels<B>, B: DropoutOps>(
    inputs: O::On<B>,
    mut others: Vec<FloatTensor<B>>,
    needs: Option<O::Needs>,
) -> Vec<FloatTensor<B>> {
    let Some(needs) = needs else {
        let (output, statistics) = O::forward(inputs);
        return [output].into_iter().chain(statistics).collect();
    };
    let grad = others.pop().expect("the output's gradient");
    O::backward(inputs, array(others), grad, needs).into_iter().flatten().collect()
}

/// An array of what `items` gives.
pub(crate) fn array<X, A: TryFrom<Vec<X>>>(items: impl IntoIterator<Item = X>) -> A {
    let array = A::try_from(items.into_iter().collect());
    array.ok().expect("as many items as the operator declares")
}

type Client = GlobalFusionClient<<CubeBackend as FusionBackend>::FusionRuntime>;
type Handle = <<CubeBackend as FusionBackend>::FusionRuntime as FusionRuntime>::FusionHandle;

impl Later for Cube {
    type Client = Client;

    fn client(tensor: &FloatTensor<Cube>) -> Client {
        tensor.client.clone()
    }

    fn float(tensor: FloatTensor<Cube>) -> TensorIr {
        tensor.into_ir()
    }

    fn int(tensor: IntTensor<Cube>) -> TensorIr {
        tensor.into_ir()
    }

    fn ask<O: OnCube>(client: Client, call: Call<O>) -> Vec<FloatTensor<Cube>> {
        let outputs = call.outputs(|| client.create_empty_handle());
        let (id, tensors) = (call.id(), call.tensors());
        let Call { inputs, others, needs, .. } = call;
        register(&client, id, &tensors, outputs, move |handles| {
            let from = RefCell::new(handles);
            let float = |tensor: &TensorIr| from.borrow_mut().get_float_tensor::<CubeBackend>(tensor);
            let int = |tensor: &TensorIr| from.borrow_mut().get_int_tensor::<CubeBackend>(tensor);
            let inputs =
                O::map::<Names, CubeBackend>(inputs.clone(), &mut |ir| float(&ir), &mut |ir| int(&ir));
            compute::<O, CubeBackend>(inputs, others.iter().map(float).collect(), needs.clone())
        })
    }
}

/// Queues what `run` computes from `inputs`.
fn register(
    client: &Client,
    id: &'static str,
    inputs: &[TensorIr],
    outputs: Vec<TensorIr>,
    run: impl Fn(&mut HandleContainer<Handle>) -> Vec<FloatTensor<CubeBackend>> + Send + Sync + 'static,
) -> Vec<FloatTensor<Cube>> {
    let ir = CustomOpIr::new(id, inputs, &outputs);
    let operation = OperationFn(move |handles: &mut HandleContainer<Handle>| {
        for (result, computed) in outputs.iter().zip(run(handles)) {
            debug_assert_eq!(
                (computed.shape(), computed.dtype()),
                (result.shape.clone(), result.dtype),
                "{id}"
            );
            handles.register_float_tensor::<CubeBackend>(&result.id, computed);
        }
        Ok(())
    });
    client.register(StreamId::current(), OperationIr::Custom(ir), operation)
}

/// Σ x² over all values of `tensors`, which are on one device and of one dtype, `[1]`.
pub(crate) fn sum_of_squares(tensors: Vec<FloatTensor<Cube>>) -> FloatTensor<Cube> {
    let (client, dtype) = (tensors[0].client.clone(), tensors[0].dtype());
    let inputs: Vec<_> = tensors.into_iter().map(|tensor| tensor.into_ir()).collect();
    let sum = Spec::statistic([1], dtype);
    let outputs = vec![TensorIr::uninit(client.create_empty_handle(), sum.shape, sum.dtype)];
    let names = inputs.clone();
    let run = move |handles: &mut HandleContainer<Handle>| {
        let tensors = names.iter().map(|tensor| handles.get_float_tensor::<CubeBackend>(tensor));
        vec![squares::sum_of_squares(tensors.collect())]
    };
    register(&client, "burn_fused::sum_of_squares", &inputs, outputs, run).remove(0)
}
