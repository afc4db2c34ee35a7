//! What a save that was killed leaves, and edits of what one wrote.

use crate::checkpoint_files::*;
use burn::module::Param;
use burn::prelude::*;
use burn_bert::model::{
    BertForMaskedLm, BertForQuestionAnswering, BertForSequenceClassification,
    BertForSequenceClassificationConfig, BertForTokenClassification, BertModel, BertModelConfig,
    PretrainedModel, ProblemType,
};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, Error};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn device() -> Device {
    Device::default()
}

fn saved(config: &BertEmbeddingsConfig) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    config.init(&device()).save_pretrained(dir.path()).unwrap();
    dir
}

fn set(dir: &Path, field: &str, value: serde_json::Value) {
    let path = dir.join("config.json");
    let mut fields: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    fields[field] = value;
    fs::write(path, fields.to_string()).unwrap();
}

/// A directory whose `old` files a save replaces by the `new` ones, killed when it was complete and `moved` files were in
/// their place.
fn interrupted(old: &Path, new: &Path, moved: usize) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join(".burn_bert_saved");
    fs::create_dir(&saved).unwrap();
    for (i, name) in ["config.json", "model.safetensors"].into_iter().enumerate() {
        fs::copy(old.join(name), dir.path().join(name)).unwrap();
        let to = if i < moved { dir.path() } else { &saved };
        fs::copy(new.join(name), to.join(name)).unwrap();
    }
    dir
}

#[test]
fn a_save_that_was_killed_when_it_was_complete_is_finished_by_whoever_comes_next() {
    let (old, new) = (saved(&tiny()), saved(&tiny().with_layer_norm_eps(1e-5)));
    let expected = BertEmbeddings::from_pretrained(new.path(), &device()).unwrap();
    let assert_new = |dir: &Path| {
        let module = BertEmbeddings::from_pretrained(dir, &device()).unwrap();
        assert_eq!(module.layer_norm.epsilon(), 1e-5);
        assert_eq!(all_values(&module), all_values(&expected));
        assert_eq!(fs::read_dir(dir).unwrap().count(), 2, "nothing hidden is left");
    };
    for moved in 0..=2 {
        let next: [fn(&Path); 4] = [
            |_dir| (), // the load that follows
            |dir| drop(BertEmbeddings::from_pretrained(dir.join("model.safetensors"), &device()).unwrap()),
            |dir| _ = BertEmbeddingsConfig::from_pretrained(dir).unwrap(),
            |dir| {
                BertEmbeddings::from_pretrained(dir, &device()).unwrap().save_pretrained(dir).unwrap();
            },
        ];
        for next in next {
            let dir = interrupted(old.path(), new.path(), moved);
            next(dir.path());
            assert_new(dir.path());
        }
    }
}

/// As in a directory that the reader may not write into: what stands in the way of one file stops the moving of all.
#[test]
fn a_save_that_was_killed_when_it_was_complete_is_read_where_nothing_can_be_moved() {
    let (old, new) = (saved(&tiny()), saved(&tiny().with_layer_norm_eps(1e-5)));
    let expected = BertEmbeddings::from_pretrained(new.path(), &device()).unwrap();
    let dir = interrupted(old.path(), new.path(), 0);
    fs::write(dir.path().join("a_folder"), "a file").unwrap();
    fs::create_dir(dir.path().join(".burn_bert_saved/a_folder")).unwrap();
    for path in [dir.path().to_path_buf(), dir.path().join("model.safetensors")] {
        let module = BertEmbeddings::from_pretrained(path, &device()).unwrap();
        assert_eq!(module.layer_norm.epsilon(), 1e-5);
        assert_eq!(all_values(&module), all_values(&expected));
    }
    assert_eq!(BertEmbeddingsConfig::from_pretrained(dir.path()).unwrap().layer_norm_eps, 1e-5);
    expected.save_pretrained(dir.path()).expect_err("a save writes");
}

#[test]
fn a_save_into_a_directory_whose_save_was_interrupted_replaces_both() {
    let (old, new) = (saved(&tiny()), saved(&tiny().with_layer_norm_eps(1e-5)));
    let dir = interrupted(old.path(), new.path(), 1);
    let last = tiny().with_layer_norm_eps(1e-3).init(&device());
    last.save_pretrained(dir.path()).unwrap();
    let read = BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
    assert_eq!(read.layer_norm.epsilon(), 1e-3);
    assert_eq!(all_values(&read), all_values(&last));
}

#[test]
fn weights_of_a_save_that_changed_no_setting_go_with_the_config_of_the_one_before() {
    let (first, second) = (saved(&tiny()), saved(&tiny()));
    let dir = interrupted(first.path(), second.path(), 2);
    BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
}

#[test]
fn a_saved_config_may_be_edited() {
    let dir = saved(&tiny());
    set(dir.path(), "hidden_dropout_prob", serde_json::json!(0.5));
    set(dir.path(), "layer_norm_eps", serde_json::json!(1e-7));
    set(dir.path(), "transformers_version", serde_json::json!("5.23.0"));
    let read = BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
    assert_eq!(read.config().hidden_dropout_prob, 0.5);
    assert_eq!(read.layer_norm.epsilon(), 1e-7);
    read.save_pretrained(dir.path()).unwrap();
    set(dir.path(), "layer_norm_eps", serde_json::json!(1e-12));
    // The same number in another notation, and a default that is left out, as transformers leaves it out.
    let path = dir.path().join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    let text = text.replace("1e-12", "0.000000000001").replace("\"pad_token_id\":0,", "");
    assert!(!text.contains("1e-12") && !text.contains("pad_token_id"), "{text}");
    fs::write(&path, text).unwrap();
    BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
}

fn bert() -> BertModelConfig {
    BertModelConfig::new(BertEmbeddingsConfig::new().with_vocab_size(20).with_hidden_size(8))
        .with_num_hidden_layers(2)
        .with_num_attention_heads(2)
        .with_intermediate_size(12)
}

#[test]
fn labels_may_be_renamed_and_the_problem_type_changed_after_a_save() {
    let dir = tempfile::tempdir().unwrap();
    let config = BertForSequenceClassificationConfig::new(bert()).with_num_labels(3);
    let mut model = config.init(&device());
    model.save_pretrained(dir.path()).unwrap();
    set(dir.path(), "id2label", serde_json::json!({"0": "no", "1": "perhaps", "2": "yes"}));
    set(dir.path(), "problem_type", serde_json::json!("multi_label_classification"));
    let (read, report) = BertForSequenceClassification::from_pretrained(dir.path(), &device()).unwrap();
    assert!(report.is_complete(), "{report}");
    assert_eq!(read.id2label(), ["no", "perhaps", "yes"]);
    assert_eq!(read.config().problem_type, Some(ProblemType::MultiLabelClassification));
    assert_eq!(values(&read.classifier.out_proj.weight), values(&model.classifier.out_proj.weight));
    assert!(model.load(dir.path()).unwrap().is_complete());
    read.save_pretrained(dir.path()).unwrap();
}

/// What a save of each head changes in the `config.json` of a classifier that transformers wrote.
#[test]
fn fields_that_were_read_and_not_changed_are_written_back_as_they_were() {
    fn saved<M: PretrainedModel>(dir: &Path) {
        M::from_pretrained(dir, &device()).unwrap().0.save_pretrained(dir).unwrap();
    }
    type Save = (&'static str, fn(&Path), &'static [&'static str]);
    let saves: [Save; 5] = [
        ("classifier", saved::<BertForSequenceClassification>, &[]),
        ("tokens", saved::<BertForTokenClassification>, &["architectures"]),
        ("words", saved::<BertForMaskedLm>, &["architectures"]),
        ("model", saved::<BertModel>, &[]),
        ("answers", saved::<BertForQuestionAnswering>, &["architectures"]),
    ];
    for names in [&["no", "yes"][..], &["no", "perhaps", "yes"]] {
        for (head, save, changed) in saves {
            let dir = tempfile::tempdir().unwrap();
            let config = BertForSequenceClassificationConfig::new(bert()).with_num_labels(names.len());
            config.init(&device()).save_pretrained(dir.path()).unwrap();
            let ids: Vec<_> = (0..names.len()).map(|id| id.to_string()).collect();
            let by_id = ids.iter().zip(names).collect::<BTreeMap<_, _>>();
            set(dir.path(), "id2label", serde_json::json!(by_id));
            set(dir.path(), "label2id", serde_json::json!(names.iter().zip(0..).collect::<BTreeMap<_, _>>()));
            set(dir.path(), "problem_type", "multi_label_classification".into());
            set(dir.path(), "hidden_act", "gelu".into());
            set(dir.path(), "tokenizer_class", "BertTokenizer".into());
            let fields = || -> serde_json::Map<String, serde_json::Value> {
                let mut fields: serde_json::Map<_, _> =
                    serde_json::from_slice(&fs::read(dir.path().join("config.json")).unwrap()).unwrap();
                fields.retain(|_, value| !value.is_null()); // which transformers leaves out
                fields
            };
            let stripped = fields();
            let text = serde_json::to_string(&stripped).unwrap();
            fs::write(dir.path().join("config.json"), text.replace("\"hidden_dropout_prob\":0.1,", ""))
                .unwrap();
            let before = fields();
            assert_eq!(before.len() + 1, stripped.len(), "a default is left out");
            save(dir.path());
            let after = fs::read(dir.path().join("config.json")).unwrap();
            let after: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&after).unwrap();
            let keys = before.keys().chain(after.keys()).collect::<BTreeSet<_>>();
            let found: Vec<_> = keys.into_iter().filter(|key| before.get(*key) != after.get(*key)).collect();
            // transformers makes as many outputs of this head as there are labels.
            let labels =
                if head == "answers" && names.len() == 3 { &["id2label", "label2id"][..] } else { &[] };
            assert_eq!(found, [changed, labels].concat(), "{head}, {names:?}");
        }
    }
}

#[test]
fn a_config_with_another_number_of_labels_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = BertForSequenceClassificationConfig::new(bert()).with_num_labels(3);
    config.init(&device()).save_pretrained(dir.path()).unwrap();
    set(dir.path(), "id2label", serde_json::json!({"0": "no", "1": "yes"}));
    let error = BertForSequenceClassification::from_pretrained(dir.path(), &device()).map(drop).unwrap_err();
    assert!(
        matches!(&error, Error::CheckpointShape { found, expected, .. } if found[0] == 3 && expected[0] == 2),
        "{error}"
    );
}

#[test]
fn a_load_beside_saves_has_config_and_weights_of_one_of_them() {
    let dir = tempfile::tempdir().unwrap();
    // γ says which ε belongs to the weights.
    let save = |epsilon: f64| {
        let mut module = tiny().with_layer_norm_eps(epsilon).init(&device());
        module.layer_norm.gamma = Param::from_tensor(Tensor::full([tiny().hidden_size], epsilon, &device()));
        module.save_pretrained(dir.path()).unwrap();
    };
    let agrees = |module: &BertEmbeddings| {
        let gamma = values(&module.layer_norm.gamma)[0];
        assert!((gamma / module.layer_norm.epsilon() - 1.0).abs() < 1e-6, "{gamma}");
    };
    save(1e-3);
    std::thread::scope(|scope| {
        let saves = scope.spawn(|| (0..60).for_each(|i| save([1e-5, 1e-3][i % 2])));
        while !saves.is_finished() {
            agrees(&BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap());
        }
    });
}
