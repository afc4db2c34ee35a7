//! Training runs in their directories.

use super::{Row, bert, file, row};
use crate::prelude::*;
use burn::data::dataset::InMemDataset;
use burn_bert::Result;
use burn_bert::training::{Trainer, TrainingArguments, Tuning};

/// Trains into `dir`/out on two texts.
fn train(dir: &Path, change: impl FnOnce(TrainingArguments) -> TrainingArguments) -> Result<()> {
    let collator = MaskedLmCollatorConfig::new(10, 4, 0, vec![0, 1, 2, 3, 4]).init();
    let batches = collator.batches(texts());
    let arguments = TrainingArguments::new(dir.join("out")).with_silent(true).with_epochs(1);
    let arguments = change(arguments.with_learning_rate(1e-3));
    Trainer::new(pipeline(dir), batches, arguments)?.train().map(drop)
}

fn texts() -> InMemDataset<MaskedLmExample> {
    InMemDataset::new(vec![MaskedLmExample::new(vec![2, 7, 8, 3]), MaskedLmExample::new(vec![2, 9, 3])])
}

fn pipeline(dir: &Path) -> Pipeline<BertForMaskedLm> {
    file(dir, "vocab.txt", vocabulary(&["a", "b", "c", "d", "e"]));
    let model = BertForMaskedLmConfig::new(bert()).init(&autodiff());
    Pipeline::new(model, BertTokenizer::from_pretrained(dir).unwrap()).unwrap()
}

pub fn rows() -> Vec<Row> {
    vec![
        row::File("DIR/out/training holds no run to resume; start a new one", |dir| {
            train(dir, |arguments| arguments.with_resume(true)).unwrap_err()
        }),
        row::Config("invalid config: weight_decay is 1001, but must lie in [0, 1 / learning_rate]", |dir| {
            train(dir, |arguments| arguments.with_weight_decay(1001.0)).unwrap_err()
        }),
        row::Config("invalid config: tuning has the LoRA alpha NaN, but it must lie in (0, 1e30)", |dir| {
            let lora = Tuning::Lora { rank: 2, alpha: f64::NAN, target_modules: Vec::new() };
            train(dir, |arguments| arguments.with_tuning(lora)).unwrap_err()
        }),
        row::Config("invalid config: mlm_probability is 0, but must lie in (0, 1]", |dir| {
            let text = PlainText::open(file(dir, "text.txt", "a b c")).unwrap();
            let (_, tokenizer) = pipeline(dir).into_parts();
            text.with_mlm_probability(0.0).windows(tokenizer, 8).unwrap_err()
        }),
        row::Training("reading a batch ended with an error: the text is dull", |dir| {
            let arguments = TrainingArguments::new(dir.join("out")).with_silent(true);
            let dull = || Error::Data { what: "the text".into(), problem: "is dull".into() };
            let refused = Batches::new(texts(), move |_, _| Err::<MaskedLmBatch, _>(dull()));
            let trainer = Trainer::new(pipeline(dir), refused, arguments);
            trainer.unwrap().train().err().unwrap()
        })
        .because("the text is dull"),
    ]
}
