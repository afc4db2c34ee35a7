//! Data for training, and how they become batches; which head each dataset of this crate trains, and by which metrics.

use super::arguments::{TrainingArguments, TrainingPrompts};
use super::callback::check_not_stopped;
use super::metric_set::Metrics;
use super::outputs::{ClassificationItem, SentenceEmbeddingItem};
use super::reader::Reader;
use super::run::TrainableModel;
use crate::data::{
    Batches, DataSummary, EpochLoader, LabelKind, LabelledSentences, LabelledText, LabelledTexts,
    MaskedLmCollatorConfig, PlainText, QuestionWindow, SentencePair, SentencePairs, SquadExample,
    TokenWindow,
};
use crate::embeddings::BertEmbeddingsInput;
use crate::error::Result;
use crate::layers::ensure;
use crate::metrics::{
    ConfusionMetric, EntityMetric, LabelMetric, RetrievalMetric, SpearmanMetric, TripletMetric,
};
use crate::model::{
    BertForMaskedLm, BertForQuestionAnswering, BertForSentenceEmbedding as Embedder,
    BertForSequenceClassification as Classifier, BertForTokenClassification as Tagger, CoSentLoss,
    MaskedLmBatch, MultipleNegativesRankingLoss, ProblemType, Prompts, QuestionAnsweringBatch,
    SentencePairBatch, SequenceClassificationBatch, Stored, TokenClassificationBatch,
};
use crate::pipeline::{Prefix, has_scheme};
use crate::text::BertTokenizer;
use burn::data::dataset::{Dataset, InMemDataset};
use burn::prelude::Device;
use burn::train::Interrupter;
use burn::train::metric::{AccuracyMetric, HammingScore, PerplexityMetric};
use std::collections::HashMap;
use std::fmt::Debug;

/// Data that a model `M` is trained on or evaluated with by a [`Trainer`](super::Trainer): the datasets of [`data`](crate::data), or
/// [`Batches`] of any for a custom model. `Debug` has to show the items: a run is resumed only with data that it shows alike.
pub trait TrainingData<M: TrainableModel>: Debug + Sized {
    /// Whether its labels are classes, of whose loss `config` sets the `class_weights` and the `label_smoothing_factor` of the
    /// arguments. Elsewhere they are refused.
    const HAS_CLASSES: bool = false;

    /// Whether the [prompts](TrainingArguments::with_prompts) of the arguments are put before its texts. By default they are refused.
    fn has_prompts(&self) -> bool {
        false
    }

    /// The config of a model for these data, given that of the checkpoint that it is loaded from. By default the same.
    fn config(&self, checkpoint: M::Config, arguments: &TrainingArguments) -> M::Config {
        let _ = arguments;
        checkpoint
    }

    /// The items as the model reads them. An error says what of the data does not fit the model.
    fn batches(self, reader: &Reader<M>) -> Result<Batches<M::Batch>>;

    /// What was read, where it is known: it is printed before the first step.
    fn summary(&self) -> Option<DataSummary> {
        None
    }

    /// The metrics that say how good a model is on such data. By default the loss.
    fn metrics(&self, model: &M) -> Metrics<M::Output> {
        let _ = model;
        Metrics::new()
    }
}

impl<M: TrainableModel> TrainingData<M> for Batches<M::Batch> {
    fn batches(self, _: &Reader<M>) -> Result<Self> {
        Ok(self)
    }
}

/// Tokens of an item that are shown.
const SHOWN: usize = 40;

/// Tokens in a window of masked language modelling, if the caller does not say it.
const WINDOW: usize = 128;

type Config<M> = <M as Stored>::Config;

/// The names of the classes of data, in the order of the checkpoint's if these are the same ones: its head is then right.
fn names_for(checkpoint: Vec<String>, names: &[String]) -> Vec<String> {
    // Each name is there once, so as many that are all found are the same ones.
    let are_same = checkpoint.len() == names.len() && names.iter().all(|name| checkpoint.contains(name));
    if are_same { checkpoint } else { names.to_vec() }
}

/// The weights of the data's classes in the order of the model's, which may be another.
fn weights_for(model: &[String], data: &[String], arguments: &TrainingArguments) -> Option<Vec<f64>> {
    let given = arguments.class_weights.as_ref().filter(|given| given.len() == data.len());
    let weight = |name| Some(given?[data.iter().position(|other| other == name)?]);
    // Of another number, the config refuses them.
    model.iter().map(weight).collect::<Option<_>>().or_else(|| arguments.class_weights.clone())
}

/// The prompts of a model that is trained with those of the arguments, given its own.
fn saved_prompts(own: Prompts, arguments: &TrainingArguments) -> Prompts {
    match &arguments.prompts {
        Some(TrainingPrompts::Texts(texts)) => match &texts[..] {
            [] => own,
            [text] => own.with("query", text).with("document", text).with_default("query"),
            [query, document, ..] => own.with("query", query).with("document", document),
        },
        _ => own,
    }
}

/// Classification of one or several classes a text, regression, or reranking (a classifier of pairs with one label, trained by
/// binary cross-entropy), by the kind of the labels.
impl TrainingData<Classifier> for LabelledTexts {
    const HAS_CLASSES: bool = true;

    fn config(&self, config: Config<Classifier>, arguments: &TrainingArguments) -> Config<Classifier> {
        let problem = match self.kind() {
            LabelKind::Class => ProblemType::SingleLabelClassification,
            LabelKind::Classes => ProblemType::MultiLabelClassification,
            LabelKind::Value => {
                return config.with_num_labels(1).with_problem_type(Some(ProblemType::Regression));
            }
            LabelKind::Relevance => {
                let prompts = saved_prompts(config.prompts.clone(), arguments);
                return config.with_num_labels(1).with_problem_type(None).with_prompts(prompts);
            }
        };
        let names = names_for(config.id2label.clone(), self.names());
        let weights = weights_for(&names, self.names(), arguments);
        let config = config.with_id2label(names).with_problem_type(Some(problem));
        config.with_label_smoothing(arguments.label_smoothing_factor).with_class_weights(weights)
    }

    fn batches(self, reader: &Reader<Classifier>) -> Result<Batches<SequenceClassificationBatch>> {
        let (names, tokenizer) = (reader.model.id2label(), reader.tokenizer.clone());
        let (num_labels, labels, lengths) = (names.len(), self.labels(), self.sizes());
        let prompts = match self.has_prompts() {
            true => reader.prompts(&reader.model.config().prompts, true, 1)?,
            false => Vec::new(),
        };
        let prompted = |texts: Self, prompt: &Prefix| texts.map(|text| prompt.put_before(&mut text.text));
        let texts = prompts.iter().fold(self, prompted);
        reader.note_cut(&texts, |text| Ok(text.encode(&tokenizer)?.is_truncated()))?;
        let batch = move |texts: &[_], device: &_| LabelledText::batch(texts, &tokenizer, num_labels, device);
        Ok(Batches::new(texts.with_ids_of(names)?, batch).with_lengths(lengths).with_labels(labels))
    }

    /// The queries of rerankers have prompts.
    fn has_prompts(&self) -> bool {
        self.kind() == LabelKind::Relevance
    }

    fn summary(&self) -> Option<DataSummary> {
        Some(Self::summary(self))
    }

    fn metrics(&self, _: &Classifier) -> Metrics<ClassificationItem> {
        let metrics = Metrics::new();
        match self.kind() {
            LabelKind::Class => metrics
                .with(AccuracyMetric::new())
                .with(ConfusionMetric::macro_f1())
                .with(ConfusionMetric::matthews()),
            LabelKind::Classes => metrics
                .with(HammingScore::new().with_sigmoid(true))
                .with(LabelMetric::micro_f1())
                .with(LabelMetric::micro_precision())
                .with(LabelMetric::micro_recall())
                .with(LabelMetric::macro_f1()),
            LabelKind::Value | LabelKind::Relevance => metrics.with(SpearmanMetric::new()),
        }
    }
}

impl TrainingData<Tagger> for LabelledSentences {
    const HAS_CLASSES: bool = true;

    fn config(&self, config: Config<Tagger>, arguments: &TrainingArguments) -> Config<Tagger> {
        let names = names_for(config.id2label.clone(), self.names());
        let weights = weights_for(&names, self.names(), arguments);
        let config = config.with_id2label(names).with_label_smoothing(arguments.label_smoothing_factor);
        config.with_class_weights(weights)
    }

    fn batches(self, reader: &Reader<Tagger>) -> Result<Batches<TokenClassificationBatch>> {
        let (names, tokenizer) = (reader.model.id2label(), reader.tokenizer.clone());
        let sentences = self.with_ids_of(names)?;
        let windows = TokenWindow::cut_checking(&sentences, &tokenizer, &reader.check())?;
        let long = windows.chunk_by(|a, b| a.sentence == b.sentence).filter(|windows| windows.len() > 1);
        if let (long @ 1.., Some(length)) = (long.count(), tokenizer.model_max_length()) {
            let all = sentences.len();
            reader.note(format!(
                "{long} of {all} sentences have more than {length} tokens and are read in windows"
            ));
        }
        let sources = windows.iter().map(|window| window.sentence).collect();
        let lengths = windows.iter().map(|window| window.encoding.len()).collect();
        let batch = move |windows: &[_], device: &_| TokenWindow::batch(windows, &tokenizer, device);
        Ok(Batches::new(InMemDataset::new(windows), batch).with_lengths(lengths).with_sources(sources))
    }

    fn summary(&self) -> Option<DataSummary> {
        Some(Self::summary(self))
    }

    /// Entity metrics if there are tags such as `B-PER` or `I-PER`, else metrics of tags.
    fn metrics(&self, model: &Tagger) -> Metrics<ClassificationItem> {
        let metrics = Metrics::new().with(AccuracyMetric::new());
        // The model's names, since the metric reads the model's ids.
        let names = model.id2label();
        if has_scheme(names) {
            let metrics = metrics.with(EntityMetric::f1(names)).with(EntityMetric::precision(names));
            metrics.with(EntityMetric::recall(names))
        } else {
            metrics.with(ConfusionMetric::macro_f1())
        }
    }
}

/// Extractive question answering. A long context gives several windows.
impl TrainingData<BertForQuestionAnswering> for Vec<SquadExample> {
    fn batches(self, reader: &Reader<BertForQuestionAnswering>) -> Result<Batches<QuestionAnsweringBatch>> {
        let stride = reader.arguments.doc_stride;
        let windows = QuestionWindow::cut_checking(&self, &reader.tokenizer, stride, &reader.check())?;
        let lengths = windows.iter().map(|window| window.encoding.len()).collect();
        // Several questions have one text, which is trained on or validated on. Each text's number is that of its first example.
        let mut first = HashMap::new();
        let texts: Vec<usize> = (self.iter().enumerate())
            .map(|(number, example)| *first.entry(&example.context).or_insert(number))
            .collect();
        let sources = windows.iter().map(|window| texts[window.example]).collect();
        let tokenizer = reader.tokenizer.clone();
        let batch = move |windows: &[_], device: &_| QuestionWindow::batch(windows, &tokenizer, device);
        Ok(Batches::new(InMemDataset::new(windows), batch).with_lengths(lengths).with_sources(sources))
    }

    fn summary(&self) -> Option<DataSummary> {
        let unanswered = self.iter().filter(|example| example.answers.is_empty()).count();
        let note = (unanswered > 0).then(|| format!("{unanswered} have no answer"));
        let notes = note.into_iter().collect();
        Some(DataSummary { items: "questions", len: self.len(), notes, ..Default::default() })
    }

    fn metrics(&self, _: &BertForQuestionAnswering) -> Metrics<ClassificationItem> {
        Metrics::new().with(AccuracyMetric::new())
    }
}

impl TrainingData<BertForMaskedLm> for PlainText {
    fn batches(self, reader: &Reader<BertForMaskedLm>) -> Result<Batches<MaskedLmBatch>> {
        let collator = MaskedLmCollatorConfig::for_tokenizer(&reader.tokenizer)
            .with_mlm_probability(self.mlm_probability)
            .with_whole_word_masking(self.whole_word_masking)
            .try_init()?;
        let limit = reader.tokenizer.model_max_length().unwrap_or(WINDOW);
        let seq_len = reader.arguments.max_length.unwrap_or(WINDOW.min(limit));
        let windows = self.cut(&reader.tokenizer, seq_len, &reader.check())?;
        Ok(collator.batches(windows))
    }

    fn metrics(&self, _: &BertForMaskedLm) -> Metrics<ClassificationItem> {
        Metrics::new().with(AccuracyMetric::new()).with(PerplexityMetric::new())
    }
}

/// Sentence embeddings; the loss of a model from a checkpoint is [`CoSentLoss`] of pairs with labels, and
/// [`MultipleNegativesRankingLoss`] of others.
impl TrainingData<Embedder> for SentencePairs {
    fn has_prompts(&self) -> bool {
        true
    }

    fn config(&self, config: Config<Embedder>, arguments: &TrainingArguments) -> Config<Embedder> {
        let loss = arguments.sentence_loss.clone().unwrap_or_else(|| match self.has_labels() {
            true => CoSentLoss::new().into(),
            false => MultipleNegativesRankingLoss::new().into(),
        });
        let config = config.with_mini_batch_size(arguments.mini_batch_size);
        let length = arguments.max_length.or(config.max_seq_length);
        let prompts = saved_prompts(config.prompts.clone(), arguments);
        config.with_loss(loss).with_max_seq_length(length).with_prompts(prompts)
    }

    fn batches(self, reader: &Reader<Embedder>) -> Result<Batches<SentencePairBatch>> {
        let texts = (!self.has_labels()).then(|| self.text_hashes());
        let labels = self.has_labels().then(|| self.labels());
        let (tokenizer, config, columns) =
            (reader.tokenizer.clone(), reader.model.config(), 2 + self.num_negatives());
        let mut prompts = reader.prompts(&config.prompts, config.include_prompt, columns)?;
        if let Some(last) = prompts.last().cloned() {
            prompts.resize(columns, last);
        }
        let pairs = self.map(|pair| {
            pair.sentences_mut().zip(&prompts).for_each(|(text, prompt)| prompt.put_before(text));
        });
        reader.note_cut(&pairs, |pair| pair.is_cut(&tokenizer))?;
        let batches = Batches::new(pairs, move |pairs: &[_], device: &_| {
            // Candidates are ordered by their columns.
            let mut lengths = prompts.iter().map(|prompt| vec![prompt.length; pairs.len()]);
            let prompt_lengths = [lengths.next().unwrap_or_default(), lengths.flatten().collect::<Vec<_>>()];
            let batch = SentencePair::batch(pairs, &tokenizer, device)?;
            Ok(SentencePairBatch { prompt_lengths, ..batch })
        });
        let batches = texts.into_iter().fold(batches, Batches::with_texts);
        Ok(labels.into_iter().fold(batches, Batches::with_labels))
    }

    fn summary(&self) -> Option<DataSummary> {
        Some(Self::summary(self))
    }

    /// Spearman's correlation with labels, the accuracy of triplets with negatives, else how often the positive of an anchor is
    /// the nearest of all, each by the model's similarity.
    fn metrics(&self, model: &Embedder) -> Metrics<SentenceEmbeddingItem> {
        let metrics = Metrics::new();
        match (self.has_labels(), self.num_negatives()) {
            (true, _) => metrics.with(SpearmanMetric::new()),
            (false, 0) => {
                metrics.with(RetrievalMetric::accuracy(1).with_similarity(model.config().similarity))
            }
            (false, _) => metrics.with(TripletMetric::new()),
        }
    }
}

/// The batches of some data, with texts cut to the length of the arguments, and what is said of them.
pub(super) fn batches<M: TrainableModel, D: TrainingData<M>>(
    data: D,
    model: &M,
    tokenizer: &BertTokenizer,
    arguments: &TrainingArguments,
    interrupter: &Interrupter,
) -> Result<(Batches<M::Batch>, Vec<String>)> {
    check_not_stopped(interrupter)?;
    ensure(data.has_prompts() || arguments.prompts.is_none(), "prompts", || {
        "are set, but are put before sentence pairs and the queries of rerankers alone".into()
    })?;
    let reader = Reader::new(model, tokenizer, arguments, interrupter)?;
    let batches = data.batches(&reader)?;
    Ok((batches, reader.into_notes()))
}

/// The training data in epochs, or in parts of so many batches of a rank.
pub(super) fn training_loader<B: Send + 'static>(
    batches: Batches<B>,
    arguments: &TrainingArguments,
    part: Option<usize>,
) -> Result<EpochLoader<B>> {
    let batches = batches.ordered(arguments.group_by_length, arguments.no_duplicates);
    let loader = EpochLoader::new(batches, arguments.batch_size, &arguments.device())?;
    let loader = loader.with_shuffling(arguments.seed);
    match part {
        Some(batches) => loader.with_batches_per_epoch(batches),
        None => Ok(loader),
    }
}

pub(super) fn evaluation_loader<B: Send + 'static>(
    batches: Batches<B>,
    arguments: &TrainingArguments,
) -> Result<EpochLoader<B>> {
    let TrainingArguments { group_by_length, no_duplicates, seed, max_eval_samples, .. } = *arguments;
    let batches = batches.ordered(group_by_length, no_duplicates).evaluated(max_eval_samples, seed)?;
    let batch_size = arguments.eval_batch_size.unwrap_or(arguments.batch_size);
    EpochLoader::new(batches, batch_size, &arguments.device())
}

/// Refuses labels that are all equal, where a correlation with them decides which model is the best: it is in no evaluation.
pub(super) fn check_labels(are_equal: bool, arguments: &TrainingArguments) -> Result<()> {
    let metric = &arguments.metric_for_best_model;
    let is_defined = !are_equal || !["Spearman", "Matthews"].contains(&&**metric);
    ensure(is_defined, "metric_for_best_model", || {
        format!("is {metric}, a correlation, but all labels of the validation data are equal")
    })
}

/// The tokens of the first two items as the model reads them, without padding; of none where no batch can be made of them.
pub(super) fn first_inputs<M: TrainableModel>(
    data: &Batches<M::Batch>,
    tokenizer: &BertTokenizer,
    device: &Device,
) -> Vec<String> {
    let Ok(batch) = data.first(2, device) else { return Vec::new() };
    let tokens = |row: &[i64]| {
        let ids = row.iter().map(|&id| id as u32).filter(|&id| id != tokenizer.pad_token_id());
        let tokens = ids.take(SHOWN).map(|id| tokenizer.id_to_token(id).unwrap_or_default());
        tokens.collect::<Vec<_>>().join(" ")
    };
    let rows = |input: &BertEmbeddingsInput| -> Option<Vec<String>> {
        let ([_, seq], ids) = (input.dims(), input.input_ids()?.try_into_data().ok()?);
        Some(ids.iter::<i64>().collect::<Vec<_>>().chunks(seq).map(tokens).collect())
    };
    M::inputs(&batch).into_iter().filter_map(rows).flatten().collect()
}
