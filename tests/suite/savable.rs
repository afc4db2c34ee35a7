//! What a `config.json` cannot state is not saved, and what cannot be built is not read.

use crate::checkpoint_files::{keys_of, tensors_of, tiny};
use crate::odd_files::put_in_place;
use crate::prelude::*;
use burn::nn::{Linear, LinearConfig};

fn bert() -> BertModelConfig {
    small_bert(20, 8).with_num_hidden_layers(2)
}

#[test]
fn a_model_that_its_config_does_not_build_is_not_saved_over_a_good_one() {
    let model = BertForMaskedLmConfig::new(bert()).init(&device());
    let dir = saved(&model);
    let before = files_of(dir.path());
    let other = |config: BertModelConfig| config.init(&device());
    let mut config = bert();
    config.embeddings.layer_norm_eps = 1e-5;
    let with_another_epsilon = other(config);
    type Change<'a> = &'a dyn Fn(&mut BertForMaskedLm);
    let changes: [(&str, Change); 7] = [
        ("num_hidden_layers is 0", &|model| model.bert.encoder.layers.clear()),
        ("position_embeddings", &|model| model.bert.embeddings.position_embeddings = None),
        ("cls.predictions.bias has shape [20]", &|model| {
            model.bert.embeddings.resize_vocabulary(&VocabularyResize::new(23)).unwrap();
        }),
        ("num_attention_heads is 4 in layer 1", &|model| {
            let four = other(bert().with_num_attention_heads(4));
            model.bert.encoder.layers[1].attention = four.encoder.layers[1].attention.clone();
        }),
        ("bert.encoder.layer.1.output.LayerNorm.weight belongs to a LayerNorm with ε 1e-5", &|model| {
            model.bert.encoder.layers[1].output_layer_norm =
                with_another_epsilon.encoder.layers[1].output_layer_norm.clone();
        }),
        ("cls.predictions.transform.LayerNorm.weight belongs", &|model| {
            model.head.layer_norm = with_another_epsilon.embeddings.layer_norm.clone();
        }),
        ("bert.encoder.layer.1.intermediate.dense.weight has shape [6, 8]", &|model| {
            let narrow = other(bert().with_intermediate_size(6));
            model.bert.encoder.layers[1] = narrow.encoder.layers[1].clone();
        }),
    ];
    for (problem, change) in changes {
        let mut changed = model.clone();
        change(&mut changed);
        says(changed.save_pretrained(dir.path()), problem);
        assert!(files_of(dir.path()) == before, "{problem}");
    }
    let mut layer = tiny().init(&device());
    layer.position_embeddings = None;
    let dir = tempdir().unwrap();
    fails!(layer.save_pretrained(dir.path()), Error::Data { .. });
    assert!(files_of(dir.path()).is_empty());
    // Without its pooler it is, and that is reported.
    let dir = saved(&BertModel { pooler: None, ..bert().init(&device()) });
    assert_eq!(BertModel::from_pretrained(dir.path(), &device()).unwrap().1.missing.len(), 2);
}

#[test]
fn a_checkpoint_is_not_loaded_under_an_adapter() {
    let model = bert().init(&device());
    let dir = saved(&model);
    for parameter in ["word_embeddings.weight", "intermediate.weight"] {
        let mut adapted = model
            .clone()
            .apply_lora(Lora::new(2, 4.0).set_param_group(ParamGroup::from_predicate(parameter)));
        fails!(adapted.load(dir.path()), Error::Data { .. }, "has a LoRA adapter");
    }
}

#[test]
fn what_is_called_modules_json_and_is_no_file_is_an_error() {
    let dir = saved(&BertForSentenceEmbeddingConfig::new(bert()).init(&device()));
    for name in ["modules.json", "2_Normalize/config.json", "sentence_bert_config.json"] {
        let path = dir.path().join(name);
        let old = fs::read(&path).ok();
        for (kind, problem) in [("a link to nowhere", ""), ("a directory", ""), ("a FIFO", "FIFO")] {
            put_in_place(kind, &path);
            says(BertForSentenceEmbedding::from_pretrained(dir.path(), &device()), problem);
        }
        fs::remove_file(&path).unwrap();
        old.into_iter().for_each(|old| fs::write(&path, old).unwrap());
    }
    let _: BertForSentenceEmbedding = loaded(&dir);
}

/// A custom head: a second encoder, and a linear layer without a bias.
#[derive(Module, Debug)]
struct TwoTowers {
    bert: BertModel,
    second: BertModel,
    score: Linear,
}

#[derive(Config, Debug)]
struct TowersConfig {
    bert: BertModelConfig,
    num_scores: usize,
}

impl Stored for TwoTowers {
    type Config = TowersConfig;
    const CLASS: Option<&'static str> = Some("ForTwoTowers");

    fn build(config: &TowersConfig, device: &Device) -> Result<Self, Error> {
        let score = LinearConfig::new(config.bert.embeddings.hidden_size, config.num_scores);
        let score = score.with_bias(false).init(device);
        Ok(Self { bert: config.bert.try_init(device)?, second: config.bert.try_init(device)?, score })
    }

    fn stored_config(&self) -> TowersConfig {
        TowersConfig::new(self.bert.config(), self.score.weight.lazy_shape()[1])
    }

    fn bert(&self) -> &BertModel {
        &self.bert
    }

    fn bert_mut(&mut self) -> &mut BertModel {
        &mut self.bert
    }
}

#[test]
fn a_custom_head_has_its_paths_for_keys_and_no_bias_that_it_lacks() {
    let model = TwoTowers::build(&TowersConfig::new(bert(), 3), &device()).unwrap();
    let dir = saved(&model);
    let keys = keys_of(dir.path());
    for key in [
        "bert.encoder.layer.1.attention.self.query.weight",
        "second.encoder.layers.1.attention.query.weight",
        "second.embeddings.layer_norm.bias",
    ] {
        assert!(keys.iter().any(|found| found == key), "{key}");
    }
    let own = |key: &&String| !key.starts_with("bert.") && !key.starts_with("second.");
    assert_eq!(keys.iter().filter(own).collect::<Vec<_>>(), ["score.weight"]);
    let score = tensors_of(dir.path()).into_iter().find(|tensor| tensor.key == "score.weight");
    assert_eq!(score.unwrap().shape, [3, 8], "outputs, inputs");
    let (read, report) = TwoTowers::from_pretrained(dir.path(), &device()).unwrap();
    assert_eq!(report, LoadReport::default());
    assert!(all_values(&read) == all_values(&model));
    assert_eq!(config_json(dir.path())["num_scores"], 3);
    // Of a file of the model alone, all of it is new.
    let (alone, config) = (saved(&bert().init(&device())), TowersConfig::new(bert(), 3));
    let (_, report) = TwoTowers::from_pretrained_with(&config, alone.path(), &device()).unwrap();
    assert_eq!(report.missing.len(), keys.len() - keys.iter().filter(|key| key.starts_with("bert.")).count());
    let error = fails!(TwoTowers::from_pretrained(alone.path(), &device()), Error::Json { .. });
    assert!(format!("{error:?}").contains("missing field `num_scores`"), "{error:?}");
}
