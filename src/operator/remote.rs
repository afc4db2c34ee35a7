//! The operators on remote devices: the client sends an operator's arguments, the worker runs its own kernel.

use super::add_layer_norm::ops::AddLayerNormOps;
use super::attention::ops::AttentionOps;
use super::bias_gelu::ops::BiasGeluOps;
use super::cross_entropy::ops::CrossEntropyOps;
use super::dropout::Dropout;
use super::dtype::computed_in;
use super::embed_layer_norm::ops::EmbeddingOps;
use super::path::Path;
use burn::backend::ir::{
    BackendIr, CustomOpIr, HandleContainer, OperationOutput, ScalarIr, TensorId, TensorIr,
};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Remote, TensorMetadata};
use burn::remote::CustomOpClient;
use burn::server::CustomOpRegistry;
use burn::tensor::{DType, Shape};
use std::slice;

/// The operators of this crate on backend `B`, for a worker.
#[cfg_attr(not(any(feature = "flex", feature = "ndarray", feature = "_cubecl")), allow(dead_code))] // a client's
pub(crate) fn registry<B>() -> CustomOpRegistry<B>
where
    B: BackendIr + EmbeddingOps + AddLayerNormOps + AttentionOps + BiasGeluOps + CrossEntropyOps,
{
    let mut registry = CustomOpRegistry::default();
    super::embed_layer_norm::remote::register(&mut registry);
    super::add_layer_norm::remote::register(&mut registry);
    super::attention::remote::register(&mut registry);
    super::bias_gelu::remote::register(&mut registry);
    super::cross_entropy::remote::register(&mut registry);
    registry
}

/// The arguments of an operator as they travel: tensors and numbers, each in the order in which they are read.
#[derive(Default)]
pub(crate) struct Arguments {
    tensors: Vec<TensorIr>,
    numbers: Vec<ScalarIr>,
}

impl Arguments {
    /// Adds a float or an int tensor.
    pub(crate) fn tensor(&mut self, tensor: FloatTensor<Remote>) {
        self.tensors.push(tensor.into_ir());
    }

    pub(crate) fn tensors<const N: usize>(&mut self, tensors: [FloatTensor<Remote>; N]) {
        tensors.into_iter().for_each(|tensor| self.tensor(tensor));
    }

    pub(crate) fn count(&mut self, count: usize) {
        self.numbers.push(ScalarIr::UInt(count as u64));
    }

    pub(crate) fn real(&mut self, number: f64) {
        self.numbers.push(ScalarIr::Float(number));
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.numbers.push(ScalarIr::Bool(flag));
    }

    pub(crate) fn path(&mut self, path: Path) {
        self.flag(path == Path::Reference);
    }

    pub(crate) fn dropout(&mut self, dropout: Dropout<Remote>) {
        match dropout {
            Dropout::Inactive => self.flag(false),
            Dropout::Philox { seed, prob } => {
                self.flag(true);
                self.tensor(seed);
                self.real(prob);
            }
        }
    }
}

/// The shape and the dtype of a result, which the client knows before the worker has it.
pub(crate) type Spec = (Shape, DType);

/// Those of a tensor.
pub(crate) fn spec(tensor: &FloatTensor<Remote>) -> Spec {
    (tensor.shape(), tensor.dtype())
}

/// Statistics of results in `dtype`.
pub(crate) fn statistic<const D: usize>(shape: [usize; D], dtype: DType) -> Spec {
    (Shape::new(shape), computed_in(dtype))
}

/// The operators of one device.
pub(crate) struct Call {
    client: CustomOpClient,
    arguments: Arguments,
}

impl Call {
    /// On the device of a tensor.
    pub(crate) fn on(tensor: &FloatTensor<Remote>) -> Self {
        Self { client: CustomOpClient::new(&tensor.device()), arguments: Arguments::default() }
    }

    pub(crate) fn arguments(&mut self) -> &mut Arguments {
        &mut self.arguments
    }

    /// Sends the operator `id`; its results come when they are read.
    pub(crate) fn send(self, id: &'static str, results: Vec<Spec>) -> Vec<FloatTensor<Remote>> {
        let Self { client, arguments: Arguments { tensors, numbers } } = self;
        let new = |(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape, dtype);
        let results: Vec<TensorIr> = results.into_iter().map(new).collect();
        client.register(CustomOpIr::with_scalars(id, &tensors, &results, numbers))
    }

    /// Sends an operator with so many results.
    pub(crate) fn send_for<const N: usize>(
        self,
        id: &'static str,
        results: [Spec; N],
    ) -> [FloatTensor<Remote>; N] {
        self.send(id, results.into()).outputs()
    }

    /// Sends a backward, which gives the gradients that are needed of these operands.
    pub(crate) fn send_backward<const N: usize>(
        mut self,
        id: &'static str,
        operands: [Option<Spec>; N],
        needs: [bool; N],
    ) -> [Option<FloatTensor<Remote>>; N] {
        let mut operands = operands;
        for (operand, needed) in operands.iter_mut().zip(needs) {
            self.arguments.flag(needed);
            operand.take_if(|_| !needed);
        }
        let asked = operands.each_ref().map(Option::is_some);
        let mut gradients = self.send(id, operands.into_iter().flatten().collect()).into_iter();
        asked.map(|asked| if asked { gradients.next() } else { None })
    }
}

/// The arguments of an operator as a worker reads them.
///
/// # Panics
///
/// All methods, if the client sent something else, such as one with another version of this crate: that ends its
/// session.
pub(crate) struct Received<'a, B: BackendIr> {
    handles: &'a mut HandleContainer<B::Handle>,
    tensors: slice::Iter<'a, TensorIr>,
    numbers: slice::Iter<'a, ScalarIr>,
    results: slice::Iter<'a, TensorIr>,
}

impl<'a, B: BackendIr> Received<'a, B> {
    fn new(handles: &'a mut HandleContainer<B::Handle>, operator: &'a CustomOpIr) -> Self {
        let CustomOpIr { inputs, scalars, outputs, .. } = operator;
        Self { handles, tensors: inputs.iter(), numbers: scalars.iter(), results: outputs.iter() }
    }

    pub(crate) fn float(&mut self) -> FloatTensor<B> {
        let tensor = self.tensors.next().expect(OTHER_CLIENT);
        self.handles.get_float_tensor::<B>(tensor)
    }

    pub(crate) fn floats<const N: usize>(&mut self) -> [FloatTensor<B>; N] {
        std::array::from_fn(|_| self.float())
    }

    pub(crate) fn int(&mut self) -> IntTensor<B> {
        let tensor = self.tensors.next().expect(OTHER_CLIENT);
        self.handles.get_int_tensor::<B>(tensor)
    }

    fn number(&mut self) -> ScalarIr {
        *self.numbers.next().expect(OTHER_CLIENT)
    }

    pub(crate) fn count(&mut self) -> usize {
        let ScalarIr::UInt(count) = self.number() else { panic!("{OTHER_CLIENT}") };
        count as usize
    }

    pub(crate) fn real(&mut self) -> f64 {
        let ScalarIr::Float(number) = self.number() else { panic!("{OTHER_CLIENT}") };
        number
    }

    pub(crate) fn flag(&mut self) -> bool {
        let ScalarIr::Bool(flag) = self.number() else { panic!("{OTHER_CLIENT}") };
        flag
    }

    pub(crate) fn flags<const N: usize>(&mut self) -> [bool; N] {
        std::array::from_fn(|_| self.flag())
    }

    pub(crate) fn path(&mut self) -> Path {
        if self.flag() { Path::Reference } else { Path::Fused }
    }

    pub(crate) fn dropout(&mut self) -> Dropout<B> {
        if self.flag() { Dropout::Philox { seed: self.int(), prob: self.real() } } else { Dropout::Inactive }
    }

    fn result(&mut self) -> &'a TensorId {
        &self.results.next().expect(OTHER_CLIENT).id
    }

    /// Gives the client the next of the results.
    pub(crate) fn reply(&mut self, tensor: FloatTensor<B>) {
        let id = self.result();
        self.handles.register_float_tensor::<B>(id, tensor);
    }

    /// Gives the client the next results.
    pub(crate) fn reply_all<const N: usize>(&mut self, tensors: [FloatTensor<B>; N]) {
        tensors.into_iter().for_each(|tensor| self.reply(tensor));
    }

    /// Gives the client the gradients that there are.
    pub(crate) fn reply_gradients(&mut self, gradients: impl IntoIterator<Item = Option<FloatTensor<B>>>) {
        gradients.into_iter().flatten().for_each(|gradient| self.reply(gradient));
    }
}

const OTHER_CLIENT: &str = "the client's arguments are not those of this version of burn-bert";

/// Runs `run` for the operator `id`.
pub(crate) fn serve<B: BackendIr>(
    registry: &mut CustomOpRegistry<B>,
    id: &'static str,
    run: fn(&mut Received<'_, B>),
) {
    registry.register(id, move |handles, operator, _| run(&mut Received::new(handles, operator)));
}
