//! The losses of a training in 16 bits beside those in f32, here and in PyTorch.

#[path = "../../examples/toy_mlm/language.rs"]
#[allow(dead_code)] // the example has pictures
mod language;

use crate::prelude::*;
use crate::transformers::{Python, real_checkpoint};
use burn::optim::GradientsParams;
use burn_bert::BertEmbeddingsConfig;
use burn_bert::functional::autocast;
use std::process::Stdio;

/// Losses before each step, in f32 and in bf16.
fn curves(model: &BertForMaskedLm, batches: &[MaskedLmBatch], rate: f64) -> [Vec<f64>; 2] {
    [Precision::F32, Precision::Bf16].map(|precision| {
        let mut model = model.clone();
        let mut optimizer = adamw(&AdamWConfig::new()).unwrap();
        let step = |batch| {
            let loss = autocast(precision, || model.forward(batch)).loss;
            let found = loss.clone().into_scalar::<f64>();
            let mut gradients = GradientsParams::from_grads(loss.backward(), &model);
            clip_by_global_norm(&model, &mut gradients, 1.0).unwrap();
            model = optimizer.step(rate, model.clone(), gradients);
            found
        };
        batches.iter().map(step).collect()
    })
}

/// A batch as PyTorch reads it.
fn json(batch: &MaskedLmBatch) -> serde_json::Value {
    let [rows, seq] = batch.input.dims();
    let ids: Vec<u32> = batch.input.input_ids().unwrap().into_data().iter().collect();
    let mut labels = vec![vec![-100; seq]; rows];
    let masked: Vec<i64> = batch.labels().unwrap().into_data().iter().collect();
    batch.positions().iter().zip(masked).for_each(|(&[row, column], label)| labels[row][column] = label);
    let mask: Vec<Vec<u8>> = match &batch.padding {
        Some(padding) => padding.rows().map(|row| row.iter().map(|pad| u8::from(!pad)).collect()).collect(),
        None => vec![vec![1; seq]; rows],
    };
    serde_json::json!({
        "input_ids": ids.chunks(seq).collect::<Vec<_>>(),
        "attention_mask": mask,
        "labels": labels,
    })
}

/// Trains here and in PyTorch from the same weights on the same batches, and prints means of every 50 losses.
fn assert_curves(
    name: &str,
    model: &BertForMaskedLm,
    batches: &[MaskedLmBatch],
    batches_json: &[serde_json::Value],
    rate: f64,
) {
    let dir = tempdir().unwrap();
    let (checkpoint, file) = (dir.path().join("model"), dir.path().join("batches.json"));
    model.save_pretrained(&checkpoint).unwrap();
    std::fs::write(&file, serde_json::to_string(batches_json).unwrap()).unwrap();
    let rate_text = rate.to_string();
    let arguments = [checkpoint.as_path(), &file, Path::new(&rate_text)];
    let printed = Python::named().run("train_masked_lm.py", &arguments, Stdio::null());
    let theirs: [Vec<f64>; 2] = serde_json::from_slice(&printed).unwrap();
    let ours = curves(model, batches, rate);

    let apart =
        |[a, b]: &[Vec<f64>; 2]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>() / a.len() as f64;
    println!("| {name}, steps | f32 | bf16 | PyTorch f32 | PyTorch bf16 autocast |\n|---|---|---|---|---|");
    for first in (0..batches.len()).step_by(50) {
        let count = 50.min(batches.len() - first);
        let mean = |losses: &Vec<f64>| losses[first..][..count].iter().sum::<f64>() / count as f64;
        let row: Vec<_> = ours.iter().chain(&theirs).map(|losses| format!("{:.4}", mean(losses))).collect();
        println!("| {} to {} | {} |", first + 1, first + count, row.join(" | "));
    }
    println!("bf16 is {:.1e} a step from f32, PyTorch's {:.1e}", apart(&ours), apart(&theirs));
    assert!((ours[0][0] - theirs[0][0]).abs() < 1e-4 * theirs[0][0]);
    assert!(apart(&ours) <= 1.5 * apart(&theirs), "bf16 is further from f32 than PyTorch's");
}

#[test]
#[ignore = "needs Python with torch and transformers, named by BURN_BERT_PYTHON"]
fn losses_in_bf16_follow_those_in_f32_as_closely_as_pytorchs() {
    const STEPS: usize = 300;
    let _turn = turn();
    let device = Device::default().autodiff();
    device.seed(7);
    let language = language::Language::new(7);
    let vocabulary = (language::SPECIAL_TOKENS.end + language::LETTERS) as usize;
    let embeddings = BertEmbeddingsConfig::new()
        .with_vocab_size(vocabulary)
        .with_hidden_size(32)
        .with_max_position_embeddings(64)
        .with_hidden_dropout_prob(0.0);
    let bert = BertModelConfig::new(embeddings).with_num_hidden_layers(2).with_num_attention_heads(2);
    let bert = bert.with_intermediate_size(64).with_attention_probs_dropout_prob(0.0);
    let model = BertForMaskedLmConfig::new(bert).init(&device);
    let special = language::SPECIAL_TOKENS.collect();
    let collator = MaskedLmCollatorConfig::new(vocabulary, language::MASK, 0, special).init();
    let (mut batches, mut batches_json) = (Vec::new(), Vec::new());
    for step in 0..STEPS as u64 {
        let sentences = language.sentences(step + 1, 32);
        let batch = collator.collate(&sentences, step, &device).unwrap();
        let [_, seq] = batch.input.dims();
        let positions = sentences.iter().map(|sentence| {
            let mut ids = sentence.position_ids.clone().unwrap();
            ids.resize(seq, 0);
            ids
        });
        let mut batch_json = json(&batch);
        batch_json["position_ids"] = positions.collect::<Vec<_>>().into();
        batches_json.push(batch_json);
        batches.push(batch);
    }
    assert_curves("toy", &model, &batches, &batches_json, 2e-3);
}

/// The licence, a text that does not change, by MiniLM, for BURN_BERT_STEPS steps: without instructions for bf16, PyTorch
/// takes seconds for each.
#[test]
#[ignore = "needs Python with transformers and a checkpoint: BURN_BERT_PYTHON, BURN_BERT_CHECKPOINT"]
fn losses_of_a_real_checkpoint_in_bf16_follow_those_in_f32_as_closely_as_pytorchs() {
    let steps = std::env::var("BURN_BERT_STEPS").map_or(20, |steps| steps.parse().unwrap());
    let _turn = turn();
    let device = Device::default().autodiff();
    device.seed(7); // the checkpoint has no head
    let checkpoint = real_checkpoint();
    let mut config = BertForMaskedLmConfig::from_pretrained(&checkpoint).unwrap();
    config.bert.embeddings.hidden_dropout_prob = 0.0;
    config.bert.attention_probs_dropout_prob = 0.0;
    let (model, _) = BertForMaskedLm::from_pretrained_with(&config, &checkpoint, &device).unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("LICENSE-APACHE");
    let tokenizer = BertTokenizer::from_pretrained(&checkpoint).unwrap();
    let collator = MaskedLmCollatorConfig::for_tokenizer(&tokenizer).init();
    let corpus = PlainText::open(&file).unwrap().windows(tokenizer, 64).unwrap();
    let loader = EpochLoader::new(collator.batches(corpus), 4, &device).unwrap().with_shuffling(7);
    let loader = loader.with_batches_per_epoch(steps).unwrap();
    let batches: Vec<_> = loader.epoch(0).map(|batch| batch.unwrap()).collect();
    let batches_json: Vec<_> = batches.iter().map(json).collect();
    assert_curves("MiniLM", &model, &batches, &batches_json, 1e-4);
}
