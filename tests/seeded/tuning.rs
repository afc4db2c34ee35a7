//! LoRA's adapters, and what a trainer makes of its data before the first step.

use crate::checkpoint::{arguments, checkpoint};
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
