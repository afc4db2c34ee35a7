use super::{Classifier, app};
use burn::prelude::*;
use burn_bert::pipeline::{Pipeline, TextOptions};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn classifier() -> Classifier {
    let saved = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/cross_encoder/saved");
    Arc::new(Pipeline::from_pretrained(saved, &Device::default()).unwrap())
}

async fn served(classifier: Classifier) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app(classifier)).await });
    address
}

/// Status and body of the answer to a request with this body.
async fn post(address: SocketAddr, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head =
        "POST /classify HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json";
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_at_once_get_the_scores_of_each_text_alone() {
    let classifier = classifier();
    let address = served(classifier.clone()).await;
    let clients = (0..8).map(|client| {
        let classifier = classifier.clone();
        tokio::spawn(async move {
            for request in 0..4 {
                let texts =
                    [format!("the cat sat {}", "on the mat ".repeat(client)), "a dog ".repeat(request + 1)];
                let (status, body) = post(address, &json!(texts).to_string()).await;
                let alone = |text: &String| {
                    let best = classifier.classify(&[text], &TextOptions::new()).unwrap().swap_remove(0);
                    json!({"label": best[0].label, "score": best[0].score})
                };
                let expected: Vec<Value> = texts.iter().map(alone).collect();
                assert_eq!((status, serde_json::from_str(&body).unwrap()), (200, json!(expected)));
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_is_no_list_of_texts_is_refused() {
    let address = served(classifier()).await;
    assert_eq!(post(address, "[]").await, (200, "[]".into()));
    assert_eq!(post(address, "[1]").await.0, 422);
    assert_eq!(post(address, "[").await.0, 400);
}
