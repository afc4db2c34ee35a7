//! LoRA's adapters, and what a trainer makes of its data before the first step.

use crate::checkpoint::{arguments, checkpoint, text};
use crate::files::json;
use crate::prelude::*;
use std::collections::BTreeSet;

/// Data that show the model which a trainer tunes, and end the run.
#[derive(Debug)]
struct Shown(fn(&BertForSequenceClassification));

impl TrainingData<BertForSequenceClassification> for Shown {
    fn batches(
        self,
        _: &Reader<BertForSequenceClassification>,
    ) -> Result<Batches<SequenceClassificationBatch>> {
        Err(Error::Data { what: "these data".into(), problem: "are not read".into() })
    }

    fn metrics(&self, model: &BertForSequenceClassification) -> Metrics<ClassificationItem> {
        (self.0)(model);
        Metrics::new()
    }
}

fn show(rank: usize, target_modules: &[&str], shown: fn(&BertForSequenceClassification)) {
    let dir = checkpoint();
    let target_modules = target_modules.iter().map(ToString::to_string).collect();
    let tuning = Tuning::Lora { rank, alpha: 8.0, target_modules };
    let arguments = arguments(&dir.path().join("out")).with_tuning(tuning);
    let trainer = Trainer::from_pretrained(dir.path(), Shown(shown), arguments).unwrap();
    says(trainer.train(), "these data are not read");
}

/// `reset_lora_parameters` of PEFT 0.21: `kaiming_uniform_(lora_A, a=√5)` and zeros.
#[test]
fn adapters_start_as_pefts_do_whatever_their_rank() {
    let _turn = turn();
    for rank in [1, 4, 16] {
        show(rank, &[], |model| {
            let mut squares = Vec::new();
            for layer in &model.bert.encoder.layers {
                let inner = (&layer.output, 32);
                for (linear, inputs) in [(&layer.attention.query, 16), (&layer.intermediate, 16), inner] {
                    let adapter = linear.weight.adapter().unwrap();
                    assert_eq!(adapter.a.dims()[0], inputs);
                    assert!(values(adapter.b.val()).iter().all(|&value| value == 0.0));
                    // In ±1, with a mean square of 1/3.
                    let scaled = values(adapter.a.val().mul_scalar((inputs as f64).sqrt()));
                    assert!(scaled.iter().all(|value| value.abs() <= 1.0), "{scaled:?}");
                    squares.extend(scaled.iter().map(|value| value * value));
                }
            }
            let mean = squares.iter().sum::<f64>() / squares.len() as f64;
            assert!((0.2..0.5).contains(&mean), "{mean}");
        });
    }
}

/// `target_modules` of PEFT: a module is adapted if its path is one of them, or ends in one after a dot.
#[test]
fn only_the_modules_that_the_caller_names_have_adapters() {
    let _turn = turn();
    fn adapted(model: &BertForSequenceClassification) -> Vec<bool> {
        let layer = &model.bert.encoder.layers[0];
        let attention = &layer.attention;
        [&attention.query, &attention.key, &attention.value, &layer.attention_output]
            .into_iter()
            .chain([&layer.intermediate, &layer.output])
            .map(|linear| linear.weight.adapter().is_some())
            .collect()
    }
    show(2, &["query", "value"], |model| {
        assert_eq!(adapted(model), [true, false, true, false, false, false]);
        // Two adapters of 16 × 2 and 2 × 16, the pooler, and the head of two classes.
        assert_eq!(num_trainable_params(model), 2 * 64 + 16 * 17 + 2 * 17);
    });
    show(2, &["attention.key", "output"], |model| {
        assert_eq!(adapted(model), [false, true, false, false, false, true]);
    });
    show(2, &[], |model| assert_eq!(adapted(model), [true; 6]));
}

fn labelled(count: usize) -> LabelledTexts {
    let words = ["the film was good", "bad film", "good", "a boring film"];
    let texts = (0..count).map(|i| text(words[i % 4], Label::Class(i % 3))).collect();
    LabelledTexts::new(texts, ["LABEL_0", "LABEL_1", "LABEL_2"].map(String::from).to_vec()).unwrap()
}

#[test]
fn a_run_saves_its_adapters_and_another_goes_on_with_them() {
    type Model = BertForSequenceClassification;
    let (_turn, dir) = (turn(), checkpoint());
    let (base, name) = (dir.path(), dir.path().to_str().unwrap());
    let target_modules = vec!["query".into(), "value".into()];
    let lora = Tuning::Lora { rank: 2, alpha: 4.0, target_modules };
    let run = |output: &str| arguments(&base.join(output)).with_epochs(1).with_adapter_base(name);
    // The base has no labels; the model of the output directory has those of the data.
    let config = || BertForSequenceClassificationConfig::from_pretrained(base.join("first")).unwrap();
    let merged = |output: &str| {
        let adapter = base.join(output).join("adapter");
        let (read, report) = Model::from_pretrained_with(&config(), adapter, &Device::default()).unwrap();
        assert!(report.is_complete(), "{report}");
        read
    };
    // The best model is not the last one.
    let twice = run("first").with_epochs(2).with_tuning(lora.clone());
    let trainer = Trainer::<Model, _>::from_pretrained(base, labelled(16), twice).unwrap();
    let trained = trainer.with_validation(labelled(6)).train().unwrap();
    assert_eq!(trained.history.best, Some(0));
    let first = merged("first");
    assert_close(&all_values(&first), &all_values(trained.pipeline.model()), F32);
    let query = |model: &Model| values(model.bert.encoder.layers[0].attention.query.weight.val());
    assert_ne!(query(&first), query(&Model::from_pretrained(base, &Device::default()).unwrap().0));

    let adapter = base.join("first/adapter");
    let load =
        || Model::from_pretrained_with_adapter(&config(), &adapter, &Device::default().autodiff()).unwrap();
    let (model, report) = load();
    assert_eq!(report.adapter, Some(adapter.join("adapter_config.json")));
    // Of each layer two adapters of 16 × 2 and 2 × 16; the pooler, and the head of three classes.
    let layers = model.bert.encoder.layers.len();
    assert_eq!(num_trainable_params(&model), layers * 2 * 64 + 16 * 17 + 3 * 17);
    assert_close(&all_values(&model.valid().materialize()), &all_values(&first), F32);
    let pipeline = || Pipeline::new(load().0, BertTokenizer::from_pretrained(base).unwrap()).unwrap();
    let trained = Trainer::new(pipeline(), labelled(16), run("second")).unwrap().train().unwrap();
    let second = merged("second");
    assert_close(&all_values(&second), &all_values(trained.pipeline.model()), F32);
    assert_ne!(query(&second), query(&first));
    let [first, second] =
        ["first", "second"].map(|run| json(base.join(run).join("adapter/adapter_config.json")));
    assert_eq!(first, second);

    fs::write(base.join("second/adapter/README.md"), "mine").unwrap();
    let overwriting = arguments(&base.join("second")).with_epochs(1).with_overwrite_output_dir(true);
    Trainer::new(pipeline(), labelled(4), overwriting).unwrap().train().unwrap();
    assert_eq!(fs::read_dir(base.join("second/adapter")).unwrap().count(), 1); // what the run did not write

    let trainer = Trainer::new(pipeline(), labelled(4), run("third").with_tuning(lora)).unwrap();
    says(trainer.train(), "the model has adapters already");
    let trainer = Trainer::<Model, _>::from_pretrained(base, labelled(4), run("third")).unwrap();
    says(trainer.train(), "adapter_base needs LoRA adapters (Tuning::Lora) and a head alone to be trained");
    let output = base.join("fourth");
    fs::create_dir(&output).unwrap();
    let of_itself = arguments(&output).with_adapter_base(output.to_str().unwrap());
    says(Trainer::new(pipeline(), labelled(4), of_itself).unwrap().train(), "but must be the base model");
    let trainer = Trainer::<Model, _>::from_pretrained(&adapter, labelled(4), run("third"));
    says(trainer, "adapter_base is set, but the model is its base with an adapter merged into it");
    says(Model::from_pretrained_with_adapter(&config(), base, &Device::default()), "has no LoRA adapter");
}

/// Questions whose data are split as the trainer splits them, and looked at.
#[derive(Debug)]
struct Split(Vec<SquadExample>);

impl TrainingData<BertForQuestionAnswering> for Split {
    fn batches(self, reader: &Reader<BertForQuestionAnswering>) -> Result<Batches<QuestionAnsweringBatch>> {
        let (train, valid) = self.0.batches(reader)?.split(0.5, 1)?;
        // The ids of the words that a text has alone.
        let own = |batches: Batches<QuestionAnsweringBatch>| -> BTreeSet<u32> {
            let loader = EpochLoader::new(batches, 100, &Device::default()).unwrap();
            let batch = loader.epoch(0).next().unwrap().unwrap();
            let ids = values(batch.input.input_ids().unwrap().float());
            let words = (0..4).map(|i| reader.tokenizer.token_to_id(&format!("a{i}")).unwrap());
            words.filter(|&id| ids.contains(&f64::from(id))).collect()
        };
        let [train, valid] = [train, valid].map(own);
        assert!(train.len() == 2 && valid.len() == 2 && train.is_disjoint(&valid), "{train:?}, {valid:?}");
        Err(Error::Data { what: "these data".into(), problem: "are not trained on".into() })
    }
}

#[test]
fn a_text_of_squad_is_trained_on_or_validated_on_with_all_its_questions() {
    let (_turn, dir) = (turn(), checkpoint());
    let example = |i: usize| SquadExample {
        id: i.to_string(),
        question: ["who ?", "where ?", "who lives ?"][i % 3].into(),
        // Texts do not lie together.
        context: format!("Ada lives in Paris a{} .", i % 4),
        answers: vec![("Ada".into(), 0)],
    };
    let data = Split((0..12).map(example).collect());
    let trainer = Trainer::from_pretrained(dir.path(), data, arguments(&dir.path().join("out"))).unwrap();
    says(trainer.train(), "these data are not trained on");
}

/// Data of a run that is stopped while they are tokenised.
#[derive(Debug)]
struct Stopping<D>(D, Stop);

struct Stop(Interrupter);

impl std::fmt::Debug for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stop")
    }
}

impl<M: TrainableModel, D: TrainingData<M>> TrainingData<M> for Stopping<D> {
    fn batches(self, reader: &Reader<M>) -> Result<Batches<M::Batch>> {
        self.1.0.stop(Some("Ctrl-C"));
        let batches = self.0.batches(reader);
        assert!(batches.is_err(), "it was tokenised to the end");
        batches
    }
}

#[test]
fn a_run_is_stopped_while_its_data_are_tokenised() {
    let (_turn, dir) = (turn(), checkpoint());
    fn stopped<M: TrainableModel, D: TrainingData<M>>(dir: &Path, data: D) {
        let interrupter = Interrupter::new();
        let data = Stopping(data, Stop(interrupter.clone()));
        let trainer = Trainer::<M, _>::from_pretrained(dir, data, arguments(&dir.join("out"))).unwrap();
        let trained = trainer.with_interrupter(&interrupter).train();
        says(
            trained,
            "the training run was stopped before the first step (Ctrl-C), so there is nothing to save",
        );
        assert!(!dir.join("out").exists());
    }
    let example = SquadExample {
        question: "who ?".into(),
        context: "Ada lives in Paris .".into(),
        answers: vec![("Ada".into(), 0)],
        ..SquadExample::default()
    };
    stopped::<BertForQuestionAnswering, _>(dir.path(), vec![example]);
    stopped::<BertForMaskedLm, _>(dir.path(), PlainText::new(["the cat sat on a mat ."]).unwrap());
}
