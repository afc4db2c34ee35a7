//! Devices of other machines, through Burn's own engine, `burn-remote`.
//!
//! A worker is a process that serves the devices of its machine with [`server`]; `examples/worker.rs` is one. A
//! training connects to its workers with [`Workers`], and passes their devices to Burn's `ExecutionStrategy::multi`.
//! The guide `docs/several-machines.md` has the commands, the costs and what a worker trusts.

mod gate;
mod heartbeat;
mod server;
mod watch;
mod workers;

pub use gate::gate;
pub use server::server;
pub use workers::{Workers, WorkersConfig};
