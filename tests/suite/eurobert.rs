//! What EuroBERT has alone, beside the numbers: RMSNorm, grouped keys, embeddings without a norm, and its config's own fields.

use crate::families::{config as config_of, read, silence, text};
use crate::prelude::*;
use burn_bert::encoder::BertLayer;

/// Two heads of queries read one of keys and values.
fn config() -> BertModelConfig {
    config_of(Family::EuroBert).with_num_key_value_heads(Some(1))
}

#[test]
fn fields_of_its_configs_are_read_or_refused_by_name() {
    let read = |fields: Value| read(json!({ "model_type": "eurobert", "num_attention_heads": 12 }), fields);
    let heads = |fields: Value| read(fields).unwrap().num_key_value_heads;
    assert_eq!(heads(json!({})), None);
    assert_eq!(heads(json!({ "num_key_value_heads": null, "pretraining_tp": 4, "head_dim": 64 })), None);
    assert_eq!(heads(json!({ "num_key_value_heads": 12 })), None);
    assert_eq!(heads(json!({ "num_key_value_heads": 4 })), Some(4));
    let theta = |fields: Value| read(fields).unwrap().rotary.unwrap().global_rope_theta;
    assert_eq!(theta(json!({})), 10_000.0);
    assert_eq!(theta(json!({ "rope_theta": 250_000, "rope_scaling": null })), 250_000.0);
    let eps = read(json!({ "rms_norm_eps": 1e-3, "layer_norm_eps": 9.0 })).unwrap().embeddings.layer_norm_eps;
    assert_eq!(eps, 1e-3);
    let rows = [
        (json!({ "attention_bias": true }), "attention_bias is true"),
        (json!({ "mlp_bias": true }), "mlp_bias is true"),
        (json!({ "head_dim": 32 }), "head_dim must be hidden_size / num_attention_heads = 64"),
        (json!({ "num_key_value_heads": 5 }), "num_key_value_heads is 5, but must divide"),
        (json!({ "num_key_value_heads": 0 }), "num_key_value_heads is 0"),
        (json!({ "rope_parameters": { "rope_type": "yarn", "rope_theta": 1e4 } }), "yarn"),
    ];
    each(rows, |(fields, problem)| says(read(fields), problem));
}

#[test]
fn a_decoder_is_tied_by_default_but_in_its_configs() {
    let tied = |fields: Value| {
        BertForMaskedLmConfig::from_pretrained(with_config(fields).path()).unwrap().tie_word_embeddings
    };
    assert!(tied(json!({ "model_type": "bert" })) && !tied(json!({ "model_type": "eurobert" })));
    assert!(tied(json!({ "model_type": "eurobert", "tie_word_embeddings": true })));
}

#[test]
fn the_pooling_of_a_config_has_two_names() {
    let read = |fields: Value| {
        let mut all = json!({ "model_type": "eurobert" });
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let dir = with_config(all);
        Ok::<_, Error>(BertForSequenceClassificationConfig::from_pretrained(dir.path())?.classifier_pooling)
    };
    assert_eq!(read(json!({ "classifier_pooling": "late" })).unwrap(), None);
    assert_eq!(read(json!({ "clf_pooling": "mean" })).unwrap(), Some(ClassifierPooling::Mean));
    let both = json!({ "clf_pooling": "mean", "classifier_pooling": "bos" });
    assert_eq!(read(both).unwrap(), Some(ClassifierPooling::Cls));
    says(read(json!({ "classifier_pooling": "cls" })), "must be one of late, mean, bos");
}

#[test]
fn a_module_that_no_config_builds_is_refused() {
    let model = config().init(&device());
    let changed = |change: &dyn Fn(&mut BertModel)| {
        let mut model = model.clone();
        change(&mut model);
        model.try_forward(&text(3), None)
    };
    let bert = config_of(Family::Bert).init(&device());
    says(changed(&|model| model.embeddings.layer_norm = bert.embeddings.layer_norm.clone()), "is given");
    let mut bert = bert;
    bert.embeddings.layer_norm = None;
    says(bert.try_forward(&text(3), None), "layer_norm is None");
}

#[test]
fn embeddings_are_rows_of_the_table_and_their_padding_has_no_gradient() {
    let model = config().init(&autodiff());
    let pad = model.embeddings.word_embeddings.padding_idx().unwrap();
    let ids = [[3, pad as i32, 7]];
    let vectors = model.embeddings.forward(&BertEmbeddingsInput::from_rows(&ids, &autodiff()).unwrap());
    let table = &model.embeddings.word_embeddings.weight;
    let row = |index: usize| values(table.val().narrow(0, index, 1));
    assert_eq!(values(vectors.clone()), [row(3), row(pad), row(7)].concat());
    let gradient = values(table.grad(&vectors.add_scalar(1.0).powi_scalar(2).sum().backward()).unwrap());
    assert!(gradient[pad * 16..][..16].iter().all(|&value| value == 0.0));
    assert!(gradient[3 * 16..][..16].iter().all(|&value| value != 0.0));
}

#[test]
fn attention_weights_alone_have_dropout() {
    let device = autodiff();
    let config = config().with_num_key_value_heads(None).with_attention_probs_dropout_prob(0.5);
    let encoder = config.init_encoder(&device).unwrap();
    let mut layer: BertLayer = encoder.layers[0].clone();
    silence(&mut layer.output);
    layer.attention_output.weight =
        layer.attention_output.weight.map(|weight| Tensor::eye(16, &weight.device()).require_grad());
    // The only token of a text has the attention weight 1 of each head, or 0.
    let hidden = Tensor::<3>::random([32, 1, 16], Distribution::Normal(0.0, 1.0), &device);
    let packing = encoder.forward_packed(hidden.clone(), None).unwrap().packing().clone();
    let rows = hidden.reshape([32, 16]);
    let of_attention = values(layer.forward(rows.clone(), &packing, None) - rows);
    let dropped = of_attention.chunks(8).map(|head| head.iter().filter(|&&value| value == 0.0).count());
    let (whole, none) = dropped.partition::<Vec<_>, _>(|&count| count > 0);
    assert!(whole.iter().all(|&count| count == 8), "{whole:?}");
    assert!(whole.len() > 9 && none.len() > 9, "{} of 64 heads", whole.len());
}

#[test]
fn what_is_added_to_the_rows_starts_as_wide_as_other_layers() {
    let config = config_of(Family::EuroBert).with_num_hidden_layers(8);
    let layer = &config.init(&device()).encoder.layers[0];
    let deviation = |linear: &burn::nn::Linear| {
        let all = values(linear.weight.val());
        (all.iter().map(|value| value * value).sum::<f64>() / all.len() as f64).sqrt()
    };
    for linear in [&layer.attention_output, &layer.output, &layer.intermediate] {
        assert!((deviation(linear) / 0.02 - 1.0).abs() < 0.25, "{}", deviation(linear));
    }
}

#[test]
fn a_vocabulary_is_resized_without_a_bias() {
    let config = BertForMaskedLmConfig::new(config()).with_tie_word_embeddings(false);
    let mut model = config.init(&device());
    model.resize_vocabulary(&VocabularyResize::new(27)).unwrap();
    assert_eq!(model.scores(Tensor::ones([2, 16], &device())).unwrap().dims(), [2, 27]);
    let again: BertForMaskedLm = loaded(saved(&model));
    assert_eq!(again.head.decoder.unwrap().num_embeddings(), 27);
}

/// The padding of its batches has the id that ends each text.
#[cfg(feature = "tokenizers")]
#[test]
fn texts_that_end_with_the_padding_id_are_whole() {
    let dir = tempdir().unwrap();
    let tokenizer =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/published/tokenizers/eurobert/tokenizer.json");
    fs::copy(tokenizer, dir.path().join("tokenizer.json")).unwrap();
    let [begin, end, mask] = ["<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"];
    let settings = json!({ "bos_token": begin, "eos_token": end, "pad_token": end, "mask_token": mask });
    fs::write(dir.path().join("tokenizer_config.json"), settings.to_string()).unwrap();
    fs::write(dir.path().join("config.json"), json!({ "model_type": "eurobert" }).to_string()).unwrap();
    let tokenizer = BertTokenizer::from_pretrained(dir.path()).unwrap();
    assert_eq!(tokenizer.pad_token_id(), tokenizer.sep_token_id());
    assert_ne!(tokenizer.cls_token_id(), tokenizer.sep_token_id());
    let mut config = config();
    config.embeddings.vocab_size = tokenizer.vocab_size();
    config.embeddings.pad_token_id = Some(tokenizer.pad_token_id() as usize);
    let pipeline =
        Pipeline::new(BertForSentenceEmbeddingConfig::new(config).init(&device()), tokenizer).unwrap();
    let encode = |texts: &[&str]| values(pipeline.encode(texts, &TextOptions::new()).unwrap());
    let both = encode(&["one", "a text of more words"]);
    assert_close(&both, &[encode(&["one"]), encode(&["a text of more words"])].concat(), MODEL_F32);
}
