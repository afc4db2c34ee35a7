//! The table of families: what their models are made of, how they are stored, each as its difference from another one.

use super::Family;
use super::PositionEmbeddingType::{Absolute, AfterPadding, Disentangled, Rotary};
use super::architecture::FamilyDropout::{Never, OfLayers, Stated};
use super::architecture::{Architecture, Biases, NormPlace, Presence, RelativeScores, SequenceHead};
use super::spec::Field::{Also, Always, Named, Old};
use super::spec::{EMBEDDINGS_PREFIX, FamilySpec, Unsupported, WORD_EMBEDDINGS};
use burn_fused::Activation;

const BERT: FamilySpec = FamilySpec {
    family: Family::Bert,
    model_type: "bert",
    architecture: Architecture {
        positions: Absolute,
        token_types: Presence::Always,
        layer_norm_eps: None,
        projection: Presence::Never,
        norm: NormPlace::Post,
        biases: Biases { of_layers: true, of_inner: true, of_others: true },
        is_gated: false,
        inner_dropout: Never,
        shares_layers: false,
        output_dropout: [true; 2],
        relative_scores: Some(RelativeScores::Scaled),
        has_relative_attention_bias: false,
        has_windows: false,
        has_pooler: true,
        masked_lm_activation_of_layers: true,
        classifiers_have_transform: false,
        sequence_head: SequenceHead::Pooled,
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
    rope_theta: 160_000.0,
    fields: &[],
    unsupported: &[],
    more_keys: &[],
    keys: &[
        ("embeddings.layer_norm", "embeddings.LayerNorm"),
        ("encoder.layers.*.attention.query", "encoder.layer.*.attention.self.query"),
        ("encoder.layers.*.attention.key", "encoder.layer.*.attention.self.key"),
        ("encoder.layers.*.attention.value", "encoder.layer.*.attention.self.value"),
        ("encoder.layers.*.attention.relative_positions", "encoder.layer.*.attention.self"),
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
        ("head.bias", "cls.predictions.bias"),
        ("head.decoder", "cls.predictions.decoder"),
    ],
    other_masked_lm: None,
    heads: &[("classifier.out_proj", "classifier")],
    head_dropout: [Some("classifier_dropout"), Some("classifier_dropout"), None],
};

const ROBERTA: FamilySpec = FamilySpec {
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
    masked_lm: &[
        ("head.transform", "lm_head.dense"),
        ("head.layer_norm", "lm_head.layer_norm"),
        ("head.bias", "lm_head.bias"),
        ("head.decoder", "lm_head.decoder"),
    ],
    heads: &[],
    ..BERT
};

// Keys of this one and of the two after it are those of the code that published a model, which transformers reads and writes
// too.
const NOMIC_BERT: FamilySpec = FamilySpec {
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
        ("head.bias", "cls.predictions.bias"),
        ("head.decoder", "cls.predictions.decoder"),
    ],
    ..BERT
};

/// One entry for each [`Family`], in the order of its variants.
pub(crate) static FAMILIES: [FamilySpec; 15] = [
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
            ("head.bias", "predictions.bias"),
            ("head.decoder", "predictions.decoder"),
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
    FamilySpec {
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
    },
    NOMIC_BERT,
    FamilySpec {
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
    },
    FamilySpec {
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
    },
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
            ("head.bias", "lm_predictions.lm_head.bias"),
            ("head.decoder", "lm_predictions.lm_head.decoder"),
        ]),
        heads: &[("classifier.dense", "pooler.dense"), ("classifier.out_proj", "classifier")],
        head_dropout: [Some("cls_dropout"), None, None],
        ..BERT
    },
];

const _: () = {
    let mut i = 0;
    while i < FAMILIES.len() {
        assert!(FAMILIES[i].family as usize == i, "the entries are in the order of the variants");
        i += 1;
    }
};

impl FamilySpec {
    pub(crate) fn of_model_type(model_type: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|spec| spec.model_type == model_type || spec.old_base == Some(model_type))
    }

    /// The family of a Python class such as `BertForMaskedLM`, `BertModel` or `BertLMHeadModel`.
    pub(crate) fn of_class(class: &str) -> Option<&'static Self> {
        let is_of = |spec: &&FamilySpec| {
            let rest = class.strip_prefix(spec.class);
            // What follows is checked too: `BertGenerationEncoder` is no BERT.
            rest.is_some_and(|rest| ["Model", "For", "LMHead"].iter().any(|head| rest.starts_with(head)))
        };
        FAMILIES.iter().find(is_of)
    }

    /// The first family whose embedding layers have this prefix below a model's, and this key of word embeddings.
    pub(crate) fn of_prefix(prefix: &str, word: &str) -> Option<&'static Self> {
        let base = prefix.strip_suffix(EMBEDDINGS_PREFIX)?.strip_suffix('.')?;
        let is_of = |spec: &&FamilySpec| spec.base == base || spec.old_base == Some(base);
        FAMILIES.iter().filter(|spec| spec.word() == word).find(is_of)
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
