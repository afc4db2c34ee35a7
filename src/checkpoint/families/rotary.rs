//! The families with rotary positions. But for ModernBERT's, keys are those of the code that published a model, which
//! transformers reads and writes too.

use super::Field::{Always, Named, Old};
use super::learned_positions::{BERT, ROBERTA};
use super::{FamilySpec, HeadKeys, Unsupported};
use crate::family::Family;
use burn_fused::Activation;

pub(super) const MODERN_BERT: FamilySpec = FamilySpec {
    family: Family::ModernBert,
    class: "ModernBert",
    base: "model",
    vocab_size: 50368,
    type_vocab_size: 0,
    pad_token_id: 50283,
    num_hidden_layers: 22,
    intermediate_size: 1152,
    dropout: 0.0,
    attention_dropout: 0.0,
    max_position_embeddings: 8192,
    layer_norm_eps: 1e-5,
    initializer_bound: Some(2.0),
    fields: &[
        ("hidden_act", Named("hidden_activation")),
        ("layer_norm_eps", Named("norm_eps")),
        ("hidden_dropout_prob", Named("embedding_dropout")),
        ("attention_probs_dropout_prob", Named("attention_dropout")),
        ("type_vocab_size", Always),
        // The published configs say `absolute`, which nothing reads.
        ("position_embedding_type", Always),
    ],
    // No published model has them.
    unsupported: &[
        Unsupported::Flag("norm_bias", "has biases in its norms"),
        Unsupported::Flag("attention_bias", "has biases in its attention"),
        Unsupported::Flag("mlp_bias", "has biases in its feed-forward networks"),
        Unsupported::Flag("classifier_bias", "has a bias in its heads' first layer"),
        Unsupported::OtherName("classifier_activation", "gelu", "another activation of its heads"),
    ],
    word: "tok_embeddings.weight",
    embeddings_norm: "embeddings.norm",
    zero_biases: false,
    layer: "layers.",
    query_key_value: ["attn.Wqkv"; 3],
    attention_output: "attn.Wo",
    feed_forward: &["mlp.Wi", "mlp.Wi", "mlp.Wo"],
    norms: ["attn_norm", "mlp_norm"],
    final_norm: Some("final_norm"),
    masked_lm: HeadKeys {
        prefix: "head.",
        transform: "head.dense",
        layer_norm: "head.norm",
        bias: &["decoder.bias"],
        decoder: "decoder.weight",
    },
    answers: "classifier",
    head_dropout: [Some("classifier_dropout"); 3],
    ..BERT
};

pub(super) const NOMIC_BERT: FamilySpec = FamilySpec {
    family: Family::NomicBert,
    class: "NomicBert",
    base: "nomic_bert",
    vocab_size: 30528,
    dropout: 0.0,
    attention_dropout: 0.0,
    hidden_act: Activation::Silu,
    max_position_embeddings: 2048,
    rope_theta: 1_000.0,
    // The old names are those of the published configs. transformers ignores them, and its defaults are their values.
    fields: &[
        ("hidden_size", Old("n_embd")),
        ("num_hidden_layers", Old("n_layer")),
        ("num_attention_heads", Old("n_head")),
        ("intermediate_size", Old("n_inner")),
        ("layer_norm_eps", Old("layer_norm_epsilon")),
        ("rope_theta", Old("rotary_emb_base")),
        ("position_embedding_type", Always),
    ],
    // Of nomic-embed-text-v2-moe, and what the published code can compute otherwise.
    unsupported: &[
        Unsupported::OtherThan("moe_every_n_layers", 0, "mixtures of experts"),
        Unsupported::Flag("rotary_emb_interleaved", "turns neighbouring columns"),
        Unsupported::Flag("prenorm", "normalises before its layers"),
        Unsupported::Flag("qkv_proj_bias", "has biases in its attention"),
        Unsupported::Flag("mlp_fc1_bias", "has biases in its feed-forward networks"),
        Unsupported::OtherName("activation_function", "swiglu", "another feed-forward network"),
    ],
    embeddings_norm: "emb_ln",
    zero_biases: false,
    layer: "encoder.layers.",
    query_key_value: ["attn.Wqkv"; 3],
    attention_output: "attn.out_proj",
    // The activation is that of the second of the two.
    feed_forward: &["mlp.fc12", "mlp.fc11", "mlp.fc2"],
    norms: ["norm1", "norm2"],
    masked_lm: HeadKeys { layer_norm: "cls.predictions.transform.layer_norm", ..BERT.masked_lm },
    ..BERT
};

pub(super) const GTE: FamilySpec = FamilySpec {
    family: Family::Gte,
    class: "Gte",
    base: "gte",
    vocab_size: 250048,
    type_vocab_size: 1,
    pad_token_id: 1,
    attention_dropout: 0.0,
    max_position_embeddings: 8192,
    fields: &[("position_embedding_type", Always)],
    zero_biases: false,
    query_key_value: ["attention.qkv_proj"; 3],
    attention_output: "attention.o_proj",
    feed_forward: &["mlp.up_gate_proj", "mlp.up_gate_proj", "mlp.down_proj"],
    gate_is_first: true,
    norms: ["attn_ln", "mlp_ln"],
    masked_lm: HeadKeys { layer_norm: "lm_head.norm", bias: &["lm_head.decoder.bias"], ..ROBERTA.masked_lm },
    ..BERT
};

pub(super) const JINA_EMBEDDINGS_V3: FamilySpec = FamilySpec {
    family: Family::JinaEmbeddingsV3,
    class: "JinaEmbeddingsV3",
    vocab_size: 250002,
    type_vocab_size: 1,
    hidden_size: 1024,
    num_hidden_layers: 24,
    num_attention_heads: 16,
    intermediate_size: 4096,
    max_position_embeddings: 8194,
    layer_norm_eps: 1e-5,
    rope_theta: 20_000.0,
    fields: &[("position_embedding_type", Always)],
    embeddings_norm: "emb_ln",
    zero_biases: false,
    layer: "encoder.layers.",
    query_key_value: ["mixer.Wqkv"; 3],
    attention_output: "mixer.out_proj",
    feed_forward: &["mlp.fc1", "mlp.fc2"],
    norms: ["norm1", "norm2"],
    ..ROBERTA
};
