//! An evaluation that ranks share: the metrics of every head have the bits of one process.

use crate::FOLDER;
use crate::heads::{
    answers, backwards, bert, classes, masked_lm_batch, numbers, padded, rated_pairs, tags, texts,
};
use crate::prelude::*;
use burn::train::metric::{AccuracyMetric, HammingScore, PerplexityMetric, TopKAccuracyMetric};
use burn_bert::metrics::{ConfusionMetric, EntityMetric, RetrievalMetric, SpearmanMetric, TripletMetric};
use burn_bert::pipeline::Pipeline;
use burn_bert::text::BertTokenizer;
use burn_bert::training::{EvalStrategy, TrainableModel, Trainer, TrainingArguments};
use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fmt, fs};

pub const CASES: usize = 9;
/// Seven batches, the last of one text; the last round of three ranks has one batch.
const TEXTS: usize = 13;
const BATCH: usize = 2;

type Text = Vec<i64>;

/// A text that data are not told apart by.
#[derive(Clone)]
struct Hidden(usize, Text);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The metrics of a model before training.
fn initial<M: TrainableModel>(
    ranks: &Ranks,
    output: &Path,
    model: &M,
    batch: fn(&[Text], &Device) -> M::Batch,
    metrics: impl Fn(Trainer<M, Batches<M::Batch>>) -> Trainer<M, Batches<M::Batch>>,
) -> Result<BTreeMap<String, f64>> {
    let words = tempfile::tempdir().unwrap();
    fs::write(words.path().join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n").unwrap();
    let pipeline = Pipeline::new(model.clone(), BertTokenizer::from_pretrained(words.path())?)?;
    let all = || texts(0, TEXTS).into_iter().enumerate();
    let batches = |texts: Vec<Hidden>| {
        Batches::new(InMemDataset::new(texts), move |texts: &[Hidden], device: &_| {
            Ok(batch(&texts.iter().map(|text| text.1.clone()).collect::<Vec<_>>(), device))
        })
    };
    // On a rank of so many, batches of others are replaced: whoever computes one is found out.
    let own = |(index, text): (usize, Text)| match index / BATCH % ranks.size() == ranks.rank() {
        true => Hidden(index, text),
        false => Hidden(index, vec![5; text.len()]),
    };
    let arguments = TrainingArguments::new(output)
        .with_ranks(ranks)
        .with_eval_batch_size(BATCH)
        .with_eval_strategy(EvalStrategy::Steps(1))
        .with_max_steps(1)
        .with_warmup_steps(0)
        .with_silent(true);
    let train = batches(all().map(|(index, text)| Hidden(index, text)).collect());
    let trainer =
        Trainer::new(pipeline, train, arguments)?.with_validation(batches(all().map(own).collect()));
    Ok(metrics(trainer).train()?.history.initial)
}

fn check<M: TrainableModel>(
    ranks: &Ranks,
    name: &str,
    model: M,
    batch: fn(&[Text], &Device) -> M::Batch,
    metrics: impl Fn(Trainer<M, Batches<M::Batch>>) -> Trainer<M, Batches<M::Batch>>,
) -> Result<()> {
    let folder = env::var(FOLDER).unwrap();
    let model = ranks.broadcast(model)?;
    let output = |kind: &str| Path::new(&folder).join(format!("{name} {kind}"));
    let found = initial(ranks, &output("shared"), &model, batch, &metrics)?;
    let alone = output(&format!("alone {}", ranks.rank()));
    let expected = initial(&Ranks::single(), &alone, &model, batch, &metrics)?;
    // Equal numbers that are not 0 have the same bits.
    assert_eq!(found, expected, "{name}");
    assert!(found.len() > 1 && found.values().all(|score| *score != 0.0), "{name}: {found:?}");
    ranks.same("score", &found)?;
    if ranks.is_first() {
        println!("\nvalidated {name}: {found:?}");
    }
    Ok(())
}

pub fn check_every_head(ranks: &Ranks) -> Result<()> {
    let device = ranks.device().autodiff();
    device.seed(1 + ranks.rank() as u64);
    let model = BertForMaskedLmConfig::new(bert()).init(&device);
    check(ranks, "masked_lm", model, masked_lm_batch, |trainer| {
        trainer.with_metric(PerplexityMetric::new()).with_metric(TopKAccuracyMetric::new(9))
    })?;

    let config = BertForSequenceClassificationConfig::new(bert()).with_num_labels(3);
    // One batch has no label.
    check(ranks, "classes", config.init(&device), classes, |trainer| {
        trainer.with_metric(AccuracyMetric::new()).with_metric(ConfusionMetric::macro_f1())
    })?;
    let several = |texts: &[Text], device: &Device| {
        let (input, padding) = padded(texts, device);
        let labels: Vec<[f64; 3]> =
            texts.iter().map(|text| [0, 1, 2].map(|class| f64::from(text[0] % 3 != class))).collect();
        SequenceClassificationBatch::multi_label(input, padding, &labels).unwrap()
    };
    check(ranks, "several classes", config.init(&device), several, |trainer| {
        trainer.with_metric(HammingScore::new())
    })?;
    check(ranks, "numbers", config.with_num_labels(1).init(&device), numbers, |trainer| {
        trainer.with_metric(SpearmanMetric::new())
    })?;

    let names = ["O", "B-X", "I-X", "B-Y"].map(String::from).to_vec();
    let model = BertForTokenClassificationConfig::new(bert()).with_num_labels(4).init(&device);
    check(ranks, "tokens", model, tags::<4>, |trainer| {
        trainer.with_metric(AccuracyMetric::new()).with_metric(EntityMetric::f1(&names))
    })?;

    // Batches have rows of different lengths.
    let model = BertForQuestionAnsweringConfig::new(bert()).init(&device);
    check(ranks, "answers", model, answers, |trainer| trainer.with_metric(AccuracyMetric::new()))?;

    let config = BertForSentenceEmbeddingConfig::new(bert());
    let rated = config.clone().with_loss(SentenceLoss::CosineSimilarity).init(&device);
    check(ranks, "rated pairs", rated, rated_pairs, |trainer| trainer.with_metric(SpearmanMetric::new()))?;
    let with_negatives = |texts: &[Text], device: &Device| {
        // The candidates, and after them a negative of each.
        let negatives = texts.iter().map(|text| text[..2].to_vec());
        let candidates: Vec<Text> = backwards(texts).into_iter().chain(negatives).collect();
        SentencePairBatch::new(padded(texts, device), padded(&candidates, device)).unwrap()
    };
    check(ranks, "pairs with negatives", config.init(&device), with_negatives, |trainer| {
        let trainer = trainer.with_metric(AccuracyMetric::new()).with_metric(RetrievalMetric::ndcg(5));
        trainer.with_metric(TripletMetric::new())
    })?;

    let mut electra = bert();
    electra.embeddings = electra.embeddings.with_family(Family::Electra);
    let model = ElectraForPreTrainingConfig::new(electra).init(&device);
    check(ranks, "replaced tokens", model, tags::<2>, |trainer| {
        trainer.with_metric(AccuracyMetric::new()).with_metric(ConfusionMetric::macro_f1())
    })
}
