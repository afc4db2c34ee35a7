//! What an operator takes, declared once: mapping to a backend, the graph's operands and the remote form follow.

use super::dtype::computed_in;
use burn::backend::Backend;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{DType, Shape};
use std::fmt::Debug;

/// What autodiff's graph and fusion's queue can hold.
pub(crate) trait Held: Clone + Debug + Send + Sync + 'static {}

impl<T: Clone + Debug + Send + Sync + 'static> Held for T {}

/// What stands for the tensors in an operator's inputs: a backend's, or what describes them.
pub(crate) trait Tensors: Held {
    type Float: Held;
    type Int: Held;
}

impl<B: Backend> Tensors for B {
    type Float = FloatTensor<B>;
    type Int = IntTensor<B>;
}

/// The shape and the dtype of a tensor.
#[derive(Clone, Debug)]
#[cfg_attr(not(any(feature = "remote", feature = "_cubecl")), allow(dead_code))] // devices that compute later
pub(crate) struct Spec {
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
}

#[cfg_attr(not(any(feature = "remote", feature = "_cubecl")), allow(dead_code))]
impl Spec {
    /// Of statistics of results in `dtype`.
    pub(crate) fn statistic<const D: usize>(shape: [usize; D], dtype: DType) -> Self {
        Self { shape: Shape::new(shape), dtype: computed_in(dtype) }
    }
}

/// Inputs of which shapes and dtypes are known.
#[derive(Clone, Debug)]
pub(crate) struct Specs;

impl Tensors for Specs {
    type Float = Spec;
    type Int = ();
}

/// Inputs without their tensors.
#[cfg(feature = "remote")]
#[derive(Clone, Debug)]
pub(crate) struct Places;

#[cfg(feature = "remote")]
impl Tensors for Places {
    type Float = ();
    type Int = ();
}

/// The fields of an operator's inputs, as [`inputs`] declares them.
pub(crate) trait Fields: Held {
    /// The operator's ids, by which a worker knows its forward and its backward.
    #[cfg(any(feature = "remote", feature = "_cubecl"))]
    const IDS: [&'static str; 2];

    /// The inputs.
    type On<T: Tensors>: Held;

    /// The same inputs with other tensors. Tensors are mapped in the order of the declaration.
    fn map<T: Tensors, U: Tensors>(
        inputs: Self::On<T>,
        float: &mut impl FnMut(T::Float) -> U::Float,
        int: &mut impl FnMut(T::Int) -> U::Int,
    ) -> Self::On<U>;

    /// What computes the operator.
    #[cfg(feature = "flex")]
    fn path<T: Tensors>(inputs: &Self::On<T>) -> super::path::Path;

    /// What can need a gradient, in order; `None` for what is absent.
    fn operands<T: Tensors>(inputs: &Self::On<T>) -> Vec<Option<&T::Float>>;

    /// Adds the fields that are no tensors.
    #[cfg(feature = "remote")]
    fn put<T: Tensors>(inputs: &Self::On<T>, to: &mut Vec<super::wire::Number>);

    /// Reads what [`put`](Self::put) added.
    #[cfg(feature = "remote")]
    fn take(from: &mut super::wire::Numbers) -> Self::On<Places>;
}

/// Declares an operator and the struct of its inputs, generic over their [`Tensors`].
///
/// - `nested`: types of their own such as [`Dropout`](super::dropout::Dropout), with the methods `map`, `operands`, `put`
///   and `take`;
/// - `floats`: float tensors that can need a gradient; `optional`: those that can be absent;
/// - `ints`: int tensors;
/// - `plain`: fields without tensors, of which `path` is one.
///
/// Operands are numbered in this order.
macro_rules! inputs {
    (
        $(#[$doc:meta])*
        $name:ident of $operator:ident {
            $(nested { $($(#[$nested_doc:meta])* $nested:ident: $of:ident,)* })?
            $(floats { $($(#[$float_doc:meta])* $float:ident,)* })?
            $(optional { $($(#[$optional_doc:meta])* $optional:ident,)* })?
            $(ints { $($(#[$int_doc:meta])* $int:ident,)* })?
            $(plain { $($(#[$plain_doc:meta])* $plain:ident: $type:ty,)* })?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $name<T: $crate::operator::inputs::Tensors> {
            $($($(#[$nested_doc])* pub(crate) $nested: $of<T>,)*)?
            $($($(#[$float_doc])* pub(crate) $float: T::Float,)*)?
            $($($(#[$optional_doc])* pub(crate) $optional: Option<T::Float>,)*)?
            $($($(#[$int_doc])* pub(crate) $int: T::Int,)*)?
            $($($(#[$plain_doc])* pub(crate) $plain: $type,)*)?
        }

        #[doc = concat!("The operator of [`", stringify!($name), "`].")]
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $operator;

        #[allow(unused_variables)] // operators without ints or nested inputs
        impl $crate::operator::inputs::Fields for $operator {
            #[cfg(any(feature = "remote", feature = "_cubecl"))]
            const IDS: [&'static str; 2] = [
                concat!("burn_bert::", stringify!($name)),
                concat!("burn_bert::", stringify!($name), "::backward"),
            ];

            type On<T: $crate::operator::inputs::Tensors> = $name<T>;

            fn map<T: $crate::operator::inputs::Tensors, U: $crate::operator::inputs::Tensors>(
                inputs: $name<T>,
                float: &mut impl FnMut(T::Float) -> U::Float,
                int: &mut impl FnMut(T::Int) -> U::Int,
            ) -> $name<U> {
                $name {
                    $($($nested: inputs.$nested.map(float, int),)*)?
                    $($($float: float(inputs.$float),)*)?
                    $($($optional: inputs.$optional.map(&mut *float),)*)?
                    $($($int: int(inputs.$int),)*)?
                    $($($plain: inputs.$plain,)*)?
                }
            }

            #[cfg(feature = "flex")]
            fn path<T: $crate::operator::inputs::Tensors>(inputs: &$name<T>) -> $crate::operator::path::Path {
                inputs.path
            }

            fn operands<T: $crate::operator::inputs::Tensors>(inputs: &$name<T>) -> Vec<Option<&T::Float>> {
                let mut operands = Vec::new();
                $($(operands.extend(inputs.$nested.operands());)*)?
                $($(operands.extend([Some(&inputs.$float)]);)*)?
                $($(operands.extend([inputs.$optional.as_ref()]);)*)?
                operands
            }

            #[cfg(feature = "remote")]
            fn put<T: $crate::operator::inputs::Tensors>(
                inputs: &$name<T>,
                to: &mut Vec<$crate::operator::wire::Number>,
            ) {
                $($(inputs.$nested.put(to);)*)?
                $($($crate::operator::wire::Plain::put(&inputs.$optional.is_some(), to);)*)?
                $($($crate::operator::wire::Plain::put(&inputs.$plain, to);)*)?
            }

            #[cfg(feature = "remote")]
            fn take(from: &mut $crate::operator::wire::Numbers) -> $name<$crate::operator::inputs::Places> {
                $name {
                    $($($nested: $of::take(from),)*)?
                    $($($float: (),)*)?
                    $($($optional: <bool as $crate::operator::wire::Plain>::take(from).then_some(()),)*)?
                    $($($int: (),)*)?
                    $($($plain: $crate::operator::wire::Plain::take(from),)*)?
                }
            }
        }
    };
}
pub(crate) use inputs;
