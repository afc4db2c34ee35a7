//! BERT and RoBERTa, from which the other families differ.

use super::Family;
use super::PositionEmbeddingType::{Absolute, AfterPadding};
use super::architecture::FamilyDropout::{Never, Stated};
use super::architecture::{Architecture, Biases, NormPlace, Presence, RelativeScores, SequenceHead};
use super::spec::FamilySpec;
use burn_fused::Activation;

pub(super) const BERT: FamilySpec = FamilySpec {
    family: Family::Bert,
    model_type: "bert",
    architecture: Architecture {
        positions: Absolute,
        token_types: Presence::Always,
        embeddings_have_norm: true,
        has_rms_norm: false,
        layer_norm_eps: None,
        projection: Presence::Never,
        norm: NormPlace::Post,
        biases: Biases { of_layers: true, of_inner: true, of_others: true },
        has_grouped_keys: false,
        is_gated: false,
        inner_dropout: Never,
        shares_layers: false,
        output_dropout: [true; 2],
        relative_scores: Some(RelativeScores::Scaled),
        has_relative_attention_bias: false,
        has_windows: false,
        has_pooler: true,
        masked_lm_has_transform: true,
        masked_lm_activation_of_layers: true,
        classifiers_have_transform: false,
        sequence_head: SequenceHead::Pooled,
        sequence_poolings: &[],
        head_dropout: [Stated(None), Stated(None), Never],
    },
    class: "Bert",
    base: "bert",
    old_base: None,
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
    tie_word_embeddings: true,
    rope_theta: 160_000.0,
    fields: &[],
    unsupported: &[],
    more_keys: &[],
    keys: &[
        ("embeddings.layer_norm", "embeddings.LayerNorm"),
        ("encoder.layers.*.attention.relative_positions", "encoder.layer.*.attention.self"),
        ("encoder.layers.*.attention", "encoder.layer.*.attention.self"),
        ("encoder.layers.*.attention_output", "encoder.layer.*.attention.output.dense"),
        ("encoder.layers.*.attention_layer_norm", "encoder.layer.*.attention.output.LayerNorm"),
        ("encoder.layers.*.intermediate", "encoder.layer.*.intermediate.dense"),
        ("encoder.layers.*.output", "encoder.layer.*.output.dense"),
        ("encoder.layers.*.output_layer_norm", "encoder.layer.*.output.LayerNorm"),
    ],
    zero_biases: true,
    masked_lm: &[
        ("head.transform", "cls.predictions.transform.dense"),
        ("head.layer_norm", "cls.predictions.transform.LayerNorm"),
        ("head", "cls.predictions"),
    ],
    other_masked_lm: None,
    heads: &[("classifier.out_proj", "classifier")],
    head_dropout: [Some("classifier_dropout"), Some("classifier_dropout"), None],
};

pub(super) const ROBERTA: FamilySpec = FamilySpec {
    family: Family::Roberta,
    model_type: "roberta",
    architecture: Architecture {
        positions: AfterPadding,
        // `RobertaLMHead` computes GELU whatever `hidden_act` is.
        masked_lm_activation_of_layers: false,
        sequence_head: SequenceHead::Dense { activation: Activation::Tanh, drops_input: true },
        ..BERT.architecture
    },
    class: "Roberta",
    base: "roberta",
    vocab_size: 50265,
    pad_token_id: 1,
    masked_lm: &[("head.transform", "lm_head.dense"), ("head", "lm_head")],
    heads: &[],
    ..BERT
};
