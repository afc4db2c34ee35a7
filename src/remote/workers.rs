//! The client's side of several workers.

use super::heartbeat::Heartbeat;
use crate::error::{Error, Result};
use burn::prelude::*;
use burn::remote::RemoteHost;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// How to reach workers, which share the steps of a training; see [`Workers`].
#[derive(Clone, Debug)]
pub struct WorkersConfig {
    addresses: Vec<String>,
    token: Option<String>,
    patience: Duration,
    longest_step: Duration,
}

impl WorkersConfig {
    /// Workers at addresses of the form `ws://HOST:PORT`. The first one holds the weights and the optimiser.
    ///
    /// All workers and this process must reach each other at these addresses: weights and gradients go from worker to
    /// worker.
    pub fn new<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Self {
        Self {
            addresses: addresses.into_iter().map(A::into).collect(),
            token: None,
            patience: Duration::from_secs(30),
            longest_step: Duration::from_secs(600),
        }
    }

    /// Sets the token that the workers ask for (Burn's `TokenAuthorizer`).
    pub fn with_token(self, token: impl Into<String>) -> Self {
        Self { token: Some(token.into()), ..self }
    }

    /// Sets how long a worker's process may take to answer before it counts as lost; 30 seconds by default.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Sets how long a worker may compute without coming to the end of what it was told to do before it counts as
    /// lost; 10 minutes by default.
    pub fn with_longest_step(self, longest_step: Duration) -> Self {
        Self { longest_step, ..self }
    }

    /// Connects to all devices of the workers, and tries a transfer between them.
    ///
    /// Each call opens sessions and connections of its own, which the process keeps until it ends. The devices of two
    /// calls are different ones, even on the same worker.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there is no address; [`Error::Worker`] for the first worker that cannot be reached in time,
    /// refuses the token, speaks another version of Burn's protocol, or cannot exchange tensors with the first one.
    pub fn connect(&self) -> Result<Workers> {
        if self.addresses.is_empty() {
            let problem = "is empty; a training needs at least one worker".into();
            return Err(Error::Config { field: "addresses", problem });
        }
        let label = RandomState::new().build_hasher().finish();
        let hosts = self.addresses.iter().map(|address| self.connect_to(address, label));
        let hosts = hosts.collect::<Result<Vec<_>>>()?;
        let workers = Workers { hosts, patience: self.patience, longest_step: self.longest_step };
        workers.try_transfers()?;
        Ok(workers)
    }

    /// A worker keeps one data connection for each address of another worker, and every client shares it: a tensor that
    /// a dead client never sent, or a restart of the other worker, blocks it for good. The `label` makes the addresses
    /// this client's own. It stands where a URL has the user's name, and is not sent to the host.
    fn connect_to(&self, address: &str, label: u64) -> Result<Host> {
        let lost = |problem: &str, source| Error::Worker {
            address: address.into(),
            problem: problem.into(),
            source,
        };
        let authority = address.strip_prefix("ws://").map(|rest| rest.trim_end_matches('/'));
        let Some(authority) = authority.filter(|authority| authority.contains(':')) else {
            return Err(lost("is not an address of the form ws://HOST:PORT", None));
        };
        let mut heartbeat = Heartbeat::open(authority, self.patience)
            .map_err(|source| lost("cannot be reached; is it running?", Some(source.into())))?;
        heartbeat.beat().map_err(|source| lost("does not answer as a worker", Some(source.into())))?;
        let host = RemoteHost::websocket(&format!("ws://{label:x}@{authority}"));
        let host = match &self.token {
            Some(token) => host.with_credential(token.as_str()),
            None => host,
        };
        let devices = within(self.patience, move || host.devices());
        let devices = devices.ok_or_else(|| lost("does not finish its handshake", None))?;
        let devices = devices.map_err(|source| lost("refuses the session", Some(source.into())))?;
        Ok(Host { address: address.into(), heartbeat, devices: devices.into_iter().collect() })
    }
}

/// Devices of other machines, for `ExecutionStrategy::multi`, and the watch over them.
///
/// ```no_run
/// use burn::train::{ExecutionStrategy, MultiDeviceOptim};
/// use burn_bert::Error;
/// use burn_bert::remote::WorkersConfig;
///
/// let workers = WorkersConfig::new(["ws://10.0.0.1:4000", "ws://10.0.0.2:4000"]).connect()?;
/// let devices = workers.devices();
/// workers.watch(move || {
///     let devices = devices.into_iter().map(|device| device.autodiff()).collect();
///     let strategy = ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice);
///     // … the training
///     # let _ = strategy;
///     Ok::<(), Error>(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Workers {
    pub(super) hosts: Vec<Host>,
    pub(super) patience: Duration,
    pub(super) longest_step: Duration,
}

/// One worker.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) address: String,
    pub(super) heartbeat: Heartbeat,
    pub(super) devices: Vec<Device>,
}

impl Workers {
    /// The devices of all workers, in the order of the addresses.
    pub fn devices(&self) -> Vec<Device> {
        self.hosts.iter().flat_map(|host| host.devices.clone()).collect()
    }

    /// Sends a number from the first worker to each other one and back.
    fn try_transfers(&self) -> Result<()> {
        let Some((first, others)) = self.hosts.split_first() else { return Ok(()) };
        for other in others {
            let [there, here] = [&other.devices[0], &first.devices[0]].map(Device::clone);
            let sent = within(self.patience, move || {
                let number = Tensor::<1>::from_floats([1.0], &here);
                number.to_device(&there).to_device(&here).try_into_data().ok()
            });
            if sent.flatten().is_none() {
                let problem = format!(
                    "and {} cannot exchange tensors; each must reach the other at its address",
                    first.address
                );
                return Err(Error::Worker { address: other.address.clone(), problem, source: None });
            }
        }
        Ok(())
    }
}

/// What `f` returns, unless it takes longer or panics.
fn within<T: Send + 'static>(patience: Duration, f: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, result) = channel();
    thread::spawn(move || sender.send(f()));
    result.recv_timeout(patience).ok()
}
