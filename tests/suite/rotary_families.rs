//! What NomicBERT, GTE and Jina embeddings v3 have alone, beside the numbers: biases, dropout, pooler, fields and keys.

use crate::checkpoint_files::keys_of;
use crate::families::{config, read};
use crate::prelude::*;

const FAMILIES: [Family; 3] = [Family::NomicBert, Family::Gte, Family::JinaEmbeddingsV3];

#[test]
fn only_gte_drops_out_what_the_last_linear_layer_of_a_layer_reads() {
    let device = autodiff();
    for family in FAMILIES {
        let mut config = config(family);
        config.embeddings.hidden_dropout_prob = 0.5;
        let encoder = config.init_encoder(&device).unwrap();
        let hidden = Tensor::<3>::random([1, 1, 16], Distribution::Normal(0.0, 1.0), &device);
        let gradients = encoder.forward(hidden, None).powi_scalar(3).sum().backward();
        // Of one token: a row of D has no gradient if and only if what it is multiplied by was dropped.
        let gradient = values(encoder.layers[1].output.weight.grad(&gradients).unwrap());
        let dropped = gradient.chunks(16).filter(|row| row.iter().all(|&value| value == 0.0)).count();
        assert_eq!((1..24).contains(&dropped), family == Family::Gte, "{family:?}: {dropped} of 24");
    }
}

#[test]
fn biases_and_pooler_are_where_transformers_has_them() {
    let of = |family: Family| {
        let layer = &config(family).init(&device()).encoder.layers[0];
        let gate = layer.gate.as_ref().map(|gate| gate.bias.is_some());
        let [query, inner] =
            [&layer.attention.query, &layer.intermediate].map(|linear| linear.bias.is_some());
        assert_eq!([layer.attention_output.bias.is_some(), layer.output.bias.is_some()], [query; 2]);
        assert!(layer.output_layer_norm.beta.is_some());
        (query, inner, gate)
    };
    assert_eq!(of(Family::NomicBert), (false, false, Some(false)));
    assert_eq!(of(Family::Gte), (true, false, Some(false)));
    assert_eq!(of(Family::JinaEmbeddingsV3), (true, true, None));
    for family in FAMILIES {
        let is_jina = family == Family::JinaEmbeddingsV3;
        assert_eq!(config(family).init(&device()).pooler.is_some(), is_jina, "add_pooling_layer");
        let head = BertForSequenceClassificationConfig::new(config(family)).init(&device());
        assert_eq!(head.bert.pooler.is_some(), !is_jina, "its head reads the first token");
    }
}

#[test]
fn presets_are_as_large_as_the_published_models() {
    // Encoders whose layers are those of the preset: all of them would take gigabytes.
    for (config, count) in [
        (BertModelConfig::nomic_embed_text_v1_5(), 136_731_648),
        (BertModelConfig::gte_multilingual_base(), 305_368_320),
        (BertModelConfig::jina_embeddings_v3(), 558_314_496), // without its pooler
    ] {
        let layers = config.num_hidden_layers;
        let encoder = config.clone().with_num_hidden_layers(1).init_encoder(&device()).unwrap();
        assert_eq!(config.embeddings.num_params() + layers * encoder.num_params(), count);
    }
}

#[test]
fn fields_of_transformers_and_of_the_published_code_are_read() {
    let read = |model_type: &str, fields: Value| read(json!({ "model_type": model_type }), fields);
    let theta = |model_type: &str, fields: Value| {
        let rotary = read(model_type, fields).unwrap().rotary.unwrap();
        assert_eq!(rotary, RotaryConfig::of_all_layers(rotary.global_rope_theta));
        rotary.global_rope_theta
    };
    let defaults = [("nomic_bert", 1_000.0), ("gte", 160_000.0), ("jina_embeddings_v3", 20_000.0)];
    for (model_type, default) in defaults {
        assert_eq!(theta(model_type, json!({ "position_embedding_type": "rotary" })), default);
        assert_eq!(theta(model_type, json!({ "rope_theta": 7.0 })), 7.0);
        let new =
            json!({ "rope_parameters": { "rope_type": "default", "rope_theta": 7.0 }, "rope_theta": 5.0 });
        assert_eq!(theta(model_type, new), 7.0);
    }
    let published = json!({
        "n_embd": 24, "n_layer": 3, "n_head": 4, "n_inner": 40, "layer_norm_epsilon": 1e-6, "rotary_emb_base": 9,
        "activation_function": "swiglu", "prenorm": false, "qkv_proj_bias": false, "rotary_emb_fraction": 1.0,
    });
    let config = read("nomic_bert", published.clone()).unwrap();
    assert_eq!([config.embeddings.hidden_size, config.intermediate_size], [24, 40]);
    assert_eq!([config.num_hidden_layers, config.num_attention_heads], [3, 4]);
    assert_eq!([config.embeddings.layer_norm_eps, config.rotary.unwrap().global_rope_theta], [1e-6, 9.0]);
    // BERT's names count where a config has both, as after a save over a published one.
    let mut both = published;
    both["hidden_size"] = json!(32);
    assert_eq!(read("nomic_bert", both).unwrap().embeddings.hidden_size, 32);
    for (model_type, fields, expected) in [
        ("gte", json!({ "rope_scaling": { "type": "ntk", "factor": 8.0 } }), "rope_scaling"),
        ("gte", json!({ "rope_parameters": { "type": "dynamic", "rope_theta": 7.0 } }), "rope_type"),
        ("nomic_bert", json!({ "moe_every_n_layers": 2 }), "mixtures of experts"),
        ("nomic_bert", json!({ "mlp_fc1_bias": true }), "mlp_fc1_bias"),
        ("nomic_bert", json!({ "activation_function": "gelu" }), "activation_function"),
        ("nomic_bert", json!({ "head_dim": 32 }), "head_dim"),
        ("jina_embeddings_v3", json!({ "rope_theta": "7" }), "rope_theta"),
        ("xlm-roberta", json!({ "position_embedding_type": "rotary" }), "position_embedding_type"),
    ] {
        says(read(model_type, fields), expected);
    }
}

#[test]
fn a_model_is_written_over_another_head_and_under_the_prefix_of_its_family() {
    for family in FAMILIES {
        let dir = saved(&config(family).init(&device()));
        let model = BertForTokenClassificationConfig::new(config(family)).init(&device());
        model.save_pretrained(dir.path()).unwrap();
        let alone = keys_of(saved(&model).path());
        let mut keys = keys_of(dir.path());
        keys.retain(|key| !key.contains("pooler.")); // which the bare model may have
        assert_eq!(keys, alone, "nothing of the old model is left beside");
        let layer: BertEmbeddings = BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
        assert_eq!(
            values(layer.layer_norm.gamma.val()),
            values(model.bert.embeddings.layer_norm.gamma.val())
        );
        // A BERT's directory has none of the layers that the family asks for.
        let other = saved(&config(Family::Roberta).init(&device()));
        set_fields(other.path(), &[("model_type", family.model_type().into())]);
        fails!(BertModel::from_pretrained(other.path(), &device()), Error::MissingKey { .. });
    }
}

#[test]
fn a_bias_of_a_part_of_a_tensor_is_not_stored_alone() {
    let mut model = config(Family::JinaEmbeddingsV3).init(&device());
    model.encoder.layers[0].attention.key.bias = None;
    let dir = tempdir().unwrap();
    says(model.save_pretrained(dir.path()), "encoder.layers.0.mixer.Wqkv.bias is missing");
}
