//! Classifiers: labels that do not fit, batches without labels, directories in and out.

use crate::prelude::*;

fn bert() -> BertModelConfig {
    small_bert(20, 8)
}

fn sequence() -> BertForSequenceClassificationConfig {
    let names = ["negative", "neutral", "positive"].map(String::from);
    BertForSequenceClassificationConfig::new(bert()).with_id2label(names.into())
}

fn input() -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_rows(&[[2, 7, 9, 3], [2, 8, 5, 3]], &autodiff()).unwrap()
}

/// As `ignore_index` of `torch.nn.functional.cross_entropy`: the mean is over the others.
#[test]
fn a_sequence_labelled_minus_100_has_no_part_in_loss_and_gradient() {
    let device = autodiff();
    let rows = |rows: &[[i32; 4]]| BertEmbeddingsInput::from_rows(rows, &device).unwrap();
    let all = rows(&[[2, 7, 9, 3], [2, 8, 5, 3], [2, 6, 6, 3]]);
    let labelled = rows(&[[2, 7, 9, 3], [2, 6, 6, 3]]);
    for weights in [None, Some(vec![1.0, 2.0, 4.0])] {
        let model = sequence().with_class_weights(weights).init(&device);
        let run = |input: &BertEmbeddingsInput, labels: &[i64]| {
            let batch = SequenceClassificationBatch::single_label(input.clone(), None, labels).unwrap();
            let output = model.forward(&batch);
            let gradients = output.loss.clone().backward();
            let gradient = model.classifier.out_proj.weight.grad(&gradients).unwrap();
            let rows = batch.labelled(output.logits.clone()).map(|(rows, classes)| {
                assert_eq!(values(classes.clone().float()), values(batch.classes().unwrap().float()));
                (values(rows), values(classes.float()))
            });
            (values(output.loss), values(gradient), output.logits.dims(), rows)
        };
        let (loss, gradient, dims, rows) = run(&all, &[1, -100, 2]);
        let (expected_loss, expected_gradient, _, expected_rows) = run(&labelled, &[1, 2]);
        assert_eq!(dims, [3, 3]);
        assert_close(&loss, &expected_loss, F32);
        assert_close(&gradient, &expected_gradient, F32);
        let ((rows, classes), (expected_rows, _)) = (rows.unwrap(), expected_rows.unwrap());
        assert_close(&rows, &expected_rows, F32);
        assert_eq!(classes, [1.0, 2.0]);

        let (loss, gradient, _, rows) = run(&all, &[-100; 3]);
        assert_eq!((loss, rows), (vec![0.0], None));
        assert!(gradient.iter().all(|&value| value == 0.0), "{gradient:?}");
    }
}

#[test]
fn the_labels_of_a_model_are_found_by_id_and_by_name() {
    let names = ["O", "B-PER", "I-PER"].map(String::from);
    let tokens = BertForTokenClassificationConfig::new(bert()).with_id2label(names.to_vec()).init(&device());
    assert_eq!(tokens.id2label(), names);
    assert_eq!(["O", "I-PER", "B"].map(|name| tokens.label2id(name)), [Some(0), Some(2), None]);
    let sequences = sequence().init(&device());
    assert_eq!(sequences.id2label(), ["negative", "neutral", "positive"]);
    assert_eq!([sequences.label2id("neutral"), sequences.label2id("")], [Some(1), None]);
}

/// Where PyTorch gives NaN.
#[test]
fn a_batch_without_anything_to_learn_costs_exactly_zero_and_trains_nothing() {
    fn costs_nothing(model: &impl Module, loss: Tensor<1>) {
        let gradients = parameters(model, Some(&loss.clone().backward()));
        let missing = parameters(model, None).into_keys().find(|path| !gradients.contains_key(path));
        assert_eq!((values(loss), missing), (vec![0.0], None), "a gradient of zeros is not a missing one");
        assert!(gradients.values().flatten().all(|&value| value == 0.0));
    }
    let device = autodiff();
    let no_tags = TokenClassificationBatch::new(input(), None, &[[-100; 4]; 2]).unwrap();
    for dtype in [FloatDType::F32, FloatDType::F16] {
        // 20 scores of 6e4 each: their sum is beyond f16, whose largest number is 65504.
        let mut masked = BertForMaskedLmConfig::new(bert()).init(&device);
        let large = |bias: Tensor<1>| bias.add_scalar(6e4).detach().require_grad();
        masked.head.bias = masked.head.bias.map(|bias| bias.map(large));
        let masked = cast_module(masked, dtype).unwrap();
        let output = masked.forward(&MaskedLmBatch::new(input(), None, &[], &[]).unwrap());
        assert!(output.logits.is_none());
        costs_nothing(&masked, output.loss);

        let mut tokens = BertForTokenClassificationConfig::new(bert()).init(&device);
        let scores = Tensor::from_floats([f32::INFINITY, f32::NAN], &device).require_grad();
        tokens.classifier.bias = Some(Param::from_tensor(scores));
        let tokens = cast_module(tokens, dtype).unwrap();
        costs_nothing(&tokens, tokens.forward(&no_tags).loss);

        let answers = cast_module(BertForQuestionAnsweringConfig::new(bert()).init(&device), dtype).unwrap();
        let outside = QuestionAnsweringBatch::new(input(), None, &[[4, usize::MAX], [4, 5]]).unwrap();
        costs_nothing(&answers, answers.forward(&outside).loss);

        let weightless = sequence().with_class_weights(Some(vec![0.0, 1.0, 1.0])).init(&device);
        let weightless = cast_module(weightless, dtype).unwrap();
        let batch = SequenceClassificationBatch::single_label(input(), None, &[0, 0]).unwrap();
        costs_nothing(&weightless, weightless.forward(&batch).loss);
    }
}

/// Means of large numbers: a sum or a square on the way is beyond f16, whose largest number is 65504.
#[test]
fn losses_in_f16_are_those_in_f32() {
    let device = autodiff();
    let targets = [[300.0, 0.0, 0.0], [0.0, 0.0, 0.0]];
    let marks = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.5]];
    let weighted = sequence().with_class_weights(Some(vec![0.3, 2.0, 400.0]));
    for (config, batch) in [
        (sequence(), SequenceClassificationBatch::regression(input(), None, &targets)),
        (sequence(), SequenceClassificationBatch::multi_label(input(), None, &marks)),
        (weighted.clone(), SequenceClassificationBatch::multi_label(input(), None, &marks)),
        (weighted, SequenceClassificationBatch::single_label(input(), None, &[2, 1])),
    ] {
        let batch = batch.unwrap();
        let mut model = config.init(&device);
        model.classifier.out_proj.bias =
            Some(Param::from_tensor(Tensor::from_floats([0.0, 200.0, -200.0], &device)));
        let exact = values(model.forward(&batch).loss)[0];
        let found = values(cast_module(model, FloatDType::F16).unwrap().forward(&batch).loss)[0];
        assert!((found / exact - 1.0).abs() < 2e-3, "{found} in f16, {exact} in f32");
    }
}

#[test]
fn the_largest_number_and_padding_at_any_place_but_the_first_are_taken() {
    // The largest number of a regression has a finite loss, and padding may be anywhere but before the first token.
    let model = sequence().init(&device());
    let large = SequenceClassificationBatch::regression(input(), None, &[[1e15; 3]; 2]).unwrap();
    assert!(values(model.forward(&large).loss)[0].is_finite());
    let padding = PaddingMask::from_rows(&[[false, true, false, true], [true; 4]]).unwrap();
    model.logits(&input(), Some(&padding)).unwrap();
}

/// `parity_saved` has the round trip of every head of the fixtures.
#[test]
fn names_and_the_problem_type_are_saved_and_class_weights_are_not() {
    let config = sequence().with_problem_type(Some(ProblemType::MultiLabelClassification));
    // A dropout that equals that of the layers is still the head's own.
    let config = config.with_classifier_dropout(Some(0.0));
    // The config builds the model again.
    let weighted = config.clone().with_class_weights(Some(vec![1.0, 0.5, 2.0]));
    let (dir, model) = (tempdir().unwrap(), weighted.init(&device()));
    assert_eq!(model.config(), weighted);
    model.save_pretrained(dir.path()).unwrap();
    let read: BertForSequenceClassification = loaded(&dir);
    assert_eq!(read.config(), config);
    let written = config_json(dir.path());
    assert_eq!(written["id2label"], json!({"0": "negative", "1": "neutral", "2": "positive"}));
    assert_eq!(written["label2id"], json!({"negative": 0, "neutral": 1, "positive": 2}));
    assert_eq!(written["problem_type"], "multi_label_classification");
}

/// Such a family has the dropout of the layers there, or none. `parity_saved` has the fields of the others.
#[test]
fn a_dropout_of_the_heads_own_is_refused_where_the_family_has_no_field_of_it() {
    for (family, has_field) in [
        (Family::Bert, [true, true, false]),
        (Family::Roberta, [true, true, false]),
        (Family::Electra, [true, true, false]),
        (Family::DistilBert, [true, false, true]),
        (Family::Albert, [true, true, false]),
        (Family::MpNet, [false; 3]),
    ] {
        let bert = || crate::families::config(family);
        let found = [
            BertForSequenceClassificationConfig::new(bert()).with_classifier_dropout(Some(0.25)).validate(),
            BertForTokenClassificationConfig::new(bert()).with_classifier_dropout(Some(0.25)).validate(),
            BertForQuestionAnsweringConfig::new(bert()).with_qa_dropout(Some(0.25)).validate(),
        ];
        assert!(found.iter().all(|found| matches!(found, Ok(()) | Err(Error::Config { .. }))), "{found:?}");
        assert_eq!(found.map(|found| found.is_ok()), has_field, "{family:?}");
    }
}

/// As transformers leaves a directory: without nulls, and without a default.
#[test]
fn what_was_read_and_not_changed_is_written_back_as_it_was() {
    /// The config.json of a directory after a model was read from it and saved into it.
    fn saved<M: PretrainedModel>(dir: &Path) -> Value {
        M::from_pretrained(dir, &device()).unwrap().0.save_pretrained(dir).unwrap();
        config_json(dir)
    }
    type Save = (&'static str, fn(&Path) -> Value);
    let heads: [Save; 5] = [
        ("BertForSequenceClassification", saved::<BertForSequenceClassification>),
        ("BertForTokenClassification", saved::<BertForTokenClassification>),
        ("BertForMaskedLM", saved::<BertForMaskedLm>),
        ("BertForQuestionAnswering", saved::<BertForQuestionAnswering>),
        ("", saved::<BertModel>), // which leaves the class of a head
    ];
    for labels in [&["a", "b"][..], &["a", "b", "c"]] {
        let dir = tempdir().unwrap();
        let dir = dir.path();
        // The labels are renamed after the save.
        let names: Vec<_> = labels.iter().map(|label| format!("old {label}")).collect();
        sequence().with_id2label(names).init(&device()).save_pretrained(dir).unwrap();
        let interface = json!({"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.0"});
        let id2label = labels.iter().enumerate().map(|(id, label)| (id.to_string(), json!(label)));
        let fields = [
            ("id2label", id2label.collect::<Value>()),
            ("label2id", json!({"a": "0", "b": "1", "also b": "1"})),
            ("hidden_act", json!("gelu_python")),
            ("classifier_dropout", json!(0.2)),
            ("problem_type", json!("multi_label_classification")),
            ("tokenizer_class", json!("BertTokenizer")),
            ("sentence_transformers", interface),
        ];
        set_fields(dir, &fields);
        let mut before = config_json(dir);
        let fields = before.as_object_mut().unwrap();
        fields.remove("initializer_range").expect("a default");
        fields.retain(|_, value| !value.is_null());
        for (class, save) in heads {
            fs::write(dir.join("config.json"), before.to_string()).unwrap();
            let mut after = save(dir);
            if !class.is_empty() {
                before["architectures"] = json!([class]);
            }
            // A head for questions has two outputs, and transformers makes as many as there are labels.
            if class == "BertForQuestionAnswering" && labels.len() == 3 {
                assert_eq!(after["id2label"], json!({"0": "LABEL_0", "1": "LABEL_1"}));
                for field in ["id2label", "label2id"] {
                    after[field] = before[field].clone();
                }
            }
            assert_eq!(after, before, "{class}, {labels:?}");
        }
    }
}

#[test]
fn a_directory_gives_every_model_and_keeps_the_heads_that_it_has() {
    let dir = saved(&BertForMaskedLmConfig::new(bert()).init(&device()));
    let (mut model, report) =
        BertForSequenceClassification::from_pretrained_with(&sequence(), dir.path(), &device()).unwrap();
    assert_eq!((report.missing.len(), report.unused.len()), (4, 5));
    model.save_pretrained(dir.path()).unwrap();
    assert_eq!(config_json(dir.path())["architectures"], json!(["BertForSequenceClassification"]));
    let (_, report) = BertModel::from_pretrained(dir.path(), &device()).unwrap();
    assert!(report.is_complete());
    assert_eq!(report.unused.len(), 7);
    // Loading in place: a head that is not there stays.
    let alone = saved(&bert().init(&device()));
    let before = values(model.classifier.out_proj.weight.val());
    let words = values(model.bert.embeddings.word_embeddings.weight.val());
    let report = model.load(alone.path()).unwrap();
    assert_eq!(report.missing, ["classifier.weight", "classifier.bias"]);
    assert!(!report.is_complete());
    assert_eq!(values(model.classifier.out_proj.weight.val()), before);
    assert_ne!(values(model.bert.embeddings.word_embeddings.weight.val()), words);
    let other = sequence().with_num_labels(2);
    let error = BertForSequenceClassification::from_pretrained_with(&other, dir.path(), &device());
    assert!(matches!(error, Err(Error::CheckpointShape { key, .. }) if key == "classifier.weight"));
    // A head of another size can be left out, but nothing else.
    let new = |config: &BertForSequenceClassificationConfig| {
        BertForSequenceClassification::from_pretrained_with_new_head(config, dir.path(), &device())
    };
    let (relabelled, report) = new(&other).unwrap();
    assert_eq!(report.missing, ["classifier.weight", "classifier.bias"]);
    assert!(report.missing.iter().all(|key| report.unused.contains(key)), "{report}");
    assert_eq!(relabelled.classifier.out_proj.weight.dims()[1], 2);
    assert_eq!(values(relabelled.bert.embeddings.word_embeddings.weight.val()), words);
    let (same, report) = new(&sequence()).unwrap();
    assert!(report.is_complete());
    assert_eq!(values(same.classifier.out_proj.weight.val()), before);
    let mut wider = other;
    wider.bert.embeddings.vocab_size += 1;
    fails!(new(&wider), Error::CheckpointShape { key, .. } if key.ends_with("word_embeddings.weight"));
}

/// The labels of a checkpoint that are as many as the new ones, but others, and what `LoadReport` says of the head.
#[test]
fn a_head_for_other_labels_is_new_and_one_for_the_same_or_without_names_is_kept() {
    let bert = || small_bert(20, 8);
    let saved_with = |names: [&str; 2]| {
        let config =
            BertForSequenceClassificationConfig::new(bert()).with_id2label(names.map(String::from).into());
        saved(&config.init(&device()))
    };
    let is_kept = |stored: [&str; 2], now: [&str; 2]| {
        let dir = saved_with(stored);
        let config =
            BertForSequenceClassificationConfig::new(bert()).with_id2label(now.map(String::from).into());
        let (model, report) =
            BertForSequenceClassification::from_pretrained_with_new_head(&config, dir.path(), &device())
                .unwrap();
        let old: BertForSequenceClassification = loaded(dir.path());
        let weights = |model: &BertForSequenceClassification| values(model.classifier.out_proj.weight.val());
        assert!(all_values(&model.bert) == all_values(&old.bert), "the pooler and what is below it");
        assert_eq!(weights(&model) == weights(&old), report.is_complete(), "{report}");
        let head = ["classifier.weight", "classifier.bias"];
        assert!(report.missing == head[..if report.is_complete() { 0 } else { 2 }], "{report}");
        assert_eq!(report.unused.len(), report.missing.len(), "{report}");
        report.is_complete()
    };
    let sentiment = ["negative", "positive"];
    assert!(is_kept(sentiment, sentiment));
    assert!(!is_kept(sentiment, ["ham", "spam"]));
    assert!(!is_kept(sentiment, ["positive", "negative"]), "their logits have other places");
    assert!(is_kept(["LABEL_0", "LABEL_1"], sentiment), "the checkpoint names none");
    assert!(is_kept(sentiment, ["LABEL_0", "LABEL_1"]));
}

/// `torch.nn.functional.cross_entropy(b.expand(2, 3), [2, 1], weight=w, label_smoothing=0.1)` and its gradient of `b`, PyTorch 2.15.
#[test]
fn labels_are_smoothed_as_in_pytorch() {
    let device = autodiff();
    for (weights, loss, gradient) in [
        (None, 1.874671128886642, [0.09310450828, -0.455121237485, 0.362016729205]),
        (Some([0.5, 2.0, 1.25]), 2.206178718220027, [0.113263635012, -0.567310747389, 0.454047112377]),
    ] {
        let config = sequence().with_class_weights(weights.map(|weights| weights.to_vec()));
        let mut model = config.with_label_smoothing(0.1).init(&device);
        let head = &mut model.classifier.out_proj;
        head.weight = head.weight.clone().map(|weight| weight.zeros_like().require_grad());
        head.bias = Some(Param::from_tensor(Tensor::from_floats([0.2, -1.3, 2.1], &device).require_grad()));
        let model = cast_module(model, FloatDType::F64).unwrap();
        let batch = SequenceClassificationBatch::single_label(input(), None, &[2, 1]).unwrap();
        let found = model.forward(&batch).loss;
        let gradients = found.clone().backward();
        let bias = model.classifier.out_proj.bias.as_ref().unwrap().grad(&gradients).unwrap();
        // The bias was written in f32.
        assert!((values(found)[0] - loss).abs() < 1e-7, "{loss}");
        assert!(values(bias).iter().zip(gradient).all(|(found, expected)| (found - expected).abs() < 1e-7));
    }
}

#[test]
fn names_of_labels_are_what_python_has_and_two_may_be_one_where_training_does_not_go_by_them() {
    let dir = saved(&BertForSequenceClassificationConfig::new(bert()).init(&device()));
    let tokens = saved(&BertForTokenClassificationConfig::new(bert()).init(&device()));
    let named = |names: Value| {
        [&dir, &tokens].into_iter().for_each(|dir| set_fields(dir.path(), &[("id2label", names.clone())]));
        let (sequences, _) = BertForSequenceClassification::from_pretrained(dir.path(), &device())?;
        let (tokens, _) = BertForTokenClassification::from_pretrained(tokens.path(), &device())?;
        assert_eq!(sequences.id2label(), tokens.id2label());
        Ok::<_, Error>(sequences)
    };
    for (names, expected) in [
        (json!({"0": 0, "1": 1}), ["0", "1"]),
        (json!({"0": false, "1": true}), ["False", "True"]),
        (json!({"0": 1.5, "1": -2}), ["1.5", "-2"]),
        (json!({"0": "X", "1": "X"}), ["X", "X"]),
    ] {
        assert_eq!(named(names).unwrap().id2label(), expected);
    }
    let twice = named(json!({"0": "X", "1": "X"})).unwrap();
    assert_eq!(twice.label2id("X"), Some(0));
    let again: BertForSequenceClassification = loaded(saved(&twice).path());
    assert_eq!(again.id2label(), ["X", "X"]);
    says(
        named(json!({"0": "a", "1": null})).map(drop),
        "id2label names the id 1 by null; give it a name, such as \"LABEL_1\"",
    );
    says(
        named(json!({"0": "a", "1": ["b"]})).map(drop),
        "id2label names the id 1 by something that is not text",
    );

    #[cfg(feature = "train")]
    {
        use burn_bert::training::{Trainer, TrainingArguments, evaluate};
        let tokenizer = || tokenizer_of(&["a", "b"]);
        let data = |names: [&str; 2]| {
            let text = |id| LabelledText { text: "a b".into(), pair: None, label: Label::Class(id) };
            LabelledTexts::new(vec![text(0), text(1)], names.map(String::from).to_vec()).unwrap()
        };
        let out = tempdir().unwrap();
        let arguments = || TrainingArguments::new(out.path().join("out")).with_silent(true).with_epochs(1);
        let pipeline = |model| Pipeline::new(model, tokenizer()).unwrap();
        let problem =
            "the label \"X\" of the data is the name of several of the model's: [\"X\", \"X\"]; rename them";
        says(evaluate(&pipeline(twice.clone()), data(["X", "Y"]), &arguments()).map(drop), problem);
        says(
            Trainer::new(pipeline(twice), data(["X", "Y"]), arguments()).unwrap().train().map(drop),
            problem,
        );
        // From its directory the head is a new one, with the names of the data.
        set_fields(dir.path(), &[("id2label", json!({"0": "X", "1": "X"}))]);
        tokenizer().save_pretrained(dir.path()).unwrap();
        let trainer = Trainer::<BertForSequenceClassification, _>::from_pretrained;
        let trained = trainer(dir.path(), data(["X", "Y"]), arguments()).unwrap().train().unwrap();
        assert_eq!(trained.pipeline.model().id2label(), ["X", "Y"]);
    }
}
