//! Serves this machine's devices to trainings on other machines: `cargo run --release --features remote --example
//! worker`.
//!
//! Prints its address on standard output, and its log on standard error. The address is what `--workers` of `fine_tune_mlm` and `fine_tune_classifier` take. It serves until Ctrl-C.
//! It listens on this machine only, unless told otherwise. Who reaches the port can use the devices and the memory of
//! the machine, and what goes over the wire is not encrypted: see docs/several-machines.md before opening it.

#[path = "devices/gpus.rs"]
mod gpus;

use anyhow::{Context, Result, ensure};
use burn::server::{TokenAuthorizer, WebSocketTransport};
use burn_bert::remote;
use clap::Parser;
use mimalloc::MiMalloc;
use std::fs;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use tracing_subscriber::EnvFilter;

/// An allocator that keeps its pages makes training faster; see docs/performance.md.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[derive(Parser)]
#[command(about = "Serves this machine's devices to trainings on other machines")]
struct Args {
    /// The address to listen on; port 0 takes a free one. 0.0.0.0:4000 opens port 4000 to other machines.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// A file with a token that clients must present, in its first line.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// GPUs that are served: those of the first kind that is compiled in and has that many.
    #[arg(long, default_value_t = 1)]
    devices: usize,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let devices = gpus::devices(args.devices)?;
    let listener =
        TcpListener::bind(args.listen).with_context(|| format!("cannot listen on {}", args.listen))?;
    let mut server = remote::server(devices.clone());
    if let Some(path) = &args.token_file {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let token = text.lines().next().unwrap_or_default().trim();
        ensure!(!token.is_empty(), "{} has no token in its first line", path.display());
        server = server.with_authorizer(TokenAuthorizer::new(token)?);
    }
    // Burn's server logs to standard output, unless a log is set up. RUST_LOG chooses what is logged.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,wgpu=warn"));
    let log = tracing_subscriber::fmt().with_writer(stderr).with_ansi(stderr().is_terminal());
    log.with_env_filter(filter).init();
    eprintln!("serves {devices:?}");
    println!("ws://{}", listener.local_addr()?);
    stdout().flush()?;
    server.serve(WebSocketTransport::from_listener(remote::gate(listener)?))?;
    Ok(())
}
