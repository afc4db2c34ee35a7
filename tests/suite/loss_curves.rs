//! The losses of a training in 16 bits beside those in f32, here and in PyTorch.

use crate::parity::Head;
use crate::prelude::*;
use crate::transformers::{Python, real_checkpoint};
use burn::data::dataloader::DataLoader;
use burn_bert::functional::{Precision, autocast};
use burn_bert::optim::{AdamWConfig, adamw, clip_by_global_norm};
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
fn for_pytorch(batch: &MaskedLmBatch) -> Value {
    let [rows, seq] = batch.input.dims();
    let ids: Vec<u32> = batch.input.input_ids().unwrap().into_data().iter().collect();
    let mut labels = vec![vec![-100; seq]; rows];
    let masked: Vec<i64> = batch.labels().unwrap().into_data().iter().collect();
    batch.positions().iter().zip(masked).for_each(|(&[row, column], label)| labels[row][column] = label);
    let mask: Vec<Vec<u8>> = match &batch.padding {
        Some(padding) => padding.rows().map(|row| row.iter().map(|pad| u8::from(!pad)).collect()).collect(),
        None => vec![vec![1; seq]; rows],
    };
    json!({
        "input_ids": ids.chunks(seq).collect::<Vec<_>>(),
        "attention_mask": mask,
        "labels": labels,
    })
}

/// The guides of this crate, by MiniLM, for BURN_BERT_STEPS steps: without instructions for bf16, PyTorch takes
/// seconds for each.
#[test]
#[ignore = "needs Python with transformers and a checkpoint: BURN_BERT_PYTHON, BURN_BERT_CHECKPOINT"]
fn losses_of_a_real_checkpoint_in_bf16_follow_those_in_f32_as_closely_as_pytorchs() {
    let steps = std::env::var("BURN_BERT_STEPS").map_or(10, |steps| steps.parse().unwrap());
    let device = autodiff();
    let checkpoint = real_checkpoint();
    let config = BertForMaskedLm::undropped(&checkpoint);
    let (model, _) = BertForMaskedLm::from_pretrained_with(&config, &checkpoint, &device).unwrap();
    let dir = tempdir().unwrap();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut guides: Vec<_> = fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path()).collect();
    guides.sort();
    let text: String = guides.iter().map(|guide| fs::read_to_string(guide).unwrap()).collect();
    let file = dir.path().join("text");
    fs::write(&file, text).unwrap();
    let tokenizer = BertTokenizer::from_pretrained(&checkpoint).unwrap();
    let collator = MaskedLmCollatorConfig::for_tokenizer(&tokenizer).init();
    let corpus = PlainText::open(&file).unwrap().windows(tokenizer, 64).unwrap();
    let loader = EpochLoader::new(Batches::new(corpus, collator), 4, &device).unwrap().with_shuffling(7);
    let loader = loader.with_batches_per_epoch(steps).unwrap();
    let batches: Vec<_> = loader.iter().map(|batch| batch.unwrap()).collect();
    let batches_json: Vec<_> = batches.iter().map(for_pytorch).collect();

    // Here and in PyTorch from the same weights on the same batches; means of every 50 losses are printed.
    let (saved, file) = (dir.path().join("model"), dir.path().join("batches.json"));
    model.save_pretrained(&saved).unwrap();
    fs::write(&file, json!(batches_json).to_string()).unwrap();
    let arguments = [saved.as_path(), &file, Path::new("1e-4")];
    let printed = Python::named().run("train_masked_lm.py", &arguments, Stdio::null());
    let theirs: [Vec<f64>; 2] = serde_json::from_slice(&printed).unwrap();
    let ours = curves(&model, &batches, 1e-4);
    let apart =
        |[a, b]: &[Vec<f64>; 2]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>() / a.len() as f64;
    println!("| MiniLM, steps | f32 | bf16 | PyTorch f32 | PyTorch bf16 autocast |\n|---|---|---|---|---|");
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
