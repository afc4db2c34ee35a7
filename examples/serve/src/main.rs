//! Serves a text classifier over HTTP:
//!
//! ```sh
//! cargo run --release -p serve -- DIRECTORY
//! curl -H 'content-type: application/json' -d '["A film to remember.", "Dull."]' localhost:3000/classify
//! ```
//!
//! A `Pipeline` is `Send` and `Sync`: all requests share one, and their results do not depend on each other.

#[cfg(test)]
mod tests;

use anyhow::{Context, Result};
use axum::http::StatusCode;
use axum::{Json, Router, extract::State, routing::post};
use burn::prelude::*;
use burn_bert::model::BertForSequenceClassification;
use burn_bert::pipeline::{Pipeline, TextOptions};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

/// An allocator that does not return freed pages to the OS; start with `MIMALLOC_PURGE_DELAY=-1`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Classifier = Arc<Pipeline<BertForSequenceClassification>>;

#[tokio::main]
async fn main() -> Result<()> {
    let model = std::env::args().nth(1).context("usage: serve MODEL")?;
    let classifier = Arc::new(Pipeline::from_pretrained(model, &Device::default())?);
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("http://{}/classify", listener.local_addr()?);
    Ok(axum::serve(listener, app(classifier)).await?)
}

fn app(classifier: Classifier) -> Router {
    Router::new().route("/classify", post(classify)).with_state(classifier)
}

/// The best label of each text of a JSON list.
async fn classify(
    State(classifier): State<Classifier>,
    Json(texts): Json<Vec<String>>,
) -> Result<Json<Value>, (StatusCode, String)> {
    // A forward pass computes for milliseconds; the runtime's own threads stay free for other requests.
    let task = spawn_blocking(move || classifier.classify(&texts, &TextOptions::new().with_top_k(1)));
    let labels = task.await.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let labels = labels.map_err(|error| (StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
    let best = labels.iter().map(|of_text| json!({"label": of_text[0].label, "score": of_text[0].score}));
    Ok(Json(best.collect()))
}
