//! What a training connects to that is no worker, or none for it.

use crate::process::Worker;
use crate::{turn, within};
use burn_bert::Error;
use burn_bert::remote::WorkersConfig;
use std::error::Error as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
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

    let silent = peer(|_stream| thread::sleep(LIMIT));
    let (message, cause) = refused(WorkersConfig::new([silent.as_str()]), &silent);
    assert_eq!((message.as_str(), cause.as_str()), ("does not answer as a worker", "no answer in time"));
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
