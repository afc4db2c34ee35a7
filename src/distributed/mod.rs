//! Data-parallel training by MPI: the same program N times, with the mean of all gradients in each step.
//!
//! ```sh
//! mpirun -n 4 target/release/examples/fine_tune classifier …
//! ```
//!
//! Every rank reads its share of an epoch, computes the gradients of its own batch, and takes the same step as all others
//! with their mean, which [`Ranks::mean_gradients`] weighs by what each loss counts. So N ranks with batches of b take the
//! steps of one process with batches of N·b. Without `mpirun`, or without the feature `mpi`, there is one rank, and the
//! program is an ordinary one.
//!
//! ```
//! use burn::optim::GradientsParams;
//! use burn::prelude::*;
//! use burn_bert::data::{MaskedLmCollatorConfig, MaskedLmExample};
//! use burn_bert::distributed::{Ranks, Wire};
//! use burn_bert::model::{BertForMaskedLmConfig, BertModelConfig};
//! use burn_bert::optim::{AdamWConfig, adamw, clip_by_global_norm};
//! use burn_bert::{BertEmbeddingsConfig, Error};
//!
//! fn train(ranks: &Ranks) -> Result<(), Error> {
//!     let device = ranks.device().autodiff();
//!     let embeddings = BertEmbeddingsConfig::new().with_vocab_size(20).with_hidden_size(16);
//!     let bert = BertModelConfig::new(embeddings)
//!         .with_num_hidden_layers(1)
//!         .with_num_attention_heads(2)
//!         .with_intermediate_size(32);
//!     let mut model = ranks.broadcast(BertForMaskedLmConfig::new(bert).init(&device))?; // that of rank 0
//!     let mut optimizer = adamw(&AdamWConfig::new())?;
//!     let collator = MaskedLmCollatorConfig::new(20, 3, 0, vec![0, 1, 2, 3]).init();
//!     let sentences = [vec![1, 7, 4, 9, 2], vec![1, 5, 2], vec![1, 8, 2], vec![1, 9, 5, 2]].map(MaskedLmExample::new);
//!     device.seed(ranks.rank() as u64); // dropout of its own on every rank
//!     for (step, batch) in sentences.chunks_exact(ranks.size()).enumerate() {
//!         let own = &batch[ranks.rank()..][..1]; // as many batches on every rank
//!         let batch = collator.collate(own, step as u64, &device)?;
//!         let loss = model.try_forward(&batch)?.loss;
//!         let gradients = GradientsParams::from_grads(loss.backward(), &model);
//!         let mut gradients = ranks.mean_gradients(&model, gradients, batch.num_masked() as f64)?;
//!         clip_by_global_norm(&model, &mut gradients, 1.0)?; // of the mean
//!         model = optimizer.step(1e-3, model, gradients);
//!     }
//!     if ranks.is_first() {
//!         println!("trained by {} processes", ranks.size()); // and save the model
//!     }
//!     Ok(())
//! }
//!
//! Ranks::run(Wire::Full, train)?;
//! # Ok::<(), Error>(())
//! ```

mod group;
mod meeting;
mod parameters;
mod ranks;
mod weighted_sum;

pub use meeting::Exchanged;
pub use ranks::Ranks;
#[cfg(feature = "train")]
pub(crate) use ranks::gpus;
pub use weighted_sum::Wire;
