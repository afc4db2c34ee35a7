//! The operators on remote devices: the client sends an operator's inputs, the worker runs its own kernel.

use super::add_layer_norm::AddLayerNormOp;
use super::attention::AttentionOp;
use super::bias_gelu::BiasGeluOp;
use super::cross_entropy::CrossEntropyOp;
use super::dropout::ops::DropoutOps;
use super::embed_layer_norm::EmbedLayerNormOp;
use super::inputs::Places;
use super::kernels::{Kernels, Operator, Output};
use super::later::{Call, array, gradients, output};
use super::linear::LinearOp;
use super::move_rows::MoveRowsOp;
use super::wire::{Number, Numbers, OTHER_CLIENT};
use burn::backend::ir::{BackendIr, CustomOpIr, HandleContainer, TensorIr};
use burn::backend::tensor::{Device, FloatTensor};
use burn::backend::{Remote, TensorMetadata};
use burn::remote::CustomOpClient;
use burn::server::CustomOpRegistry;
use std::cell::RefCell;
use std::slice;

macro_rules! registry {
    ($($operator:ty),*) => {
        /// The operators of this crate on backend `B`, for a worker.
        #[cfg_attr(not(any(feature = "flex", feature = "ndarray", feature = "_cubecl")), allow(dead_code))]
        pub(crate) fn registry<B: BackendIr + DropoutOps>() -> CustomOpRegistry<B>
        where
            $($operator: Kernels<B>,)*
        {
            let mut registry = CustomOpRegistry::default();
            $(register::<$operator, B>(&mut registry);)*
            registry
        }
    };
}
registry!(EmbedLayerNormOp, AddLayerNormOp, AttentionOp, BiasGeluOp, CrossEntropyOp, LinearOp, MoveRowsOp);

impl<O: Operator> Kernels<Remote> for O {
    fn forward(inputs: O::On<Remote>) -> Output<O, Remote> {
        let device = device::<O>(&inputs);
        let call = Call::<O>::forward::<Remote>(inputs, |float| float.into_ir(), |int| int.into_ir());
        output::<O, Remote>(send(&device, O::IDS[0], call, Vec::new()))
    }

    fn backward(
        inputs: O::On<Remote>,
        statistics: O::Statistics<FloatTensor<Remote>>,
        grad: FloatTensor<Remote>,
        needs: O::Needs,
    ) -> Vec<Option<FloatTensor<Remote>>> {
        let device = device::<O>(&inputs);
        let flags = needs.clone().into_iter().map(Number::Bool).collect();
        let call = Call::<O>::backward::<Remote>(
            inputs,
            statistics,
            grad,
            needs,
            |float| float.into_ir(),
            |int| int.into_ir(),
        );
        let asked = call.asked();
        gradients(asked, send(&device, O::IDS[1], call, flags))
    }
}

fn device<O: Operator>(inputs: &O::On<Remote>) -> Device<Remote> {
    O::operands::<Remote>(inputs).into_iter().flatten().next().expect("an operand").device()
}

/// Sends a call; its results come when they are read.
fn send<O: Operator>(
    device: &Device<Remote>,
    id: &'static str,
    call: Call<O>,
    flags: Vec<Number>,
) -> Vec<FloatTensor<Remote>> {
    let client = CustomOpClient::new(device);
    let outputs = call.outputs(|| client.create_empty_handle());
    let mut numbers = Vec::new();
    O::put(&call.inputs, &mut numbers);
    numbers.extend(flags);
    client.register(CustomOpIr::with_scalars(id, &call.tensors(), &outputs, numbers))
}

/// A call as the worker reads it.
///
/// # Panics
///
/// All methods, if the client sent something else, such as one with another version of this crate: that ends its
/// session.
struct Received<'a, B: BackendIr> {
    handles: &'a mut HandleContainer<B::Handle>,
    tensors: slice::Iter<'a, TensorIr>,
    numbers: Numbers,
    results: slice::Iter<'a, TensorIr>,
}

impl<'a, B: BackendIr> Received<'a, B> {
    fn new(handles: &'a mut HandleContainer<B::Handle>, call: &'a CustomOpIr) -> Self {
        let CustomOpIr { inputs, scalars, outputs, .. } = call;
        Self {
            handles,
            tensors: inputs.iter(),
            numbers: scalars.clone().into_iter(),
            results: outputs.iter(),
        }
    }

    fn inputs<O: Operator>(&mut self) -> O::On<B> {
        let places = O::take(&mut self.numbers);
        let from = RefCell::new(self);
        O::map::<Places, B>(places, &mut |()| from.borrow_mut().float(), &mut |()| {
            let Self { handles, tensors, .. } = &mut **from.borrow_mut();
            handles.get_int_tensor::<B>(tensors.next().expect(OTHER_CLIENT))
        })
    }

    fn float(&mut self) -> FloatTensor<B> {
        self.handles.get_float_tensor::<B>(self.tensors.next().expect(OTHER_CLIENT))
    }

    fn reply(&mut self, results: impl IntoIterator<Item = FloatTensor<B>>) {
        for result in results {
            let TensorIr { id, .. } = self.results.next().expect(OTHER_CLIENT);
            self.handles.register_float_tensor::<B>(id, result);
        }
    }
}

fn register<O: Kernels<B>, B: BackendIr + DropoutOps>(registry: &mut CustomOpRegistry<B>) {
    registry.register(O::IDS[0], |handles, call, _| {
        let mut received = Received::<B>::new(handles, call);
        let (output, statistics) = O::forward(received.inputs::<O>());
        received.reply([output].into_iter().chain(statistics));
    });
    registry.register(O::IDS[1], |handles, call, _| {
        let mut received = Received::<B>::new(handles, call);
        let inputs = received.inputs::<O>();
        let needs = array(received.numbers.clone().map(|flag| flag == Number::Bool(true)));
        let mut floats: Vec<_> = received.tensors.clone().map(|_| received.float()).collect();
        let grad = floats.pop().expect(OTHER_CLIENT);
        received.reply(O::backward(inputs, array(floats), grad, needs).into_iter().flatten());
    });
}
