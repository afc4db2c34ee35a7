//! What a stranger can make a worker hold.

use socket2::{SockRef, TcpKeepalive};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Connections of one address without a session, at most: heartbeats, transfers, and those still to present a token.
const STRANGERS: usize = 64;
/// The longest head of a request.
const HEAD: usize = 8 * 1024;
/// The longest message of a client without a session: the handshake with its token, a request for a tensor.
const MESSAGE: u64 = 64 * 1024;
/// How long a request or a handshake may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may be silent between two requests; a client's heartbeat comes every second.
const SILENCE: Duration = Duration::from_secs(300);

/// Bounds what a client can make a worker hold before it has a session: the server listens on the result, which only
/// this machine reaches, and `listener`'s connections are passed on to it.
///
/// Burn 0.22.1 reads a message of up to 1 GiB before it looks at the token, and waits for silent clients without end.
/// Here a client that has no session may send messages of at most 64 KiB, a request or a handshake must arrive within
/// ten seconds, and one address may have at most 64 connections without a session; a connection beyond that is closed.
/// The server sees all clients at a loopback address. [`server`](super::server()) has an example.
///
/// # Errors
///
/// If no port of the loopback interface is free.
pub fn gate(listener: TcpListener) -> io::Result<TcpListener> {
    let inner = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = inner.local_addr()?.port();
    let strangers = Strangers::default();
    thread::spawn(move || {
        for client in listener.incoming() {
            match client {
                Ok(client) => {
                    let strangers = strangers.clone();
                    // Without a thread for it, the connection is closed.
                    let _ = thread::Builder::new().spawn(move || pass(client, port, &strangers));
                }
                // Too many open files, for example: another connection has to end first.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    });
    Ok(inner)
}

/// Connections without a session, by address.
#[derive(Clone, Default)]
struct Strangers(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One of them, until this is dropped.
struct Stranger<'a> {
    all: &'a Strangers,
    address: IpAddr,
}

impl Strangers {
    fn count<T>(&self, f: impl FnOnce(&mut HashMap<IpAddr, usize>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// `None` if `address` has too many already.
    fn enter(&self, address: IpAddr) -> Option<Stranger<'_>> {
        self.count(|all| {
            let count = all.entry(address).or_default();
            (*count < STRANGERS).then(|| *count += 1)
        })?;
        Some(Stranger { all: self, address })
    }
}

impl Drop for Stranger<'_> {
    fn drop(&mut self) {
        self.all.count(|all| {
            if let Some(count) = all.get_mut(&self.address) {
                *count -= 1;
                if *count == 0 {
                    all.remove(&self.address);
                }
            }
        });
    }
}

/// Passes a connection on to the server at `port`, until either side ends it or a bound is exceeded.
fn pass(client: TcpStream, port: u16, strangers: &Strangers) -> io::Result<()> {
    let Some(stranger) = strangers.enter(client.peer_addr()?.ip()) else { return Ok(()) };
    // A client whose machine vanished is noticed within a minute. Burn's server sees this machine alone.
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5));
    SockRef::from(&client).set_tcp_keepalive(&keepalive)?;
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (sender, answered) = channel();
    let answers = (server.try_clone()?, client.try_clone()?);
    thread::Builder::new().spawn(move || {
        let (mut server, mut client) = answers;
        let _ = send_back(&mut server, &mut client, &sender);
        close([&server, &client]);
    })?;
    let result = send_on(&client, &server, &answered, stranger);
    close([&client, &server]);
    result
}

fn close(streams: [&TcpStream; 2]) {
    for stream in streams {
        let _ = stream.shutdown(Shutdown::Both); // it may be closed already
    }
}

/// What the server answers, and word of the first message of a session.
fn send_back(server: &mut TcpStream, client: &mut TcpStream, answered: &Sender<()>) -> io::Result<()> {
    let mut head = Vec::new();
    let mut part = [0; 4096];
    loop {
        let read = match server.read(&mut part)? {
            0 => return Ok(()),
            read => read,
        };
        client.write_all(&part[..read])?;
        // After the head of "101 Switching Protocols" come messages; other answers have no more than a head.
        head.extend_from_slice(&part[..read]);
        if head.starts_with(b"HTTP/1.1 101") {
            let end = head.windows(4).position(|window| window == b"\r\n\r\n");
            if end.is_some_and(|end| head.len() > end + 4) {
                break;
            }
        } else {
            head.clear();
        }
        if head.len() > HEAD {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    let _ = answered.send(()); // the client may be gone
    io::copy(server, client).map(|_| ())
}

/// What the client sends: requests, and after one for a WebSocket its messages.
fn send_on(
    client: &TcpStream,
    mut server: &TcpStream,
    answered: &Receiver<()>,
    stranger: Stranger<'_>,
) -> io::Result<()> {
    let mut from = BufReader::new(Timed { stream: client, end: None });
    let mut silence = PATIENCE;
    let opens_session = loop {
        let Some(head) = head(&mut from, silence)? else { return Ok(()) };
        server.write_all(head.as_bytes())?;
        let head = head.to_ascii_lowercase();
        if head.contains("\r\nupgrade: websocket\r\n") {
            break head.starts_with("get /session ");
        }
        silence = SILENCE;
    };
    from.get_mut().end = Some(Instant::now() + PATIENCE);
    let mut is_first = true;
    while message(&mut from, server, is_first)? {
        if opens_session {
            // The server's answer to the handshake grants the session, or is its last.
            answered.recv_timeout(PATIENCE).map_err(|_| ErrorKind::TimedOut)?;
            drop(stranger);
            server.write_all(from.buffer())?;
            client.set_read_timeout(None)?;
            return io::copy(&mut &*client, &mut server).map(|_| ());
        }
        // Requests for tensors come when the training needs them.
        (is_first, from.get_mut().end) = (false, None);
    }
    Ok(())
}

/// A stream that is read until a point in time, if there is one.
struct Timed<'a> {
    stream: &'a TcpStream,
    end: Option<Instant>,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(left)?;
        self.stream.read(buffer)
    }
}

/// The head of a GET request without a body, which begins within `silence`; `None` at the end of the stream.
fn head(from: &mut BufReader<Timed<'_>>, silence: Duration) -> io::Result<Option<String>> {
    from.get_mut().end = Some(Instant::now() + silence);
    if from.fill_buf()?.is_empty() {
        return Ok(None);
    }
    from.get_mut().end = Some(Instant::now() + PATIENCE);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let left = (HEAD - head.len()) as u64;
        if left == 0 || from.by_ref().take(left).read_until(b'\n', &mut head)? == 0 {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    let head = String::from_utf8(head).map_err(|_| ErrorKind::InvalidData)?;
    let lower = head.to_ascii_lowercase();
    let has_body =
        ["\r\ncontent-length:", "\r\ntransfer-encoding:"].iter().any(|field| lower.contains(field));
    if has_body || !lower.starts_with("get ") {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(Some(head))
}

/// Passes on a message that is one frame (RFC 6455, section 5.2) of at most [`MESSAGE`] bytes: a binary one, or a control
/// frame where it is not the first. `false` at the end of the stream.
fn message(from: &mut BufReader<Timed<'_>>, mut to: &TcpStream, is_first: bool) -> io::Result<bool> {
    const BINARY: u8 = 0x82; // with the bit that says that it is the last frame of its message
    const CONTROL: [u8; 3] = [0x88, 0x89, 0x8A];
    if from.fill_buf()?.is_empty() {
        return Ok(false);
    }
    let mut header = vec![0; 2];
    from.read_exact(&mut header)?;
    let is_allowed = header[0] == BINARY || (!is_first && CONTROL.contains(&header[0]));
    let extended = match header[1] & 0x7F {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let mut length = [0; 8];
    from.read_exact(&mut length[8 - extended..])?;
    header.extend_from_slice(&length[8 - extended..]);
    let length = match extended {
        0 => u64::from(header[1] & 0x7F),
        _ => u64::from_be_bytes(length),
    };
    let is_masked = header[1] & 0x80 != 0;
    if !is_allowed || !is_masked || length > MESSAGE {
        return Err(ErrorKind::InvalidData.into());
    }
    to.write_all(&header)?;
    let length = length + 4; // and the mask
    match io::copy(&mut from.by_ref().take(length), &mut to)? == length {
        true => Ok(true),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}
