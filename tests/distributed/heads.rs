//! Twenty steps of models, by all ranks and by one process. `validation` has every head.

use crate::prelude::*;
use burn::module::{Lora, ParamGroup};
use burn::optim::GradientsAccumulator;
use burn_bert::optim::{AdamWConfig, adamw, clip_by_global_norm, num_trainable_params};

/// Comparisons in [`equal_one_process`].
pub const MODELS: usize = 6;
const STEPS: usize = 20;
const VOCABULARY: usize = 30;
/// Texts of a rank.
const BATCH: usize = 4;

/// Texts of 3 to 9 tokens, others for each step.
pub fn texts(step: usize, count: usize) -> Vec<Vec<i64>> {
    let word =
        |text: usize, place: usize| (4 + (step * 131 + text * 37 + place * 11) % (VOCABULARY - 4)) as i64;
    let length = |text: usize| 3 + (step * 5 + text * 3) % 7;
    (0..count).map(|text| (0..length(text)).map(|place| word(text, place)).collect()).collect()
}

pub fn padded(texts: &[Vec<i64>], device: &Device) -> (BertEmbeddingsInput, Option<PaddingMask>) {
    let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
    let longest = lengths.iter().copied().max().unwrap();
    let rows: Vec<Vec<i64>> =
        texts.iter().map(|text| [text.clone(), vec![0; longest - text.len()]].concat()).collect();
    let input = BertEmbeddingsInput::from_rows(&rows, device).unwrap();
    (input, Some(PaddingMask::from_lengths(&lengths, longest).unwrap()))
}

pub fn bert() -> BertModelConfig {
    crate::small_bert::small_bert(VOCABULARY, 16).with_num_hidden_layers(2).with_intermediate_size(24)
}

/// The loss of some texts, with the number of what it is a mean over.
type Loss<M> = fn(&M, &[Vec<i64>], &Device) -> (Tensor<1>, f64);

/// The model after all steps, each of some micro-batches.
fn train<M: Module>(ranks: &Ranks, all: usize, model: &M, micro_batches: usize, loss: Loss<M>) -> Result<M> {
    let device = ranks.device().autodiff();
    let mut model = ranks.broadcast(model.clone())?;
    // A bias before a softmax has gradients of exactly 0, and AdamW divides their rounding errors by ε.
    let mut optimizer = adamw(&AdamWConfig::new().with_epsilon(1e-6)).unwrap();
    for step in 0..STEPS {
        let losses = (0..micro_batches).map(|micro_batch| {
            let step = step * micro_batches + micro_batch;
            // Every fifth is a last batch, of fewer texts.
            let missing = if step % 5 == 4 { all + step % 2 } else { 0 };
            let texts = texts(step, all * BATCH - missing);
            // The share of a rank; counts differ by one.
            let [start, end] = [0, 1].map(|next| (ranks.rank() + next) * texts.len() / ranks.size());
            loss(&model, &texts[start..end], &device)
        });
        let losses: Vec<_> = losses.collect();
        let count: f64 = losses.iter().map(|(_, count)| count).sum();
        let mut accumulator = GradientsAccumulator::new();
        for (loss, own) in losses {
            let loss = loss.mul_scalar(own / count.max(f64::MIN_POSITIVE));
            accumulator.accumulate(&model, GradientsParams::from_grads(loss.backward(), &model));
        }
        let mut gradients = ranks.mean_gradients(&model, accumulator.grads(), count)?;
        clip_by_global_norm(&model, &mut gradients, 0.5).unwrap();
        model = optimizer.step(1e-3, model, gradients);
    }
    Ok(model)
}

fn compare<M: Module>(
    ranks: &Ranks,
    name: &str,
    model: M,
    micro_batches: usize,
    loss: Loss<M>,
) -> Result<()> {
    let model = cast_module(model, FloatDType::F64).unwrap();
    let before = ranks.broadcast(model.clone())?;
    let sent = ranks.exchanged().bytes;
    let found = all_values(&train(ranks, ranks.size(), &model, micro_batches, loss)?);
    let sent = ranks.exchanged().bytes - sent;
    // Each rank sends a part of its gradients to each other one, and the sums of its own part.
    let part = num_trainable_params(&before).div_ceil(ranks.size());
    assert_eq!(sent, STEPS * 2 * (ranks.size() - 1) * part * size_of::<f64>(), "{name}: of what is trained");
    let bits: Vec<u64> = found.iter().map(|value| value.to_bits()).collect();
    ranks.same("model", &bits)?;
    let expected = all_values(&train(&Ranks::single(), ranks.size(), &before, micro_batches, loss)?);
    let (error, moved) =
        (largest_difference(&found, &expected), largest_difference(&found, &all_values(&before)));
    assert!(moved > 1e-3, "{name}: trained by {moved}");
    assert!(error <= 1e-12, "{name}: {error:e} from one process");
    if ranks.is_first() {
        let sum = bits.iter().fold(0u64, |sum, bits| sum.rotate_left(7) ^ bits);
        println!("\nbits {name} {sum:x}, {error:e} from one process");
    }
    Ok(())
}

pub fn masked_lm_batch(texts: &[Vec<i64>], device: &Device) -> MaskedLmBatch {
    let (input, padding) = padded(texts, device);
    // One or two masked tokens a text.
    let two = |text: &Vec<i64>| if text[0] % 3 == 0 { vec![1, 2] } else { vec![1] };
    let positions: Vec<[usize; 2]> = texts
        .iter()
        .enumerate()
        .flat_map(|(row, text)| two(text).into_iter().map(move |place| [row, place]))
        .collect();
    let labels: Vec<u32> = positions.iter().map(|[row, place]| texts[*row][*place] as u32).collect();
    MaskedLmBatch::new(input, padding, &positions, &labels).unwrap()
}

/// One text in five has no label, so batches of one size count differently.
pub fn classes(texts: &[Vec<i64>], device: &Device) -> SequenceClassificationBatch {
    let label = |text: &Vec<i64>| if text[1] % 5 == 0 { -100 } else { text[0] % 3 };
    let labels: Vec<i64> = texts.iter().map(label).collect();
    let (input, padding) = padded(texts, device);
    SequenceClassificationBatch::single_label(input, padding, &labels).unwrap()
}

pub fn numbers(texts: &[Vec<i64>], device: &Device) -> SequenceClassificationBatch {
    let labels: Vec<[f64; 1]> = texts.iter().map(|text| [text[0] as f64 / 8.0]).collect();
    let (input, padding) = padded(texts, device);
    SequenceClassificationBatch::regression(input, padding, &labels).unwrap()
}

/// A label of every token, without one where a text is padded and at some places.
pub fn tags<const CLASSES: i64>(texts: &[Vec<i64>], device: &Device) -> TokenClassificationBatch {
    let (input, padding) = padded(texts, device);
    let [_, longest] = input.dims();
    let label = |text: &Vec<i64>, place: usize| match text.get(place) {
        Some(word) if word % 4 != 0 => word % CLASSES,
        _ => -100,
    };
    let labels = |text| (0..longest).map(|place| label(text, place)).collect::<Vec<_>>();
    let labels: Vec<_> = texts.iter().map(labels).collect();
    TokenClassificationBatch::new(input, padding, &labels).unwrap()
}

pub fn answers(texts: &[Vec<i64>], device: &Device) -> QuestionAnsweringBatch {
    let answers: Vec<[usize; 2]> =
        texts.iter().map(|text| [text[0] as usize % text.len(), text.len() - 1]).collect();
    let (input, padding) = padded(texts, device);
    QuestionAnsweringBatch::new(input, padding, &answers).unwrap()
}

/// Each text with itself backwards.
pub fn rated_pairs(texts: &[Vec<i64>], device: &Device) -> SentencePairBatch {
    let labels: Vec<f32> = texts.iter().map(|text| (text[0] % 5) as f32 / 4.0).collect();
    let batch = SentencePairBatch::new(padded(texts, device), padded(&backwards(texts), device)).unwrap();
    batch.with_labels(&labels).unwrap()
}

pub fn backwards(texts: &[Vec<i64>]) -> Vec<Vec<i64>> {
    texts.iter().map(|text| text.iter().rev().copied().collect()).collect()
}

fn masked_lm_loss(model: &BertForMaskedLm, texts: &[Vec<i64>], device: &Device) -> (Tensor<1>, f64) {
    let batch = masked_lm_batch(texts, device);
    (model.forward(&batch).loss, batch.num_masked() as f64)
}

pub fn equal_one_process(ranks: &Ranks) -> Result<()> {
    let device = ranks.device().autodiff();
    device.seed(1 + ranks.rank() as u64); // other parameters on every rank, until they have those of rank 0
    let masked_lm = || BertForMaskedLmConfig::new(bert()).init(&device);
    compare(ranks, "masked_lm", masked_lm(), 1, masked_lm_loss)?;
    compare(ranks, "masked_lm_accumulated", masked_lm(), 3, masked_lm_loss)?;
    let embeddings = ParamGroup::from_predicate("bert.embeddings.");
    let frozen = masked_lm().set_require_grad_group(embeddings, false);
    compare(ranks, "frozen_embeddings", frozen, 1, masked_lm_loss)?;
    let weights = ParamGroup::from_regex(r"encoder\.layers\..*\.weight$").unwrap();
    let adapters = masked_lm().apply_lora(Lora::new(2, 4.0).set_param_group(weights));
    compare(ranks, "adapters", adapters, 1, masked_lm_loss)?;

    // Counts below 1.
    let config = BertForSequenceClassificationConfig::new(bert()).with_num_labels(3);
    let weighted = config.with_class_weights(Some(vec![0.5, 0.0, 0.03])).init(&device);
    compare(ranks, "weighted_classes", weighted, 2, |model, texts, device| {
        let batch = classes(texts, device);
        (model.forward(&batch).loss, model.loss_count(&batch))
    })?;
    let config = BertForTokenClassificationConfig::new(bert()).with_num_labels(4);
    let weighted = config.with_class_weights(Some(vec![0.25, 1.0, 3.0, 0.01])).init(&device);
    compare(ranks, "weighted_tokens", weighted, 1, |model, texts, device| {
        let batch = tags::<4>(texts, device);
        (model.forward(&batch).loss, model.loss_count(&batch))
    })
}

pub fn sixteen_bits_on_the_wire(ranks: &Ranks) -> Result<()> {
    let device = ranks.device().autodiff();
    device.seed(1);
    let model = BertForMaskedLmConfig::new(bert()).init(&device);
    let found = train(ranks, ranks.size(), &model, 1, masked_lm_loss)?;
    ranks.same("model", &all_values(&found))?;
    let alone = train(&Ranks::single(), ranks.size(), &model, 1, masked_lm_loss)?;
    let loss = |model: &BertForMaskedLm| {
        let texts = texts(0, ranks.size() * BATCH);
        masked_lm_loss(model, &texts, &device).0.into_scalar::<f64>()
    };
    let [before, found, alone] = [&model, &found, &alone].map(loss);
    println!("loss {before}, in bf16 {found}, in f32 {alone}");
    assert!(found != alone, "nothing was rounded");
    assert!((found - alone).abs() < 0.02 * (before - alone), "{found}, in f32 {alone}");
    Ok::<_, Error>(())
}
