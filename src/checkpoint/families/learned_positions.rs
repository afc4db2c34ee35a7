//! The families whose positions are learned: position embeddings, MPNet's biases, DeBERTa's vectors of distances.

use super::Field::{Also, Always, Named};
use super::{FamilySpec, HeadKeys, Unsupported};
use crate::family::Family;
use burn_fused::Activation;

pub(super) const BERT: FamilySpec = FamilySpec {
    family: Family::Bert,
    class: "Bert",
    base: "bert",
    vocab_size: 30522,
    type_vocab_size: 2,
    pad_token_id: 0,
    hidden_size: 768,
    num_hidden_layers: 12,
    num_attention_heads: 12,
    intermediate_size: 3072,
    dropout: 0.1,
    attention_dropout: 0.1,
    hidden_act: Activation::Gelu,
    // Of every config class but ModernBERT's; published configs of RoBERTa's family state 514.
    max_position_embeddings: 512,
    layer_norm_eps: 1e-12,
    initializer_bound: None,
    rope_theta: 160_000.0,
    fields: &[],
    unsupported: &[],
    word: "word_embeddings.weight",
    embeddings_norm: "embeddings.LayerNorm",
    zero_biases: true,
    layer: "encoder.layer.",
    query_key_value: ["attention.self.query", "attention.self.key", "attention.self.value"],
    attention_output: "attention.output.dense",
    feed_forward: &["intermediate.dense", "output.dense"],
    gate_is_first: false,
    norms: ["attention.output.LayerNorm", "output.LayerNorm"],
    final_norm: None,
    distances: "attention.self.distance_embedding.weight",
    projection: None,
    relative_attention_bias: None,
    disentangled: None,
    pooler: "pooler.dense",
    masked_lm: HeadKeys {
        prefix: "cls.predictions.",
        transform: "cls.predictions.transform.dense",
        layer_norm: "cls.predictions.transform.LayerNorm",
        bias: &["cls.predictions.bias", "cls.predictions.decoder.bias"],
        decoder: "cls.predictions.decoder.weight",
    },
    other_masked_lm: None,
    answers: "qa_outputs",
    sequence_head: None,
    head_dropout: [Some("classifier_dropout"), Some("classifier_dropout"), None],
};

pub(super) const ROBERTA: FamilySpec = FamilySpec {
    family: Family::Roberta,
    class: "Roberta",
    base: "roberta",
    vocab_size: 50265,
    pad_token_id: 1,
    masked_lm: HeadKeys {
        prefix: "lm_head.",
        transform: "lm_head.dense",
        layer_norm: "lm_head.layer_norm",
        bias: &["lm_head.bias", "lm_head.decoder.bias"],
        decoder: "lm_head.decoder.weight",
    },
    sequence_head: Some(["classifier.dense", "classifier.out_proj"]),
    ..BERT
};

pub(super) const DISTILBERT: FamilySpec = FamilySpec {
    family: Family::DistilBert,
    class: "DistilBert",
    base: "distilbert",
    type_vocab_size: 0,
    num_hidden_layers: 6,
    fields: &[
        // `attribute_map` of the config class takes BERT's names of these three.
        ("hidden_size", Also("dim")),
        ("num_hidden_layers", Also("n_layers")),
        ("num_attention_heads", Also("n_heads")),
        ("intermediate_size", Named("hidden_dim")),
        ("hidden_dropout_prob", Named("dropout")),
        ("attention_probs_dropout_prob", Named("attention_dropout")),
        ("hidden_act", Named("activation")),
        ("type_vocab_size", Always),
        ("layer_norm_eps", Always),
    ],
    layer: "transformer.layer.",
    query_key_value: ["attention.q_lin", "attention.k_lin", "attention.v_lin"],
    attention_output: "attention.out_lin",
    feed_forward: &["ffn.lin1", "ffn.lin2"],
    norms: ["sa_layer_norm", "output_layer_norm"],
    masked_lm: HeadKeys {
        // The head has no module of its own, but a common start.
        prefix: "vocab_",
        transform: "vocab_transform",
        layer_norm: "vocab_layer_norm",
        bias: &["vocab_projector.bias"],
        decoder: "vocab_projector.weight",
    },
    sequence_head: Some(["pre_classifier", "classifier"]),
    head_dropout: [Some("seq_classif_dropout"), None, Some("qa_dropout")],
    ..BERT
};

pub(super) const ELECTRA: FamilySpec = FamilySpec {
    family: Family::Electra,
    class: "Electra",
    base: "electra",
    hidden_size: 256,
    num_attention_heads: 4,
    intermediate_size: 1024,
    projection: Some("embeddings_project"),
    masked_lm: HeadKeys {
        prefix: "generator_",
        transform: "generator_predictions.dense",
        layer_norm: "generator_predictions.LayerNorm",
        bias: &["generator_lm_head.bias"],
        decoder: "generator_lm_head.weight",
    },
    sequence_head: Some(["classifier.dense", "classifier.out_proj"]),
    ..BERT
};

pub(super) const MPNET: FamilySpec = FamilySpec {
    family: Family::MpNet,
    class: "MPNet",
    base: "mpnet",
    vocab_size: 30527,
    type_vocab_size: 0,
    fields: &[("type_vocab_size", Always)],
    // transformers' class computes with these values whatever a config says.
    unsupported: &[
        Unsupported::OtherThan("relative_attention_num_buckets", 32, "other buckets of relative positions"),
        Unsupported::OtherThan("pad_token_id", 1, "another padding id"),
    ],
    query_key_value: ["attention.attn.q", "attention.attn.k", "attention.attn.v"],
    attention_output: "attention.attn.o",
    norms: ["attention.LayerNorm", "output.LayerNorm"],
    relative_attention_bias: Some("encoder.relative_attention_bias.weight"),
    head_dropout: [None; 3],
    ..ROBERTA
};

pub(super) const ALBERT: FamilySpec = FamilySpec {
    family: Family::Albert,
    class: "Albert",
    base: "albert",
    // The config class has the sizes of albert-xxlarge and not of the base model.
    vocab_size: 30000,
    hidden_size: 4096,
    num_attention_heads: 64,
    intermediate_size: 16384,
    dropout: 0.0,
    attention_dropout: 0.0,
    hidden_act: Activation::GeluTanh,
    unsupported: &[
        Unsupported::OtherThan("num_hidden_groups", 1, "several groups of layers"),
        Unsupported::OtherThan("inner_group_num", 1, "several layers in a group"),
    ],
    layer: "encoder.albert_layer_groups.0.albert_layers.",
    query_key_value: ["attention.query", "attention.key", "attention.value"],
    attention_output: "attention.dense",
    feed_forward: &["ffn", "ffn_output"],
    norms: ["attention.LayerNorm", "full_layer_layer_norm"],
    distances: "attention.distance_embedding.weight",
    projection: Some("encoder.embedding_hidden_mapping_in"),
    pooler: "pooler",
    masked_lm: HeadKeys {
        prefix: "predictions.",
        transform: "predictions.dense",
        layer_norm: "predictions.LayerNorm",
        bias: &["predictions.bias", "predictions.decoder.bias"],
        decoder: "predictions.decoder.weight",
    },
    head_dropout: [Some("classifier_dropout_prob"), Some("classifier_dropout_prob"), None],
    ..BERT
};

pub(super) const DEBERTA_V2: FamilySpec = FamilySpec {
    family: Family::DebertaV2,
    class: "DebertaV2",
    base: "deberta",
    // The config class has the sizes of v2-xlarge.
    vocab_size: 128100,
    type_vocab_size: 0,
    hidden_size: 1536,
    num_hidden_layers: 24,
    num_attention_heads: 24,
    intermediate_size: 6144,
    layer_norm_eps: 1e-7,
    // `position_biased_input` says whether positions are absolute too.
    fields: &[("position_embedding_type", Always)],
    unsupported: &[
        Unsupported::OtherThan("conv_kernel_size", 0, "the convolution after the first layer"),
        Unsupported::OtherWidth("embedding_size", "the projection of the embeddings"),
        Unsupported::OtherWidth("pooler_hidden_size", "another width of the pooler"),
        Unsupported::OtherName("pooler_hidden_act", "gelu", "another activation of the pooler"),
    ],
    query_key_value: ["attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"],
    disentangled: Some([
        "encoder.rel_embeddings",
        "encoder.LayerNorm",
        "attention.self.pos_key_proj",
        "attention.self.pos_query_proj",
    ]),
    // What `"legacy": false` calls the head, and the published models do.
    other_masked_lm: Some(HeadKeys {
        prefix: "lm_predictions.lm_head.",
        transform: "lm_predictions.lm_head.dense",
        layer_norm: "lm_predictions.lm_head.LayerNorm",
        bias: &["lm_predictions.lm_head.bias"],
        decoder: "lm_predictions.lm_head.decoder.weight",
    }),
    sequence_head: Some(["pooler.dense", "classifier"]),
    head_dropout: [Some("cls_dropout"), None, None],
    ..BERT
};
