//! How much memory operators and AdamW hold at their peak, counted by the allocator.

#[path = "../benches/bert_base/mod.rs"]
mod bert_base;
#[path = "support/counting_allocator/mod.rs"]
mod counting_allocator;
#[cfg(feature = "train")]
#[path = "support/hook/mod.rs"]
#[allow(dead_code)] // some of it
mod hook;

use bert_base::composed;
use burn::module::Param;
use burn::nn::LinearConfig;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::functional::{
    Norm, Positions, Precision, Sequences, add_layer_norm, attention, autocast, bias_gelu, cross_entropy,
    matrix_kernel, on_reference_path,
};
use burn_bert::model::{BertForSentenceEmbeddingConfig, BertModel, BertModelConfig, SentencePairBatch};
use burn_bert::optim::{AdamWConfig, adamw, clip_by_global_norm};
use burn_bert::{
    BertEmbeddingsConfig, BertEmbeddingsInput, Family, cast_module, prepare_linear_layers,
    quantize_linear_layers,
};
#[cfg(feature = "tokenizers")]
use burn_bert::{pipeline::Pipeline, text::BertTokenizer};
use counting_allocator::{Counting, count};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// Bytes at the peak of `step`, whose result is held, once caches are warm.
fn peak<T>(step: impl Fn() -> T) -> usize {
    drop(step());
    let (result, used) = count(step);
    drop(result);
    used.peak
}

const HIDDEN: usize = 768;
const FLOAT: usize = size_of::<f32>();

/// Bytes at the peak of forward and backward, beyond what was held before and what must be: the output, the
/// gradient that comes in, and those of the parameters.
fn overhead(forward: impl Fn() -> Tensor<3>, parameters: usize) -> usize {
    let step = || {
        let y = forward();
        let tokens = y.dims()[0] * y.dims()[1];
        (y.backward(), (parameters + 2 * tokens * HIDDEN) * FLOAT)
    };
    drop(step()); // warm caches
    let ((gradients, needed), used) = count(step);
    drop(gradients);
    used.peak - needed
}

/// One test, because what other threads allocate would count too.
#[test]
fn nothing_holds_more_than_it_must() {
    embedding_holds_less_than_one_more_output();
    cross_entropy_holds_one_matrix_beside_the_scores();
    encoder_operators_hold_less_than_their_references();
    a_bias_of_many_classes_has_partial_sums_of_a_few_rows();
    mpnet_holds_one_bias_for_all_sequences();
    inference_computes_rows_in_their_place();
    weights_that_stay_packed_are_held_once_and_read_as_they_are();
    a_model_in_bf16_takes_half_the_memory();
    mixed_precision_keeps_less_for_the_backward();
    adamw_copies_no_parameter_that_a_learner_holds();
    layers_that_are_computed_again_keep_their_inputs_alone();
    mini_batches_of_sentences_keep_one_of_them();
    #[cfg(feature = "tokenizers")]
    a_pipeline_holds_no_weights_but_the_packed();
    #[cfg(feature = "train")]
    run::holds_no_more_the_longer_it_is();
}

/// Bert-base, 8 × 128 tokens, an eighth of them padding, every fourth of the others a frequent word.
fn embedding_holds_less_than_one_more_output() {
    let device = Device::flex().autodiff();
    let mut module = BertEmbeddingsConfig::new().with_vocab_size(1).init(&device);
    // To draw the values would take longer than all else.
    module.word_embeddings.weight = Param::from_tensor(Tensor::zeros([30_522, 768], &device));
    let config = module.config();
    let [batch, seq] = [8, 128];
    let rows: Vec<Vec<i32>> = (0..batch)
        .map(|b| {
            let word = |s: usize| match s {
                112.. => 0,
                s if s % 4 == 0 => 1000 + (s % 16) as i32,
                s => 2000 + ((b * seq + s) * 7919 % 28_000) as i32,
            };
            (0..seq).map(word).collect()
        })
        .collect();
    let input = BertEmbeddingsInput::from_rows(&rows, &device).unwrap();

    let fused = overhead(|| module.forward(&input), config.num_params());
    let composed = overhead(|| composed(&module, &input), config.num_params());
    let tokens = batch * seq;
    let output = tokens * HIDDEN * FLOAT;
    println!("beyond what must be held: fused {fused} B, composed {composed} B; an output is {output} B");
    assert!(fused < output + 64 * tokens, "{fused} B");
    assert!(fused < composed / 4, "{fused} B against {composed} B");
}

/// The scores are a product, as in a model, and nothing but the operator holds them.
fn cross_entropy_holds_one_matrix_beside_the_scores() {
    let (rows, classes) = (64, 30_522);
    let device = Device::flex().autodiff();
    let hidden = Tensor::<2>::ones([rows, 8], &device).require_grad();
    let table = Tensor::<2>::ones([8, classes], &device);
    let labels = Tensor::from_ints([7; 64], &device);
    let scores = rows * classes * FLOAT;
    let logits = || hidden.clone().matmul(table.clone());
    let fused = peak(|| cross_entropy(logits(), labels.clone()).backward());
    let burns_loss = CrossEntropyLossConfig::new().init(&device);
    let burns = peak(|| burns_loss.forward(logits(), labels.clone()).backward());
    println!("cross-entropy: {fused} B, Burn's {burns} B; the scores are {scores} B");
    let products = 3 * 8 * classes * FLOAT; // what the backward of the product copies
    assert!(fused < 2 * scores + products + 64 * 1024, "{fused} B for {scores} B of scores");
    assert!(burns + 64 * 1024 > fused + scores, "{burns} B: Burn's holds one more");
}

/// Rows that nothing else holds become the output.
fn inference_computes_rows_in_their_place() {
    let (rows, vector) =
        (|| Tensor::<2>::ones([1024, 512], &Device::flex()), Tensor::<1>::ones([512], &Device::flex()));
    let norm = || Norm { gamma: vector.clone(), beta: None, epsilon: 1e-12 };
    let residual = rows();
    let operators: [&dyn Fn(Tensor<2>) -> Tensor<2>; 3] = [
        &|x| bias_gelu(x, vector.clone()),
        &|x| add_layer_norm(x, Some(vector.clone()), residual.clone(), norm(), 0.0),
        // Its backward reads no values, and training keeps none.
        &|x| burn_fused::add_drop_out(x.autodiff().require_grad(), residual.clone().autodiff(), 0.1),
    ];
    for operator in operators {
        let mut x = vec![rows(), rows()];
        drop(operator(x.pop().unwrap())); // warm caches
        let (_, used) = count(|| operator(x.pop().unwrap()));
        assert!(used.peak < 64 * 1024, "{} B", used.peak);
    }
}

/// A kernel that is passed over for its reference gives the same values, and holds more, by about one [N, H] at least.
fn encoder_operators_hold_less_than_their_references() {
    let device = Device::flex().autodiff();
    let [sequences, length, hidden] = [8, 256, 64];
    let rows = Tensor::<2>::ones([sequences * length, hidden], &device).require_grad();
    let vector = Tensor::<1>::ones([hidden], &device).require_grad();
    let norm = || Norm { gamma: vector.clone(), beta: Some(vector.clone()), epsilon: 1e-12 };
    let vectors = Tensor::<2>::ones([2 * length - 1, hidden], &device).require_grad();
    let attend = |positions| {
        let all = [rows.clone(), rows.clone(), rows.clone()];
        attention(all, &Sequences::new(vec![length; sequences], &device), 4, positions, 0.0)
    };
    let one_bias = Tensor::<4>::ones([1, 4, length, length], &device).require_grad();
    let narrow = || rows.clone().cast(FloatDType::BF16);
    let operators: [(&str, &dyn Fn() -> Tensor<2>); 6] = [
        ("attention", &|| attend(Positions::default())),
        ("attention with distances", &|| {
            let [by_query, by_key] = [Some(vectors.clone()), Some(vectors.clone())];
            attend(Positions { by_query, by_key, ..Positions::default() })
        }),
        ("attention with one bias", &|| {
            attend(Positions { bias: Some(one_bias.clone()), ..Positions::default() })
        }),
        ("bias_gelu", &|| bias_gelu(rows.clone(), vector.clone())),
        ("add_layer_norm", &|| add_layer_norm(rows.clone(), Some(vector.clone()), rows.clone(), norm(), 0.0)),
        // γ and β in f32.
        ("add_layer_norm of bf16", &|| add_layer_norm(narrow(), None, narrow(), norm(), 0.0)),
    ];
    for (name, forward) in operators {
        let peak = || peak(|| forward().backward());
        let [fused, reference] = [peak(), on_reference_path(peak)];
        println!("{name}: {fused} B, its reference {reference} B");
        let [one, logits] = [hidden, 4 * length].map(|width| sequences * length * width * FLOAT);
        assert!(fused + one / 2 < reference, "{name}: {fused} B, its reference {reference} B");
        assert!(!name.starts_with("att") || fused < logits, "{name}: {fused} B, the logits {logits} B");
    }
}

fn a_bias_of_many_classes_has_partial_sums_of_a_few_rows() {
    let [rows, classes] = [256, 30_522];
    let device = Device::flex().autodiff();
    let (x, weight) = (Tensor::<2>::ones([rows, 8], &device), Tensor::ones([8, classes], &device));
    let bias = Tensor::<1>::ones([classes], &device).require_grad();
    let logits = rows * classes * FLOAT;
    let used = peak(|| burn_fused::linear(x.clone(), weight.clone(), Some(bias.clone())).backward());
    println!("a bias of {classes} classes: {used} B; the logits are {logits} B");
    assert!(
        used < 2 * logits + logits / 4,
        "{used} B for {logits} B of logits and as many of their gradient"
    );
}

/// Beside BERT, which has none.
fn mpnet_holds_one_bias_for_all_sequences() {
    let [layers, hidden, heads, batch, seq] = [2, 64, 4, 16, 256];
    for device in [Device::flex(), Device::flex().autodiff()] {
        let published = [BertModelConfig::bert_base_uncased(), BertModelConfig::mpnet_base()];
        let [bert, mpnet] = published.map(|config| {
            let mut config = config.with_num_hidden_layers(layers).with_num_attention_heads(heads);
            (config.intermediate_size, config.embeddings.hidden_size) = (4 * hidden, hidden);
            let encoder = config.init_encoder(&device).unwrap();
            let input = Tensor::ones([batch, seq, hidden], &device);
            peak(|| {
                let output = encoder.forward(input.clone(), None);
                device.is_autodiff().then(|| output.backward())
            })
        });
        let all = batch * heads * seq * seq * FLOAT;
        println!("MPNet's encoder: {mpnet} B, BERT's {bert} B; a bias for each sequence has {all} B");
        assert!(mpnet < bert + all / 2, "{mpnet} B, BERT's {bert} B");
    }
}

fn adamw_copies_no_parameter_that_a_learner_holds() {
    let device = Device::flex().autodiff();
    let mut module = Some(LinearConfig::new(1024, 1024).init(&device));
    let mut optimizer = adamw(&AdamWConfig::new()).unwrap();
    let mut step = || {
        let taken = module.take().unwrap();
        let mut gradients = GradientsParams::new();
        let inner = device.clone().inner();
        gradients.register(taken.weight.id, Tensor::<2>::ones([1024, 1024], &inner));
        gradients.register(taken.bias.as_ref().unwrap().id, Tensor::<1>::ones([1024], &inner));
        // Burn's `Learner` holds a clone during a step.
        let held = taken.clone();
        let (stepped, used) = count(|| {
            clip_by_global_norm(&taken, &mut gradients, 1.0).unwrap();
            optimizer.step(1e-3, taken, gradients)
        });
        drop(held);
        module = Some(stepped);
        used
    };
    let first = step();
    assert!(first.peak > 2 * 1024 * 1024 * FLOAT, "{first:?}: the moments are made");
    let second = step();
    assert!(second.largest < 64 * 1024, "{second:?}: of a parameter of 4 MB");
}

/// In every family: what read a weight in another way would lay it out again.
fn weights_that_stay_packed_are_held_once_and_read_as_they_are() {
    let device = Device::flex();
    for published in [
        BertModelConfig::bert_base_uncased(),
        BertModelConfig::distilbert_base_uncased(),
        BertModelConfig::electra_small(),
        BertModelConfig::albert_base_v2(),
        BertModelConfig::mpnet_base(),
        BertModelConfig::deberta_v3_base(),
        BertModelConfig::nomic_embed_text_v1_5(),
        BertModelConfig::modernbert_base(),
        BertModelConfig::eurobert_210m(),
    ] {
        let mut config = published.with_num_hidden_layers(1).with_num_attention_heads(4);
        (config.intermediate_size, config.embeddings.hidden_size, config.embeddings.vocab_size) =
            (1024, 256, 99);
        config.num_key_value_heads = config.num_key_value_heads.map(|_| 4);
        config.embeddings.pad_token_id = config.embeddings.pad_token_id.map(|_| 0);
        let family = config.embeddings.family;
        let model = config.init(&device);
        let largest = 256 * 1024 * FLOAT;
        let input = BertEmbeddingsInput::from_rows(&[[4, 8, 15, 16, 23, 42]], &device).unwrap();
        let has_bf16 = !matrix_kernel(Precision::Bf16).starts_with("f32");
        let narrow = has_bf16.then(|| (cast_module(model.clone(), FloatDType::BF16).unwrap(), largest / 2));
        // Once: to quantise takes a while in a development build.
        let is_first = family == Family::Bert;
        let quantized = is_first.then(|| (quantize_linear_layers(model.clone()), largest / FLOAT));
        for (model, largest) in [(model, largest)].into_iter().chain(narrow).chain(quantized) {
            drop(model.forward(&input, None)); // draws lazy parameters, and warms caches
            let (model, packing) = count(|| prepare_linear_layers(model));
            let ((), reading) = count(|| drop(model.forward(&input, None)));
            println!("{family:?}: packing {packing:?}, reading {} B; a weight has {largest} B", reading.peak);
            assert!(packing.peak < largest + largest / 8, "{} B", packing.peak);
            assert!(packing.kept.unsigned_abs() < largest / 8, "{} B", packing.kept);
            // Of a weight of attention, which is the smallest.
            assert!(reading.peak < largest / 4, "{} B", reading.peak);
        }
    }
}

/// A pipeline packs a model's weights one by one.
#[cfg(feature = "tokenizers")]
fn a_pipeline_holds_no_weights_but_the_packed() {
    let device = Device::flex();
    let (model, input) = small_model(&device);
    let model = BertForSentenceEmbeddingConfig::new(model.config()).init(&device);
    drop(model.embed(&input, None).unwrap()); // draws lazy parameters
    let (bytes, dir) = (model.num_params() * FLOAT, tempfile::tempdir().unwrap());
    std::fs::write(dir.path().join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n").unwrap();
    let tokenizer = BertTokenizer::from_pretrained(dir.path()).unwrap();
    let (pipeline, used) = count(|| Pipeline::new(model, tokenizer).unwrap());
    println!("a model of {bytes} B becomes a pipeline with {} B at most, {} B kept", used.peak, used.kept);
    // At least a weight of the feed-forward network, packed while it lies in rows, too.
    assert!((384 * 1536 * FLOAT..bytes / 4).contains(&used.peak), "{} B", used.peak);
    drop(pipeline);
}

/// MiniLM's layers with a small vocabulary, 4 × 64 tokens.
fn small_model(device: &Device) -> (BertModel, BertEmbeddingsInput) {
    let embeddings = BertEmbeddingsConfig::new().with_vocab_size(2000).with_hidden_size(384);
    let config = BertModelConfig::new(embeddings).with_num_hidden_layers(2).with_intermediate_size(1536);
    device.seed(0); // rounding depends on the weights
    let model = config.init(device);
    model.num_params(); // lazy parameters are drawn when they are first read
    let ids: Vec<Vec<i32>> =
        (0..4).map(|row| (0..64).map(|i| 1 + (row * 64 + i) * 7 % 1999).collect()).collect();
    let input = BertEmbeddingsInput::from_rows(&ids, device).unwrap();
    model.forward(&input, None);
    (model, input)
}

fn a_model_in_bf16_takes_half_the_memory() {
    let device = Device::flex();
    let (model, input) = small_model(&device);
    let bytes = model.num_params() * FLOAT;
    let (narrow, used) = count(|| cast_module(model.clone(), FloatDType::BF16).unwrap());
    println!("a model of {bytes} B is held in {} B in bf16", used.kept);
    assert!(used.kept as usize <= bytes / 2 + bytes / 100, "{} B", used.kept);

    // Nor are weights widened on the way.
    let forward = |model: &BertModel| {
        drop(model.forward(&input, None)); // warm caches
        let (output, used) = count(|| model.forward(&input, None));
        (output.last_hidden_state, used.peak)
    };
    let ((exact, peak), (rounded, peak_in_bf16)) = (forward(&model), forward(&narrow));
    println!("a forward needs {peak} B, in bf16 {peak_in_bf16} B");
    assert!(peak_in_bf16 < peak, "{peak_in_bf16} B");
    let difference = (rounded.cast(FloatDType::F32) - exact).abs().max().into_scalar::<f32>();
    println!("vectors of LayerNorm differ by {difference:.1e} at most");
    assert!(difference < 6e-2, "{difference}");
}

fn mixed_precision_keeps_less_for_the_backward() {
    let device = Device::flex().autodiff();
    let (model, input) = small_model(&device);
    let forward = |precision| {
        let run = || autocast(precision, || model.forward(&input, None).last_hidden_state);
        drop(run());
        count(run).1.kept
    };
    let (exact, rounded) = (forward(Precision::F32), forward(Precision::Bf16));
    println!("kept for the backward: {exact} B, in bf16 {rounded} B");
    assert!(rounded < exact * 7 / 10, "{rounded} B of {exact} B");
}

/// What a layer keeps for its backward is about sixteen times its input, in BERT's proportions.
fn layers_that_are_computed_again_keep_their_inputs_alone() {
    let [layers, hidden, batch, seq] = [6, 64, 4, 512];
    // MPNet's layers share a bias, which is recomputed with none of them.
    for mut config in [BertModelConfig::bert_base_uncased(), BertModelConfig::mpnet_base()] {
        config.embeddings.hidden_size = hidden;
        let config = config.with_num_hidden_layers(layers).with_num_attention_heads(hidden / 32);
        let config = config.with_intermediate_size(4 * hidden);
        let family = config.embeddings.family;
        let of_layers = |device: Device| {
            let encoder = config.init_encoder(&device).unwrap();
            let input = Tensor::ones([batch, seq, hidden], &device).require_grad();
            peak(|| encoder.forward(input.clone(), None).backward())
        };
        let device = Device::flex().autodiff();
        let [kept, again] = [device.clone(), device.gradient_checkpointing()].map(of_layers);
        let one = batch * seq * hidden * FLOAT;
        println!(
            "{layers} layers of {family:?}, H {hidden}, {batch} × {seq}: {kept} B; computed again {again} B; an output \
             is {one} B"
        );
        assert!(again + 14 * one * (layers - 1) < kept, "{family:?}: {again} B, {kept} B when all is kept");
    }
}

fn mini_batches_of_sentences_keep_one_of_them() {
    let [layers, hidden, batch, seq] = [2, 64, 64, 32];
    let embeddings = BertEmbeddingsConfig::new().with_vocab_size(100).with_hidden_size(hidden);
    let bert = BertModelConfig::new(embeddings)
        .with_num_hidden_layers(layers)
        .with_num_attention_heads(hidden / 32)
        .with_intermediate_size(4 * hidden);
    let device = Device::flex().autodiff();
    let sentences = |shift: usize| {
        let ids: Vec<Vec<i32>> =
            (0..batch).map(|row| (0..seq).map(|i| ((row + shift) * (i + 1) % 97) as i32).collect()).collect();
        (BertEmbeddingsInput::from_rows(&ids, &device).unwrap(), None)
    };
    let pairs = SentencePairBatch::new(sentences(0), sentences(31)).unwrap();
    let [whole, split] = [None, Some(8)].map(|size| {
        let config = BertForSentenceEmbeddingConfig::new(bert.clone()).with_mini_batch_size(size);
        let model = config.init(&device);
        peak(|| model.forward(&pairs).loss.backward())
    });
    println!(
        "2 × {batch} sentences of {seq} tokens, {layers} layers, H {hidden}: {whole} B; in mini-batches of 8 {split} B"
    );
    assert!(8 * split < whole, "{split} B, {whole} B when all is kept");
}

#[cfg(feature = "train")]
mod run {
    use super::*;
    use crate::counting_allocator::alive;
    use crate::hook::Hook;
    use burn_bert::data::{Label, LabelledText, LabelledTexts};
    use burn_bert::model::{
        BertForSequenceClassification, BertForSequenceClassificationConfig, PretrainedModel,
    };
    use burn_bert::training::{EvalStrategy, Trainer, TrainingArguments};
    use std::sync::{Arc, Mutex};

    /// After each of 300 steps the model is evaluated and a checkpoint is written. What is left of them are the numbers of the
    /// history.
    pub fn holds_no_more_the_longer_it_is() {
        const STEPS: usize = 300;
        let dir = tempfile::tempdir().unwrap();
        let words = ["good", "bad"];
        let texts = words.iter().enumerate().map(|(class, word)| LabelledText {
            text: word.to_string(),
            pair: None,
            label: Label::Class(class),
        });
        let texts = LabelledTexts::new(texts.collect(), words.map(String::from).to_vec()).unwrap();
        let embeddings = BertEmbeddingsConfig::new().with_vocab_size(7).with_hidden_size(8);
        let bert = BertModelConfig::new(embeddings.with_max_position_embeddings(8))
            .with_num_hidden_layers(1)
            .with_num_attention_heads(2)
            .with_intermediate_size(8);
        let model = BertForSequenceClassificationConfig::new(bert).init(&Device::flex());
        model.save_pretrained(dir.path()).unwrap();
        let vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\n";
        std::fs::write(dir.path().join("vocab.txt"), vocabulary).unwrap();
        let arguments = TrainingArguments::new(dir.path().join("out"))
            .with_batch_size(2)
            .with_epochs(STEPS)
            .with_eval_strategy(EvalStrategy::Steps(1))
            .with_save_total_limit(2)
            .with_silent(true);
        let after_steps = Arc::new(Mutex::new(Vec::with_capacity(STEPS)));
        let all = after_steps.clone();
        let trained = Trainer::<BertForSequenceClassification, LabelledTexts>::from_pretrained(
            dir.path(),
            texts.clone(),
            arguments,
        )
        .unwrap()
        .with_validation(texts)
        .with_metric(Hook::new(move |_| all.lock().unwrap().push(alive())))
        .train()
        .unwrap();
        let after_steps = after_steps.lock().unwrap();
        assert_eq!([after_steps.len(), trained.history.evaluations.len()], [STEPS; 2]);
        // The least of some steps: other threads hold more for a while.
        let least = |steps: std::ops::Range<usize>| *after_steps[steps].iter().min().unwrap();
        let [early, late] = [least(50..100), least(250..300)];
        let (_, history) = count(|| trained.history.clone());
        let of_history = history.kept as usize * 200 / STEPS;
        println!(
            "a run holds {early} B after 50 steps, {late} B after 250; its history has {of_history} B of them"
        );
        assert!(late < early + of_history + (32 << 10), "{late} B after {early} B");
    }
}
