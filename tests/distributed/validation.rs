//! A validation that ranks share: outputs and metrics of every head have the bits of one process.

use crate::heads::{
    answers, backwards, bert, classes, masked_lm_batch, numbers, padded, rated_pairs, tags, texts,
};
use crate::prelude::*;
use burn::data::dataloader::{DataLoader, Progress};
use burn::module::ModuleDisplay;
use burn::train::InferenceStep;
use burn::train::metric::{
    AccuracyMetric, Adaptor, HammingScore, LossMetric, Metric, MetricMetadata, Numeric, PerplexityMetric,
    TopKAccuracyMetric,
};
use burn_bert::metrics::{ConfusionMetric, EntityMetric, RetrievalMetric, SpearmanMetric, TripletMetric};
use burn_bert::training::Training;

pub const HEADS: usize = 9;
/// Seven batches, the last of one text; the last round of three ranks has one batch.
const TEXTS: usize = 13;
const BATCH: usize = 2;

type Text = Vec<i64>;

struct Batcher<T>(fn(&[Text], &Device) -> T);

impl<T: Send + 'static> TryBatcher for Batcher<T> {
    type Item = Text;
    type Batch = T;

    fn try_batch(&self, texts: Vec<Text>, device: &Device) -> Result<T> {
        Ok((self.0)(&texts, device))
    }
}

/// The score of a whole validation.
fn score<O, M: Metric + Numeric>(outputs: &[O], mut metric: M) -> f64
where
    O: Adaptor<M::Input>,
{
    let metadata = MetricMetadata { progress: Progress::new(1, 1, None), iteration: None, lr: None };
    outputs.iter().for_each(|output| drop(metric.update(&output.adapt(), &metadata).unwrap()));
    metric.final_value().current()
}

macro_rules! scores {
    ($outputs:expr, $($metric:expr),+) => { vec![$(score($outputs, $metric)),+] };
}

fn check<M, T>(
    ranks: &Ranks,
    name: &str,
    model: M,
    batch: fn(&[Text], &Device) -> T,
    scores: impl Fn(&[<M as InferenceStep>::Output]) -> Vec<f64>,
) -> Result<()>
where
    M: Module + ModuleDisplay + InferenceStep<Input = T>,
    T: Send + 'static,
{
    let device = ranks.device();
    // On a rank of so many, batches of others are replaced: whoever computes one is found out.
    let loader = |own: Option<(usize, usize)>| {
        let text = |(place, text): (usize, Text)| match own {
            Some((rank, size)) if place / BATCH % size != rank => vec![5; text.len()],
            _ => text,
        };
        let texts = InMemDataset::new(texts(0, TEXTS).into_iter().enumerate().map(text).collect());
        EpochLoader::new(Batches::new(texts, Batcher(batch)), BATCH, &device)
    };
    let training = Training::new(model).with_ranks(ranks, &Interrupter::new())?;
    let shared = loader(Some((ranks.rank(), ranks.size())))?.share(ranks);
    let model = training.valid();
    let outputs = |loader: &dyn DataLoader<T>, most| {
        let batches = loader.iter().take(most);
        batches.map(|batch| InferenceStep::step(&model, batch.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(outputs(&shared, 1).len(), 1, "one that is broken off");
    let found = scores(&outputs(&shared, usize::MAX));
    let expected = scores(&outputs(&loader(None)?, usize::MAX));
    // Equal numbers that are not 0 have the same bits.
    assert_eq!(found, expected, "{name}");
    let is_a_number = |score: &f64| score.is_finite() && *score != 0.0;
    assert!(found.iter().all(is_a_number), "{name}: {found:?}");
    let mut batches = shared.iter();
    let progress = std::iter::from_fn(|| batches.next().map(|_| batches.progress().items_processed));
    assert_eq!(progress.collect::<Vec<_>>(), [2, 4, 6, 8, 10, 12, 13], "whatever is read ahead");
    ranks.same("score", &found)?;
    if ranks.is_first() {
        println!("\nvalidated {name}: {found:?}");
    }
    Ok(())
}

pub fn of_every_head(ranks: &Ranks) -> Result<()> {
    let device = ranks.device().autodiff();
    device.seed(1 + ranks.rank() as u64);
    let model = BertForMaskedLmConfig::new(bert()).init(&device);
    check(ranks, "masked_lm", model, masked_lm_batch, |outputs| {
        scores!(outputs, LossMetric::new(), PerplexityMetric::new(), TopKAccuracyMetric::new(9))
    })?;

    let config = BertForSequenceClassificationConfig::new(bert()).with_num_labels(3);
    // One batch has no label.
    check(ranks, "classes", config.init(&device), classes, |outputs| {
        scores!(outputs, LossMetric::new(), AccuracyMetric::new(), ConfusionMetric::macro_f1())
    })?;
    let several = |texts: &[Text], device: &Device| {
        let (input, padding) = padded(texts, device);
        let labels: Vec<[f64; 3]> =
            texts.iter().map(|text| [0, 1, 2].map(|class| f64::from(text[0] % 3 != class))).collect();
        SequenceClassificationBatch::multi_label(input, padding, &labels).unwrap()
    };
    check(ranks, "several classes", config.init(&device), several, |outputs| {
        scores!(outputs, LossMetric::new(), HammingScore::new())
    })?;
    check(ranks, "numbers", config.with_num_labels(1).init(&device), numbers, |outputs| {
        scores!(outputs, LossMetric::new(), SpearmanMetric::new())
    })?;

    let names = ["O", "B-X", "I-X", "B-Y"].map(String::from).to_vec();
    let model = BertForTokenClassificationConfig::new(bert()).with_num_labels(4).init(&device);
    check(ranks, "tokens", model, tags::<4>, |outputs| {
        scores!(outputs, LossMetric::new(), AccuracyMetric::new(), EntityMetric::f1(&names))
    })?;

    // Batches have rows of different lengths.
    check(ranks, "answers", BertForQuestionAnsweringConfig::new(bert()).init(&device), answers, |outputs| {
        scores!(outputs, LossMetric::new(), AccuracyMetric::new())
    })?;

    let config = BertForSentenceEmbeddingConfig::new(bert());
    let rated = config.clone().with_loss(SentenceLoss::CosineSimilarity).init(&device);
    check(ranks, "rated pairs", rated, rated_pairs, |outputs| {
        scores!(outputs, LossMetric::new(), SpearmanMetric::new())
    })?;
    let with_negatives = |texts: &[Text], device: &Device| {
        // The candidates, and after them a negative of each.
        let negatives = texts.iter().map(|text| text[..2].to_vec());
        let candidates: Vec<Text> = backwards(texts).into_iter().chain(negatives).collect();
        SentencePairBatch::new(padded(texts, device), padded(&candidates, device)).unwrap()
    };
    check(ranks, "pairs with negatives", config.init(&device), with_negatives, |outputs| {
        let retrieval = RetrievalMetric::ndcg(5);
        scores!(outputs, LossMetric::new(), AccuracyMetric::new(), retrieval, TripletMetric::new())
    })?;

    let mut electra = bert();
    electra.embeddings = electra.embeddings.with_family(Family::Electra);
    let model = ElectraForPreTrainingConfig::new(electra).init(&device);
    check(ranks, "replaced tokens", model, tags::<2>, |outputs| {
        scores!(outputs, LossMetric::new(), AccuracyMetric::new(), ConfusionMetric::macro_f1())
    })
}
