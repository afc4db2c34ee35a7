//! Ranks against sentence-transformers' `CrossEncoder`, labels against transformers' pipeline (tests/fixtures/make_cross_encoder.py).

use crate::files::copy_of;
use crate::prelude::*;
use crate::transformers::Python;
use burn_bert::encoder::Activation;

fn saved() -> PathBuf {
    fixture("cross_encoder/saved")
}

fn cases() -> Value {
    json(fixture("cross_encoder/cases.json"))
}

fn read(dir: &Path) -> BertForSequenceClassification {
    loaded(dir)
}

/// The model of a directory with another config.
fn with(config: &BertForSequenceClassificationConfig, dir: &Path) -> BertForSequenceClassification {
    BertForSequenceClassification::from_pretrained_with(config, dir, &device()).unwrap().0
}

fn tokenizer() -> BertTokenizer {
    BertTokenizer::from_pretrained(saved()).unwrap()
}

fn pipeline(model: BertForSequenceClassification) -> Pipeline<BertForSequenceClassification> {
    Pipeline::new(model, tokenizer()).unwrap()
}

#[track_caller]
fn assert_ranked(found: &[Ranked], expected: &[(usize, f64)]) {
    assert_eq!(found.len(), expected.len());
    for (found, (index, score)) in found.iter().zip(expected) {
        assert_eq!(found.index, *index, "{found:?}, {score}");
        assert!((found.score - score).abs() < 1e-5, "{found:?}, {score}");
    }
}

#[test]
fn ranks_and_scores_equal_sentence_transformers_and_a_model_of_several_labels_has_none() {
    let (cases, model) = (cases(), read(&saved()));
    let texts: Vec<String> = list(&cases["texts"]);
    assert_eq!(model.config().activation, Some(Activation::Sigmoid));
    let identity = model.config().with_activation(Some(Activation::Identity));
    let identity = with(&identity, &saved());
    for run in cases["runs"].as_array().unwrap() {
        let model = if run["activation"] == "Identity" { &identity } else { &model };
        let (query, expected) = (run["query"].as_str().unwrap(), list::<Vec<(usize, f64)>>(&run["ranked"]));
        let pipeline = pipeline(model.clone());
        assert_ranked(&pipeline.rank(query, &texts, &TextOptions::new()).unwrap(), &expected);
        let two = pipeline.rank(query, &texts, &TextOptions::new().with_top_k(2)).unwrap();
        assert_ranked(&two, &expected[..2]);
    }
    let two = model.config().with_num_labels(2).init(&device());
    assert!(pipeline(model).rank::<&str>("", &[], &TextOptions::new()).unwrap().is_empty());
    let result = pipeline(two).rank("the cat", &["sat"], &TextOptions::new());
    fails!(result, Error::Config { field: "id2label", .. });
}

#[test]
fn pairs_are_trained_with_sentence_transformers_loss() {
    let cases = cases();
    let device = autodiff();
    let (model, _) = BertForSequenceClassification::from_pretrained(saved(), &device).unwrap();
    let texts: Vec<String> = list(&cases["texts"]);
    let labels: Vec<f32> = list(&cases["labels"]);
    let query = cases["runs"][0]["query"].as_str().unwrap();
    let items = |texts: &[String]| -> Vec<LabelledText> {
        let pairs = texts.iter().zip(&labels);
        pairs
            .map(|(text, &label)| LabelledText {
                text: query.into(),
                pair: Some(text.clone()),
                label: Label::Relevance(label),
            })
            .collect()
    };
    let limited = model.limit_tokenizer(tokenizer()).unwrap();
    let batch = |items: &[_]| LabelledText::batch(items, &limited, 1, &device);
    let output = model.forward(&batch(&items(&texts)).unwrap());
    assert_close(&values(output.loss.clone()), &[cases["loss"].as_f64().unwrap()], F32);
    let gradient = model.classifier.out_proj.weight.grad(&output.loss.backward()).unwrap();
    assert_close(&values(gradient), &list::<Vec<f64>>(&cases["gradient"]), F32);
}

#[test]
fn the_activation_is_found_where_each_version_writes_it() {
    let activation = |fields: &[(&str, Value)]| {
        let dir = copy_of(saved());
        fs::remove_file(dir.path().join("config_sentence_transformers.json")).unwrap();
        set_fields(&dir, fields);
        BertForSequenceClassificationConfig::from_pretrained(dir.path()).map(|config| config.activation)
    };
    let identity = "torch.nn.modules.linear.Identity";
    let version_2 = |class: &str| ("sbert_ce_default_activation_function", json!(class));
    let version_4 = ("sentence_transformers", json!({ "activation_fn": identity, "version": "4.0.1" }));
    assert_eq!(activation(&[]).unwrap(), None);
    assert_eq!(activation(&[version_2(identity)]).unwrap(), Some(Activation::Identity));
    let both = [version_4, version_2("torch.nn.modules.activation.Sigmoid")];
    assert_eq!(activation(&both).unwrap(), Some(Activation::Identity));
    let error = activation(&[version_2("torch.nn.modules.activation.Mish")]).unwrap_err().to_string();
    assert!(error.contains("Mish") && error.contains("sbert_ce_default_activation_function"), "{error}");
}

/// The first seven are the texts, the others pairs of the first query with each that is not empty.
#[test]
fn labels_and_scores_equal_those_of_transformers_pipeline() {
    let cases = cases();
    let texts: Vec<String> = list(&cases["texts"]);
    let query = cases["runs"][0]["query"].as_str().unwrap();
    let three = saved().with_file_name("three_labels");
    for problem in cases["problems"].as_array().unwrap() {
        let dir = if problem["num_labels"] == 1 { saved() } else { three.clone() };
        let config = BertForSequenceClassificationConfig::from_pretrained(&dir).unwrap();
        let config = config.with_problem_type(list(&problem["problem_type"]));
        let model = with(&config, &dir);
        let (pipeline, options) = (pipeline(model), TextOptions::new());
        let second = texts.iter().filter(|text| !text.is_empty());
        let pairs: Vec<_> = second.map(|text| (query, text)).collect();
        let mut found = pipeline.classify(&texts, &options).unwrap();
        found.extend(pipeline.classify(&pairs, &options).unwrap());
        let expected: Vec<Vec<(String, f64)>> = list(&problem["found"]);
        assert_eq!((found.len(), expected.len()), (13, 13));
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.len(), expected.len());
            for (found, (label, score)) in found.iter().zip(expected) {
                assert_eq!(&found.label, label, "{problem}");
                assert!((found.score - score).abs() < 1e-5, "{found:?}, {score}");
            }
        }
        let best = pipeline.classify(&texts, &options.with_top_k(1)).unwrap();
        assert!(best.iter().zip(&found).all(|(best, all)| best[..] == all[..1]));
    }
}

#[test]
fn labels_are_predicted_from_the_threshold_of_the_options_or_of_the_model_on() {
    let (dir, texts) = (tempdir().unwrap(), list::<Vec<String>>(&cases()["texts"]));
    let three = saved().with_file_name("three_labels");
    let config = BertForSequenceClassificationConfig::from_pretrained(&three).unwrap();
    let of_kind = |problem_type| with(&config.clone().with_problem_type(problem_type), &three);
    let several = of_kind(Some(ProblemType::MultiLabelClassification));
    let predicted = |model: &BertForSequenceClassification, options: &TextOptions| -> Vec<Vec<String>> {
        let found = pipeline(model.clone()).classify(&texts, options).unwrap().into_iter();
        found
            .map(|labels| {
                let labels = labels.into_iter().filter(|label| label.is_predicted);
                labels.map(|label| label.label).collect()
            })
            .collect()
    };
    let reached = |thresholds: [f64; 3]| -> Vec<Vec<String>> {
        let found = pipeline(several.clone()).classify(&texts, &TextOptions::new()).unwrap().into_iter();
        found
            .map(|labels| {
                let reaches =
                    |label: &ScoredLabel| label.score >= thresholds[several.label2id(&label.label).unwrap()];
                labels.into_iter().filter(reaches).map(|label| label.label).collect()
            })
            .collect()
    };
    let options = TextOptions::new();
    assert_eq!(predicted(&several, &options), reached([0.5; 3]));
    let thresholds = [0.4, 0.9, 0.55];
    let own = several.clone().with_label_thresholds(Some(thresholds.to_vec())).unwrap();
    assert_eq!(predicted(&own, &options), reached(thresholds));
    assert_ne!(reached(thresholds), reached([0.5; 3]));
    assert_eq!(predicted(&own, &options.clone().with_threshold(0.45)), reached([0.45; 3]));
    // Of one label a text, the best, if it reaches the threshold of the options.
    let single = of_kind(None);
    assert!(predicted(&single, &options).iter().all(|labels| labels.len() == 1));
    assert!(predicted(&single, &options.clone().with_threshold(1.0)).concat().is_empty());
    assert!(predicted(&single, &options.clone().with_threshold(0.1)).iter().all(|labels| labels.len() == 1));
    let numbers = of_kind(Some(ProblemType::Regression));
    assert!(predicted(&numbers, &options).iter().all(|labels| labels.len() == 3));
    for (model, threshold) in [(numbers, 0.5), (several.clone(), 1.5), (several.clone(), f64::NAN)] {
        let result = pipeline(model).classify(&texts, &options.clone().with_threshold(threshold));
        fails!(result, Error::Config { field: "threshold", .. });
    }

    own.save_pretrained(dir.path()).unwrap();
    assert_eq!(read(dir.path()).config().label_thresholds, Some(thresholds.to_vec()));
    several.save_pretrained(dir.path()).unwrap();
    assert_eq!(read(dir.path()).config().label_thresholds, None);
    // Of a head that Python trained since, they are of other labels.
    set_fields(dir.path(), &[("label_thresholds", json!([0.5, 0.5]))]);
    assert_eq!(read(dir.path()).config().label_thresholds, None);
    for (wrong, problem) in [
        (json!([0.5, 0.5, 0.0]), "must be a probability in (0, 1)"),
        (json!([0.5, 0.5, "a"]), "has an entry that is not a number"),
        (json!(0.5), "must be a list"),
    ] {
        set_fields(dir.path(), &[("label_thresholds", wrong)]);
        says(BertForSequenceClassification::from_pretrained(dir.path(), &device()).map(drop), problem);
    }
    for problem_type in [None, Some(ProblemType::SingleLabelClassification)] {
        fails!(
            of_kind(problem_type).with_label_thresholds(Some(vec![0.5; 3])),
            Error::Config { field: "label_thresholds", .. }
        );
    }
}

#[cfg(feature = "train")]
#[test]
fn a_ranker_is_trained_with_its_prompt() {
    use burn_bert::training::{Trainer, TrainingArguments, TrainingPrompts, evaluate};

    let (cases, dir) = (cases(), tempdir().unwrap());
    let (texts, labels): (Vec<String>, Vec<f32>) = (list(&cases["texts"]), list(&cases["labels"]));
    let (query, prompt) =
        (cases["runs"][0]["query"].as_str().unwrap(), cases["prompts"]["web"].as_str().unwrap());
    let data = |query: &str| {
        let pairs = texts.iter().zip(&labels).map(|(text, &label)| LabelledText {
            text: query.into(),
            pair: Some(text.clone()),
            label: Label::Relevance(label),
        });
        LabelledTexts::new(pairs.collect(), Vec::new()).unwrap()
    };
    let loss = |query: &str, prompts: Option<TrainingPrompts>| {
        let arguments = TrainingArguments::new(dir.path()).with_silent(true);
        let arguments = TrainingArguments { prompts, ..arguments };
        evaluate(&pipeline(read(&saved())), data(query), &arguments).unwrap()["Loss"]
    };
    let expected = |name: &str| cases[name].as_f64().unwrap();
    assert!((loss(query, None) - expected("loss")).abs() < 1e-5);
    assert!((loss(query, Some([prompt].into())) - expected("prompted_loss")).abs() < 1e-5);
    // A query that has it gets no other.
    let whole = format!("{prompt}{query}");
    assert!((loss(&whole, Some([prompt].into())) - expected("prompted_loss")).abs() < 1e-5);
    let ranks =
        |query: &str, options: &TextOptions| pipeline(read(&saved())).rank(query, &texts, options).unwrap();
    let options = TextOptions::new().with_prompt(prompt);
    assert_eq!(ranks(&whole, &options), ranks(query, &options));

    let run = |name: &str, prompts: TrainingPrompts| {
        let arguments = TrainingArguments::new(dir.path().join(name)).with_silent(true).with_epochs(1);
        let arguments = arguments.with_prompts(prompts);
        Trainer::<BertForSequenceClassification, _>::from_pretrained(saved(), data(query), arguments)?.train()
    };
    let trained = run("text", [prompt].into()).unwrap();
    let trained_ranks = trained.pipeline.rank(query, &texts, &TextOptions::new()).unwrap();
    assert_eq!(trained_ranks, trained.pipeline.rank(query, &texts, &options).unwrap());
    let prompts = read(&dir.path().join("text")).config().prompts;
    assert_eq!((prompts.text(None).unwrap(), prompts.text(Some("query")).unwrap()), (prompt, prompt));
    says(run("two", ["a", "b"].into()).map(drop), "prompts are 2, but must be 1 to 1");
    says(run("none", TrainingPrompts::Names(vec!["web".into()])).map(drop), "\"web\"");
}

#[test]
fn the_prompt_of_a_ranker_is_put_before_its_queries() {
    let (cases, dir) = (cases(), copy_of(saved()));
    edit(dir.path(), "config_sentence_transformers.json", |config| {
        config["prompts"] = cases["prompts"].clone();
        config["default_prompt_name"] = json!("web");
    });
    let identity = read(dir.path()).config().with_activation(Some(Activation::Identity));
    let model = with(&identity, dir.path());
    let texts: Vec<String> = list(&cases["texts"]);
    let query = cases["runs"][0]["query"].as_str().unwrap();
    let prompted = list::<Vec<(usize, f64)>>(&cases["prompted"]);
    let ranks = |model: &BertForSequenceClassification, options: &TextOptions| {
        pipeline(model.clone()).rank(query, &texts, options).unwrap()
    };
    assert_ranked(&ranks(&model, &TextOptions::new()), &prompted);
    // Asked for by its name, and as a text, of a model without a default.
    let text = cases["prompts"]["web"].as_str().unwrap();
    let prompts = Prompts::new().with("web", text);
    let plain = identity.clone().with_prompts(prompts);
    let plain = with(&plain, dir.path());
    assert_ranked(&ranks(&plain, &TextOptions::new().with_prompt_name("web")), &prompted);
    assert_ranked(&ranks(&plain, &TextOptions::new().with_prompt(text)), &prompted);
    let new = tempdir().unwrap();
    for dir in [dir.path(), new.path()] {
        model.save_pretrained(dir).unwrap();
        assert_eq!(read(dir).config(), identity);
    }
    // The directory is still sentence-transformers'.
    let own: Value = json(dir.path().join("config_sentence_transformers.json"));
    assert_eq!(own["activation_fn"], "torch.nn.modules.linear.Identity");
    assert_eq!(own["model_type"], "CrossEncoder");
    edit(new.path(), "config_sentence_transformers.json", |config| config["prompts"] = json!({}));
    let result = BertForSequenceClassificationConfig::from_pretrained(new.path());
    fails!(result, Error::ConfigFile { field: "prompts", .. });
}

#[test]
#[ignore = "needs Python with sentence-transformers"]
fn sentence_transformers_gives_a_saved_ranker_the_same_scores() {
    let (cases, dir, out) = (cases(), copy_of(saved()), tempdir().unwrap());
    let device = device();
    device.seed(7);
    let config = read(&saved()).config().with_activation(Some(Activation::Identity));
    let model = config.init(&device);
    model.save_pretrained(dir.path()).unwrap();
    let (new, bare) = (tempdir().unwrap(), ["tokenizer.json", "tokenizer_config.json"]);
    model.save_pretrained(new.path()).unwrap();
    for name in bare {
        fs::copy(saved().join(name), new.path().join(name)).unwrap();
    }
    let texts: Vec<String> = list(&cases["texts"]);
    let found = pipeline(model).rank("What did the cat do?", &texts, &TextOptions::new()).unwrap();
    for dir in [dir.path(), new.path()] {
        fs::write(out.path().join("texts.json"), cases["texts"].to_string()).unwrap();
        Python::named().check("ranked", dir, out.path());
        let ranked: Value = json(out.path().join("ranked.json"));
        assert_ranked(&found, &list::<Vec<(usize, f64)>>(&ranked));
    }
}
