//! A run of the trainer: what it refuses, how it ends, and how it goes on.

use crate::checkpoint::{arguments, checkpoint, reviews, text};
use crate::prelude::*;

pub type Classifier = Trainer<BertForSequenceClassification, LabelledTexts>;

pub fn trainer(model: &Path, arguments: TrainingArguments) -> Result<Classifier> {
    Ok(Trainer::from_pretrained(model, reviews(48), arguments)?.with_validation(reviews(8)))
}

/// What comes of a run to its end.
pub fn trained(model: &Path, arguments: TrainingArguments) -> Trained<BertForSequenceClassification> {
    trainer(model, arguments).unwrap().train().unwrap()
}

/// A run that ends with an error before its first step.
pub fn refused(model: &Path, arguments: TrainingArguments) -> Result<()> {
    trainer(model, arguments)?.with_metric(Hook::never()).train().map(drop)
}

pub fn weights(trained: &Trained<BertForSequenceClassification>) -> Vec<f64> {
    all_values(trained.pipeline.model())
}

pub fn saved_weights(output: &Path) -> Vec<f64> {
    let (model, report) = BertForSequenceClassification::from_pretrained(output, &Device::default()).unwrap();
    assert!(report.is_complete(), "{report}");
    all_values(&model)
}

/// What a run writes at its end.
fn is_saved(output: &Path) -> bool {
    ["config.json", "model.safetensors", "vocab.txt"].iter().any(|name| output.join(name).exists())
}

/// All that is random or kept between steps, in one run.
fn seams(output: &Path) -> TrainingArguments {
    arguments(output)
        .with_batch_size(4)
        .with_gradient_accumulation_steps(5) // an epoch of twelve batches ends with two
        .with_tuning(Tuning::Lora { rank: 2, alpha: 4.0, target_modules: Vec::new() })
        .with_precision(Precision::Bf16)
        .with_gradient_checkpointing(true)
        .with_layer_decay(0.9)
        .with_lr_schedule(LrSchedule::Cosine)
}

#[test]
fn a_run_that_was_stopped_goes_on_as_if_it_was_not() {
    let (_turn, dir) = (turn(), checkpoint());
    for (name, batches, settings) in [("plain", 9, arguments as fn(&Path) -> _), ("seams", 17, seams)] {
        let [whole, stopped] = ["whole", "stopped"].map(|kind| dir.path().join(format!("{name}-{kind}")));
        let unbroken = trained(dir.path(), settings(&whole));
        assert!(unbroken.interrupted.is_none() && unbroken.history.evaluations.len() == 3);

        let interrupter = Interrupter::new();
        let stop = interrupter.clone();
        let hook = Hook::at(batches, move || stop.stop(Some("on purpose")));
        let broken = trainer(dir.path(), settings(&stopped)).unwrap().with_interrupter(&interrupter);
        let broken = broken.with_metric(hook).train().unwrap();
        assert_eq!(broken.interrupted.as_deref(), Some("on purpose"));
        assert!(is_saved(&stopped) && broken.history.best.is_none());
        assert!(weights(&broken) != weights(&unbroken));

        let resumed = trained(dir.path(), settings(&stopped).with_resume(true));
        assert!(weights(&resumed) == weights(&unbroken), "{name}: bit for bit, with dropout on");
        assert_eq!(resumed.history, unbroken.history, "{name}");
        // A run that is finished gives its model again.
        let again = trained(dir.path(), settings(&stopped).with_resume(true));
        assert!(weights(&again) == weights(&unbroken));
    }
}

#[test]
fn a_run_has_the_same_bits_on_any_number_of_threads() {
    let (_turn, dir) = (turn(), checkpoint());
    let [one, three] = [1, 3].map(|count| {
        let threads = rayon::ThreadPoolBuilder::new().num_threads(count).build().unwrap();
        let out = dir.path().join(count.to_string());
        threads.install(|| trained(dir.path(), arguments(&out).with_epochs(1)))
    });
    assert!(weights(&one) == weights(&three) && one.history == three.history);
}

#[test]
fn a_run_that_is_stopped_during_its_first_evaluation_ends_there_and_saves_nothing() {
    let (_turn, dir) = (turn(), checkpoint());
    let (out, interrupter) = (dir.path().join("out"), Interrupter::new());
    let data = |stops: bool| {
        let (tokenizer, stop) = (BertTokenizer::from_pretrained(dir.path()).unwrap(), interrupter.clone());
        Batches::new(reviews(16), move |texts: &[_], device: &_| {
            if stops {
                stop.stop(Some("Ctrl-C"));
            }
            LabelledText::batch(texts, &tokenizer, 2, device)
        })
    };
    let trainer = Trainer::<BertForSequenceClassification, _>::from_pretrained(
        dir.path(),
        data(false),
        arguments(&out),
    );
    let trainer = trainer.unwrap().with_validation(data(true)).with_interrupter(&interrupter);
    let trained = trainer.with_metric(Hook::never()).train();
    says(trained, "was stopped before the first step (Ctrl-C), so there is nothing to save");
    assert!(!out.exists());
}

#[test]
fn a_run_goes_on_with_more_epochs_and_not_with_fewer() {
    let (_turn, dir) = (turn(), checkpoint());
    let settings = |name: &str, epochs| {
        let arguments = arguments(&dir.path().join(name)).with_eval_strategy(EvalStrategy::Steps(2));
        // Warm-up and decay depend on the length of the run.
        arguments.with_epochs(epochs).with_lr_schedule(LrSchedule::Constant).with_warmup_steps(3)
    };
    let train = |arguments| trainer(dir.path(), arguments).unwrap().train();
    let unbroken = train(settings("whole", 4)).unwrap();
    assert_eq!(unbroken.history.evaluations.len(), 12, "three an epoch of six batches");
    train(settings("longer", 2)).unwrap();
    let longer = train(settings("longer", 4).with_resume(true)).unwrap();
    assert!(weights(&longer) == weights(&unbroken), "bit for bit, with dropout on");
    assert_eq!(longer.history, unbroken.history);
    says(train(settings("longer", 3).with_resume(true)), "a run of 12 evaluations, now 9");
}

#[test]
fn a_run_is_replaced_where_the_caller_says_so() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("out");
    let train = |arguments: TrainingArguments| trainer(dir.path(), arguments).unwrap().train();
    train(arguments(&out)).unwrap();
    fs::write(out.join("mine"), "kept").unwrap();
    says(
        train(arguments(&out)),
        "holds a run already; resume or overwrite it, or choose another output directory",
    );
    // Also a run whose settings cannot be read.
    fs::write(out.join("training/run.json"), "{}").unwrap();
    let replaced =
        train(arguments(&out).with_seed(7).with_epochs(1).with_overwrite_output_dir(true)).unwrap();
    assert_eq!(replaced.history.evaluations.len(), 1, "nothing is left of the other run");
    assert!(out.join("mine").exists());
    // Nor a model before another one is trained, which may begin from it.
    fs::write(out.join("vocab.json"), "{}").unwrap();
    let overwriting = || arguments(&out).with_epochs(1).with_overwrite_output_dir(true);
    let error = train(overwriting()).err().unwrap().to_string();
    assert!(error.contains("vocab.json") && error.contains("another tokenizer") && is_saved(&out), "{error}");
    fs::remove_file(out.join("vocab.json")).unwrap();
    Trainer::from_pretrained(&out, reviews(8), overwriting()).unwrap().train().unwrap();
    assert!(is_saved(&out));
    // What is not a run is not overwritten.
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("thesis.txt"), "mine").unwrap();
    says(
        train(arguments(&other).with_overwrite_output_dir(true)),
        "is not empty, and holds no run to resume or to overwrite; choose another output directory",
    );
}

#[test]
fn what_cannot_be_trained_is_refused_before_the_first_step() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("out");
    let file = dir.path().join("file");
    fs::write(&file, "in the way").unwrap();
    let base = || arguments(&out);
    let rows: Vec<(TrainingArguments, &str)> = vec![
        (base().with_epochs(0), "epochs is 0, but must be 1 to"),
        (base().with_batch_size(0), "batch_size is 0"),
        (base().with_gradient_accumulation_steps(0), "gradient_accumulation_steps is 0"),
        (base().with_learning_rate(f64::NAN), "learning_rate is NaN, but must lie in (0, 1]"),
        (base().with_warmup_ratio(1.0), "warmup_ratio is 1, but must lie in [0, 1)"),
        (base().with_warmup_steps(1000), "warmup is 1000, but must be less than the 18 steps"),
        (base().with_max_grad_norm(0.0), "max_grad_norm is 0"),
        (base().with_layer_decay(2.0), "decay is 2"),
        (base().with_max_length(2), "max_length is 2, but must be 3 to 24"),
        (base().with_max_length(25), "max_length is 25, but must be 3 to 24"),
        (
            base().with_tuning(Tuning::Lora { rank: 17, alpha: 1.0, target_modules: Vec::new() }),
            "LoRA rank 17, but it must be 1 to the hidden_size of the model, 16",
        ),
        (
            base().with_tuning(Tuning::Lora { rank: 1, alpha: 1.0, target_modules: vec!["q_lin".into()] }),
            "tuning has the target module \"q_lin\", but the modules of a layer are [\"attention.query\", \"attention.key\", \
             \"attention.value\", \"attention_output\", \"intermediate\", \"output\"]",
        ),
        (base().with_tuning(Tuning::Matching("(".into())), "tuning has \"(\""),
        (base().with_tuning(Tuning::Matching("nothing".into())), "tuning leaves no parameter to train"),
        (
            base().with_metric_for_best_model("F2"),
            "metric_for_best_model is \"F2\", but the metrics are [\"Loss\", \"Accuracy\", \"F1\", \"Matthews\", \"Hook\"]",
        ),
        (base().with_max_steps(10), "set eval_strategy to EvalStrategy::Steps"),
        (
            base().with_max_steps(10).with_eval_strategy(EvalStrategy::Steps(4)),
            "max_steps is 10, but must be a multiple of the 4 steps",
        ),
        (arguments(dir.path()), "is not empty"),
        (arguments(&file.join("out")), "cannot"),
    ];
    for (arguments, expected) in rows {
        says(refused(dir.path(), arguments), expected);
        assert!(!out.exists(), "{expected}: nothing was written");
    }

    let classifier = |texts: LabelledTexts| Trainer::from_pretrained(dir.path(), texts, base()).unwrap();
    let other =
        LabelledTexts::new(vec![text("good", Label::Class(0))], ["neutral"].map(String::from).to_vec());
    let other = other.unwrap();
    let expected = "the validation data: the label \"neutral\" of the data is not one of the model's: [\"negative\", \"positive\"]; \
                    texts[0] has it";
    says(classifier(reviews(8)).with_validation(other).train(), expected);
    let valid = dir.path().join("valid.csv");
    fs::write(&valid, "text,label\ngood,positive\n\n\"a\nb\",neutral\n").unwrap();
    let other = LabelledTexts::open(&valid, &Columns::default()).unwrap();
    let expected = "valid.csv, line 4: the row has the label \"neutral\", but the labels are [\"negative\", \"positive\"]";
    says(classifier(reviews(8)).with_validation(other).train(), expected);
    let number = LabelledTexts::new(vec![text("good", Label::Value(1.0))], Vec::new()).unwrap();
    says(classifier(reviews(8)).with_validation(number).train(), "problem_type is SingleLabelClassification");
    says(
        classifier(reviews(8)).with_validation_share(0.01).train(),
        "validation_share is 0.01, which leaves 0 of 8 items",
    );
    says(classifier(reviews(8)).with_validation_share(1.5).train(), "validation_share is 1.5");
    let patient = base().with_early_stopping_patience(2);
    says(Trainer::from_pretrained(dir.path(), reviews(8), patient).unwrap().train(), "data are missing");
    assert!(!out.exists());
}

#[test]
fn a_batch_that_cannot_be_made_or_a_disk_that_is_full_ends_the_run_with_an_error_and_no_model() {
    let (_turn, dir) = (turn(), checkpoint());
    let out = dir.path().join("unreadable");
    let tokenizer = BertTokenizer::from_pretrained(dir.path()).unwrap();
    // Of the first batch, the table of errors has the message.
    let made = AtomicUsize::new(0);
    let data = Batches::new(reviews(48), move |texts: &[_], device: &_| {
        if made.fetch_add(1, Ordering::Relaxed) >= 20 {
            return Err(Error::Data { what: "this text".into(), problem: "cannot be read".into() });
        }
        LabelledText::batch(texts, &tokenizer, 2, device)
    });
    let failing =
        Trainer::<BertForSequenceClassification, _>::from_pretrained(dir.path(), data, arguments(&out));
    let message = format!("{:#}", anyhow::Error::new(failing.unwrap().train().err().unwrap()));
    assert!(message.starts_with("the training run ended with an error"), "{message}");
    assert!(message.ends_with("this text cannot be read") && !is_saved(&out), "{message}");

    let out = dir.path().join("out");
    let in_the_way = out.join("training");
    let hook = Hook::at(1, move || {
        fs::remove_dir_all(&in_the_way).unwrap();
        fs::write(&in_the_way, "no folder").unwrap();
    });
    fails!(trainer(dir.path(), arguments(&out)).unwrap().with_metric(hook).train(), Error::Io { .. });
    assert!(!is_saved(&out));
    // At the very end: where the model is to be written is a folder.
    let out = dir.path().join("full");
    let in_the_way = out.join("model.safetensors");
    let hook = Hook::at(1, move || fs::create_dir(&in_the_way).unwrap());
    assert!(trainer(dir.path(), arguments(&out)).unwrap().with_metric(hook).train().is_err());
    assert!(!out.join("config.json").exists());
    // Nothing was lost: the run is resumed from its last evaluation, and only saves.
    fs::remove_dir(out.join("model.safetensors")).unwrap();
    let resumed = trainer(dir.path(), arguments(&out).with_resume(true)).unwrap();
    resumed.with_metric(Hook::never()).train().unwrap();
    assert!(is_saved(&out));
}

#[test]
fn a_loss_that_is_no_number_ends_the_run_with_an_error_and_no_model() {
    let (_turn, dir) = (turn(), checkpoint());
    // The loss of so many texts is NaN.
    let data = |nan: usize| {
        let tokenizer = BertTokenizer::from_pretrained(dir.path()).unwrap();
        Batches::new(reviews(44), move |texts: &[_], device: &_| {
            let mut batch = LabelledText::batch(texts, &tokenizer, 2, device)?;
            let [count, seq] = batch.input.dims();
            if count == nan {
                batch.input =
                    BertEmbeddingsInput::from_embeds(Tensor::full([count, seq, 16], f32::NAN, device))?;
            }
            Ok(batch)
        })
    };
    // 44 texts in batches of 8: the last has 4. Of a validation of 44 texts in batches of 11, all have 11.
    for (nan, eval_batch_size, expected) in [
        (4, 44, "the loss of a training batch is NaN; lower learning_rate"),
        (11, 11, "cannot hold a run that begins at a loss of NaN"),
    ] {
        let out = dir.path().join(nan.to_string());
        let arguments = arguments(&out).with_eval_batch_size(eval_batch_size);
        let trainer =
            Trainer::<BertForSequenceClassification, _>::from_pretrained(dir.path(), data(nan), arguments);
        says(trainer.unwrap().with_validation(data(nan)).train(), expected);
        assert!(!is_saved(&out) && !out.join("training/checkpoint-1").exists(), "{expected}");
    }
}

#[test]
fn the_caller_freezes_what_it_wants() {
    let (_turn, dir) = (turn(), checkpoint());
    for (tuning, is_trained) in [
        (Tuning::Full, (|_| true) as fn(&str) -> bool),
        (Tuning::FrozenEmbeddings, |path| !path.contains("embeddings.")),
        (Tuning::Matching(r"^classifier\.".into()), |path| path.starts_with("classifier.")),
        (Tuning::Lora { rank: 2, alpha: 8.0, target_modules: Vec::new() }, |path| {
            // Vectors and embeddings are not adapted.
            path.contains("pooler")
                || path.starts_with("classifier.")
                || path.contains("encoder.") && path.ends_with("weight")
        }),
    ] {
        let out = dir.path().join(format!("{tuning:?}").replace(['/', '"', '\\'], ""));
        let trainer =
            trainer(dir.path(), arguments(&out).with_epochs(1).with_tuning(tuning.clone())).unwrap();
        let before = parameters(&classifier(dir.path(), &Device::default()), None);
        let after = parameters(trainer.train().unwrap().pipeline.model(), None);
        assert!(before.keys().eq(after.keys()), "{tuning:?}");
        for (path, before) in &before {
            // A new head is drawn anew.
            if !path.starts_with("classifier.") && !path.contains("pooler") {
                assert_eq!(*before != after[path], is_trained(path), "{tuning:?}: {path}");
            }
        }
    }
}

/// The classifier that a trainer builds of the checkpoint.
fn classifier(dir: &Path, device: &Device) -> BertForSequenceClassification {
    device.seed(42);
    BertForSequenceClassification::from_pretrained(dir, device).unwrap().0
}

#[test]
fn a_model_without_autodiff_is_trained_by_the_trainer_and_refused_by_burns_learner_with_the_missing_call() {
    let (_turn, dir) = (turn(), checkpoint());
    let tokenizer = || BertTokenizer::from_pretrained(dir.path()).unwrap();
    let data = || {
        let text = |i: usize| text(["good", "bad"][i % 2], Label::Class(i % 2));
        let names = ["LABEL_0", "LABEL_1"].map(String::from).to_vec();
        LabelledTexts::new((0..16).map(text).collect(), names).unwrap()
    };
    let plain = Device::default();
    let autodiff = || classifier(dir.path(), &plain.clone().autodiff());
    let train = |name: &str, model: BertForSequenceClassification| {
        let pipeline = Pipeline::new(model, tokenizer()).unwrap();
        let arguments = arguments(&dir.path().join(name)).with_epochs(1);
        Trainer::new(pipeline, data(), arguments).unwrap().train().unwrap()
    };
    let before = classifier(dir.path(), &plain);
    let trained = [train("plain", before.clone()), train("autodiff", autodiff())];
    let [first, second] = trained.each_ref().map(weights);
    assert!(first == second, "the trainer puts the model where it can be trained");
    assert!(first != all_values(&before));
    // What was frozen by hand stays frozen.
    let embeddings = ParamGroup::from_regex(r"^bert\.embeddings\.").unwrap();
    let frozen = train("frozen", autodiff().set_require_grad_group(embeddings, false));
    assert!(all_values(&frozen.pipeline.model().bert.embeddings) == all_values(&before.bert.embeddings));

    let batch = || LabelledText::batch(&[text("good", Label::Class(1))], &tokenizer(), 2, &plain).unwrap();
    for model in [before, autodiff().valid()] {
        let message = panic_of(|| drop(TrainStep::step(&ForLearner::new(model), batch())));
        assert!(message.contains("make or load it on `device.autodiff()`"), "{message}");
    }
}

#[test]
fn an_evaluation_is_a_loop_over_the_batches_whatever_their_order() {
    let (_turn, dir) = (turn(), checkpoint());
    let tags = |i: usize| {
        let words = ["Ada", "lives", "in", "Paris", "."].map(String::from);
        LabelledTokens { tokens: words[..1 + i % 5].to_vec(), tags: [1, 0, 0, 2, 0][..1 + i % 5].to_vec() }
    };
    let names = ["O", "B-PER", "B-LOC"].map(String::from).to_vec();
    let sentences = LabelledSentences::new((0..23).map(tags).collect(), names).unwrap();
    let settings = arguments(&dir.path().join("out")).with_epochs(1).with_batch_size(4);
    let trained =
        Trainer::from_pretrained(dir.path(), sentences.clone(), settings.clone()).unwrap().train().unwrap();
    let grouped = trained.evaluate(sentences.clone()).unwrap();
    let with =
        |settings: TrainingArguments| evaluate(&trained.pipeline, sentences.clone(), &settings).unwrap();
    let in_order = with(settings.clone().with_group_by_length(false));
    let at_once = with(settings.clone().with_eval_batch_size(23));
    assert!(grouped.contains_key("Entity F1") && grouped.contains_key("Accuracy"));
    for other in [&in_order, &at_once] {
        for (name, value) in &grouped {
            assert!((value - other[name]).abs() < 1e-4, "{name}: {value}, {}", other[name]);
        }
    }
    // By hand: the mean over all labelled tokens.
    let tokenizer = trained.pipeline.tokenizer();
    let windows = TokenWindow::cut(&sentences, tokenizer).unwrap();
    let batch = TokenWindow::batch(&windows, tokenizer, &Device::default()).unwrap();
    let loss = trained.pipeline.model().forward(&batch).loss.into_scalar::<f64>();
    assert!((loss - grouped["Loss"]).abs() < 1e-4, "{loss}, {}", grouped["Loss"]);
    // A part of it is drawn by the seed.
    let part = |seed| with(settings.clone().with_max_eval_samples(5).with_seed(seed));
    assert_eq!(part(1), part(1));
    assert!((2..9).any(|seed| part(seed) != part(1)));
}
