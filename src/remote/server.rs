//! A worker.

use burn::prelude::Device;
use burn::server::RemoteServer;

/// A server of a machine's devices, which must be of one kind, such as `[Device::default()]`, with this crate's
/// operators on them.
///
/// It is Burn's `RemoteServer`: `with_authorizer` sets who may use it, `serve` listens. Without an authorizer, that is
/// everybody who reaches the port; with one, [`gate`](super::gate) bounds what the others can make it hold.
///
/// ```no_run
/// use burn::prelude::*;
/// use burn::server::{TokenAuthorizer, WebSocketTransport};
/// use burn_bert::remote::{gate, server};
/// use std::net::TcpListener;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// println!("ws://{}", listener.local_addr()?);
/// server([Device::default()])
///     .with_authorizer(TokenAuthorizer::new("a secret")?)
///     .serve(WebSocketTransport::from_listener(gate(listener)?))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg_attr(feature = "ndarray", allow(deprecated))] // Burn deprecates NdArray
pub fn server(devices: impl IntoIterator<Item = Device>) -> RemoteServer {
    let devices: Vec<Device> = devices.into_iter().map(Device::inner).collect();
    let server = RemoteServer::new(devices.clone());
    match devices.first().map(Device::as_dispatch) {
        #[cfg(feature = "flex")]
        Some(burn::backend::DispatchDevice::Flex(_)) => {
            server.with_custom_ops(crate::operator::remote::registry::<burn::backend::Flex>())
        }
        #[cfg(feature = "ndarray")]
        Some(burn::backend::DispatchDevice::NdArray(_)) => {
            server.with_custom_ops(crate::operator::remote::registry::<burn::backend::NdArray>())
        }
        #[cfg(feature = "_cubecl")]
        Some(burn::backend::DispatchDevice::Cube(_)) => {
            server.with_custom_ops(crate::operator::remote::registry::<burn::backend::Cube>())
        }
        // Burn says why it cannot serve them.
        _ => server,
    }
}
