//! The peer of `benches/compare.rs`: candle's BERT without layers, which is its input layer.
//!
//! Answers each line `time forward BATCH SEQ RUNS` on stdin with the milliseconds of every run. Its layer drops
//! nothing out, so there is nothing else to ask for. The threads are those of `RAYON_NUM_THREADS`.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{VarBuilder, VarMap};
use candle_transformers::models::bert::{BertModel, Config};
use std::time::Instant;

fn main() -> Result<()> {
    println!("candle 0.11.1");
    let device = Device::Cpu;
    let model = embeddings(&device)?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let ["time", "forward", batch, seq, runs] = words[..] else { panic!("not a question: {line}") };
        let [batch, seq, runs] = [batch, seq, runs].map(|number| number.parse().expect("a number"));
        let ids: Vec<u32> = (0..batch * seq).map(|i| 1 + (i * 7919 % 30_521) as u32).collect();
        let ids = Tensor::from_vec(ids, (batch, seq), &device)?;
        let types = ids.zeros_like()?;
        let mask = Tensor::ones((batch, seq), DType::U8, &device)?;
        for _ in 0..runs {
            let start = Instant::now();
            model.forward(&ids, &types, Some(&mask))?;
            print!("{} ", start.elapsed().as_secs_f64() * 1e3);
        }
        println!();
    }
    Ok(())
}

/// BERT-base with random weights and no layers; its config has no other door than JSON.
fn embeddings(device: &Device) -> Result<BertModel> {
    let config = serde_json::json!({
        "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 0, "num_attention_heads": 12,
        "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "max_position_embeddings": 512, "type_vocab_size": 2, "initializer_range": 0.02,
        "layer_norm_eps": 1e-12, "pad_token_id": 0,
    });
    let config: Config = serde_json::from_value(config).expect("BERT's config");
    BertModel::load(VarBuilder::from_varmap(&VarMap::new(), DType::F32, device), &config)
}
