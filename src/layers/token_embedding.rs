use super::checks::{MAX_ROWS, MAX_WIDTH, check_num_params, check_sizes, ensure};
use super::ids::{Ids, unravel};
use super::initializer::EmbeddingInitializer;
use crate::error::{EmbeddingTable, Error, Result};
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::prelude::*;
use burn_fused::{Rows, lookup, read_at_once};

/// Configuration of a [`TokenEmbedding`], which has an example.
#[derive(Config, Debug, PartialEq)]
pub struct TokenEmbeddingConfig {
    /// Rows of the table, V.
    pub num_embeddings: usize,
    /// Length of every row, H.
    pub embedding_dim: usize,
    /// The row that is initialised to zero and gets no gradient through the lookup.
    pub padding_idx: Option<usize>,
    /// Distribution of the rows before training; by default N(0, 1), as `torch.nn.Embedding`.
    #[config(default = "EmbeddingInitializer::Normal { std: 1.0 }")]
    pub initializer: EmbeddingInitializer,
}

impl TokenEmbeddingConfig {
    /// Builds the table on `device`; panics where [`try_init`](Self::try_init) returns an error.
    pub fn init(&self, device: &Device) -> TokenEmbedding {
        self.try_init(device).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`init`](Self::init). Returns [`Error::Config`] if a size is 0 or too large (2³¹ − 1 rows, 2²⁰ columns, 2⁴⁰
    /// values), `padding_idx` is not below `num_embeddings`, or the initialiser is not a distribution.
    pub fn try_init(&self, device: &Device) -> Result<TokenEmbedding> {
        check_sizes([
            ("num_embeddings", self.num_embeddings, MAX_ROWS),
            ("embedding_dim", self.embedding_dim, MAX_WIDTH),
        ])?;
        check_num_params("num_embeddings", self.num_embeddings as u128 * self.embedding_dim as u128)?;
        if let Some(row) = self.padding_idx {
            let rows = self.num_embeddings;
            ensure(row < rows, "padding_idx", || format!("is {row}, but num_embeddings is {rows}"))?;
        }
        self.initializer.validate()?;
        Ok(self.build(device))
    }

    /// [`try_init`](Self::try_init) of a config that was checked, as part of a model's.
    pub(crate) fn build(&self, device: &Device) -> TokenEmbedding {
        // Sets CubeCL's runtime kind to asynchronous for the whole process: `into_data` then copies at the call, not when the
        // data is first read, which training may have changed by then.
        read_at_once();
        let shape = [self.num_embeddings, self.embedding_dim];
        TokenEmbedding {
            weight: self.initializer.init_matrix(shape, self.padding_idx, device),
            padding_idx: self.padding_idx,
        }
    }
}

/// A lookup table whose padding row gets no gradient: `torch.nn.Embedding(V, H, padding_idx)`.
///
/// `forward(ids)[…, :] = weight[ids[…], :]`. The padding row is zero after [`init`](TokenEmbeddingConfig::init); a lookup
/// returns it as it is, and its gradient through the lookup is exactly 0.0. An output head that reads the same table does
/// send a gradient to the row, as in PyTorch.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::TokenEmbeddingConfig;
///
/// let device = Device::default().autodiff();
/// let table = TokenEmbeddingConfig::new(10, 4).with_padding_idx(Some(0)).init(&device);
/// let ids = Tensor::<1, Int>::from_ints([7, 0, 7], &device);
/// let gradients = table.forward::<1, 2>(ids).sum().backward();
/// let gradient: Vec<f32> = table.weight.grad(&gradients).unwrap().into_data().try_into_vec().unwrap();
/// assert_eq!(gradient[0..4], [0.0; 4]); // the padding row
/// assert_eq!(gradient[28..32], [2.0; 4]); // row 7, looked up twice
/// ```
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct TokenEmbedding {
    /// The table, [V, H].
    pub weight: Param<Tensor<2>>,
    pub(crate) padding_idx: Option<usize>,
}

impl ModuleDisplay for TokenEmbedding {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let content =
            content.add("num_embeddings", &self.num_embeddings()).add("embedding_dim", &self.embedding_dim());
        match &self.padding_idx {
            Some(row) => content.add("padding_idx", row).optional(),
            None => content.optional(),
        }
    }
}

impl TokenEmbedding {
    /// Number of rows, V. Does not initialise the table.
    pub fn num_embeddings(&self) -> usize {
        self.weight.lazy_shape()[0]
    }

    /// Length of every row, H. Does not initialise the table.
    pub fn embedding_dim(&self) -> usize {
        self.weight.lazy_shape()[1]
    }

    /// The row that gets no gradient through the lookup.
    pub fn padding_idx(&self) -> Option<usize> {
        self.padding_idx
    }

    /// Looks up ids `[..]` of any rank D: `[.., H]` of rank E = D + 1, which the compiler checks. Panics where
    /// [`try_forward`](Self::try_forward) returns an error.
    pub fn forward<const D: usize, const E: usize>(&self, ids: Tensor<D, Int>) -> Tensor<E> {
        self.try_forward(ids).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Looks up ids as [`forward`](Self::forward) does, and returns errors instead of panicking. The ids are read back once to be
    /// checked, which waits for the device; [`forward_unchecked`](Self::forward_unchecked) does not.
    ///
    /// # Errors
    ///
    /// - [`Error::IdOutOfRange`] if an id is negative or not below V, [`Error::IdOverflow`] if it is past 63 bits;
    /// - [`Error::Empty`] without ids, [`Error::UnreadableIds`] if the device cannot be read, [`Error::DeviceMismatch`] if
    ///   they are on another device than the table.
    pub fn try_forward<const D: usize, const E: usize>(&self, ids: Tensor<D, Int>) -> Result<Tensor<E>> {
        let shape = ids.dims();
        if shape.contains(&0) {
            return Err(Error::Empty { input: "ids", shape: shape.into() });
        }
        let (found, expected) = (ids.device(), self.weight.lazy_device()); // `device` would initialise the table
        if found != expected {
            return Err(Error::device_mismatch("ids", found, expected));
        }
        Ids::from_tensor("ids", ids.clone().reshape([1, -1]))
            .check(EmbeddingTable::Embedding, self.num_embeddings())
            // The ids were checked as one row: errors name their index in the caller's shape.
            .map_err(|mut error| {
                if let Error::IdOutOfRange { index, .. } | Error::IdOverflow { index, .. } = &mut error {
                    *index = unravel(index[1], &shape);
                }
                error
            })?;
        Ok(self.forward_unchecked(ids))
    }

    /// As [`forward`](Self::forward), without a check: an id outside 0..V takes the nearest row that exists. Memory outside
    /// the table is never read.
    pub fn forward_unchecked<const D: usize, const E: usize>(&self, ids: Tensor<D, Int>) -> Tensor<E> {
        // The compiler cannot state D + 1 in a type yet.
        const { assert!(E == D + 1, "the output of a lookup has one axis more than its ids") };
        let mut dims = [self.embedding_dim(); E];
        dims[..D].copy_from_slice(&ids.dims());
        // As one row, because the lookup takes two axes whatever the rank.
        lookup(self.weight.val(), ids.reshape([1, -1]), self.padding_idx).reshape(dims)
    }

    /// The lookup of ids that were checked, [B, S] or [1, S], as a summand.
    pub(crate) fn rows(&self, ids: Tensor<2, Int>) -> Rows {
        Rows::Lookup { table: self.weight.val(), ids, padding_idx: self.padding_idx }
    }
}
