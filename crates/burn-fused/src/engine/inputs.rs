//! What an operator takes, declared once: mapping to a backend and the graph's operands follow.

use crate::numerics::sums::computed_in;
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
#[cfg_attr(not(feature = "_cubecl"), allow(dead_code))] // devices that compute later
pub(crate) struct Spec {
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
}

#[cfg_attr(not(feature = "_cubecl"), allow(dead_code))]
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

/// The fields of an operator's inputs, as [`inputs`] declares them.
pub(crate) trait Fields: Held {
    /// The names of its forward and its backward in fusion's queue.
    #[cfg(feature = "_cubecl")]
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
    fn path<T: Tensors>(inputs: &Self::On<T>) -> crate::engine::run::Path;

    /// What can need a gradient, in order; `None` for what is absent.
    fn operands<T: Tensors>(inputs: &Self::On<T>) -> Vec<Option<&T::Float>>;
}

/// Declares an operator and the struct of its inputs, generic over their [`Tensors`].
///
/// - `nested`: types of their own such as [`Dropout`](crate::numerics::dropout::Dropout), with the methods `map`
///   and `operands`;
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
        pub(crate) struct $name<T: $crate::engine::inputs::Tensors> {
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
        impl $crate::engine::inputs::Fields for $operator {
            #[cfg(feature = "_cubecl")]
            const IDS: [&'static str; 2] = [
                concat!("burn_fused::", stringify!($name)),
                concat!("burn_fused::", stringify!($name), "::backward"),
            ];

            type On<T: $crate::engine::inputs::Tensors> = $name<T>;

            fn map<T: $crate::engine::inputs::Tensors, U: $crate::engine::inputs::Tensors>(
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
            fn path<T: $crate::engine::inputs::Tensors>(inputs: &$name<T>) -> $crate::engine::run::Path {
                inputs.path
            }

            fn operands<T: $crate::engine::inputs::Tensors>(inputs: &$name<T>) -> Vec<Option<&T::Float>> {
                let mut operands = Vec::new();
                $($(operands.extend(inputs.$nested.operands());)*)?
                $($(operands.extend([Some(&inputs.$float)]);)*)?
                $($(operands.extend([inputs.$optional.as_ref()]);)*)?
                operands
            }

        }
    };
}
pub(crate) use inputs;
