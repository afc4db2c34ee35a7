//! The inputs of an operator, declared once: its tensors on a backend, or what stands for them.

use burn::backend::Backend;
use burn::backend::tensor::{FloatTensor, IntTensor};
use std::fmt::Debug;

/// What autodiff's graph and fusion's queue can hold.
pub(crate) trait Saved: Clone + Debug + Send + Sync + 'static {}

impl<T: Clone + Debug + Send + Sync + 'static> Saved for T {}

/// What stands for the tensors in an operator's inputs: a backend's, or what describes them.
pub(crate) trait Tensors: Saved {
    type Float: Saved;
    type Int: Saved;
}

impl<B: Backend> Tensors for B {
    type Float = FloatTensor<B>;
    type Int = IntTensor<B>;
}

/// The fields of an operator's inputs, as [`inputs`] declares them.
pub(crate) trait OperatorInputs: Saved {
    type On<T: Tensors>: Saved;

    /// Which operands' gradients are needed: `[bool; N]` for N operands.
    type Needs: Saved + IntoIterator<Item = bool>;

    /// What the backward needs besides the inputs: an array.
    type Statistics<X: Saved>: Saved + IntoIterator<Item = X> + TryFrom<Vec<X>>;

    /// The same inputs with other tensors. Tensors are mapped in the order of the declaration.
    fn map<T: Tensors, U: Tensors>(
        inputs: Self::On<T>,
        float: &mut impl FnMut(T::Float) -> U::Float,
        int: &mut impl FnMut(T::Int) -> U::Int,
    ) -> Self::On<U>;

    /// What can need a gradient, in order; `None` for what is absent.
    fn operands<T: Tensors>(inputs: &Self::On<T>) -> Vec<Option<&T::Float>>;

    /// An operand; all are on its device.
    fn operand<T: Tensors>(inputs: &Self::On<T>) -> &T::Float {
        Self::operands::<T>(inputs).into_iter().flatten().next().expect("an operand")
    }
}

/// Declares an operator, with its numbers of operands and statistics, and the struct of its inputs, generic over their
/// [`Tensors`].
///
/// - `nested`: types of their own such as [`Dropout`](crate::numerics::dropout::Dropout), with the methods `map`
///   and `operands`;
/// - `floats`: float tensors that can need a gradient; `optional`: those that can be absent;
/// - `constants`: float tensors without a gradient, of any dtype;
/// - `ints`: int tensors;
/// - `plain`: fields without tensors.
///
/// Operands are numbered in this order.
macro_rules! inputs {
    (
        $(#[$doc:meta])*
        $name:ident of $operator:ident, operands: $operands:literal, statistics: $statistics:literal {
            $(nested { $($(#[$nested_doc:meta])* $nested:ident: $of:ident,)* })?
            $(floats { $($(#[$float_doc:meta])* $float:ident,)* })?
            $(optional { $($(#[$optional_doc:meta])* $optional:ident,)* })?
            $(constants { $($(#[$constant_doc:meta])* $constant:ident,)* })?
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
            $($($(#[$constant_doc])* pub(crate) $constant: T::Float,)*)?
            $($($(#[$int_doc])* pub(crate) $int: T::Int,)*)?
            $($($(#[$plain_doc])* pub(crate) $plain: $type,)*)?
        }

        #[doc = concat!("The operator of [`", stringify!($name), "`].")]
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $operator;

        #[allow(unused_variables)] // operators without ints or nested inputs
        impl $crate::engine::inputs::OperatorInputs for $operator {
            type On<T: $crate::engine::inputs::Tensors> = $name<T>;
            type Needs = [bool; $operands];
            type Statistics<X: $crate::engine::inputs::Saved> = [X; $statistics];

            fn map<T: $crate::engine::inputs::Tensors, U: $crate::engine::inputs::Tensors>(
                inputs: $name<T>,
                float: &mut impl FnMut(T::Float) -> U::Float,
                int: &mut impl FnMut(T::Int) -> U::Int,
            ) -> $name<U> {
                $name {
                    $($($nested: inputs.$nested.map(float, int),)*)?
                    $($($float: float(inputs.$float),)*)?
                    $($($optional: inputs.$optional.map(&mut *float),)*)?
                    $($($constant: float(inputs.$constant),)*)?
                    $($($int: int(inputs.$int),)*)?
                    $($($plain: inputs.$plain,)*)?
                }
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
