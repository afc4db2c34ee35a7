//! What ModernBERT has alone, beside the numbers: windows, rotary positions, gates, no biases, and its config's own fields.

use crate::families::{config as config_of, read, silence, text};
use crate::prelude::*;
use crate::small_bert::small;
use burn_bert::encoder::BertLayer;

fn config() -> BertModelConfig {
    let rotary = RotaryConfig::new().with_local_attention(4);
    config_of(Family::ModernBert).with_num_hidden_layers(4).with_rotary(Some(rotary))
}

#[test]
fn attention_weights_are_zero_outside_the_window_and_in_padding() {
    let model = config().init(&device());
    let padding = PaddingMask::from_rows(&[[true, false, false, true, false, false, false, false]]).unwrap();
    let attentions = model.forward_all(&text(8), Some(&padding)).unwrap().attentions.unwrap();
    for (layer, weights) in attentions.into_iter().enumerate() {
        let weights = values(weights);
        for (i, row) in weights.chunks(8).enumerate() {
            let (query, is_padding) = (i % 8, |place: usize| [0, 3].contains(&place));
            for (key, &weight) in row.iter().enumerate() {
                let is_far = layer % 3 != 0 && query.abs_diff(key) > 2;
                let is_read = !is_padding(query) && !is_padding(key) && !is_far;
                assert_eq!(weight > 0.0, is_read, "layer {layer}, from {query} to {key}: {weight}");
            }
        }
    }
}

#[test]
fn each_dropout_is_where_transformers_has_it() {
    let device = autodiff();
    let hidden = Tensor::<3>::random([2, 5, 16], Distribution::Normal(0.0, 1.0), &device);
    let is_random = |attention: f64, mlp: f64, change: fn(&mut BertLayer)| {
        let mut config = config().with_attention_probs_dropout_prob(attention).with_mlp_dropout(mlp);
        // The embeddings' own, which no layer has.
        config.embeddings.hidden_dropout_prob = 0.5;
        let mut encoder = config.init_encoder(&device).unwrap();
        encoder.layers.iter_mut().for_each(change);
        let run = || values(encoder.forward(hidden.clone(), None));
        run() != run()
    };
    let keep: fn(&mut BertLayer) = |_| {};
    assert!(!is_random(0.0, 0.0, keep));
    assert!(is_random(0.5, 0.0, keep) && is_random(0.0, 0.5, keep));
    assert!(!is_random(0.5, 0.0, |layer| silence(&mut layer.attention_output)));
    assert!(!is_random(0.0, 0.5, |layer| silence(&mut layer.output)));
    // What the attention adds is dropped too, not its weights alone: values of one token have the weight 1.
    let alone = |attention: f64| {
        let encoder = config().with_attention_probs_dropout_prob(attention).init_encoder(&device).unwrap();
        let one = hidden.clone().narrow(1, 0, 1);
        let zeros = values(encoder.layers[0].attention_output.weight.val());
        assert!(zeros.iter().any(|&weight| weight != 0.0));
        let run = || values(encoder.forward(one.clone(), None));
        (0..20).any(|_| run() != run())
    };
    assert!(alone(0.5) && !alone(0.0));
}

#[test]
fn new_parameters_are_as_wide_as_transformers_draws_them() {
    let mut config = small(BertModelConfig::modernbert_base(), 400, 128)
        .with_num_hidden_layers(8)
        .with_intermediate_size(192);
    config.embeddings.pad_token_id = Some(0);
    let config = BertForMaskedLmConfig::new(config).with_tie_word_embeddings(false).init(&device());
    let deviation = |weight: &Param<Tensor<2>>| {
        let all = values(weight.val());
        assert!(all.iter().all(|value| value.is_finite()));
        (all.iter().map(|value| value * value).sum::<f64>() / all.len() as f64).sqrt()
    };
    let layer = &config.bert.encoder.layers[1];
    let inwards = [&layer.attention.query, &layer.intermediate, layer.gate.as_ref().unwrap()];
    let outwards = [&layer.attention_output, &layer.output, config.head.transform.as_ref().unwrap()];
    // A normal distribution that is cut off at two standard deviations has 0.880 of them.
    let near =
        |found: f64, expected: f64| assert!((found / (0.880 * expected) - 1.0).abs() < 0.05, "{found}");
    inwards.iter().for_each(|linear| near(deviation(&linear.weight), 0.02));
    outwards.iter().for_each(|linear| near(deviation(&linear.weight), 0.02 / 4.0)); // √(2 · 8 layers)
    let tagger =
        BertForTokenClassificationConfig::new(config.bert.config()).with_num_labels(40).init(&device());
    near(deviation(&tagger.classifier.weight), 1.0 / 128f64.sqrt());
    let biases =
        parameters(&config, None).into_keys().filter(|path| path.ends_with("bias") || path.ends_with("beta"));
    assert_eq!(biases.collect::<Vec<_>>(), ["head.bias"]);
}

#[test]
fn fields_of_both_versions_of_transformers_are_read() {
    let read = |fields: Value| read(json!({ "model_type": "modernbert", "num_hidden_layers": 5 }), fields);
    let rotary = |fields: Value| read(fields).unwrap().rotary.unwrap();
    assert_eq!(rotary(json!({})), RotaryConfig::new());
    let config =
        read(json!({ "position_embedding_type": "absolute", "mlp_dropout": 0.1, "embedding_dropout": 0.2 }));
    let config = config.unwrap();
    assert_eq!(config.embeddings.position_embedding_type, PositionEmbeddingType::Rotary);
    assert_eq!([config.mlp_dropout, config.embeddings.hidden_dropout_prob], [0.1, 0.2]);
    let old = json!({ "global_rope_theta": 7.0, "local_rope_theta": 5.0, "local_attention": 6, "global_attn_every_n_layers": 2 });
    let new = json!({
        "rope_parameters": {
            "full_attention": { "rope_type": "default", "rope_theta": 7.0 },
            "sliding_attention": { "rope_theta": 5.0 },
        },
        "local_attention": 6,
        "layer_types":
            ["full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    });
    let expected = RotaryConfig::new()
        .with_global_rope_theta(7.0)
        .with_local_rope_theta(5.0)
        .with_local_attention(6)
        .with_global_attn_every_n_layers(2);
    assert_eq!([rotary(old), rotary(new)], [expected; 2]);
    let rows = [
        (
            json!({ "layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention", "x"] }),
            "layer_types has no global layer",
        ),
        (json!({ "layer_types": vec!["sliding_attention"; 5] }), "layer_types has no global layer"),
        (
            json!({ "layer_types": ["full_attention", "sliding_attention"] }),
            "layer_types has 2 entries, but num_hidden_layers is 5; state one for each layer",
        ),
        (
            json!({ "rope_parameters": { "full_attention": 5 } }),
            "rope_parameters have a full_attention that is not an object, such as {\"rope_theta\": 160000.0}",
        ),
        (json!({ "rope_parameters": { "full_attention": { "rope_type": "yarn" } } }), "rope_type"),
        (json!({ "rope_parameters": { "full_attention": { "rope_theta": "7" } } }), "rope_theta"),
        (json!({ "rope_scaling": { "type": "linear" } }), "rope_scaling"),
        (json!({ "norm_bias": true }), "norm_bias"),
        (json!({ "mlp_bias": true }), "mlp_bias"),
        (json!({ "decoder_bias": false }), "decoder_bias is false"),
        (json!({ "classifier_activation": "relu" }), "classifier_activation"),
        (json!({ "global_rope_theta": -1.0 }), "global_rope_theta"),
        (json!({ "global_attn_every_n_layers": 0 }), "global_attn_every_n_layers"),
        (json!({ "hidden_size": 36, "num_attention_heads": 12 }), "num_attention_heads"),
    ];
    each(rows, |(fields, expected)| says(read(fields), expected));
    let dir = with_config(json!({ "model_type": "modernbert", "classifier_pooling": "max" }));
    let error = BertForSequenceClassificationConfig::from_pretrained(dir.path()).unwrap_err().to_string();
    assert!(error.contains("classifier_pooling") && error.contains("max"), "{error}");
}

#[test]
fn a_config_that_no_model_has_is_refused() {
    for (bert, pooling) in
        [(config(), ClassifierPooling::Late), (small_bert(20, 16), ClassifierPooling::Mean)]
    {
        let config = BertForSequenceClassificationConfig::new(bert).with_classifier_pooling(Some(pooling));
        fails!(config.try_init(&device()), Error::Config { field: "classifier_pooling", .. });
    }
    let mut bert = small_bert(20, 16).init(&device());
    bert.encoder.layers[0].attention_layer_norm = None;
    says(bert.try_forward(&text(3), None), "attention_layer_norm of layers[0]");
}

/// Places count, padding between tokens as well; transformers says so in `parity`.
#[test]
fn positions_may_be_given_and_are_those_of_places_otherwise() {
    let padding = PaddingMask::from_rows(&[[true, false, true, true, false, false], [false; 6]]).unwrap();
    let places =
        BertEmbeddingsInput::from_rows(&[[0, 5, 0, 0, 9, 7], [7, 8, 9, 4, 3, 2]], &device()).unwrap();
    let tokens = BertEmbeddingsInput::from_rows(&[[5, 9, 7]], &device()).unwrap();
    for family in
        [Family::ModernBert, Family::NomicBert, Family::Gte, Family::JinaEmbeddingsV3, Family::EuroBert]
    {
        let model = larger(config_of(family).init(&autodiff())).valid();
        let run = |input: &BertEmbeddingsInput, padding: Option<&PaddingMask>| {
            let all = model.forward_all(input, padding).unwrap().last_hidden_state;
            let last = values(model.forward(input, padding).last_hidden_state);
            assert_eq!(last, values(all), "{family:?}");
            last
        };
        let counted = run(&places, Some(&padding));
        let given =
            |input: &BertEmbeddingsInput, ids: &[[i64; 6]]| input.clone().with_position_ids(ids).unwrap();
        // From the first token of each text, for one text and for all.
        assert_eq!(run(&given(&places, &[[-1, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]]), Some(&padding)), counted);
        let moved = given(&places, &[[7, 8, 9, 10, 11, 12]]);
        assert_close(&run(&moved, Some(&padding)), &counted, MODEL_F32);
        let apart = tokens.clone().with_position_ids(&[[0, 3, 4]]).unwrap();
        let rows = [&counted[16..32], &counted[64..96]].concat();
        assert_close(&run(&apart, None), &rows, MODEL_F32);
        let unchecked = run(&apart.clone().unchecked_ids(), None);
        assert_eq!(unchecked, run(&apart, None));
        assert_ne!(run(&tokens, None), unchecked, "{family:?}");
    }
}

#[test]
fn a_mean_is_taken_of_texts_that_are_padded_anywhere_and_position_0_of_none_before() {
    let texts = BertEmbeddingsInput::from_rows(&[[0, 0, 5, 9], [7, 8, 9, 4]], &device()).unwrap();
    let padding = PaddingMask::from_rows(&[[true, true, false, false], [false; 4]]).unwrap();
    let head = BertForSequenceClassificationConfig::new(config());
    let mean = head.clone().with_classifier_pooling(Some(ClassifierPooling::Mean)).init(&device());
    let alone = BertEmbeddingsInput::from_rows(&[[5, 9]], &device()).unwrap();
    let found = values(mean.logits(&texts, Some(&padding)).unwrap());
    assert_eq!(found[..2], values(mean.logits(&alone, None).unwrap()));
    fails!(head.init(&device()).logits(&texts, Some(&padding)), Error::Data { .. });
}

#[test]
fn parts_of_a_tensor_are_refused_and_replaced_together() {
    let model = BertForMaskedLmConfig::new(config()).init(&device());
    let dir = saved(&model);
    let adapted =
        model.clone().apply_lora(Lora::new(2, 4.0).set_param_group(ParamGroup::from_predicate("key.weight")));
    let error = adapted.clone().load(dir.path()).map(drop).unwrap_err().to_string();
    assert!(error.contains("Wqkv") && error.contains("LoRA"), "{error}");
    // Another dtype of one part is stored in that of the first.
    let mut mixed = model.clone();
    let gate = mixed.bert.encoder.layers[0].gate.take().unwrap();
    mixed.bert.encoder.layers[0].gate = Some(cast_module(gate, FloatDType::F64).unwrap());
    let again: BertForMaskedLm = loaded(saved(&mixed).path());
    let gate =
        |model: &BertForMaskedLm| values(model.bert.encoder.layers[0].gate.as_ref().unwrap().weight.val());
    assert_eq!(gate(&again), gate(&model));
}
