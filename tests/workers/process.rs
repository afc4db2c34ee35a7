//! Workers as processes.

use crate::devices;
use burn::prelude::Device;
use burn::server::{TokenAuthorizer, WebSocketTransport};
use burn_bert::remote;
use std::io::{BufRead, BufReader, Read, stdin};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;

/// The token of a worker that has one.
const TOKEN: &str = "BURN_BERT_TEST_TOKEN";

/// The device of a worker: Flex, unless it is this.
#[cfg(feature = "wgpu")]
const WGPU: &str = "BURN_BERT_TEST_WGPU";

/// A process that serves a device, killed when this is dropped.
pub struct Worker {
    process: Child,
    pub address: String,
}

impl Worker {
    pub fn start() -> Self {
        Self::start_with("127.0.0.1:0", None)
    }

    #[cfg(feature = "wgpu")]
    pub fn start_on_wgpu() -> Self {
        Self::run(command("127.0.0.1:0").env(WGPU, "1"))
    }

    /// On an address, with a token.
    pub fn start_with(listen: &str, token: Option<&str>) -> Self {
        let mut command = command(listen);
        if let Some(token) = token {
            command.env(TOKEN, token);
        }
        Self::run(&mut command)
    }

    fn run(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let address = (&mut output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| Some(line[line.find("ws://")?..].to_string()));
        // What else it prints is read too: a closed pipe would end it, and a full one would stop it.
        thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Self { process, address: address.expect("the worker's address") }
    }

    /// Its device, for a client without a watch.
    pub fn device(&self) -> Device {
        remote::WorkersConfig::new([self.address.as_str()]).connect().unwrap().devices()[0].clone()
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What a port scan or another client sees.
    pub fn authority(&self) -> &str {
        self.address.strip_prefix("ws://").unwrap()
    }

    /// Its resident memory, in bytes.
    pub fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        1024 * line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap()
    }

    /// Sends a signal, such as `KILL`, `STOP` or `CONT`.
    pub fn signal(&self, signal: &str) {
        signal_to(self.id(), signal);
    }
}

fn command(listen: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "process::serve", "--nocapture"]).env("LISTEN", listen);
    // To resolve a backtrace takes an unoptimised worker longer than the tests wait for an answer.
    command.env("RUST_BACKTRACE", "0");
    command
}

pub fn signal_to(process: u32, signal: &str) {
    let status = Command::new("kill").args(["-s", signal, &process.to_string()]).status().unwrap();
    assert!(status.success());
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Ends this process when the test that started it does, which holds its input.
pub fn end_with_the_test() {
    thread::spawn(|| {
        let _ = stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

#[test]
#[ignore = "needs a test that starts it: it is the worker's process"]
fn serve() {
    end_with_the_test();
    let listener = TcpListener::bind(std::env::var("LISTEN").unwrap()).unwrap();
    println!("\nws://{}", listener.local_addr().unwrap());
    #[cfg(feature = "wgpu")]
    let device = if std::env::var_os(WGPU).is_some() { devices::wgpu() } else { devices::flex() };
    #[cfg(not(feature = "wgpu"))]
    let device = devices::flex();
    let mut server = remote::server([device]);
    if let Ok(token) = std::env::var(TOKEN) {
        server = server.with_authorizer(TokenAuthorizer::new(token).unwrap());
    }
    server.serve(WebSocketTransport::from_listener(remote::gate(listener).unwrap())).unwrap();
}
