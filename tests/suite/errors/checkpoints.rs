//! Checkpoints, read and written.

use super::{Row, bert, file, row};
use crate::checkpoint_files::{Stored, safetensors_bytes, tiny, tiny_tensors};
use crate::prelude::*;
use safetensors::Dtype;

/// What a load of these bytes says.
fn bytes(dir: &Path, bytes: impl AsRef<[u8]>) -> Error {
    tiny().init(&device()).load(file(dir, "a.safetensors", bytes)).unwrap_err()
}

/// What a load of the layer's tensors says after a change.
fn changed(dir: &Path, change: impl Fn(&mut Vec<Stored>)) -> Error {
    let mut tensors = tiny_tensors("");
    change(&mut tensors);
    bytes(dir, safetensors_bytes(&tensors))
}

/// What a config of this text says.
fn config(dir: &Path, text: &str) -> Error {
    file(dir, "config.json", text);
    BertEmbeddingsConfig::from_pretrained(dir).unwrap_err()
}

fn load(path: &Path) -> Error {
    BertEmbeddings::from_pretrained(path, &device()).unwrap_err()
}

fn save(path: &Path) -> Error {
    tiny().init(&device()).save_pretrained(path).unwrap_err()
}

pub fn rows() -> Vec<Row> {
    vec![
        row::Io("cannot read DIR/bert", |dir| load(&dir.join("bert"))).because("os error"),
        row::Io("cannot write DIR/file", |dir| save(&file(dir, "file", ""))).because("os error"),
        row::File(
            "DIR/a.safetensors is a git-LFS pointer and not the file itself; run `git lfs pull` in its directory, or \
             download the file",
            |dir| bytes(dir, "version https://git-lfs.github.com/spec/v1\n"),
        ),
        row::Json("DIR/config.json does not hold the expected JSON", |dir| config(dir, "[]"))
            .because("expected a map at line 1"),
        row::ConfigFile("DIR/config.json: cls_dropout is 1.5, but must lie in [0, 1)", |dir| {
            file(
                dir,
                "config.json",
                r#"{"model_type": "deberta-v2", "relative_attention": true, "pos_att_type": ["c2p"], "cls_dropout": 1.5}"#,
            );
            BertForSequenceClassificationConfig::from_pretrained(dir).unwrap_err()
        }),
        row::NotACheckpoint(
            "cannot use DIR/config.json as a checkpoint: it has no weight_map, so it is not a shard index; name the \
             model's directory or a file of its weights",
            |dir| load(&file(dir, "config.json", r#"{"model_type": "bert"}"#)),
        ),
        row::UnsupportedModel(
            "DIR/config.json: model type gpt2 is not supported: it is a decoder; model types that can be read are bert, \
             distilbert, electra, mpnet, albert, ernie, roberta, xlm-roberta, camembert, data2vec-text, \
             modernbert, nomic_bert, gte, jina_embeddings_v3, deberta-v2, eurobert",
            |dir| config(dir, r#"{"model_type": "gpt2"}"#),
        ),
        row::NotACheckpoint(
            "cannot use DIR as a checkpoint: the directory has none of model.safetensors, \
             model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json",
            load,
        ),
        row::NotACheckpoint(
            "cannot use DIR as a checkpoint: it holds its weights as pytorch_model.bin, which a new \
             model.safetensors would hide; save into another directory, or convert the weights to one \
             model.safetensors first",
            |dir| {
                file(dir, "pytorch_model.bin", "weights");
                save(dir)
            },
        ),
        row::CorruptCheckpoint("DIR/a.safetensors is damaged or not a state dict", |dir| {
            bytes(dir, [&1u64.to_le_bytes()[..], b"{"].concat())
        })
        .because("EOF while parsing"),
        row::MissingKey(
            "DIR/a.safetensors has no LayerNorm.bias: the layer cannot be loaded in part",
            |dir| changed(dir, |tensors| drop(tensors.pop())),
        ),
        row::MissingKey(
            "DIR/a.safetensors has no embeddings.word_embeddings.weight: is this a BERT or RoBERTa checkpoint?",
            |dir| changed(dir, |tensors| tensors.truncate(0)),
        ),
        row::MissingKey(
            "DIR/model.safetensors has no encoder.layer.0.attention.self.query.weight: these are the tensors of an \
             embedding layer alone; load them with BertEmbeddings",
            |dir| {
                file(dir, "config.json", r#"{"model_type": "bert"}"#);
                let path = file(dir, "model.safetensors", safetensors_bytes(&tiny_tensors("")));
                BertModel::from_pretrained(path, &device()).unwrap_err()
            },
        ),
        row::File(
            "DIR/a.safetensors has LayerNorm.weight and LayerNorm.gamma, which stand for the same parameter; remove \
             or rename one",
            |dir| changed(dir, |tensors| tensors.push(Stored::f32("LayerNorm.gamma", &[4]))),
        ),
        row::File(
            "DIR/model.safetensors has bert.embeddings.word_embeddings.weight and cls.predictions.decoder.weight \
             that differ, but the config ties the head to the word embeddings; set tie_word_embeddings to false in config.json \
             to give the head its own decoder and bias",
            |dir| {
                let tied = BertForMaskedLmConfig::new(bert());
                let untied = tied.clone().with_tie_word_embeddings(false).init(&device());
                untied.save_pretrained(dir).unwrap();
                BertForMaskedLm::from_pretrained_with(&tied, dir, &device()).unwrap_err()
            },
        ),
        row::CheckpointShape(
            "DIR/a.safetensors: word_embeddings.weight has shape [10, 4], but the module expects [9, 4]; does the \
             config belong to these weights? A model's from_pretrained_with_new_head leaves out a head of another size",
            |dir| changed(dir, |tensors| tensors[0] = Stored::f32("word_embeddings.weight", &[10, 4])),
        ),
        row::CheckpointDType(
            "DIR/a.safetensors: LayerNorm.bias has dtype I8, but weights are f16, bf16, f32 or f64; dequantise them \
             first",
            |dir| {
                changed(dir, |tensors| {
                    (tensors[4].dtype, tensors[4].bytes) = (Dtype::I8, vec![0; 4]);
                })
            },
        ),
    ]
}
