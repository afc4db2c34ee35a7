//! What a training connects to that is no worker, or none for it.

use crate::process::Worker;
use crate::{turn, within};
use burn_bert::Error;
use burn_bert::remote::WorkersConfig;
use socket2::{Domain, Socket, Type};
use std::error::Error as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(30);

/// The message of the error, without the address, and what caused it.
fn refused(config: WorkersConfig, address: &str) -> (String, String) {
    let error = within(LIMIT, move || config.with_patience(PATIENCE).connect().unwrap_err());
    assert!(matches!(error, Error::Worker { .. }), "{error:?}");
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    let message = error.to_string();
    (message.strip_prefix(&format!("worker {address} ")).expect("it names the worker").to_string(), cause)
}

/// A peer that treats every connection alike.
fn peer(f: impl Fn(TcpStream) + Send + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("ws://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let f = f.clone();
            thread::spawn(move || f(stream.unwrap()));
        }
    });
    address
}

#[test]
fn an_address_without_a_worker_is_named() {
    let free = format!("ws://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let (message, cause) = refused(WorkersConfig::new([free.as_str()]), &free);
    assert_eq!(message, "cannot be reached; is it running?");
    assert!(cause.contains("refused"), "{cause}");

    for address in ["localhost:4000", "ws://localhost", "http://localhost:4000"] {
        let (message, _) = refused(WorkersConfig::new([address]), address);
        assert_eq!(message, "is not an address of the form ws://HOST:PORT");
    }

    let other = "the answer is not that of a Burn server";
    for (answer, patience, problem) in [
        ("", LIMIT, "no answer in time"),
        ("", Duration::ZERO, "the connection was closed"),
        ("SSH-2.0-OpenSSH_9.2\r\n", LIMIT, other),
        ("HTTP/1.1 200 OK\r\n\r\n", LIMIT, other),
    ] {
        let peer = peer(move |mut stream| {
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            thread::sleep(patience);
        });
        let (message, cause) = refused(WorkersConfig::new([peer.as_str()]), &peer);
        assert_eq!((message.as_str(), cause.as_str()), ("does not answer as a worker", problem));
    }
}

#[test]
fn without_an_address_there_is_no_training() {
    let error = WorkersConfig::new([""; 0]).connect().unwrap_err();
    assert_eq!(error.to_string(), "invalid config: addresses is empty; a training needs at least one worker");
}

#[test]
fn a_server_without_sessions_is_named() {
    // It answers each request as a Burn server answers one for no path of its own.
    let other = peer(|mut stream| {
        while stream.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").unwrap();
        }
    });
    let (message, cause) = refused(WorkersConfig::new([other.as_str()]), &other);
    assert_eq!(message, "refuses the session");
    assert!(cause.contains("404"), "{cause}");
}

#[test]
fn a_worker_whose_token_is_another_is_named() {
    let _turn = turn();
    let worker = Worker::start_with("127.0.0.1:0", Some("right"));
    for config in [
        WorkersConfig::new([worker.address.as_str()]),
        WorkersConfig::new([worker.address.as_str()]).with_token("wrong"),
    ] {
        let (message, cause) = refused(config, &worker.address);
        assert_eq!(message, "refuses the session");
        assert_eq!(cause, "the server's authorizer rejected the credential");
    }
    let workers = WorkersConfig::new([worker.address.as_str()]).with_token("right").connect().unwrap();
    assert_eq!(workers.devices().len(), 1);
}

/// Passes everything on to a worker, and changes the version in the worker's answer to the handshake.
fn of_another_version(worker: &Worker) -> String {
    let authority = worker.authority().to_string();
    peer(move |mut client| {
        let mut server = TcpStream::connect(&authority).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from, &mut to));
        let mut part = [0; 4096];
        while let Ok(read) = server.read(&mut part)
            && read > 0
        {
            // MessagePack: the variant's name, an array of four, and the version, its first field.
            let variant = b"\xa4Init\x94";
            if let Some(at) = part[..read].windows(variant.len()).position(|window| window == variant) {
                part[at + variant.len()] += 1;
            }
            if client.write_all(&part[..read]).is_err() {
                return;
            }
        }
    })
}

#[test]
fn a_worker_that_speaks_another_version_is_named() {
    let _turn = turn();
    let worker = Worker::start();
    let other = of_another_version(&worker);
    let (message, cause) = refused(WorkersConfig::new([other.as_str()]), &other);
    assert_eq!(message, "refuses the session");
    assert!(cause.contains("speaks version"), "{cause}");
}

#[test]
fn workers_that_cannot_reach_each_other_are_named() {
    let _turn = turn();
    // The second one is reached through a door that is closed to the first.
    let [first, second] = [Worker::start(), Worker::start()];
    let authority = second.authority().to_string();
    let door = peer(move |mut client| {
        let mut request = [0; 4096];
        let read = client.read(&mut request).unwrap();
        if request[..read].starts_with(b"GET /data") {
            return;
        }
        let mut server = TcpStream::connect(&authority).unwrap();
        server.write_all(&request[..read]).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from, &mut to));
        let _ = std::io::copy(&mut server, &mut client);
    });
    let (message, _) = refused(WorkersConfig::new([first.address.clone(), door.clone()]), &door);
    assert_eq!(
        message,
        format!("and {} cannot exchange tensors; each must reach the other at its address", first.address)
    );
}

/// A connection to a worker from another address of this machine, which has sent `text`.
fn stranger(worker: &Worker, text: &str) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    socket.connect(&worker.authority().parse::<SocketAddr>().unwrap().into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// One that has opened the WebSocket at `path`.
fn web_socket(worker: &Worker, path: &str) -> TcpStream {
    let mut stream = stranger(
        worker,
        &format!(
            "GET {path} HTTP/1.1\r\nHost: worker\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        ),
    );
    let mut answer = [0; 1024];
    let read = stream.read(&mut answer).unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer[..read]));
    stream
}

/// Whether the worker closes the connection.
fn is_closed(mut stream: &TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

fn assert_serves(worker: &Worker) {
    let config = WorkersConfig::new([worker.address.as_str()]).with_token("right").with_patience(PATIENCE);
    let workers = within(LIMIT, move || config.connect().unwrap());
    assert_eq!(workers.devices().len(), 1);
}

#[test]
#[cfg(target_os = "linux")]
fn a_stranger_cannot_make_a_worker_hold_large_messages() {
    let _turn = turn();
    let worker = Worker::start_with("127.0.0.1:0", Some("right"));
    assert_serves(&worker);
    let before = worker.memory();
    const LENGTH: u64 = 100 << 20;
    let announced = [&[0x82, 0xFF], LENGTH.to_be_bytes().as_slice(), &[0; 4]].concat();
    // A text, which Burn's server skips, and a fragment of a longer message come before what is announced.
    let openings: [&[u8]; 3] = [&[], &[0x81, 0x80, 0, 0, 0, 0], &[0x02, 0x80, 0, 0, 0, 0]];
    let mut held = Vec::new();
    for path in ["/session", "/data"] {
        for opening in openings {
            let mut stream = web_socket(&worker, path);
            let part = vec![0; 1 << 20];
            let sent = stream.write_all(&[opening, &announced].concat());
            let sent = sent.and_then(|()| (0..LENGTH >> 20).try_for_each(|_| stream.write_all(&part)));
            assert!(sent.is_err(), "{path} took {LENGTH} bytes");
            held.push(stream);
        }
    }
    let held_bytes = worker.memory().saturating_sub(before);
    assert!(held_bytes < 16 << 20, "the worker holds {held_bytes} bytes more");
    assert_serves(&worker);
}

#[test]
fn silent_strangers_do_not_keep_a_training_out() {
    let _turn = turn();
    let worker = Worker::start_with("127.0.0.1:0", Some("right"));
    let mut silent: Vec<TcpStream> = (0..200).map(|_| stranger(&worker, "")).collect();
    silent.extend((0..200).map(|_| stranger(&worker, "GET /session HTTP/1.1\r\n")));
    // Beyond 64 of one address they are closed at once.
    assert!(is_closed(silent.last().unwrap()));
    assert_serves(&worker);
    // The others are, when they have had ten seconds for a request.
    assert!(silent[..64].iter().all(is_closed));
    drop(web_socket(&worker, "/session"));
}

#[test]
fn the_watch_ends_its_heartbeats() {
    let _turn = turn();
    let worker = Worker::start();
    let authority = worker.authority().to_string();
    let beating = Arc::new(AtomicUsize::new(0));
    let door = {
        let beating = beating.clone();
        peer(move |mut client| {
            let mut request = [0; 4096];
            let read = client.read(&mut request).unwrap();
            let is_heartbeat = usize::from(request.starts_with(b"GET / "));
            beating.fetch_add(is_heartbeat, Ordering::SeqCst);
            let mut server = TcpStream::connect(&authority).unwrap();
            server.write_all(&request[..read]).unwrap();
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            let _ = std::io::copy(&mut client, &mut server);
            beating.fetch_sub(is_heartbeat, Ordering::SeqCst);
        })
    };
    let workers = WorkersConfig::new([door.as_str()]).connect().unwrap();
    let beats = beating.clone();
    let during = workers.watch(move || Ok::<_, Error>(beats.load(Ordering::SeqCst))).unwrap();
    assert_eq!(during, 1);
    within(PATIENCE, move || {
        while beating.load(Ordering::SeqCst) > 0 {
            thread::sleep(Duration::from_millis(10));
        }
    });
}
