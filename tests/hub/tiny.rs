//! The model on the Hub.

use crate::files::vocabulary;
use crate::server::hex;
use crate::small_bert::small_bert;
use burn::prelude::*;
use burn_bert::model::*;
use burn_bert::pipeline::{Pipeline, TextOptions};
use burn_bert::text::BertTokenizer;
use burn_bert::{BertEmbeddings, BertEmbeddingsInput};
use serde_json::json;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A sentence model with a dense layer, its tokenizer, and files that nobody reads.
pub fn tiny() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let dense = SentenceDenseConfig::new(3);
    BertForSentenceEmbeddingConfig::new(small_bert(31, 8))
        .with_pooling(Pooling::Max)
        .with_max_seq_length(Some(12))
        .with_modules(vec![dense.into()])
        .init(&Device::default())
        .save_pretrained(dir.path())
        .unwrap();
    let letters: Vec<String> = ('a'..='z').map(String::from).collect();
    let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
    for (name, content) in [
        ("vocab.txt", vocabulary(&letters)),
        ("tokenizer_config.json", json!({ "do_lower_case": true, "model_max_length": 9 }).to_string()),
        ("README.md", "A model.".into()),
        ("pytorch_model.bin", "weights that nobody needs".into()),
        ("onnx/config.json", "{}".into()),
        ("onnx/model.onnx", "others".into()),
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

/// What is loaded, as text that is the same only if every bit is.
pub fn load(kind: &str, path: &Path) -> anyhow::Result<String> {
    let device = Device::default();
    let bits = |tensor: Tensor<2>| hex(tensor.into_data().bytes());
    Ok(match kind {
        "sentences" => {
            let (model, report) = BertForSentenceEmbedding::from_pretrained(path, &device)?;
            assert!(report.is_complete(), "{report}");
            let tokenizer = model.limit_tokenizer(BertTokenizer::from_pretrained(path)?)?;
            let batch =
                tokenizer.batch(&tokenizer.encode_batch(&["a b c d e f g h i j", "X y"])?, &device)?;
            bits(model.embed(&batch.input, batch.padding.as_ref())?)
        }
        "pipeline" => {
            let pipeline = Pipeline::<BertForSentenceEmbedding>::from_pretrained(path, &device)?;
            bits(pipeline.encode(&["a b c d e f g h i j", "X y"], &TextOptions::new())?)
        }
        "embeddings" => bits(BertEmbeddings::from_pretrained(path, &device)?.word_embeddings.weight.val()),
        "adapted" => {
            let (model, report) = BertForSequenceClassification::from_pretrained(path, &device)?;
            assert!(report.adapter.is_some());
            bits(model.logits(&BertEmbeddingsInput::from_rows(&[[2, 7, 11, 5, 3]], &device)?, None)?)
        }
        "tokenizer" => format!("{:?}", BertTokenizer::from_pretrained(path)?.encode("a b")?),
        "config" => format!("{:?}", BertModelConfig::from_pretrained(path)?),
        _ => panic!("{kind}"),
    })
}
