//! The operator's inputs, generic over the backend.
//!
//! Throughout: B sequences of S tokens, vectors of length H.

#![cfg_attr(feature = "ndarray", allow(deprecated))] // what the macro generates names Burn's NdArray

use crate::operator::dropout::Dropout;
use crate::operator::path::Path;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, ExtensionType};

/// One of the three summands of [`EmbedLayerNorm`]: where each token's vector comes from. On tensors:
/// [`functional::embed_layer_norm`](crate::functional::embed_layer_norm).
#[derive(Clone, Debug, ExtensionType)]
#[extension_type(fusion: cfg(feature = "_cubecl"))]
pub enum Rows<B: Backend> {
    /// Nothing is added.
    Absent,
    /// Row `ids[b, s]` of `table` [V, H].
    Lookup {
        /// The table, [V, H].
        table: FloatTensor<B>,
        /// [B, S], or [1, S] for all sequences alike.
        ids: IntTensor<B>,
        /// The row that is read like any other and gets no gradient.
        padding_idx: Option<usize>,
    },
    /// Row `first + s` of `table` [V, H]: consecutive positions, the same in every sequence.
    Range {
        /// The table, [V, H].
        table: FloatTensor<B>,
        /// The row of token 0; `first + S` is at most V.
        first: usize,
    },
    /// One row of `table` [V, H] for every token.
    Row {
        /// The table, [V, H].
        table: FloatTensor<B>,
        /// The row, below V.
        row: usize,
    },
    /// Vectors of the caller, [B, S, H].
    Values(FloatTensor<B>),
}

impl<B: Backend> Rows<B> {
    /// What the gradient flows to: the table, or the vectors themselves.
    pub fn source(&self) -> Option<&FloatTensor<B>> {
        match self {
            Rows::Absent => None,
            Rows::Lookup { table, .. } | Rows::Range { table, .. } | Rows::Row { table, .. } => Some(table),
            Rows::Values(values) => Some(values),
        }
    }

    /// The same summand on another backend: `float` moves tables and vectors, `int` ids.
    pub(crate) fn map<C: Backend>(
        self,
        float: impl Fn(FloatTensor<B>) -> FloatTensor<C>,
        int: impl Fn(IntTensor<B>) -> IntTensor<C>,
    ) -> Rows<C> {
        match self {
            Rows::Absent => Rows::Absent,
            Rows::Lookup { table, ids, padding_idx } => {
                Rows::Lookup { table: float(table), ids: int(ids), padding_idx }
            }
            Rows::Range { table, first } => Rows::Range { table: float(table), first },
            Rows::Row { table, row } => Rows::Row { table: float(table), row },
            Rows::Values(values) => Rows::Values(float(values)),
        }
    }
}

/// The inputs of [`EmbeddingOps`](crate::ops::EmbeddingOps). On tensors:
/// [`functional::embed_layer_norm`](crate::functional::embed_layer_norm).
#[derive(Clone, Debug, ExtensionType)]
#[extension_type(fusion: cfg(feature = "_cubecl"))]
pub struct EmbedLayerNorm<B: Backend> {
    /// B and S.
    pub shape: [usize; 2],
    /// The first summand.
    #[extension_type]
    pub words: Rows<B>,
    /// The second summand.
    #[extension_type]
    pub token_types: Rows<B>,
    /// The third summand.
    #[extension_type]
    pub positions: Rows<B>,
    /// LayerNorm's scale γ, `[H]`.
    pub gamma: FloatTensor<B>,
    /// LayerNorm's shift β, `[H]`.
    pub beta: FloatTensor<B>,
    /// LayerNorm's ε.
    pub epsilon: f64,
    /// What dropout does to the result.
    #[extension_type]
    pub dropout: Dropout<B>,
    /// What computes the forward and the backward.
    pub(crate) path: Path,
}

impl<B: Backend> EmbedLayerNorm<B> {
    /// Without dropout. Inside [`on_reference_path`](crate::functional::on_reference_path), for the reference.
    pub fn new(
        shape: [usize; 2],
        [words, token_types, positions]: [Rows<B>; 3],
        gamma: FloatTensor<B>,
        beta: FloatTensor<B>,
        epsilon: f64,
    ) -> Self {
        let (dropout, path) = (Dropout::Inactive, Path::current());
        Self { shape, words, token_types, positions, gamma, beta, epsilon, dropout, path }
    }

    /// The same input on another backend: `float` moves tables and vectors, `int` ids and dropout's seed.
    pub(crate) fn map<C: Backend>(
        self,
        float: impl Fn(FloatTensor<B>) -> FloatTensor<C>,
        int: impl Fn(IntTensor<B>) -> IntTensor<C>,
    ) -> EmbedLayerNorm<C> {
        EmbedLayerNorm {
            shape: self.shape,
            words: self.words.map(&float, &int),
            token_types: self.token_types.map(&float, &int),
            positions: self.positions.map(&float, &int),
            gamma: float(self.gamma),
            beta: float(self.beta),
            epsilon: self.epsilon,
            dropout: self.dropout.map(int),
            path: self.path,
        }
    }
}

/// Which gradients of [`functional::embed_layer_norm`](crate::functional::embed_layer_norm) are needed: of words, token
/// types, positions, γ and β.
pub type Needs = [bool; 5];

/// A gradient of [`functional::embed_layer_norm`](crate::functional::embed_layer_norm), see
/// [`EmbedLayerNormGradients`].
#[derive(Clone, Debug, ExtensionType)]
#[extension_type(fusion: cfg(feature = "_cubecl"))]
pub enum Gradient<B: Backend> {
    /// It is not needed, or its summand is absent.
    Absent,
    /// It has the shape and the dtype of what it is the gradient of.
    Of(FloatTensor<B>),
}

impl<B: Backend> From<Option<FloatTensor<B>>> for Gradient<B> {
    fn from(gradient: Option<FloatTensor<B>>) -> Self {
        gradient.map_or(Self::Absent, Self::Of)
    }
}

/// The gradients of [`EmbeddingOps`](crate::ops::EmbeddingOps). On tensors:
/// [`functional::embed_layer_norm`](crate::functional::embed_layer_norm).
#[derive(Clone, Debug, ExtensionType)]
#[extension_type(fusion: cfg(feature = "_cubecl"))]
pub struct EmbedLayerNormGradients<B: Backend> {
    /// Of the first summand's table or vectors.
    #[extension_type]
    pub words: Gradient<B>,
    /// Of the second summand's.
    #[extension_type]
    pub token_types: Gradient<B>,
    /// Of the third summand's.
    #[extension_type]
    pub positions: Gradient<B>,
    /// Of γ.
    #[extension_type]
    pub gamma: Gradient<B>,
    /// Of β.
    #[extension_type]
    pub beta: Gradient<B>,
}

impl<B: Backend> EmbedLayerNormGradients<B> {
    /// From those of words, token types, positions, γ and β.
    pub fn new(gradients: [Option<FloatTensor<B>>; 5]) -> Self {
        let [words, token_types, positions, gamma, beta] = gradients.map(Gradient::from);
        Self { words, token_types, positions, gamma, beta }
    }

    /// Those of words, token types, positions, γ and β.
    pub fn into_array(self) -> [Option<FloatTensor<B>>; 5] {
        [self.words, self.token_types, self.positions, self.gamma, self.beta].map(|gradient| match gradient {
            Gradient::Absent => None,
            Gradient::Of(gradient) => Some(gradient),
        })
    }
}
