//! The family of a model: stated by `model_type`, kept by a save.

use crate::checkpoint_files::{keys_of, tiny};
use crate::prelude::*;
use burn_bert::encoder::Activation;

fn config_of(model_type: &str, positions: &str, activation: &str) -> BertModelConfig {
    let fields = json!({
        "model_type": model_type, "position_embedding_type": positions, "hidden_act": activation, "vocab_size": 20,
        "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12,
        "max_position_embeddings": 9,
    });
    BertModelConfig::from_pretrained(with_config(fields).path()).unwrap()
}

#[test]
fn a_roberta_with_relative_positions_keeps_its_head_and_its_name() {
    let device = device();
    for positions in ["relative_key", "relative_key_query"] {
        let config = BertForSequenceClassificationConfig::new(config_of("roberta", positions, "gelu"));
        let model = config.init(&device);
        assert!(model.bert.pooler.is_none() && model.classifier.dense.is_some(), "RoBERTa's head");
        let dir = saved(&model);
        let fields = config_json(dir.path());
        assert_eq!(
            [&fields["model_type"], &fields["architectures"][0], &fields["position_embedding_type"]],
            ["roberta", "RobertaForSequenceClassification", positions]
        );
        let read: BertForSequenceClassification = loaded(&dir);
        assert_eq!(read.config(), model.config());
        assert_eq!(all_values(&read.classifier), all_values(&model.classifier));
        // Its masked-language-model head is RoBERTa's as well.
        let model = BertForMaskedLmConfig::new(config.bert).init(&device);
        let dir = saved(&model);
        let is_robertas = |key: &String| key.starts_with("roberta.") || key.starts_with("lm_head.");
        assert!(keys_of(dir.path()).iter().all(is_robertas));
        assert!(BertForMaskedLm::from_pretrained(dir.path(), &device).unwrap().1.is_complete());
    }
}

#[test]
fn every_family_is_saved_as_itself_into_a_new_directory() {
    let device = device();
    for (model_type, class) in [
        ("bert", "BertForMaskedLM"),
        ("ernie", "ErnieForMaskedLM"),
        ("roberta", "RobertaForMaskedLM"),
        ("xlm-roberta", "XLMRobertaForMaskedLM"),
        ("camembert", "CamembertForMaskedLM"),
        ("data2vec-text", "Data2VecTextForMaskedLM"),
    ] {
        let config = config_of(model_type, "absolute", "gelu");
        let dir = saved(&BertForMaskedLmConfig::new(config.clone()).init(&device));
        let fields = config_json(dir.path());
        assert_eq!([&fields["model_type"], &fields["architectures"][0]], [model_type, class]);
        let read: BertForMaskedLm = loaded(&dir);
        assert_eq!(read.bert.config(), config);
        assert_eq!(config.embeddings.family.model_type(), model_type);
    }
}

#[test]
fn the_name_of_an_activation_is_written_back_as_it_was_read() {
    let written = |config| {
        let dir = saved(&BertForMaskedLmConfig::new(config).init(&device()));
        config_json(dir.path())["hidden_act"].clone()
    };
    let read = |name| config_of("bert", "absolute", name);
    for name in ["gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish"] {
        assert_eq!(written(read(name)), name);
    }
    assert_eq!(written(read("gelu_pytorch_tanh").with_hidden_act(Activation::Relu)), "relu");
    assert_eq!(written(read("gelu").with_hidden_act(Activation::GeluTanh)), "gelu_new");
}

#[test]
fn positions_that_a_familys_config_cannot_say_are_not_saved() {
    for (family, positions) in [
        (Family::Bert, PositionEmbeddingType::AfterPadding),
        (Family::Camembert, PositionEmbeddingType::Absolute),
    ] {
        let config =
            tiny().with_pad_token_id(Some(1)).with_family(family).with_position_embedding_type(positions);
        let dir = tempdir().unwrap();
        let result = config.init(&device()).save_pretrained(dir.path());
        fails!(result, Error::Config { field: "position_embedding_type", .. }, family.model_type());
        assert!(files_of(&dir).is_empty());
    }
}

#[test]
fn a_directory_of_another_family_is_neither_read_nor_written() {
    let device = device();
    let config = config_of("camembert", "absolute", "gelu");
    let dir = saved(&config.init(&device));
    let mut roberta = config.clone();
    roberta.embeddings.family = Family::Roberta;
    says(roberta.init(&device).save_pretrained(dir.path()), "is camembert, but the module's is roberta");
    // Equal in keys and computation: what is read is saved as the config says.
    assert!(roberta.init(&device).load(dir.path()).unwrap().is_complete());
    let mut bert = config;
    bert.embeddings.family = Family::Bert;
    fails!(bert.init(&device).load(dir.path()), Error::ConfigFile { field: "model_type", .. });
}
