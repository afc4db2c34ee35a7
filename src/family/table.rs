//! The table of families: what their models are made of, how they are stored, each as its difference from another one.

use super::Family;
use super::PositionEmbeddingType::Disentangled;
use super::architecture::FamilyDropout::{Never, OfLayers, Stated};
use super::architecture::{Architecture, Presence, RelativeScores, SequenceHead};
use super::bert::{BERT, ROBERTA};
use super::rotary::{EURO_BERT, GTE, JINA_EMBEDDINGS_V3, MODERN_BERT, NOMIC_BERT};
use super::spec::Field::{Also, Always, Named};
use super::spec::{FamilySpec, Unsupported};
use burn_fused::Activation;

/// One entry for each [`Family`], in the order of its variants.
pub(crate) static FAMILIES: [FamilySpec; 16] = [
    BERT,
    FamilySpec {
        family: Family::DistilBert,
        model_type: "distilbert",
        architecture: Architecture {
            token_types: Presence::Never,
            // Written into the model's code and in no config.
            layer_norm_eps: Some(1e-12),
            output_dropout: [false, true],
            relative_scores: None,
            has_pooler: false,
            sequence_head: SequenceHead::Dense { activation: Activation::Relu, drops_input: false },
            head_dropout: [Stated(Some(0.2)), OfLayers, Stated(Some(0.1))],
            ..BERT.architecture
        },
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
        keys: &[
            ("embeddings.layer_norm", "embeddings.LayerNorm"),
            ("encoder.layers.*.attention.query", "transformer.layer.*.attention.q_lin"),
            ("encoder.layers.*.attention.key", "transformer.layer.*.attention.k_lin"),
            ("encoder.layers.*.attention.value", "transformer.layer.*.attention.v_lin"),
            ("encoder.layers.*.attention_output", "transformer.layer.*.attention.out_lin"),
            ("encoder.layers.*.attention_layer_norm", "transformer.layer.*.sa_layer_norm"),
            ("encoder.layers.*.intermediate", "transformer.layer.*.ffn.lin1"),
            ("encoder.layers.*.output", "transformer.layer.*.ffn.lin2"),
            ("encoder.layers.*.output_layer_norm", "transformer.layer.*.output_layer_norm"),
        ],
        masked_lm: &[
            ("head.transform", "vocab_transform"),
            ("head.layer_norm", "vocab_layer_norm"),
            ("head.bias", "vocab_projector.bias"),
            ("head.decoder", "vocab_projector"),
        ],
        heads: &[("classifier.dense", "pre_classifier"), ("classifier.out_proj", "classifier")],
        head_dropout: [Some("seq_classif_dropout"), None, Some("qa_dropout")],
        ..BERT
    },
    FamilySpec {
        family: Family::Electra,
        model_type: "electra",
        architecture: Architecture {
            projection: Presence::IfStated,
            has_pooler: false,
            // As `ElectraGeneratorPredictions`.
            masked_lm_activation_of_layers: false,
            sequence_head: SequenceHead::Dense { activation: Activation::Gelu, drops_input: true },
            ..BERT.architecture
        },
        class: "Electra",
        base: "electra",
        hidden_size: 256,
        num_attention_heads: 4,
        intermediate_size: 1024,
        more_keys: &[("encoder.embeddings_projection", "embeddings_project")],
        masked_lm: &[
            ("head.transform", "generator_predictions.dense"),
            ("head.layer_norm", "generator_predictions.LayerNorm"),
            ("head.bias", "generator_lm_head.bias"),
            ("head.decoder", "generator_lm_head"),
        ],
        heads: &[],
        ..BERT
    },
    FamilySpec {
        family: Family::MpNet,
        model_type: "mpnet",
        architecture: Architecture {
            token_types: Presence::Never,
            relative_scores: None,
            has_relative_attention_bias: true,
            head_dropout: [OfLayers, OfLayers, Never],
            ..ROBERTA.architecture
        },
        class: "MPNet",
        base: "mpnet",
        vocab_size: 30527,
        type_vocab_size: 0,
        fields: &[("type_vocab_size", Always)],
        // transformers' class computes with these values whatever a config says.
        unsupported: &[
            Unsupported::OtherThan(
                "relative_attention_num_buckets",
                32.0,
                "other buckets of relative positions",
            ),
            Unsupported::OtherThan("pad_token_id", 1.0, "another padding id"),
        ],
        more_keys: &[
            ("encoder.relative_attention_bias.table", "encoder.relative_attention_bias"),
            ("encoder.layers.*.attention.query", "encoder.layer.*.attention.attn.q"),
            ("encoder.layers.*.attention.key", "encoder.layer.*.attention.attn.k"),
            ("encoder.layers.*.attention.value", "encoder.layer.*.attention.attn.v"),
            ("encoder.layers.*.attention_output", "encoder.layer.*.attention.attn.o"),
            ("encoder.layers.*.attention_layer_norm", "encoder.layer.*.attention.LayerNorm"),
        ],
        head_dropout: [None; 3],
        ..ROBERTA
    },
    FamilySpec {
        family: Family::Albert,
        model_type: "albert",
        architecture: Architecture {
            projection: Presence::Always,
            shares_layers: true,
            output_dropout: [true, false],
            relative_scores: Some(RelativeScores::Unscaled),
            head_dropout: [Stated(Some(0.1)), Stated(Some(0.1)), Never],
            ..BERT.architecture
        },
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
            Unsupported::OtherThan("num_hidden_groups", 1.0, "several groups of layers"),
            Unsupported::OtherThan("inner_group_num", 1.0, "several layers in a group"),
        ],
        // One layer is stored, whatever the number of rounds.
        keys: &[
            ("embeddings.layer_norm", "embeddings.LayerNorm"),
            ("encoder.embeddings_projection", "encoder.embedding_hidden_mapping_in"),
            (
                "encoder.layers.*.attention.relative_positions",
                "encoder.albert_layer_groups.0.albert_layers.*.attention",
            ),
            (
                "encoder.layers.*.attention_output",
                "encoder.albert_layer_groups.0.albert_layers.*.attention.dense",
            ),
            (
                "encoder.layers.*.attention_layer_norm",
                "encoder.albert_layer_groups.0.albert_layers.*.attention.LayerNorm",
            ),
            ("encoder.layers.*.attention", "encoder.albert_layer_groups.0.albert_layers.*.attention"),
            ("encoder.layers.*.intermediate", "encoder.albert_layer_groups.0.albert_layers.*.ffn"),
            ("encoder.layers.*.output", "encoder.albert_layer_groups.0.albert_layers.*.ffn_output"),
            (
                "encoder.layers.*.output_layer_norm",
                "encoder.albert_layer_groups.0.albert_layers.*.full_layer_layer_norm",
            ),
            ("pooler.dense", "pooler"),
        ],
        masked_lm: &[
            ("head.transform", "predictions.dense"),
            ("head.layer_norm", "predictions.LayerNorm"),
            ("head", "predictions"),
        ],
        head_dropout: [Some("classifier_dropout_prob"), Some("classifier_dropout_prob"), None],
        ..BERT
    },
    FamilySpec { family: Family::Ernie, model_type: "ernie", class: "Ernie", base: "ernie", ..BERT },
    ROBERTA,
    // These three config classes have BERT's vocabulary.
    FamilySpec {
        family: Family::XlmRoberta,
        model_type: "xlm-roberta",
        class: "XLMRoberta",
        vocab_size: 30522,
        ..ROBERTA
    },
    FamilySpec {
        family: Family::Camembert,
        model_type: "camembert",
        class: "Camembert",
        vocab_size: 30522,
        ..ROBERTA
    },
    FamilySpec {
        family: Family::Data2VecText,
        model_type: "data2vec-text",
        class: "Data2VecText",
        base: "data2vec_text",
        vocab_size: 30522,
        ..ROBERTA
    },
    MODERN_BERT,
    NOMIC_BERT,
    GTE,
    JINA_EMBEDDINGS_V3,
    FamilySpec {
        family: Family::DebertaV2,
        model_type: "deberta-v2",
        architecture: Architecture {
            positions: Disentangled,
            token_types: Presence::IfStated,
            relative_scores: None,
            has_pooler: false,
            sequence_head: SequenceHead::ContextPooler,
            head_dropout: [Stated(None), OfLayers, Never],
            ..BERT.architecture
        },
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
            Unsupported::OtherThan("conv_kernel_size", 0.0, "the convolution after the first layer"),
            Unsupported::OtherWidth("embedding_size", "the projection of the embeddings"),
            Unsupported::OtherWidth("pooler_hidden_size", "another width of the pooler"),
            Unsupported::OtherName("pooler_hidden_act", "gelu", "another activation of the pooler"),
        ],
        more_keys: &[
            ("encoder.distances.table", "encoder.rel_embeddings"),
            ("encoder.distances.layer_norm", "encoder.LayerNorm"),
            ("encoder.layers.*.attention.query", "encoder.layer.*.attention.self.query_proj"),
            ("encoder.layers.*.attention.key", "encoder.layer.*.attention.self.key_proj"),
            ("encoder.layers.*.attention.value", "encoder.layer.*.attention.self.value_proj"),
            ("encoder.layers.*.attention.disentangled", "encoder.layer.*.attention.self"),
        ],
        // What `"legacy": false` calls the head, and the published models do.
        other_masked_lm: Some(&[
            ("head.transform", "lm_predictions.lm_head.dense"),
            ("head.layer_norm", "lm_predictions.lm_head.LayerNorm"),
            ("head", "lm_predictions.lm_head"),
        ]),
        heads: &[("classifier.dense", "pooler.dense"), ("classifier.out_proj", "classifier")],
        head_dropout: [Some("cls_dropout"), None, None],
        ..BERT
    },
    EURO_BERT,
];

const _: () = {
    let mut i = 0;
    while i < FAMILIES.len() {
        assert!(FAMILIES[i].family as usize == i, "the entries are in the order of the variants");
        i += 1;
    }
};

impl FamilySpec {
    pub(crate) fn with_model_type(model_type: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|spec| spec.model_type == model_type || spec.old_base == Some(model_type))
    }

    /// The family of a Python class such as `BertForMaskedLM`, `BertModel` or `BertLMHeadModel`.
    pub(crate) fn with_class(class: &str) -> Option<&'static Self> {
        let matches = |spec: &&FamilySpec| {
            let rest = class.strip_prefix(spec.class);
            // What follows is checked too: `BertGenerationEncoder` is no BERT.
            rest.is_some_and(|rest| ["Model", "For", "LMHead"].iter().any(|head| rest.starts_with(head)))
        };
        FAMILIES.iter().find(matches)
    }

    /// The first family whose embedding layers have this prefix below a model's, and this [`word`](Self::word).
    pub(crate) fn with_prefix(prefix: &str, word: [&str; 2]) -> Option<&'static Self> {
        let base = prefix.strip_suffix(word[0])?.strip_suffix('.')?;
        let matches = |spec: &&FamilySpec| spec.base == base || spec.old_base == Some(base);
        FAMILIES.iter().filter(|spec| spec.word() == word).find(matches)
    }

    /// Why a known family is not one of these; empty for an unknown one.
    pub(crate) fn reason_against(model_type: &str) -> &'static str {
        let reasons = [
            ("mobilebert", "it has bottlenecks around its layers; "),
            ("roformer", "its rotary positions pair neighbouring columns; "),
            ("big_bird bigbird_pegasus", "it has sparse attention; "),
            ("longformer led", "it has windows with global attention; "),
            ("deberta", "it is DeBERTa v1, whose layers differ from v2's and v3's; "),
            (
                "gpt2 gpt_neox llama qwen2 qwen3 mistral mixtral gemma gemma2 gemma3_text opt phi",
                "it is a decoder; ",
            ),
            ("t5 mt5 bart mbart", "it is an encoder-decoder; "),
        ];
        let is_of = |names: &str| names.split(' ').any(|name| name == model_type);
        reasons.into_iter().find(|(names, _)| is_of(names)).map_or("", |(_, reason)| reason)
    }

    pub(crate) fn supported() -> String {
        let names: Vec<_> = FAMILIES.iter().map(|spec| spec.model_type).collect();
        format!("model types that can be read are {}", names.join(", "))
    }
}
