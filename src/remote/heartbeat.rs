//! Whether a worker's process answers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The longest answer that is read.
const LONGEST: usize = 8 * 1024;

/// One HTTP connection to a worker's port. It stays open, so a worker that died and came back is not taken for the one
/// that holds the tensors: the connection to that one is gone.
#[derive(Debug)]
pub(super) struct Heartbeat {
    stream: TcpStream,
    request: String,
}

impl Heartbeat {
    /// Connects to `authority`, `HOST:PORT`, which must answer within `patience`, now and at every beat.
    pub(super) fn open(authority: &str, patience: Duration) -> io::Result<Self> {
        let mut refused = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, patience) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(patience))?;
                    stream.set_write_timeout(Some(patience))?;
                    // No path of a worker: the answer is a 404, which takes no session.
                    let request = format!("GET / HTTP/1.1\r\nhost: {authority}\r\n\r\n");
                    return Ok(Self { stream, request });
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// Asks, and waits for the answer.
    pub(super) fn beat(&mut self) -> io::Result<()> {
        self.ask().map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                io::Error::new(ErrorKind::TimedOut, "no answer in time")
            }
            // Which of them it is depends on what was under way.
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof => {
                io::Error::new(ErrorKind::ConnectionReset, "the connection was closed")
            }
            _ => error,
        })
    }

    fn ask(&mut self) -> io::Result<()> {
        self.stream.write_all(self.request.as_bytes())?;
        let mut answer = Vec::new();
        let mut part = [0; 1024];
        while answer.len() < LONGEST {
            match self.stream.read(&mut part)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => answer.extend_from_slice(&part[..read]),
            }
            if !b"HTTP/1.1 404".iter().zip(&answer).all(|(a, b)| a == b) {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "the answer is not that of a Burn server",
                ));
            }
            // A 404 of the server has no body.
            if answer.ends_with(b"\r\n\r\n") {
                return Ok(());
            }
        }
        Err(io::Error::new(ErrorKind::InvalidData, "the answer has no end"))
    }
}
