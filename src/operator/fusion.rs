//! The operators on fusion's lazy devices, which queue an operator and run it later.

use super::cube::squares;
use super::inputs::Spec;
use super::kernels::{Kernels, Operator, Output};
use super::later::{Call, Names, array, gradients, output};
use burn::backend::fusion::client::GlobalFusionClient;
use burn::backend::fusion::custom::{
    CustomOpIr, HandleContainer, OperationFn, OperationIr, StreamId, TensorIr,
};
use burn::backend::fusion::{FusionBackend, FusionRuntime};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Cube, TensorMetadata};
use burn_cubecl::CubeBackend;
use std::cell::RefCell;

type Client = GlobalFusionClient<<CubeBackend as FusionBackend>::FusionRuntime>;
type Handle = <<CubeBackend as FusionBackend>::FusionRuntime as FusionRuntime>::FusionHandle;

impl<O: Kernels<CubeBackend>> Kernels<Cube> for O {
    fn forward(inputs: O::On<Cube>) -> Output<O, Cube> {
        let client = client::<O>(&inputs);
        let call = Call::<O>::forward::<Cube>(inputs, |float| float.into_ir(), |int| int.into_ir());
        output::<O, Cube>(queue(&client, O::IDS[0], call, |inputs, _| {
            let (output, statistics) = O::forward(inputs);
            [output].into_iter().chain(statistics).collect()
        }))
    }

    fn backward(
        inputs: O::On<Cube>,
        statistics: O::Statistics<FloatTensor<Cube>>,
        grad: FloatTensor<Cube>,
        needs: O::Needs,
    ) -> Vec<Option<FloatTensor<Cube>>> {
        let client = client::<O>(&inputs);
        let call = Call::<O>::backward::<Cube>(
            inputs,
            statistics,
            grad,
            needs.clone(),
            |float| float.into_ir(),
            |int| int.into_ir(),
        );
        let asked = call.asked();
        gradients(
            asked,
            queue(&client, O::IDS[1], call, move |inputs, mut floats| {
                let grad = floats.pop().expect("the output's gradient");
                O::backward(inputs, array(floats), grad, needs.clone()).into_iter().flatten().collect()
            }),
        )
    }
}

fn client<O: Operator>(inputs: &O::On<Cube>) -> Client {
    O::operands::<Cube>(inputs).into_iter().flatten().next().expect("an operand").client.clone()
}

/// Queues a call, which `run` computes from the inputs and the tensors of a backward.
fn queue<O: Operator>(
    client: &Client,
    id: &'static str,
    call: Call<O>,
    run: impl Fn(O::On<CubeBackend>, Vec<FloatTensor<CubeBackend>>) -> Vec<FloatTensor<CubeBackend>>
    + Send
    + Sync
    + 'static,
) -> Vec<FloatTensor<Cube>> {
    let outputs = call.outputs(|| client.create_empty_handle());
    let tensors = call.tensors();
    let Call { inputs, others, .. } = call;
    register(client, id, &tensors, outputs, move |handles| {
        let from = RefCell::new(handles);
        let float = |tensor: &TensorIr| from.borrow_mut().get_float_tensor::<CubeBackend>(tensor);
        let int = |tensor: &TensorIr| from.borrow_mut().get_int_tensor::<CubeBackend>(tensor);
        let inputs = O::map::<Names, CubeBackend>(inputs.clone(), &mut |ir| float(&ir), &mut |ir| int(&ir));
        run(inputs, others.iter().map(float).collect())
    })
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
    register(&client, "burn_bert::sum_of_squares", &inputs, outputs, run).remove(0)
}
