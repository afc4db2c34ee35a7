//! `BertEmbeddingsConfig`: defaults, presets, JSON, and what it refuses.

use crate::prelude::*;
use burn::config::Config;
use burn_bert::encoder::Activation;
use burn_bert::optim::AdamWConfig;

fn model(embeddings: BertEmbeddingsConfig) -> BertModelConfig {
    BertModelConfig::new(embeddings).with_num_attention_heads(2)
}

#[test]
fn presets_have_the_parameter_counts_of_their_checkpoints_and_relative_positions_no_table() {
    let rows = [
        (BertModelConfig::bert_base_uncased(), 23_837_184, 109_514_298),
        (BertModelConfig::bert_base_chinese(), 16_622_592, 102_290_312),
        (BertModelConfig::bert_large_uncased(), 31_782_912, 335_174_458),
        (BertModelConfig::roberta_base(), 39_000_576, 124_697_433),
        (BertModelConfig::distilbert_base_uncased(), 23_835_648, 66_985_530),
        (BertModelConfig::electra_small(), 3_972_864, 13_546_682),
        (BertModelConfig::electra_base(), 23_837_184, 109_514_298),
        (BertModelConfig::mpnet_base(), 23_841_024, 109_518_527),
        (BertModelConfig::albert_base_v2(), 3_906_048, 11_221_680),
        (BertModelConfig::nomic_embed_text_v1_5(), 23_448_576, 137_354_304),
        (BertModelConfig::deberta_v3_small(), 98_382_336, 142_024_548),
        (BertModelConfig::deberta_v3_base(), 98_382_336, 184_551_780),
        (BertModelConfig::deberta_v3_large(), 131_176_448, 435_191_908),
    ];
    each(rows, |(config, of_layer, of_model)| {
        assert_eq!(config.embeddings.num_params(), of_layer);
        assert_eq!(config.embeddings.init(&device()).num_params(), of_layer);
        assert_eq!(BertForMaskedLmConfig::new(config).init(&device()).num_params(), of_model);
    });
    for scheme in [PositionEmbeddingType::RelativeKey, PositionEmbeddingType::RelativeKeyQuery] {
        let config = small_layer().with_position_embedding_type(scheme);
        let module = config.init(&device());
        assert!(module.position_embeddings.is_none());
        assert_eq!(module.num_params(), (10 + 2 + 2) * 4);
        assert_eq!(config.num_params(), module.num_params());
        config.with_max_position_embeddings(0).try_init(&device()).unwrap();
    }
}

#[test]
fn every_config_survives_json() {
    let embeddings = small_layer()
        .with_pad_token_id(None)
        .with_initializer(EmbeddingInitializer::TruncatedNormal { std: 0.02, bound: 2.0 })
        .with_position_embedding_type(PositionEmbeddingType::RelativeKeyQuery);
    let table = TokenEmbeddingConfig::new(7, 3).with_padding_idx(Some(2));
    let model = BertForMaskedLmConfig::new(model(embeddings.clone()).with_num_hidden_layers(3));
    let collator = MaskedLmCollatorConfig::new(10, 4, 0, vec![0, 1]).with_mlm_probability(0.3);

    fn assert_survives<C: Config + PartialEq + std::fmt::Debug>(config: C) {
        let dir = tempdir().unwrap();
        config.save(dir.path().join("config.json")).unwrap();
        assert_eq!(C::load(dir.path().join("config.json")).unwrap(), config);
    }
    assert_survives(embeddings);
    assert_survives(table);
    assert_survives(model);
    assert_survives(collator);
}

#[test]
fn an_invalid_config_names_the_field() {
    use PositionEmbeddingType::AfterPadding;
    let layer = small_layer;
    let after_padding = || layer().with_position_embedding_type(AfterPadding);
    let normal = |std| layer().with_initializer(EmbeddingInitializer::Normal { std });
    let truncated =
        |bound| layer().with_initializer(EmbeddingInitializer::TruncatedNormal { std: 0.02, bound });
    let mut errors: Vec<(&str, Error)> = Vec::new();
    let rows = [
        ("hidden_size", layer().with_hidden_size(0)),
        ("vocab_size", layer().with_vocab_size(0)),
        ("vocab_size", layer().with_vocab_size(usize::MAX)),
        ("max_position_embeddings", layer().with_max_position_embeddings(0)),
        ("type_vocab_size", layer().with_type_vocab_size(0)),
        ("pad_token_id", layer().with_pad_token_id(Some(10))),
        ("layer_norm_eps", layer().with_layer_norm_eps(0.0)),
        ("layer_norm_eps", layer().with_layer_norm_eps(-1e-12)),
        ("layer_norm_eps", layer().with_layer_norm_eps(f64::NAN)),
        ("layer_norm_eps", layer().with_layer_norm_eps(1e-300)), // 0 in f32, in which statistics are computed
        ("layer_norm_eps", layer().with_layer_norm_eps(f64::INFINITY)),
        ("hidden_dropout_prob", layer().with_hidden_dropout_prob(1.0)),
        ("hidden_dropout_prob", layer().with_hidden_dropout_prob(-0.1)),
        ("hidden_dropout_prob", layer().with_hidden_dropout_prob(f64::NAN)),
        ("initializer", normal(f64::NAN)),
        ("initializer", normal(f64::INFINITY)),
        ("initializer", normal(-0.02)),
        ("initializer", truncated(0.0)),
        ("initializer", truncated(f64::NAN)),
        ("initializer", truncated(5.5)),
        ("pad_token_id", after_padding().with_pad_token_id(None)),
        ("max_position_embeddings", after_padding().with_pad_token_id(Some(5))),
    ];
    each(rows, |(field, config)| errors.push((field, config.try_init(&device()).unwrap_err())));
    let relative = layer().with_position_embedding_type(PositionEmbeddingType::RelativeKey);
    let of_model = || model(layer());
    for (field, config) in [
        ("num_hidden_layers", of_model().with_num_hidden_layers(0)),
        ("num_attention_heads", of_model().with_num_attention_heads(0)),
        ("num_attention_heads", of_model().with_num_attention_heads(3)),
        ("intermediate_size", of_model().with_intermediate_size(0)),
        ("attention_probs_dropout_prob", of_model().with_attention_probs_dropout_prob(1.0)),
        ("layer_norm_eps", model(layer().with_layer_norm_eps(0.0))),
        ("max_position_embeddings", model(relative.with_max_position_embeddings(0))),
    ] {
        errors.push((field, config.try_init(&device()).unwrap_err()));
        errors.push((field, BertForMaskedLmConfig::new(config).try_init(&device()).unwrap_err()));
    }
    let of_sequences = || BertForSequenceClassificationConfig::new(of_model()).with_num_labels(3);
    let weighted = |weight| of_sequences().with_class_weights(Some(vec![1.0, weight, 1.0]));
    let single = Some(ProblemType::SingleLabelClassification);
    let rows = [
        ("id2label", of_sequences().with_num_labels(0)),
        ("classifier_dropout", of_sequences().with_classifier_dropout(Some(1.0))),
        ("activation", of_sequences().with_activation(Some(Activation::GeluFast))),
        ("label_smoothing", of_sequences().with_label_smoothing(1.0)),
        ("class_weights", of_sequences().with_class_weights(Some(vec![1.0]))),
        ("class_weights", weighted(f64::NAN)),
        ("class_weights", weighted(-1.0)),
        ("class_weights", weighted(1e300)),
        ("class_weights", weighted(1e-300)),
        ("problem_type", of_sequences().with_num_labels(1).with_problem_type(single)),
        ("num_hidden_layers", BertForSequenceClassificationConfig::new(of_model().with_num_hidden_layers(0))),
    ];
    each(rows, |(field, config)| errors.push((field, config.try_init(&device()).unwrap_err())));
    weighted(0.0).try_init(&device()).unwrap();
    let collator = || MaskedLmCollatorConfig::new(10, 4, 0, vec![0, 4]);
    let rows = [
        ("mlm_probability", collator().with_mlm_probability(1.1)),
        ("mask_replace_prob", collator().with_mask_replace_prob(f64::NAN)),
        ("random_replace_prob", collator().with_random_replace_prob(0.3)),
        ("pad_token_id", MaskedLmCollatorConfig::new(10, 4, 10, vec![0])),
        ("special_token_ids", MaskedLmCollatorConfig::new(10, 4, 0, vec![0, 10])),
        ("mask_token_id", MaskedLmCollatorConfig::new(10, 10, 0, vec![0])),
        ("pad_to_multiple_of", collator().with_pad_to_multiple_of(Some(0))),
        ("pad_to_multiple_of", collator().with_pad_to_multiple_of(Some((1 << 16) + 1))),
        ("pad_to_multiple_of", collator().with_pad_to_multiple_of(Some(usize::MAX))),
        ("vocab_size", MaskedLmCollatorConfig { vocab_size: 1 << 31, ..collator() }),
        ("vocab_size", MaskedLmCollatorConfig { vocab_size: 1 << 32, ..collator() }),
        ("vocab_size", MaskedLmCollatorConfig { vocab_size: usize::MAX, ..collator() }),
    ];
    each(rows, |(field, config)| errors.push((field, config.try_init().unwrap_err())));
    for (field, config) in [
        ("beta_1", AdamWConfig::new().with_beta_1(1.0)),
        ("beta_2", AdamWConfig::new().with_beta_2(f64::NAN)),
        ("epsilon", AdamWConfig::new().with_epsilon(0.0)),
        ("epsilon", AdamWConfig::new().with_epsilon(1e-300)), // 0 in f32: 0/0 where a gradient is 0
        ("weight_decay", AdamWConfig::new().with_weight_decay(-0.1)),
    ] {
        errors.push((field, config.build().unwrap_err()));
    }
    for (field, config) in [
        ("num_embeddings", TokenEmbeddingConfig::new(0, 3)),
        ("num_embeddings", TokenEmbeddingConfig::new(1 << 31, 1)),
        ("embedding_dim", TokenEmbeddingConfig::new(3, 0)),
        ("padding_idx", TokenEmbeddingConfig::new(3, 3).with_padding_idx(Some(3))),
    ] {
        errors.push((field, config.try_init(&device()).unwrap_err()));
    }
    for (field, error) in errors {
        assert!(matches!(&error, Error::Config { field: found, .. } if *found == field), "{field}: {error}");
        assert!(error.to_string().contains(field), "{error}");
    }
    let message = panic_of(|| small_layer().with_hidden_dropout_prob(1.0).init(&device()));
    assert_eq!(message, "invalid config: hidden_dropout_prob is 1, but must lie in [0, 1)");
}

#[test]
fn sizes_that_no_machine_holds_are_refused_before_anything_is_built() {
    let wide = |hidden| model(small_layer().with_hidden_size(hidden));
    let albert = BertModelConfig::new(BertEmbeddingsConfig::albert_base_v2());
    let relative = small_layer().with_position_embedding_type(PositionEmbeddingType::RelativeKey);
    let words = |rows| small_layer().with_vocab_size(rows);
    let most_rows = i32::MAX as usize;
    let rows = [
        ("hidden_size", wide(1 << 33), "is 8589934592, but must be at most 1048576"),
        ("hidden_size", wide(1 << 20).with_num_hidden_layers(1), "parameters together with the other sizes"),
        ("vocab_size", model(words(most_rows + 1)), "is 2147483648, but must be"),
        (
            "vocab_size",
            model(words(most_rows).with_hidden_size(1 << 10)),
            "gives 2199023264768 parameters together with the other sizes, but at most 1099511627776 are built",
        ),
        ("num_hidden_layers", wide(4).with_num_hidden_layers(1 << 50), "is 1125899906842624, but"),
        ("num_hidden_layers", albert.with_num_hidden_layers(1 << 53), "but must be at most 4096"),
        ("intermediate_size", wide(4).with_intermediate_size(1 << 21), "is 2097152, but must be at most"),
        (
            "max_position_embeddings",
            model(relative.with_max_position_embeddings(1 << 63)),
            "but must be at most 1073741823",
        ),
    ];
    each(rows, |(field, config, problem)| {
        fails!(config.try_init(&device()), Error::Config { field: found, .. } if *found == field, problem);
    });
    says(small_layer().with_hidden_size(1 << 33).try_init(&device()), "must be at most 1048576");
}

#[test]
fn vectors_start_at_0_or_1_and_matrices_as_the_initializer_says() {
    let bound = 1.5;
    let embeddings = small_layer()
        .with_initializer(EmbeddingInitializer::TruncatedNormal { std: 0.5, bound })
        .with_position_embedding_type(PositionEmbeddingType::RelativeKey)
        .with_hidden_size(32);
    let config = BertModelConfig::new(embeddings).with_num_hidden_layers(1).with_num_attention_heads(2);
    let model = BertForMaskedLmConfig::new(config.with_intermediate_size(64)).init(&device());
    // Two tables, four matrices of attention and its distances, two of the feed-forward network, the head's.
    let is_vector = |path: &str| ["bias", "gamma", "beta"].iter().any(|end| path.ends_with(end));
    let (vectors, matrices): (Vec<_>, Vec<_>) =
        parameters(&model, None).into_iter().partition(|(path, _)| is_vector(path));
    for (path, values) in vectors {
        let start = if path.ends_with("gamma") { 1.0 } else { 0.0 };
        assert!(values.iter().all(|&value| value == start), "{path}: {values:?}");
    }
    let largest = matrices
        .into_iter()
        .map(|(_, values)| values.iter().fold(0.0, |largest: f64, x| largest.max(x.abs())));
    let largest: Vec<f64> = largest.collect();
    assert_eq!(largest.len(), 10);
    for largest in largest {
        assert!((0.5..=0.5 * bound + 1e-6).contains(&largest), "{largest}");
    }
}
