//! The operators on devices that are asked now and compute later: fusion's queue, and workers.

use super::inputs::{Spec, Specs, Tensors};
use super::kernels::{Operator, Output};
use burn::backend::Backend;
use burn::backend::ir::{TensorId, TensorIr};
use burn::backend::tensor::{FloatTensor, IntTensor};
use std::cell::RefCell;

/// Inputs whose tensors are known by name.
#[derive(Clone, Debug)]
pub(crate) struct Names;

impl Tensors for Names {
    type Float = TensorIr;
    type Int = TensorIr;
}

/// What is asked for: a forward or a backward of operator `O`.
pub(crate) struct Call<O: Operator> {
    pub(crate) inputs: O::On<Names>,
    /// The inputs' tensors in the order of the declaration.
    own: Vec<TensorIr>,
    /// A backward's statistics and gradient.
    pub(crate) others: Vec<TensorIr>,
    /// `None` for gradients that are not needed.
    results: Vec<Option<Spec>>,
}

impl<O: Operator> Call<O> {
    /// The output and the statistics of inputs that `float` and `int` name.
    pub(crate) fn forward<B: Backend>(
        inputs: O::On<B>,
        float: fn(FloatTensor<B>) -> TensorIr,
        int: fn(IntTensor<B>) -> TensorIr,
    ) -> Self {
        let tensors = RefCell::new(Vec::new());
        let named = |tensor: TensorIr| {
            tensors.borrow_mut().push(tensor.clone());
            tensor
        };
        let inputs =
            O::map::<B, Names>(inputs, &mut |tensor| named(float(tensor)), &mut |tensor| named(int(tensor)));
        let (output, statistics) = O::specs(&specs::<O>(&inputs));
        let results = [output].into_iter().chain(statistics).map(Some).collect();
        Self { inputs, own: tensors.into_inner(), others: Vec::new(), results }
    }

    /// The gradients that `needs` asks for.
    pub(crate) fn backward<B: Backend>(
        inputs: O::On<B>,
        statistics: O::Statistics<FloatTensor<B>>,
        grad: FloatTensor<B>,
        needs: O::Needs,
        float: fn(FloatTensor<B>) -> TensorIr,
        int: fn(IntTensor<B>) -> TensorIr,
    ) -> Self {
        let mut call = Self::forward::<B>(inputs, float, int);
        call.others = statistics.into_iter().chain([grad]).map(float).collect();
        let operands = specs::<O>(&call.inputs);
        let operands = O::operands::<Specs>(&operands).into_iter().zip(needs);
        call.results = operands.map(|(operand, needed)| operand.filter(|_| needed).cloned()).collect();
        call
    }

    /// All tensors, those of the inputs first.
    pub(crate) fn tensors(&self) -> Vec<TensorIr> {
        [&*self.own, &*self.others].concat()
    }

    /// The results' names, of which `new` makes ids.
    pub(crate) fn outputs(&self, new: impl Fn() -> TensorId) -> Vec<TensorIr> {
        let output = |spec: &Spec| TensorIr::uninit(new(), spec.shape.clone(), spec.dtype);
        self.results.iter().flatten().map(output).collect()
    }

    /// Which results there are.
    pub(crate) fn asked(&self) -> Vec<bool> {
        self.results.iter().map(Option::is_some).collect()
    }
}

fn specs<O: Operator>(inputs: &O::On<Names>) -> O::On<Specs> {
    let spec = |TensorIr { shape, dtype, .. }| Spec { shape, dtype };
    O::map::<Names, Specs>(inputs.clone(), &mut |tensor| spec(tensor), &mut |_| ())
}

/// A forward's results.
pub(crate) fn output<O: Operator, B: Backend>(results: Vec<FloatTensor<B>>) -> Output<O, B> {
    let mut results = results.into_iter();
    (results.next().expect("an output"), array(results))
}

/// A backward's results, where they were asked for.
pub(crate) fn gradients<X>(asked: Vec<bool>, results: Vec<X>) -> Vec<Option<X>> {
    let mut results = results.into_iter();
    asked.into_iter().map(|asked| if asked { results.next() } else { None }).collect()
}

/// An array of what `items` gives.
pub(crate) fn array<X, A: TryFrom<Vec<X>>>(items: impl IntoIterator<Item = X>) -> A {
    let array = A::try_from(items.into_iter().collect());
    array.ok().expect("as many items as the operator declares")
}
