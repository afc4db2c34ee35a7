//! Row-sparse training: a step whose cost follows the batch, not the vocabulary.
//!
//! A batch looks up a few hundred of the tens of thousands of rows of the word table. The table's gradient is dense
//! nevertheless, 94 MB for BERT-base, and a dense optimiser rewrites every row and all of its state in every step. Here
//! the rows that a batch touches are copied into a small table, the layer runs on that, and a row optimiser updates
//! those rows and their state in place. The cost does not depend on the size of the vocabulary.
//!
//! Dense training is the default. Switching to this one takes the lines marked below:
//!
//! ```
//! use burn::optim::{AdamWConfig, GradientsParams};
//! use burn::prelude::*;
//! use burn_bert::sparse::{RowGradients, SparseAdamConfig};
//! use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput};
//!
//! let device = Device::default().autodiff();
//! let mut embeddings = BertEmbeddingsConfig::new().with_vocab_size(1000).with_hidden_size(8).init(&device);
//! let mut optimizer = AdamWConfig::new().init(); // for the rest of the model, here LayerNorm and token types
//! let mut row_optimizer = SparseAdamConfig::new().init(); // 1
//!
//! for ids in [[2, 7, 3, 0], [2, 999, 7, 3]] {
//!     let input = BertEmbeddingsInput::from_rows(&[ids], &device)?;
//!     let rows = embeddings.touched_rows(&input)?; // 2
//!     let hidden = rows.forward(); // 3, in place of embeddings.forward(&input)
//!     let mut gradients = hidden.powi_scalar(3).mean().backward();
//!     let row_gradients = RowGradients::from_grads(&mut gradients, rows, &embeddings)?; // 4
//!     row_optimizer.step(1e-3, &mut embeddings, row_gradients)?; // 5
//!     let gradients = GradientsParams::from_grads(gradients, &embeddings);
//!     embeddings = optimizer.step(1e-3, embeddings, gradients);
//! }
//! # Ok::<(), burn_bert::Error>(())
//! ```
//!
//! A model that calls the layer itself can be given [`TouchedRows::embeddings`] and [`TouchedRows::input`], a layer
//! with small tables and the batch renumbered for it.
//!
//! # What is trained how
//!
//! | | |
//! |---|---|
//! | word table | the rows of the batch's ids |
//! | position table | the rows of the positions that the batch uses |
//! | padding rows | never: PyTorch gives them no entry in a sparse gradient. Nor do they decay |
//! | token types, LayerNorm, the rest of a model | densely, by any Burn optimiser |
//! | a frozen table | not at all; it gets no gradient and no state |
//! | a table with a LoRA adapter, or quantised | refused: [`Error::NotRowSparse`](crate::Error::NotRowSparse) |
//! | a word table that an output head reads too | refused: [`Error::NotRowSparse`](crate::Error::NotRowSparse) |
//!
//! The optimisers are [`RowSgdConfig`], which is dense SGD; [`SparseAdamConfig`], which is PyTorch's `SparseAdam`; and
//! [`LazyAdamWConfig`], AdamW that decays only touched rows. Their documentation says how the latter two differ from
//! Adam and AdamW.
//!
//! # Several batches a step
//!
//! [`RowGradients::accumulate`] adds the gradients of micro-batches with any rows, Burn's `GradientsAccumulator` those
//! of the other parameters. [`RowGradients::clip_by_global_norm`] clips rows and rest together.
//!
//! # Memory
//!
//! No step copies a table. A clone of the layer that is kept, for example the best model so far, makes the next step
//! copy the tables once.
//!
//! # Devices
//!
//! Every device. Rows are copied by `select` and written by `select_assign`, which works in place on every backend of
//! Burn. On Flex, whose memory is the host's, Adam's rows are updated by one pass over them, with the same results.

mod config;
mod gradients;
mod optimizer;
mod record;
mod rows;
mod step;
mod table;
mod table_gradient;

pub use config::{LazyAdamWConfig, RowSgdConfig, SparseAdamConfig};
pub use gradients::RowGradients;
pub use optimizer::SparseOptimizer;
pub use rows::TouchedRows;
