//! What families do not have in common with BERT, beside the numbers; `modernbert` and `deberta` have those two.

use crate::checkpoint_files::{keys_of, safetensors_bytes, tensors_of};
use crate::prelude::*;
use crate::small_bert::small;
use burn_bert::encoder::{Activation, BertEncoder, BertLayer};

pub const FAMILIES: [Family; 4] = [Family::DistilBert, Family::Electra, Family::MpNet, Family::Albert];

/// A small model of the family.
pub fn config(family: Family) -> BertModelConfig {
    let published = match family {
        Family::Roberta => BertModelConfig::roberta_base(),
        Family::DistilBert => BertModelConfig::distilbert_base_uncased(),
        Family::Electra => BertModelConfig::electra_small(),
        Family::MpNet => BertModelConfig::mpnet_base(),
        Family::Albert => BertModelConfig::albert_base_v2(),
        Family::NomicBert => BertModelConfig::nomic_embed_text_v1_5(),
        Family::Gte => BertModelConfig::gte_multilingual_base(),
        Family::JinaEmbeddingsV3 => BertModelConfig::jina_embeddings_v3(),
        Family::ModernBert => BertModelConfig::modernbert_base(),
        Family::DebertaV2 => BertModelConfig::deberta_v3_base(),
        Family::EuroBert => BertModelConfig::eurobert_210m(),
        _ => BertModelConfig::bert_base_uncased(),
    };
    let mut config = small(published, 20, 16).with_num_hidden_layers(2).with_intermediate_size(24);
    config.embeddings.max_position_embeddings = 14;
    config.embeddings.pad_token_id = config.embeddings.pad_token_id.map(|pad| pad % 2);
    config
}

/// What a `config.json` with these fields beside those of `all` is read as.
pub fn read(mut all: Value, fields: Value) -> Result<BertModelConfig, Error> {
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    BertModelConfig::from_pretrained(with_config(all).path())
}

/// A text of so many tokens.
pub fn text(length: usize) -> BertEmbeddingsInput {
    let ids: Vec<i32> = (0..length).map(|place| 1 + (7 * place % 19) as i32).collect();
    BertEmbeddingsInput::from_rows(&[ids], &device()).unwrap()
}

/// Four sequences, each padded at its end; the padding id of MPNet is 1, of the others 0.
fn input(family: Family, device: &Device) -> (BertEmbeddingsInput, PaddingMask) {
    let pad = if family == Family::MpNet { 1 } else { 0 };
    let rows = [[2, 7, 14, 11, 3], [2, 19, 4, 3, pad], [2, 12, 8, 3, pad], [2, 5, 3, pad, pad]];
    let input = BertEmbeddingsInput::from_rows(&rows, device).unwrap();
    (input, PaddingMask::from_lengths(&[5, 4, 4, 3], 5).unwrap())
}

#[test]
fn dropout_is_where_transformers_has_it() {
    let device = autodiff();
    let padding = PaddingMask::from_lengths(&[5, 5], 5).unwrap();
    // With one of the two outputs of a layer zero, only the dropout of the other can be seen.
    for (family, of_attention, of_output) in [
        (Family::Bert, true, true),
        (Family::Electra, true, true),
        (Family::MpNet, true, true),
        (Family::DistilBert, false, true),
        (Family::Albert, true, false),
        (Family::NomicBert, true, true),
        (Family::Gte, true, true),
        (Family::JinaEmbeddingsV3, true, true),
    ] {
        let mut config = config(family);
        config.embeddings.hidden_dropout_prob = 0.5;
        let encoder = config.init_encoder(&device).unwrap();
        let width = config.embeddings.embedding_size.unwrap_or(16);
        let hidden = Tensor::<3>::random([2, 5, width], Distribution::Normal(0.0, 1.0), &device);
        let is_random = |change: fn(&mut BertLayer)| {
            let mut encoder: BertEncoder = encoder.clone();
            encoder.layers.iter_mut().for_each(change);
            let run = || values(encoder.forward(hidden.clone(), Some(&padding)));
            run() != run()
        };
        assert_eq!(is_random(|layer| silence(&mut layer.output)), of_attention, "{family:?}: attention");
        assert_eq!(is_random(|layer| silence(&mut layer.attention_output)), of_output, "{family:?}: output");
    }
}

/// Makes a linear layer's output zero.
pub fn silence(linear: &mut burn::nn::Linear) {
    linear.weight = linear.weight.clone().map(|weight| weight.zeros_like().require_grad());
    linear.bias = linear.bias.clone().map(|bias| bias.map(|bias| bias.zeros_like().require_grad()));
}

#[test]
fn token_types_are_ignored_where_a_family_has_none() {
    let device = device();
    for family in FAMILIES {
        let model = config(family).init(&device);
        let (input, padding) = input(family, &device);
        let run =
            |input: &BertEmbeddingsInput| values(model.forward(input, Some(&padding)).last_hidden_state);
        let typed = input.clone().with_token_type_ids(&[[0, 0, 1, 1, 1]; 4]).unwrap();
        let has_none = matches!(family, Family::DistilBert | Family::MpNet);
        assert_eq!(run(&typed) == run(&input), has_none, "{family:?}");
        assert_eq!(model.embeddings.token_type_embeddings.is_none(), has_none);
    }
}

#[test]
fn a_config_that_no_model_of_the_family_has_is_refused() {
    use PositionEmbeddingType::*;
    type Change = fn(&mut BertModelConfig);
    fn positions(config: &mut BertModelConfig, positions: PositionEmbeddingType) {
        config.embeddings.position_embedding_type = positions;
    }
    let changes: [(Family, Change, &str); 24] = [
        (Family::Bert, |config| config.embeddings.embedding_size = Some(8), "embedding_size is 8"),
        (Family::Electra, |config| config.embeddings.embedding_size = Some(16), "hidden_size 16"),
        (Family::Albert, |config| config.embeddings.embedding_size = None, "embedding_size is None"),
        (Family::DistilBert, |config| config.embeddings.type_vocab_size = 2, "always 0"),
        (Family::DistilBert, |config| config.embeddings.layer_norm_eps = 1e-5, "always 1e-12"),
        (Family::Bert, |config| config.embeddings.type_vocab_size = 0, "type_vocab_size is 0"),
        (Family::MpNet, |config| positions(config, RelativeKey), "position_embedding_type is RelativeKey"),
        (Family::NomicBert, |config| config.rotary = Some(RotaryConfig::new()), "every_n_layers is 3"),
        (Family::Gte, |config| config.mlp_dropout = 0.1, "mlp_dropout is 0.1"),
        (Family::ModernBert, |config| config.rotary = None, "rotary is None"),
        (Family::ModernBert, |config| config.mlp_dropout = 1.0, "mlp_dropout"),
        (Family::ModernBert, |config| config.embeddings.type_vocab_size = 2, "always 0"),
        (Family::ModernBert, |config| positions(config, Absolute), "always Rotary"),
        (Family::Bert, |config| config.rotary = Some(RotaryConfig::new()), "rotary is given"),
        (Family::Bert, |config| config.mlp_dropout = 0.1, "mlp_dropout is 0.1"),
        (Family::Bert, |config| positions(config, Rotary), "always Absolute"),
        (Family::DebertaV2, |config| config.disentangled = None, "disentangled is None"),
        (Family::Bert, |config| config.disentangled = Some(DisentangledConfig::new()), "is given"),
        (Family::DebertaV2, |config| positions(config, RelativeKey), "_embedding_type is RelativeKey"),
        (Family::Bert, |config| positions(config, Disentangled), "always Absolute"),
        (Family::EuroBert, |config| config.embeddings.hidden_dropout_prob = 0.1, "always 0.0"),
        (
            Family::EuroBert,
            |config| config.num_key_value_heads = Some(3),
            "must divide num_attention_heads 2",
        ),
        (Family::Bert, |config| config.num_key_value_heads = Some(1), "must be num_attention_heads 2"),
        (Family::EuroBert, |config| positions(config, Absolute), "always Rotary"),
    ];
    for (family, change, expected) in changes {
        let mut config = config(family);
        change(&mut config);
        fails!(config.try_init(&device()), Error::Config { .. }, expected);
    }
}

#[test]
fn parts_that_a_family_has_not_or_not_alone_are_refused_in_a_forward_and_in_a_save() {
    let device = device();
    let mut model = config(Family::DistilBert).init(&device);
    let (batch, _) = input(Family::DistilBert, &device);
    model.embeddings.token_type_embeddings = Some(TokenEmbeddingConfig::new(2, 16).init(&device));
    fails!(model.try_forward(&batch, None), Error::Config { field: "token_type_embeddings", .. });

    let mut model = config(Family::MpNet).init(&device);
    let bias = model.encoder.relative_attention_bias.as_mut().unwrap();
    bias.table = TokenEmbeddingConfig::new(31, 2).init(&device);
    says(
        model.save_pretrained(tempdir().unwrap().path()),
        "relative_attention_bias.weight has shape [31, 2]",
    );

    let mut model = config(Family::Electra).init(&device);
    let relu = config(Family::Electra).with_hidden_act(Activation::Relu).init(&device);
    model.encoder.layers[1] = relu.encoder.layers[1].clone();
    let dir = tempdir().unwrap();
    fails!(model.save_pretrained(dir.path()), Error::Config { field: "hidden_act", .. });
    let mut model = config(Family::Electra).init(&device);
    model.pooler = config(Family::Bert).init(&device).pooler;
    says(model.save_pretrained(dir.path()), "pooler");
    let mut model = config(Family::JinaEmbeddingsV3).init(&device);
    model.encoder.layers[0].attention.key.bias = None;
    says(model.save_pretrained(dir.path()), "encoder.layers.0.mixer.Wqkv.bias is missing");
    assert!(files_of(&dir).is_empty());
}

#[test]
fn a_classifier_reads_the_directory_of_another_head_and_says_what_it_lacked() {
    let device = device();
    let expected = [
        (Family::Bert, vec!["bert.pooler.dense.weight", "bert.pooler.dense.bias"]),
        (Family::DistilBert, vec!["pre_classifier.weight", "pre_classifier.bias"]),
        (Family::Electra, vec!["classifier.dense.weight", "classifier.dense.bias"]),
        (Family::MpNet, vec!["classifier.dense.weight", "classifier.dense.bias"]),
        (Family::Albert, vec!["albert.pooler.weight", "albert.pooler.bias"]),
        (Family::Gte, vec!["gte.pooler.dense.weight", "gte.pooler.dense.bias"]),
        (Family::EuroBert, vec!["dense.weight", "dense.bias"]),
    ];
    for (family, first) in expected {
        // Tied, EuroBERT's head has no tensor.
        let head = BertForMaskedLmConfig::new(config(family));
        let dir = saved(&head.with_tie_word_embeddings(family != Family::EuroBert).init(&device));
        let (model, report) = BertForSequenceClassification::from_pretrained(dir.path(), &device).unwrap();
        assert_eq!(report.missing[..2], first[..], "{report}");
        assert!(!report.unused.is_empty());
        let other = report.other_class.as_ref();
        assert!(other.is_some_and(|class| class.ends_with("ForMaskedLM")), "{report:?}");
        assert!(report.to_string().contains("ForMaskedLM"), "{report}");
        // The other head stays beside the new one.
        model.save_pretrained(dir.path()).unwrap();
        let (_, report) = BertForMaskedLm::from_pretrained(dir.path(), &device).unwrap();
        assert!(report.is_complete(), "{report}");
        assert_eq!(config_json(&dir)["model_type"], family.model_type());
    }
}

#[test]
fn defaults_of_a_config_are_those_of_the_familys_class() {
    use Activation::{Gelu, GeluTanh, Silu};
    // `DistilBertConfig()`, … of transformers 5.23.0.
    for (model_type, sizes, dropout, hidden_act) in [
        ("bert", [30522, 768, 0, 512, 2, 12, 12, 3072, 0], [0.1, 0.1], Gelu),
        ("roberta", [50265, 768, 0, 512, 2, 12, 12, 3072, 1], [0.1, 0.1], Gelu),
        ("camembert", [30522, 768, 0, 512, 2, 12, 12, 3072, 1], [0.1, 0.1], Gelu),
        ("distilbert", [30522, 768, 0, 512, 0, 6, 12, 3072, 0], [0.1, 0.1], Gelu),
        ("electra", [30522, 256, 128, 512, 2, 12, 4, 1024, 0], [0.1, 0.1], Gelu),
        ("mpnet", [30527, 768, 0, 512, 0, 12, 12, 3072, 1], [0.1, 0.1], Gelu),
        ("nomic_bert", [30528, 768, 0, 2048, 2, 12, 12, 3072, 0], [0.0, 0.0], Silu),
        ("gte", [250048, 768, 0, 8192, 1, 12, 12, 3072, 1], [0.1, 0.0], Gelu),
        ("jina_embeddings_v3", [250002, 1024, 0, 8194, 1, 24, 16, 4096, 1], [0.1, 0.1], Gelu),
        ("albert", [30000, 4096, 128, 512, 2, 12, 64, 16384, 0], [0.0, 0.0], GeluTanh),
        ("eurobert", [128256, 768, 0, 8192, 0, 12, 12, 3072, 128001], [0.0, 0.0], Silu),
    ] {
        let config = read(json!({ "model_type": model_type }), json!({})).unwrap();
        let embeddings = &config.embeddings;
        let found = [
            embeddings.vocab_size,
            embeddings.hidden_size,
            embeddings.embedding_size.unwrap_or(0),
            embeddings.max_position_embeddings,
            embeddings.type_vocab_size,
            config.num_hidden_layers,
            config.num_attention_heads,
            config.intermediate_size,
            embeddings.pad_token_id.unwrap(),
        ];
        let found_dropout = [embeddings.hidden_dropout_prob, config.attention_probs_dropout_prob];
        assert_eq!((found, found_dropout, config.hidden_act), (sizes, dropout, hidden_act), "{model_type}");
    }
}

// NomicBERT, GTE and Jina embeddings v3: biases, dropout, pooler, fields and keys

pub const ROTARY: [Family; 3] = [Family::NomicBert, Family::Gte, Family::JinaEmbeddingsV3];

#[test]
fn only_gte_drops_out_what_the_last_linear_layer_of_a_layer_reads() {
    let device = autodiff();
    for family in ROTARY {
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
    let biases = |family: Family| {
        let layer = &config(family).init(&device()).encoder.layers[0];
        let gate = layer.gate.as_ref().map(|gate| gate.bias.is_some());
        let [query, inner] =
            [&layer.attention.query, &layer.intermediate].map(|linear| linear.bias.is_some());
        assert_eq!([layer.attention_output.bias.is_some(), layer.output.bias.is_some()], [query; 2]);
        assert!(layer.output_layer_norm.beta.is_some());
        (query, inner, gate)
    };
    assert_eq!(biases(Family::NomicBert), (false, false, Some(false)));
    assert_eq!(biases(Family::Gte), (true, false, Some(false)));
    assert_eq!(biases(Family::JinaEmbeddingsV3), (true, true, None));
    for family in ROTARY {
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
        (BertModelConfig::gte_multilingual_base(), 305_368_320),
        (BertModelConfig::jina_embeddings_v3(), 558_314_496), // without its pooler
        (BertModelConfig::eurobert_210m(), 211_766_016),
        (BertModelConfig::eurobert_610m(), 607_874_688),
    ] {
        let (layers, is_eurobert) = (config.num_hidden_layers, config.embeddings.family == Family::EuroBert);
        let encoder = config.clone().with_num_hidden_layers(1).init_encoder(&device()).unwrap();
        let last_norm = if is_eurobert { config.embeddings.hidden_size } else { 0 };
        let of_layer = encoder.num_params() - last_norm;
        assert_eq!(config.embeddings.num_params() + layers * of_layer + last_norm, count);
    }
}

#[test]
fn fields_of_transformers_and_of_the_published_code_are_read() {
    let read = |model_type: &str, fields: Value| read(json!({ "model_type": model_type }), fields);
    let theta = |model_type: &str, fields: Value| {
        let rotary = read(model_type, fields).unwrap().rotary.unwrap();
        assert_eq!(rotary, RotaryConfig::uniform(rotary.global_rope_theta));
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
        "rotary_scaling_factor": null, "causal": false,
    });
    let config = read("nomic_bert", published.clone()).unwrap();
    assert_eq!([config.embeddings.hidden_size, config.intermediate_size], [24, 40]);
    assert_eq!([config.num_hidden_layers, config.num_attention_heads], [3, 4]);
    assert_eq!([config.embeddings.layer_norm_eps, config.rotary.unwrap().global_rope_theta], [1e-6, 9.0]);
    // BERT's names count where a config has both, as after a save over a published one.
    let mut both = published;
    both["hidden_size"] = json!(32);
    assert_eq!(read("nomic_bert", both).unwrap().embeddings.hidden_size, 32);
    let rows = [
        ("gte", json!({ "rope_scaling": { "type": "ntk", "factor": 8.0, "mixed_b": 1 } }), "rope_scaling"),
        ("gte", json!({ "rope_parameters": { "type": "dynamic", "rope_theta": 7.0 } }), "rope_type"),
        ("nomic_bert", json!({ "moe_every_n_layers": 2 }), "mixtures of experts"),
        ("nomic_bert", json!({ "mlp_fc1_bias": true }), "mlp_fc1_bias"),
        ("nomic_bert", json!({ "causal": true }), "causal is true"),
        ("nomic_bert", json!({ "rotary_emb_fraction": 0.5 }), "rotary_emb_fraction is 0.5, but must be 1"),
        ("nomic_bert", json!({ "rotary_scaling_factor": 2 }), "rotary_scaling_factor is 2"),
        ("nomic_bert", json!({ "activation_function": "gelu" }), "activation_function"),
        ("nomic_bert", json!({ "head_dim": 32 }), "head_dim"),
        ("jina_embeddings_v3", json!({ "rope_theta": "7" }), "rope_theta"),
        ("xlm-roberta", json!({ "position_embedding_type": "rotary" }), "position_embedding_type"),
    ];
    each(rows, |(model_type, fields, expected)| says(read(model_type, fields), expected));
}

#[test]
fn a_model_is_written_over_another_head_and_under_the_prefix_of_its_family() {
    for family in ROTARY {
        let dir = saved(&config(family).init(&device()));
        let model = BertForTokenClassificationConfig::new(config(family)).init(&device());
        model.save_pretrained(dir.path()).unwrap();
        let alone = keys_of(saved(&model).path());
        let mut keys = keys_of(dir.path());
        keys.retain(|key| !key.contains("pooler.")); // which the bare model may have
        assert_eq!(keys, alone, "nothing of the old model is left beside");
        let layer: BertEmbeddings = BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
        let gamma = |layer: &BertEmbeddings| values(layer.layer_norm.as_ref().unwrap().gamma.val());
        assert_eq!(gamma(&layer), gamma(&model.bert.embeddings));
        // A BERT's directory has none of the layers that the family asks for.
        let other = saved(&config(Family::Roberta).init(&device()));
        set_fields(other.path(), &[("model_type", family.model_type().into())]);
        fails!(BertModel::from_pretrained(other.path(), &device()), Error::MissingKey { .. });
    }
}

#[test]
fn keys_under_the_prefix_of_published_files_are_read_and_replaced_by_those_of_the_family() {
    for (family, own, published) in
        [(Family::Gte, "gte.", "new."), (Family::NomicBert, "nomic_bert.", "bert.")]
    {
        let model = BertForTokenClassificationConfig::new(config(family)).init(&device());
        let dir = saved(&model);
        let mut tensors = tensors_of(dir.path());
        let keys = keys_of(dir.path());
        tensors.iter_mut().for_each(|tensor| tensor.key = tensor.key.replacen(own, published, 1));
        assert_ne!(tensors, tensors_of(dir.path()));
        std::fs::write(dir.path().join("model.safetensors"), safetensors_bytes(&tensors)).unwrap();
        let read: BertForTokenClassification = loaded(&dir);
        assert_eq!(all_values(&read), all_values(&model));
        read.save_pretrained(dir.path()).unwrap();
        assert_eq!(keys_of(dir.path()), keys);
        let _: BertForTokenClassification = loaded(&dir);
    }
}
