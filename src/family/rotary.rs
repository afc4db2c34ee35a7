//! The families with rotary positions. But for ModernBERT's and EuroBERT's, keys are those of the code that published a model, which
//! transformers reads and writes too.

use super::ClassifierPooling::{Cls, Late, Mean};
use super::Family;
use super::PositionEmbeddingType::Rotary;
use super::architecture::FamilyDropout::{Never, OfLayers, Stated};
use super::architecture::{Architecture, Biases, NormPlace, Presence, SequenceHead};
use super::bert::{BERT, ROBERTA};
use super::spec::Field::{Always, Named, Old};
use super::spec::{FamilySpec, Unsupported, WORD_EMBEDDINGS};
use burn_fused::Activation;

pub(super) const MODERN_BERT: FamilySpec = FamilySpec {
    family: Family::ModernBert,
    model_type: "modernbert",
    architecture: Architecture {
        positions: Rotary,
        token_types: Presence::Never,
        norm: NormPlace::Pre,
        biases: Biases { of_layers: false, of_inner: false, of_others: false },
        is_gated: true,
        inner_dropout: Stated(Some(0.0)),
        relative_scores: None,
        has_windows: true,
        has_pooler: false,
        masked_lm_activation_of_layers: false,
        classifiers_have_transform: true,
        sequence_head: SequenceHead::Transformed,
        sequence_poolings: &[(Cls, "cls"), (Mean, "mean")],
        head_dropout: [Stated(Some(0.0)); 3],
        ..BERT.architecture
    },
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
        Unsupported::Flag("norm_bias", true, "has biases in its norms"),
        Unsupported::Flag("attention_bias", true, "has biases in its attention"),
        Unsupported::Flag("mlp_bias", true, "has biases in its feed-forward networks"),
        Unsupported::Flag("classifier_bias", true, "has a bias in its heads' first layer"),
        Unsupported::Flag("decoder_bias", false, "has no bias of its vocabulary"),
        Unsupported::OtherName("classifier_activation", "gelu", "another activation of its heads"),
    ],
    keys: &[
        (WORD_EMBEDDINGS, "embeddings.tok_embeddings.weight"),
        ("embeddings.layer_norm", "embeddings.norm"),
        ("encoder.layers.*.attention.query+key+value", "layers.*.attn.Wqkv"),
        ("encoder.layers.*.attention_output", "layers.*.attn.Wo"),
        ("encoder.layers.*.attention_layer_norm", "layers.*.attn_norm"),
        ("encoder.layers.*.intermediate+gate", "layers.*.mlp.Wi"),
        ("encoder.layers.*.output", "layers.*.mlp.Wo"),
        ("encoder.layers.*.output_layer_norm", "layers.*.mlp_norm"),
        ("encoder.final_norm", "final_norm"),
    ],
    zero_biases: false,
    masked_lm: &[
        ("head.transform", "head.dense"),
        ("head.layer_norm", "head.norm"),
        ("head.bias", "decoder.bias"),
        ("head.decoder", "decoder"),
    ],
    heads: &[
        ("transform.layer_norm", "head.norm"),
        ("transform", "head"),
        ("classifier.transform.layer_norm", "head.norm"),
        ("classifier.transform", "head"),
        ("classifier.out_proj", "classifier"),
        ("qa_outputs", "classifier"),
    ],
    head_dropout: [Some("classifier_dropout"); 3],
    ..BERT
};

pub(super) const NOMIC_BERT: FamilySpec = FamilySpec {
    family: Family::NomicBert,
    model_type: "nomic_bert",
    architecture: Architecture {
        positions: Rotary,
        biases: Biases { of_layers: false, of_inner: false, of_others: true },
        is_gated: true,
        relative_scores: None,
        has_pooler: false,
        ..BERT.architecture
    },
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
        Unsupported::OtherThan("moe_every_n_layers", 0.0, "mixtures of experts"),
        Unsupported::Flag("rotary_emb_interleaved", true, "uses interleaved rotary embeddings"),
        Unsupported::OtherThan("rotary_emb_fraction", 1.0, "partial rotary embeddings"),
        Unsupported::OtherThan("rotary_scaling_factor", 0.0, "scaled rotary positions"),
        Unsupported::Flag("use_rms_norm", true, "has RMS norms"),
        Unsupported::Flag("causal", true, "uses causal attention"),
        Unsupported::Flag("parallel_block", true, "uses parallel attention and MLP blocks"),
        Unsupported::Flag("prenorm", true, "normalises before its layers"),
        Unsupported::Flag("qkv_proj_bias", true, "has biases in its attention"),
        Unsupported::Flag("mlp_fc1_bias", true, "has biases in its feed-forward networks"),
        Unsupported::Flag("mlp_fc2_bias", true, "has biases in its feed-forward networks"),
        Unsupported::OtherName("activation_function", "swiglu", "another feed-forward network"),
    ],
    keys: &[
        ("embeddings.layer_norm", "emb_ln"),
        ("encoder.layers.*.attention.query+key+value", "encoder.layers.*.attn.Wqkv"),
        ("encoder.layers.*.attention_output", "encoder.layers.*.attn.out_proj"),
        ("encoder.layers.*.attention_layer_norm", "encoder.layers.*.norm1"),
        // The activation is that of the second of the two.
        ("encoder.layers.*.gate", "encoder.layers.*.mlp.fc11"),
        ("encoder.layers.*.intermediate", "encoder.layers.*.mlp.fc12"),
        ("encoder.layers.*.output", "encoder.layers.*.mlp.fc2"),
        ("encoder.layers.*.output_layer_norm", "encoder.layers.*.norm2"),
    ],
    zero_biases: false,
    masked_lm: &[
        ("head.transform", "cls.predictions.transform.dense"),
        ("head.layer_norm", "cls.predictions.transform.layer_norm"),
        ("head", "cls.predictions"),
    ],
    ..BERT
};

pub(super) const GTE: FamilySpec = FamilySpec {
    family: Family::Gte,
    model_type: "gte",
    architecture: Architecture {
        token_types: Presence::IfStated,
        biases: Biases { of_layers: true, ..NOMIC_BERT.architecture.biases },
        inner_dropout: OfLayers,
        // `GteLMHead` computes GELU whatever `hidden_act` is.
        masked_lm_activation_of_layers: false,
        ..NOMIC_BERT.architecture
    },
    class: "Gte",
    base: "gte",
    old_base: Some("new"),
    vocab_size: 250048,
    type_vocab_size: 1,
    pad_token_id: 1,
    attention_dropout: 0.0,
    max_position_embeddings: 8192,
    // Of configs of Alibaba's own code.
    unsupported: &[
        Unsupported::OtherName("layer_norm_type", "layer_norm", "another norm"),
        Unsupported::Flag("logn_attention_scale", true, "scales its attention by the number of tokens"),
    ],
    keys: &[
        ("embeddings.layer_norm", "embeddings.LayerNorm"),
        ("encoder.layers.*.attention.query+key+value", "encoder.layer.*.attention.qkv_proj"),
        ("encoder.layers.*.attention_output", "encoder.layer.*.attention.o_proj"),
        ("encoder.layers.*.attention_layer_norm", "encoder.layer.*.attn_ln"),
        ("encoder.layers.*.gate+intermediate", "encoder.layer.*.mlp.up_gate_proj"),
        ("encoder.layers.*.output", "encoder.layer.*.mlp.down_proj"),
        ("encoder.layers.*.output_layer_norm", "encoder.layer.*.mlp_ln"),
    ],
    zero_biases: false,
    masked_lm: &[
        ("head.transform", "lm_head.dense"),
        ("head.layer_norm", "lm_head.norm"),
        ("head.bias", "lm_head.decoder.bias"),
        ("head.decoder", "lm_head.decoder"),
    ],
    ..BERT
};

pub(super) const JINA_EMBEDDINGS_V3: FamilySpec = FamilySpec {
    family: Family::JinaEmbeddingsV3,
    model_type: "jina_embeddings_v3",
    architecture: Architecture { positions: Rotary, relative_scores: None, ..ROBERTA.architecture },
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
    keys: &[
        ("embeddings.layer_norm", "emb_ln"),
        ("encoder.layers.*.attention.query+key+value", "encoder.layers.*.mixer.Wqkv"),
        ("encoder.layers.*.attention_output", "encoder.layers.*.mixer.out_proj"),
        ("encoder.layers.*.attention_layer_norm", "encoder.layers.*.norm1"),
        ("encoder.layers.*.intermediate", "encoder.layers.*.mlp.fc1"),
        ("encoder.layers.*.output", "encoder.layers.*.mlp.fc2"),
        ("encoder.layers.*.output_layer_norm", "encoder.layers.*.norm2"),
    ],
    zero_biases: false,
    ..ROBERTA
};

pub(super) const EURO_BERT: FamilySpec = FamilySpec {
    family: Family::EuroBert,
    model_type: "eurobert",
    architecture: Architecture {
        embeddings_have_norm: false,
        has_rms_norm: true,
        biases: Biases { of_others: true, ..MODERN_BERT.architecture.biases },
        has_grouped_keys: true,
        inner_dropout: Never,
        output_dropout: [false; 2],
        has_windows: false,
        masked_lm_has_transform: false,
        classifiers_have_transform: false,
        sequence_head: SequenceHead::Dense { activation: Activation::Gelu, drops_input: false },
        sequence_poolings: &[(Late, "late"), (Mean, "mean"), (Cls, "bos")],
        head_dropout: [Never; 3],
        ..MODERN_BERT.architecture
    },
    class: "EuroBert",
    vocab_size: 128_256,
    pad_token_id: 128_001,
    num_hidden_layers: 12,
    intermediate_size: 3072,
    hidden_act: Activation::Silu,
    initializer_bound: None,
    tie_word_embeddings: false,
    rope_theta: 10_000.0,
    fields: &[
        ("layer_norm_eps", Named("rms_norm_eps")),
        ("attention_probs_dropout_prob", Named("attention_dropout")),
        ("hidden_dropout_prob", Always),
        ("type_vocab_size", Always),
        ("position_embedding_type", Always),
        // Of configs of the code that published the models.
        ("classifier_pooling", Old("clf_pooling")),
    ],
    // No published model has them.
    unsupported: &[
        Unsupported::Flag("attention_bias", true, "has biases in its attention"),
        Unsupported::Flag("mlp_bias", true, "has biases in its feed-forward networks"),
    ],
    keys: &[
        (WORD_EMBEDDINGS, "embed_tokens.weight"),
        ("encoder.layers.*.attention.query", "layers.*.self_attn.q_proj"),
        ("encoder.layers.*.attention.key", "layers.*.self_attn.k_proj"),
        ("encoder.layers.*.attention.value", "layers.*.self_attn.v_proj"),
        ("encoder.layers.*.attention_output", "layers.*.self_attn.o_proj"),
        ("encoder.layers.*.attention_layer_norm", "layers.*.input_layernorm"),
        // The activation is that of the gate.
        ("encoder.layers.*.intermediate", "layers.*.mlp.gate_proj"),
        ("encoder.layers.*.gate", "layers.*.mlp.up_proj"),
        ("encoder.layers.*.output", "layers.*.mlp.down_proj"),
        ("encoder.layers.*.output_layer_norm", "layers.*.post_attention_layernorm"),
        ("encoder.final_norm", "norm"),
    ],
    masked_lm: &[("head.decoder", "lm_head")],
    heads: &[("classifier.dense", "dense"), ("classifier.out_proj", "classifier")],
    head_dropout: [None; 3],
    ..MODERN_BERT
};
