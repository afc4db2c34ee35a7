//! The configs of published models: their families, and what their files state besides its defaults.

use super::config::BertModelConfig;
use super::rotary::RotaryConfig;
use crate::embeddings::BertEmbeddingsConfig;
use crate::family::Family;

/// A name, the family, the model's address, and for embeddings and model the number of parameters and the fields.
macro_rules! published {
    ($($name:ident: $family:ident, $address:literal,
        $layer:literal $({ $($field:ident: $value:expr),* })?,
        $model:literal $({ $($own:ident: $own_value:expr),* })?;)*) => {
        impl BertEmbeddingsConfig {
            $(#[doc = concat!("`", $address, "`: ", $layer, " parameters.")]
            pub fn $name() -> Self {
                Self { $($($field: $value,)*)? ..Self::default_for(Family::$family) }
            })*
        }

        impl BertModelConfig {
            $(#[doc = concat!("`", $address, "`: ", $model, ".")]
            pub fn $name() -> Self {
                Self { $($($own: $own_value,)*)? ..Self::default_around(BertEmbeddingsConfig::$name()) }
            })*
        }
    };
}

published! {
    bert_base_uncased: Bert, "bert-base-uncased", "23,837,184",
        "109,482,240 parameters, the pooler's included";
    bert_base_chinese: Bert, "bert-base-chinese", "16,622,592" { vocab_size: 21128 },
        "102,267,648 parameters, the pooler's included";
    bert_large_uncased: Bert, "bert-large-uncased", "31,782,912" { hidden_size: 1024 },
        "335,141,888 parameters, the pooler's included"
        { num_hidden_layers: 24, num_attention_heads: 16, intermediate_size: 4096 };
    roberta_base: Roberta, "roberta-base",
        "39,000,576" { max_position_embeddings: 514, type_vocab_size: 1, layer_norm_eps: 1e-5 },
        "124,645,632 parameters, the pooler's included";
    distilbert_base_uncased: DistilBert, "distilbert-base-uncased", "23,835,648", "66,362,880 parameters";
    electra_small: Electra, "google/electra-small-discriminator", "3,972,864" { embedding_size: Some(128) },
        "13,483,008 parameters";
    electra_base: Electra, "google/electra-base-discriminator", "23,837,184" { hidden_size: 768 },
        "108,891,648 parameters" { num_attention_heads: 12, intermediate_size: 3072 };
    mpnet_base: MpNet, "microsoft/mpnet-base",
        "23,841,024" { max_position_embeddings: 514, layer_norm_eps: 1e-5 },
        "109,486,464 parameters, the pooler's included";
    albert_base_v2: Albert, "albert/albert-base-v2", "3,906,048" { hidden_size: 768 },
        "11,683,584 parameters, the pooler's included" { num_attention_heads: 12, intermediate_size: 3072 };
    modernbert_base: ModernBert, "answerdotai/ModernBERT-base", "38,683,392", "149,014,272 parameters";
    nomic_embed_text_v1_5: NomicBert, "nomic-ai/nomic-embed-text-v1.5", "23,448,576",
        "136,731,648 parameters";
    gte_multilingual_base: Gte, "alibaba-nlp-community/gte-multilingual-base", "192,039,168",
        "305,368,320 parameters";
    jina_embeddings_v3: JinaEmbeddingsV3, "jinaai/jina-embeddings-v3-hf", "256,006,144",
        "559,364,096 parameters, the pooler's included, its task adapters' not";
    eurobert_210m: EuroBert, "EuroBERT/EuroBERT-210m", "98,500,608", "211,766,016 parameters"
        { rotary: Some(RotaryConfig::uniform(250_000.0)) };
    eurobert_610m: EuroBert, "EuroBERT/EuroBERT-610m", "147,750,912" { hidden_size: 1152 },
        "607,874,688 parameters"
        { num_hidden_layers: 26, num_attention_heads: 18, num_key_value_heads: Some(6), intermediate_size: 4096,
          rotary: Some(RotaryConfig::uniform(250_000.0)) };
    deberta_v3_small: DebertaV2, "microsoft/deberta-v3-small", "98,382,336" { hidden_size: 768 },
        "141,304,320 parameters" { num_hidden_layers: 6, num_attention_heads: 12, intermediate_size: 3072 };
    deberta_v3_base: DebertaV2, "microsoft/deberta-v3-base", "98,382,336" { hidden_size: 768 },
        "183,831,552 parameters" { num_hidden_layers: 12, num_attention_heads: 12, intermediate_size: 3072 };
    deberta_v3_large: DebertaV2, "microsoft/deberta-v3-large", "131,176,448" { hidden_size: 1024 },
        "434,012,160 parameters" { num_attention_heads: 16, intermediate_size: 4096 };
}
