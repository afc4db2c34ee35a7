//! The datasets of this crate as data for training: which head they train, and by which metrics.

use super::arguments::TrainingArguments;
use super::metric_set::Metrics;
use super::training_data::{Reader, TrainingData};
use crate::data::{
    Batches, LabelKind, LabelledSentences, LabelledTexts, MaskedLmCollator, MaskedLmCollatorConfig,
    PlainText, QuestionWindow, QuestionWindowBatcher, SentencePair, SentencePairBatcher, SentencePairs,
    SequenceBatcher, SquadExample, TokenBatcher,
};
use crate::error::Result;
use crate::metrics::{ConfusionMetric, EntityMetric, RetrievalMetric, SpearmanMetric, TripletMetric};
use crate::model::{
    BertForMaskedLm, BertForQuestionAnswering, BertForSentenceEmbedding,
    BertForSequenceClassification as Classifier, BertForTokenClassification as Tagger, CoSentLoss,
    MaskedLmBatch, MultipleNegativesRankingLoss, ProblemType, QuestionAnsweringBatch, SentencePairBatch,
    SequenceClassificationBatch, Stored, TokenClassificationBatch,
};
use burn::data::dataset::{Dataset, InMemDataset};
use burn::train::metric::{AccuracyMetric, HammingScore, PerplexityMetric};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Tokens in a window of masked language modelling, if the caller does not say it.
const WINDOW: usize = 128;

type Config<M> = <M as Stored>::Config;

/// The names of the classes of data, in the order of the checkpoint's if these are the same ones: its head is then right.
fn names_for(checkpoint: Vec<String>, names: &[String]) -> Vec<String> {
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort();
        names
    };
    if sorted(&checkpoint) == sorted(names) { checkpoint } else { names.to_vec() }
}

/// `check` of a head, whose `try_forward` refuses what it cannot read.
macro_rules! checked_by_forward {
    ($model:ty, $batch:ty) => {
        fn check(model: &$model, batch: &$batch) -> Result<()> {
            model.try_forward(batch).map(drop)
        }
    };
}

/// Classification of one or several classes a text, regression, or reranking (a classifier of pairs with one label, trained by
/// binary cross-entropy), by the kind of the labels.
impl TrainingData<Classifier> for LabelledTexts {
    type Batcher = SequenceBatcher;

    fn config(&self, config: Config<Classifier>, _: &TrainingArguments) -> Config<Classifier> {
        let names = names_for(config.id2label.clone(), self.names());
        match self.kind() {
            LabelKind::Class => {
                config.with_id2label(names).with_problem_type(Some(ProblemType::SingleLabelClassification))
            }
            LabelKind::Classes => {
                config.with_id2label(names).with_problem_type(Some(ProblemType::MultiLabelClassification))
            }
            LabelKind::Value => config.with_num_labels(1).with_problem_type(Some(ProblemType::Regression)),
            LabelKind::Relevance => config.with_num_labels(1).with_problem_type(None),
        }
    }

    fn batches(self, reader: &Reader<Classifier>) -> Result<Batches<SequenceBatcher>> {
        let (names, lengths) = (reader.model.id2label(), self.sizes());
        let texts = if self.names().is_empty() { self } else { self.of_model(names)? };
        Ok(Batches::new(texts, SequenceBatcher::new(reader.tokenizer.clone(), names.len()))
            .with_lengths(lengths))
    }

    fn metrics(&self, _: &Classifier) -> Metrics<Classifier> {
        let metrics = Metrics::new();
        match self.kind() {
            LabelKind::Class => metrics
                .with(AccuracyMetric::new())
                .with(ConfusionMetric::macro_f1())
                .with(ConfusionMetric::matthews()),
            LabelKind::Classes => metrics.with(HammingScore::new().with_sigmoid(true)),
            LabelKind::Value | LabelKind::Relevance => metrics.with(SpearmanMetric::new()),
        }
    }

    checked_by_forward!(Classifier, SequenceClassificationBatch);
}

impl TrainingData<Tagger> for LabelledSentences {
    type Batcher = TokenBatcher;

    fn config(&self, config: Config<Tagger>, _: &TrainingArguments) -> Config<Tagger> {
        let names = names_for(config.id2label.clone(), self.names());
        config.with_id2label(names)
    }

    fn batches(self, reader: &Reader<Tagger>) -> Result<Batches<TokenBatcher>> {
        let lengths = self.sizes();
        let sentences = self.of_model(reader.model.id2label())?;
        Ok(Batches::new(sentences, TokenBatcher::new(reader.tokenizer.clone())).with_lengths(lengths))
    }

    /// Of entities if there are tags such as `B-PER`, else of tags.
    fn metrics(&self, model: &Tagger) -> Metrics<Tagger> {
        let metrics = Metrics::new().with(AccuracyMetric::new());
        // The model's names, since the metric reads the model's ids.
        let names = model.id2label();
        if names.iter().any(|name| name.starts_with("B-")) {
            let metrics = metrics.with(EntityMetric::f1(names)).with(EntityMetric::precision(names));
            metrics.with(EntityMetric::recall(names))
        } else {
            metrics.with(ConfusionMetric::macro_f1())
        }
    }

    checked_by_forward!(Tagger, TokenClassificationBatch);
}

/// Extractive question answering. A long context gives several windows.
impl TrainingData<BertForQuestionAnswering> for Vec<SquadExample> {
    type Batcher = QuestionWindowBatcher;

    fn batches(self, reader: &Reader<BertForQuestionAnswering>) -> Result<Batches<QuestionWindowBatcher>> {
        let windows = QuestionWindow::of(&self, &reader.tokenizer, reader.arguments.doc_stride)?;
        let of = |number: fn(&QuestionWindow) -> usize| windows.iter().map(number).collect();
        let (lengths, examples) = (of(|window| window.encoding.len()), of(|window| window.example));
        let batcher = QuestionWindowBatcher::new(reader.tokenizer.clone());
        let batches = Batches::new(InMemDataset::new(windows), batcher);
        Ok(batches.with_lengths(lengths).with_sources(examples))
    }

    fn metrics(&self, _: &BertForQuestionAnswering) -> Metrics<BertForQuestionAnswering> {
        Metrics::new().with(AccuracyMetric::new())
    }

    checked_by_forward!(BertForQuestionAnswering, QuestionAnsweringBatch);
}

impl TrainingData<BertForMaskedLm> for PlainText {
    type Batcher = MaskedLmCollator;

    fn batches(self, reader: &Reader<BertForMaskedLm>) -> Result<Batches<MaskedLmCollator>> {
        let collator = MaskedLmCollatorConfig::for_tokenizer(&reader.tokenizer)
            .with_mlm_probability(self.mlm_probability)
            .with_whole_word_masking(self.whole_word_masking)
            .try_init()?;
        let limit = reader.tokenizer.model_max_length().unwrap_or(WINDOW);
        let seq_len = reader.arguments.max_length.unwrap_or(WINDOW.min(limit));
        Ok(Batches::new(self.windows(reader.tokenizer.clone(), seq_len)?, collator))
    }

    fn metrics(&self, _: &BertForMaskedLm) -> Metrics<BertForMaskedLm> {
        Metrics::new().with(AccuracyMetric::new()).with(PerplexityMetric::new())
    }

    checked_by_forward!(BertForMaskedLm, MaskedLmBatch);
}

/// Sentence embeddings; the loss of a model from a checkpoint is [`CoSentLoss`] of pairs with labels, and
/// [`MultipleNegativesRankingLoss`] of others.
impl TrainingData<BertForSentenceEmbedding> for SentencePairs {
    type Batcher = SentencePairBatcher;

    fn config(
        &self,
        config: Config<BertForSentenceEmbedding>,
        arguments: &TrainingArguments,
    ) -> Config<BertForSentenceEmbedding> {
        let loss = arguments.sentence_loss.clone().unwrap_or_else(|| match self.has_labels() {
            true => CoSentLoss::new().into(),
            false => MultipleNegativesRankingLoss::new().into(),
        });
        let config = config.with_mini_batch_size(arguments.mini_batch_size);
        let length = arguments.max_length.or(config.max_seq_length);
        config.with_loss(loss).with_max_seq_length(length)
    }

    fn batches(self, reader: &Reader<BertForSentenceEmbedding>) -> Result<Batches<SentencePairBatcher>> {
        let texts = (!self.has_labels()).then(|| (0..self.len()).map(|place| hashes(&self, place)).collect());
        let batches = Batches::new(self, SentencePairBatcher::new(reader.tokenizer.clone()));
        Ok(match texts {
            Some(texts) => batches.with_texts(texts),
            None => batches,
        })
    }

    /// Spearman's correlation with labels, the accuracy of triplets with negatives, else how often the positive of an anchor is
    /// the nearest of all.
    fn metrics(&self, _: &BertForSentenceEmbedding) -> Metrics<BertForSentenceEmbedding> {
        let metrics = Metrics::new();
        match (self.has_labels(), self.num_negatives()) {
            (true, _) => metrics.with(SpearmanMetric::new()),
            (false, 0) => metrics.with(RetrievalMetric::accuracy(1)),
            (false, _) => metrics.with(TripletMetric::new()),
        }
    }

    checked_by_forward!(BertForSentenceEmbedding, SentencePairBatch);
}

fn hashes(pairs: &SentencePairs, place: usize) -> Vec<u64> {
    let hash = |text: &String| {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        hasher.finish()
    };
    let Ok(SentencePair { anchor, positive, negatives, .. }) = pairs.get(place) else { return Vec::new() };
    [&anchor, &positive].into_iter().chain(&negatives).map(hash).collect()
}
