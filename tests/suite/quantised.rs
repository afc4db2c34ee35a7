//! Linear layers with weights in 8 bits.

use crate::prelude::*;
#[cfg(feature = "train")]
use crate::transformers::real_checkpoint;
use burn_bert::quantize_linear_layers;

/// With widths that 16 to 255 divide, and a layer's inner one that none of them does.
fn model() -> BertModel {
    small_bert(60, 64).with_num_hidden_layers(2).init(&device())
}

fn hidden(model: &BertModel, rows: &[[u32; 5]]) -> Vec<f64> {
    let input = BertEmbeddingsInput::from_rows(rows, &device()).unwrap();
    values(model.forward(&input, None).last_hidden_state)
}

const ROWS: [[u32; 5]; 2] = [[1, 8, 23, 40, 2], [1, 59, 3, 3, 2]];

#[test]
fn weights_of_linear_layers_are_quantised_and_nothing_else_is() {
    let model = quantize_linear_layers(model());
    let (layer, pooler) = (&model.encoder.layers[1], model.pooler.as_ref().unwrap());
    let attention = &layer.attention;
    let wide = [&attention.query, &attention.key, &attention.value, &layer.attention_output, &pooler.dense];
    let is_float = |weight: &Param<Tensor<2>>| weight.val().dtype().is_float();
    assert!(wide.iter().all(|linear| !is_float(&linear.weight)));
    // 12 inputs are too few; and a table.
    assert!(is_float(&layer.output.weight) && is_float(&model.embeddings.word_embeddings.weight));
}

#[test]
fn a_quantised_model_computes_nearly_the_same_and_each_row_by_itself() {
    let plain = model();
    let quantised = quantize_linear_layers(plain.clone());
    let (expected, found) = (hidden(&plain, &ROWS), hidden(&quantised, &ROWS));
    let off = distance(&found, &expected);
    assert!((1e-5..0.02).contains(&off), "{off}");
    assert!(distance(&found[..5 * 64], &hidden(&quantised, &ROWS[..1])) < 1e-6);
    assert_eq!(hidden(&quantize_linear_layers(quantised.clone()), &ROWS), found, "once is enough");
    let narrow = quantize_linear_layers(cast_module(plain, FloatDType::BF16).unwrap());
    assert!(distance(&hidden(&narrow, &ROWS), &expected) < 0.03);
    // On a device that differentiates, Burn multiplies with what the weights dequantise to.
    assert!(distance(&hidden(&quantised.to_device(&autodiff()), &ROWS), &expected) < 0.02);
}

/// Integers have no such values: the damage would no longer show.
#[test]
fn a_weight_with_a_value_that_is_not_finite_stays_in_float_and_so_does_what_it_gives() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut model = model();
        let attention = &mut model.encoder.layers[0].attention;
        attention.query.weight = attention.query.weight.clone().map(|w| w.slice_fill([3..4, 5..6], value));
        let model = quantize_linear_layers(model);
        let attention = &model.encoder.layers[0].attention;
        let is_float = [&attention.query, &attention.key].map(|layer| layer.weight.val().dtype().is_float());
        assert_eq!(is_float, [true, false]);
        assert!(hidden(&model, &ROWS).iter().any(|x| x.is_nan()));
    }
}

#[test]
fn blocks_of_weights_are_multiples_of_64_rows_where_these_divide_and_else_the_longest() {
    for (inputs, block) in [(768, 192), (640, 128), (2624, 64), (320, 64), (312, 156), (255, 255), (340, 170)]
    {
        let layer = quantize_linear_layers(burn::nn::LinearConfig::new(inputs, 4).init(&device()));
        let DType::QFloat(scheme) = layer.weight.val().dtype() else {
            panic!("{inputs} inputs: not quantised")
        };
        let found = scheme.block_size().unwrap().as_dim::<2>();
        assert_eq!(found.map(usize::from), [block, 1], "{inputs} inputs");
    }
}

#[test]
fn a_record_holds_quantised_weights_and_a_checkpoint_does_not() {
    let (dir, quantised) = (tempdir().unwrap(), quantize_linear_layers(model()));
    let path = dir.path().join("model.bpk");
    quantised.clone().save_file(&path).unwrap();
    let (small, whole) = (path.metadata().unwrap().len(), model().num_params() as u64 * 4);
    assert!(small < whole / 2, "{small} bytes");
    let loaded = quantize_linear_layers(model()).load_file(&path);
    assert_eq!(hidden(&loaded, &ROWS), hidden(&quantised, &ROWS));
    assert_eq!(hidden(&quantize_linear_layers(loaded), &ROWS), hidden(&quantised, &ROWS), "laid out again");

    says(quantised.save_pretrained(dir.path()), "dequantise them first");
    assert!(!dir.path().join("config.json").exists());
}

/// The rows of a file of reviews, each compared with all others.
#[cfg(feature = "train")]
#[test]
#[ignore = "needs a checkpoint of sentence-transformers, named by BURN_BERT_CHECKPOINT"]
fn a_real_checkpoint_in_8_bits_finds_the_same_neighbours() {
    let pipeline =
        Pipeline::<BertForSentenceEmbedding>::from_pretrained(real_checkpoint(), &device()).unwrap();
    let text = fs::read_to_string("examples/data/reviews.csv").unwrap();
    let sentences: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(sentences.len(), 300);
    let embed = |pipeline: &Pipeline<BertForSentenceEmbedding>| {
        let vectors = pipeline.encode(&sentences, &TextOptions::new()).unwrap();
        let similarities = pipeline.similarity(&vectors, &vectors).unwrap();
        (vectors, similarities)
    };
    let (plain, similarities) = embed(&pipeline);
    let (model, tokenizer) = pipeline.into_parts();
    let (quantised, found) = embed(&Pipeline::new(quantize_linear_layers(model), tokenizer).unwrap());
    let cosines = values((plain * quantised).sum_dim(1));
    let least = cosines.iter().copied().fold(1.0, f64::min);
    let rank = burn_bert::metrics::spearman(&values(found), &values(similarities));
    println!("{} sentences: cosine at least {least:.4}, Spearman {rank:.5}", sentences.len());
    assert!(least >= 0.995 && rank >= 0.995, "cosine {least}, Spearman {rank}");
}
