//! Data-parallel training by MPI: `mpirun -n N` starts a program N times, and each step takes the mean of all gradients.
//!
//! Every rank computes the gradients of its own batch, and takes the same step as all others with their mean, which
//! [`Ranks::mean_gradients`] weighs by what each loss counts: N ranks with batches of b take the steps of one process with
//! batches of N·b. Without `mpirun`, or without the feature `mpi`, there is one rank.
//!
//! ```
//! use burn::nn::LinearConfig;
//! use burn::optim::GradientsParams;
//! use burn::prelude::*;
//! use burn_bert::Error;
//! use burn_bert::distributed::{Ranks, Wire};
//! use burn_bert::optim::{AdamWConfig, adamw, clip_by_global_norm};
//!
//! fn train(ranks: &Ranks) -> Result<(), Error> {
//!     let device = ranks.device().autodiff();
//!     let mut model = ranks.broadcast(LinearConfig::new(2, 1).init(&device))?; // that of rank 0
//!     let mut optimizer = adamw(&AdamWConfig::new())?;
//!     device.seed(ranks.rank() as u64); // dropout of its own on every rank
//!     for step in 0..4 {
//!         let batch = Tensor::<2>::full([3, 2], (step * ranks.size() + ranks.rank()) as f64, &device); // its own
//!         let loss = model.forward(batch).mean();
//!         let gradients = GradientsParams::from_grads(loss.backward(), &model);
//!         let mut gradients = ranks.mean_gradients(&model, gradients, 3.0)?; // the loss is a mean over three items
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
mod parameters;
mod ranks;

#[cfg(feature = "train")]
pub(crate) use group::gpus;
pub use parameters::Wire;
pub use ranks::{Exchanged, Ranks};
