//! The operators on remote devices: the client sends an operator's inputs, the worker runs its own kernel.

use super::add_layer_norm::AddLayerNormOp;
use super::attention::AttentionOp;
use super::bias_gelu::BiasGeluOp;
use super::cross_entropy::CrossEntropyOp;
use super::dropout::ops::DropoutOps;
use super::embed_layer_norm::EmbedLayerNormOp;
use super::inputs::Places;
use super::kernels::{Kernels, Operator};
use super::later::{Call, Later, array, compute};
use super::linear::LinearOp;
use super::move_rows::MoveRowsOp;
use super::run::OnCube;
use super::wire::{Number, Numbers, OTHER_CLIENT};
use burn::backend::ir::{BackendIr, CustomOpIr, HandleContainer, TensorIr};
use burn::backend::tensor::{FloatTensor, IntTensor};
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

impl Later for Remote {
    type Client = CustomOpClient;

    fn client(tensor: &FloatTensor<Remote>) -> CustomOpClient {
        CustomOpClient::new(&tensor.device())
    }

    fn float(tensor: FloatTensor<Remote>) -> TensorIr {
        tensor.into_ir()
    }

    fn int(tensor: IntTensor<Remote>) -> TensorIr {
        tensor.into_ir()
    }

    fn ask<O: OnCube>(client: CustomOpClient, call: Call<O>) -> Vec<FloatTensor<Remote>> {
        let outputs = call.outputs(|| client.create_empty_handle());
        let mut numbers = Vec::new();
        O::put(&call.inputs, &mut numbers);
        numbers.extend(call.needs.clone().into_iter().flatten().map(Number::Bool));
        client.register(CustomOpIr::with_scalars(call.id(), &call.tensors(), &outputs, numbers))
    }
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
}

fn register<O: Kernels<B>, B: BackendIr + DropoutOps>(registry: &mut CustomOpRegistry<B>) {
    for (id, is_backward) in O::IDS.into_iter().zip([false, true]) {
        registry.register(id, move |handles, call, _| {
            let mut received = Received::<B>::new(handles, call);
            let inputs = received.inputs::<O>();
            let flags = received.numbers.clone().map(|flag| flag == Number::Bool(true));
            let needs = is_backward.then(|| array(flags));
            let others = received.tensors.clone().map(|_| received.float()).collect();
            for result in compute::<O, B>(inputs, others, needs) {
                let TensorIr { id, .. } = received.results.next().expect(OTHER_CLIENT);
                received.handles.register_float_tensor::<B>(id, result);
            }
        });
    }
}
