//! What DeBERTa has alone, beside the numbers: vectors of distances, its pooler, two names of a head, and its config's own fields.

use crate::families::{config as config_of, text};
use crate::files::copy_of;
use crate::prelude::*;
use burn_bert::encoder::{Packing, SharedPositions};

fn config() -> BertModelConfig {
    config_of(Family::DebertaV2)
}

/// What a `config.json` with these fields beside a sound one's is read as.
fn read(fields: Value) -> Result<BertModelConfig, Error> {
    let sound = json!({ "model_type": "deberta-v2", "relative_attention": true, "pos_att_type": "p2c|c2p" });
    crate::families::read(sound, fields)
}

#[test]
fn the_fields_of_the_published_models_are_read() {
    // Those of microsoft/deberta-v3-base.
    let base = json!({
        "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
        "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": true, "max_relative_positions": -1,
        "position_biased_input": false,
    });
    let published = BertModelConfig::deberta_v3_base();
    assert_eq!(published.init(&device()).config(), published);
    assert_eq!(read(base).unwrap(), published);

    // `DebertaV2Config()` of transformers 5.23.0, with relative attention.
    let defaults = read(json!({})).unwrap();
    let embeddings = &defaults.embeddings;
    assert_eq!(embeddings.position_embedding_type, PositionEmbeddingType::Absolute);
    assert_eq!([embeddings.vocab_size, embeddings.hidden_size], [128100, 1536]);
    assert_eq!(embeddings.type_vocab_size, 0);
    assert_eq!([defaults.num_hidden_layers, defaults.num_attention_heads], [24, 24]);
    assert_eq!(defaults.intermediate_size, 6144);
    let expected = DisentangledConfig::new()
        .with_position_buckets(None)
        .with_share_att_key(false)
        .with_norm_rel_ebd(false);
    assert_eq!(defaults.disentangled, Some(expected));
    let own = |fields: Value| read(fields).unwrap().disentangled.unwrap();
    let kinds = own(json!({ "pos_att_type": ["c2p"], "max_relative_positions": 40, "position_buckets": -1 }));
    assert_eq!(kinds, expected.with_p2c(false).with_max_relative_positions(40));
}

#[test]
fn what_would_not_be_computed_is_refused_by_name() {
    let rows = [
        (json!({ "relative_attention": false }), "relative_attention is not true"),
        (json!({ "conv_kernel_size": 3 }), "the convolution after the first layer would not be computed"),
        (json!({ "embedding_size": 128 }), "embedding_size is 128"),
        (json!({ "pooler_hidden_size": 128 }), "pooler_hidden_size is 128"),
        (json!({ "pooler_hidden_act": "tanh" }), "pooler_hidden_act"),
        (json!({ "attention_head_size": 32 }), "attention_head_size"),
        (json!({ "pos_att_type": "p2p" }), "pos_att_type has \"p2p\""),
        (json!({ "pos_att_type": null }), "pos_att_type"),
        (json!({ "pos_att_type": [1] }), "pos_att_type"),
        (json!({ "norm_rel_ebd": "rms" }), "norm_rel_ebd has \"rms\""),
        (json!({ "position_buckets": 1 }), "position_buckets"),
        (json!({ "position_buckets": 256, "max_relative_positions": 129 }), "position_buckets"),
    ];
    each(rows, |(fields, expected)| says(read(fields), expected));
    for (bert, dropout) in [(config(), 1.0), (small_bert(20, 16), 0.1)] {
        let config = BertForSequenceClassificationConfig::new(bert).with_pooler_dropout(dropout);
        fails!(config.try_init(&device()), Error::Config { field: "pooler_dropout", .. });
    }
    let mut model = config().init(&device());
    let mut other = model.clone();
    let table = other.encoder.distances.as_mut().map(|embeddings| &mut embeddings.table).unwrap();
    *table = TokenEmbeddingConfig::new(510, 16).init(&device());
    says(other.save_pretrained(tempdir().unwrap().path()), "rel_embeddings.weight has shape [510, 16]");
    model.encoder.distances = None;
    says(model.try_forward(&text(3), None), "distances is None");
    let packing = Packing::new([1, 2], None, &device()).unwrap();
    let alone = || model.encoder.layers[0].forward(Tensor::ones([2, 16], &device()), &packing, None);
    assert!(panic_of(alone).contains("distances"));
    let encoder = config().init_encoder(&device()).unwrap();
    let distances = encoder.distances.unwrap();
    assert_eq!([1, 2].map(|length| distances.vectors(length).dims()), [[1, 16], [3, 16]]);
    assert!(panic_of(|| distances.vectors(0)).contains("no distances"));
    // Of fewer positions than the batch has, and of more.
    for length in [1, 3] {
        let shared = SharedPositions::Vectors(distances.vectors(length));
        let run = || encoder.layers[0].forward(Tensor::ones([2, 16], &device()), &packing, Some(&shared));
        assert!(panic_of(run).contains("must be those of 2 positions"));
    }
}

#[test]
fn vectors_of_distances_are_dropped_and_are_not_in_attention_weights() {
    let device = autodiff();
    let rows = Tensor::<2>::random([5, 16], Distribution::Normal(0.0, 1.0), &device);
    let packing = Packing::new([1, 5], None, &device).unwrap();
    let [dropped, kept] = [0.5, 0.0].map(|dropout| {
        let mut config = config().with_attention_probs_dropout_prob(0.0);
        config.embeddings.hidden_dropout_prob = dropout;
        let encoder = larger(config.init_encoder(&device).unwrap());
        let (vectors, attention) =
            (encoder.distances.unwrap().vectors(5), encoder.layers[0].attention.clone());
        let positions = Some(&SharedPositions::Vectors(vectors));
        let context = || values(attention.forward(rows.clone(), &packing, positions));
        let weights = || values(attention.weights(rows.clone(), &packing, positions));
        assert_eq!(weights(), weights());
        (0..5).any(|_| context() != context())
    });
    assert!(dropped && !kept);
    let mut config = config();
    config.embeddings.hidden_dropout_prob = 0.5;
    let mut encoder = config.init_encoder(&device).unwrap();
    encoder.set_dropout(0.0, 0.0).unwrap();
    let run = || values(encoder.forward(rows.clone().unsqueeze(), None));
    assert_eq!(run(), run(), "set_dropout is that of the vectors too");
}

#[test]
fn a_masked_language_model_head_is_read_under_both_names_and_written_under_its_own() {
    let dir = copy_of(fixture("families/deberta_masked_lm"));
    let model: BertForMaskedLm = loaded(dir.path());
    let [first, other] = ["cls.predictions.transform.dense.weight", "lm_predictions.lm_head.dense.weight"];
    let names = |dir: &TempDir| {
        let file = File::at(&dir.path().join("model.safetensors"));
        [first, other].map(|name| file.has(name))
    };
    assert_eq!((names(&dir), model.config().legacy), ([false, true], false));
    // As the published models: the config does not say it, and transformers would not find the head.
    edit(&dir, "config.json", |config| drop(config.as_object_mut().unwrap().remove("legacy")));
    let published: BertForMaskedLm = loaded(dir.path());
    let weight = |model: &BertForMaskedLm| values(model.head.transform.as_ref().unwrap().weight.val());
    assert_eq!(weight(&published), weight(&model));
    let new = saved(&published);
    assert_eq!((names(&new), &config_json(&new)["legacy"]), ([true, false], &json!(true)));
    assert_eq!(weight(&loaded(new.path())), weight(&model));
    assert_eq!(config_json(&new)["position_biased_input"], json!(false));
    // The other names have none for a decoder.
    let untied = saved(&model.config().with_tie_word_embeddings(false).init(&device()));
    assert_eq!((names(&untied), &config_json(&untied)["legacy"]), ([true, false], &json!(true)));
    let _: BertForMaskedLm = loaded(untied.path());
}

#[test]
fn both_dropouts_of_the_pooler_are_read_written_and_applied() {
    let head = BertForSequenceClassificationConfig::new(config());
    let dir =
        saved(&head.clone().with_pooler_dropout(0.2).with_classifier_dropout(Some(0.4)).init(&device()));
    assert_eq!(config_json(&dir)["pooler_dropout"], json!(0.2));
    assert_eq!(config_json(&dir)["cls_dropout"], json!(0.4));
    let config = BertForSequenceClassificationConfig::from_pretrained(dir.path()).unwrap();
    assert_eq!((config.pooler_dropout, config.classifier_dropout), (0.2, Some(0.4)));
    let is_random = |pooler: f64, classifier: f64| {
        let mut head = head.clone().with_pooler_dropout(pooler).with_classifier_dropout(Some(classifier));
        head.bert.embeddings.hidden_dropout_prob = 0.0;
        head.bert.attention_probs_dropout_prob = 0.0;
        let model = larger(head.init(&autodiff()));
        let run = || values(model.logits(&text(4), None).unwrap());
        (0..5).any(|_| run() != run())
    };
    assert!(!is_random(0.0, 0.0));
    assert!(is_random(0.5, 0.0) && is_random(0.0, 0.5));
}
