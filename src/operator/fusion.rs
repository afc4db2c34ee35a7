//! The operators on fusion's lazy devices, which queue an operator and run it later.

use super::cube::squares;
use super::inputs::Spec;
use super::later::{Call, Later, Names, compute};
use super::run::OnCube;
use burn::backend::fusion::client::GlobalFusionClient;
use burn::backend::fusion::custom::{
    CustomOpIr, HandleContainer, OperationFn, OperationIr, StreamId, TensorIr,
};
use burn::backend::fusion::{FusionBackend, FusionRuntime};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Cube, TensorMetadata};
use burn_cubecl::CubeBackend;
use std::cell::RefCell;

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
    register(&client, "burn_bert::sum_of_squares", &inputs, outputs, run).remove(0)
}
