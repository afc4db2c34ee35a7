//! The operators on devices that are asked now and compute later: fusion's queue, and workers.

use super::dropout::ops::DropoutOps;
use super::inputs::{Spec, Specs, Tensors};
use super::kernels::{Kernels, Operator, Output};
use super::run::OnCube;
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
