use super::epoch_metric::{Collected, EpochMetric};
use crate::model::Similarity;
use burn::prelude::*;
use burn::tensor::TensorReadError;
use std::collections::{BTreeSet, HashMap};
use std::sync::OnceLock;

/// The ranks at which queries find their relevant documents, and the scores computed from those ranks.
///
/// ```
/// use burn_bert::metrics::RetrievalScores;
///
/// let mut scores = RetrievalScores::default();
/// scores.add(&[0.1, 0.9, 0.4, 0.3], &[1, 3]); // the documents 1 and 3 are relevant: at the ranks 1 and 3
/// scores.add(&[0.1, 0.9, 0.4, 0.3], &[2]); // at rank 2
/// assert_eq!((scores.recall(1), scores.recall(2)), (0.25, 0.75));
/// assert_eq!((scores.mrr(10), scores.accuracy(1)), (0.75, 0.5));
/// ```
///
/// Documents with equal scores keep their order. A query without a relevant document does not count. All scores
/// are NaN without a query, or if a document's score is NaN. Source: `InformationRetrievalEvaluator` of
/// sentence-transformers 6.2, where the documents' ids break ties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetrievalScores {
    /// The ranks of the relevant documents from 0 on, ascending, of each query.
    ranks: Vec<Vec<usize>>,
    has_nan: bool,
}

impl RetrievalScores {
    /// Counts a query, given its score for each document and the documents that are relevant. Panics if there is no
    /// such document.
    pub fn add(&mut self, scores: &[f64], relevant: &[usize]) {
        let relevant: BTreeSet<usize> = relevant.iter().copied().collect();
        // Its recall would be 0/0.
        if relevant.is_empty() {
            return;
        }
        self.has_nan |= scores.iter().any(|score| score.is_nan());
        // Counted and not sorted: few documents are relevant, and ties keep the documents' order.
        let rank = |&own: &usize| {
            let own_score = scores[own];
            let comes_before =
                |&(other, score): &(usize, &f64)| *score > own_score || *score == own_score && other < own;
            scores.iter().enumerate().filter(comes_before).count()
        };
        let mut ranks: Vec<usize> = relevant.iter().map(rank).collect();
        // So that those among the first k are a slice.
        ranks.sort_unstable();
        self.ranks.push(ranks);
    }

    /// The share of a query's relevant documents that are among the first k, on average.
    pub fn recall(&self, k: usize) -> f64 {
        self.mean(|ranks| hits(ranks, k).len() as f64 / ranks.len() as f64)
    }

    /// 1 / the rank of the first relevant document, or 0 if it is not among the first k, on average.
    pub fn mrr(&self, k: usize) -> f64 {
        self.mean(|ranks| hits(ranks, k).first().map_or(0.0, |&first| 1.0 / (first + 1) as f64))
    }

    /// The share of queries that find a relevant document among the first k.
    pub fn accuracy(&self, k: usize) -> f64 {
        self.mean(|ranks| f64::from(!hits(ranks, k).is_empty()))
    }

    /// Σ 1/log₂(1 + rank) over the relevant documents among the first k, divided by its largest possible value, on average.
    pub fn ndcg(&self, k: usize) -> f64 {
        let gain = |rank: usize| (rank as f64 + 2.0).log2().recip();
        self.mean(|ranks| {
            let best: f64 = (0..ranks.len().min(k)).map(gain).sum();
            hits(ranks, k).iter().map(|&rank| gain(rank)).sum::<f64>() / best
        })
    }

    fn mean(&self, score: impl Fn(&[usize]) -> f64) -> f64 {
        if self.has_nan {
            return f64::NAN;
        }
        self.ranks.iter().map(|ranks| score(ranks)).sum::<f64>() / self.ranks.len() as f64
    }
}

fn hits(ranks: &[usize], k: usize) -> &[usize] {
    &ranks[..ranks.partition_point(|&rank| rank < k)]
}

/// A score of retrieval among all documents of an epoch, [`RetrievalScores`], in Burn's trainer, computed at the end of
/// the epoch. Equal texts are one query or one document: all positives of a query are relevant. On the training split it is NaN.
pub type RetrievalMetric = EpochMetric<Vectors>;

/// Queries that are compared at once: a matrix multiplication of more rows is not faster for each, and takes more memory.
const QUERIES: usize = 512;

#[derive(Clone, Default)]
pub struct Vectors {
    similarity: Similarity,
    queries: DistinctTexts,
    documents: DistinctTexts,
    /// The documents that are relevant for each query.
    relevant: Vec<Vec<usize>>,
    /// The trainer asks twice for the score of an epoch.
    scores: OnceLock<RetrievalScores>,
}

impl RetrievalMetric {
    /// [`RetrievalScores::recall`] of the first k.
    pub fn recall(k: usize) -> Self {
        Self::scored(&format!("Recall@{k}"), Vectors::default(), move |all| Ok(all.scores()?.recall(k)))
    }

    /// [`RetrievalScores::mrr`] of the first k.
    pub fn mrr(k: usize) -> Self {
        Self::scored(&format!("MRR@{k}"), Vectors::default(), move |all| Ok(all.scores()?.mrr(k)))
    }

    /// [`RetrievalScores::accuracy`] of the first k.
    pub fn accuracy(k: usize) -> Self {
        Self::scored(&format!("Accuracy@{k}"), Vectors::default(), move |all| Ok(all.scores()?.accuracy(k)))
    }

    /// [`RetrievalScores::ndcg`] of the first k.
    pub fn ndcg(k: usize) -> Self {
        Self::scored(&format!("NDCG@{k}"), Vectors::default(), move |all| Ok(all.scores()?.ndcg(k)))
    }

    /// Ranks by another similarity than the cosine.
    pub fn with_similarity(self, similarity: Similarity) -> Self {
        self.with(|vectors| vectors.similarity = similarity)
    }
}

/// The input of [`RetrievalMetric`] for [`RetrievalScores`]; panics if `relevant` does not have an entry for each query, all
/// below D.
#[derive(Clone, Debug)]
pub struct RetrievalInput {
    /// The vectors of Q queries, [Q, H].
    pub queries: Tensor<2>,
    /// The vectors of the documents that this batch adds, [D, H].
    pub documents: Tensor<2>,
    /// The documents of this batch that are relevant for each of the Q queries.
    pub relevant: Vec<Vec<usize>>,
    /// Hashes of the texts of the queries and of the documents, of which equal ones are one; without them all differ.
    pub texts: Option<[Vec<u64>; 2]>,
}

/// The vectors of the different texts of an epoch.
#[derive(Clone, Default)]
struct DistinctTexts {
    vectors: Vec<Tensor<2>>,
    numbers: HashMap<u64, usize>,
    len: usize,
}

impl DistinctTexts {
    /// Adds the vectors of texts that are new, and returns the number of each text.
    fn add(&mut self, vectors: &Tensor<2>, texts: Option<&Vec<u64>>) -> Vec<usize> {
        let (before, [rows, _]) = (self.len, vectors.dims());
        let (mut numbers, mut new) = (Vec::with_capacity(rows), Vec::new());
        for row in 0..rows {
            let number = texts.map_or(self.len, |texts| *self.numbers.entry(texts[row]).or_insert(self.len));
            if number == self.len {
                self.len += 1;
                new.push(row as i64);
            }
            numbers.push(number);
        }
        // Burn concatenates no tensors without rows.
        match self.len - before {
            0 => {}
            added if added == rows => self.vectors.push(vectors.clone()),
            _ => self.vectors.push(vectors.clone().select(0, Tensor::from_data(&new[..], &vectors.device()))),
        }
        numbers
    }
}

impl Collected for Vectors {
    type Input = RetrievalInput;

    // The vectors of an epoch stay on the device until its end.
    const IS_FOR_VALIDATION: bool = true;

    fn add(&mut self, input: &RetrievalInput) -> Result<bool, TensorReadError> {
        self.scores = OnceLock::new(); // those of fewer documents
        let ([queries, _], [added, _]) = (input.queries.dims(), input.documents.dims());
        assert_eq!(input.relevant.len(), queries, "relevant must have an entry for each query");
        let is_there = input.relevant.iter().flatten().all(|&document| document < added);
        assert!(is_there, "relevant must name documents of this batch, which has {added}");
        let [query_texts, document_texts] = [0, 1].map(|side| input.texts.as_ref().map(|texts| &texts[side]));
        let queries = self.queries.add(&input.queries, query_texts);
        let documents = self.documents.add(&input.documents, document_texts);
        self.relevant.resize(self.queries.len, Vec::new());
        for (query, relevant) in queries.into_iter().zip(&input.relevant) {
            self.relevant[query].extend(relevant.iter().map(|&document| documents[document]));
        }
        Ok(false)
    }
}

impl Vectors {
    fn scores(&self) -> Result<&RetrievalScores, TensorReadError> {
        if let Some(scores) = self.scores.get() {
            return Ok(scores);
        }
        let mut scores = RetrievalScores::default();
        if self.queries.len > 0 && self.documents.len > 0 {
            let all = |parts: &[Tensor<2>]| Tensor::cat(parts.to_vec(), 0);
            let (similarity, queries, documents) =
                self.similarity.prepared(all(&self.queries.vectors), all(&self.documents.vectors));
            let mut relevant = self.relevant.iter();
            // Not all at once: their similarities may not fit into memory.
            for queries in queries.split(QUERIES, 0) {
                let rows = similarity.between(queries, documents.clone()).try_into_data()?;
                let rows: Vec<f64> = rows.iter().collect();
                for (row, relevant) in rows.chunks(self.documents.len).zip(relevant.by_ref()) {
                    scores.add(row, relevant);
                }
            }
        }
        Ok(self.scores.get_or_init(|| scores))
    }
}

/// The share of triplets whose anchor is more similar to its positive than to its negative, in Burn's trainer; with NaN
/// it is not more similar. [The module](super) has an example. Source: `TripletEvaluator` of sentence-transformers 6.2.
pub type TripletMetric = EpochMetric<Triplets>;

#[derive(Clone, Default)]
pub struct Triplets {
    margin: f64,
    correct: usize,
    total: usize,
}

impl TripletMetric {
    /// Creates the metric.
    pub fn new() -> Self {
        Self::scored("Triplet accuracy", Triplets::default(), |all| Ok(all.correct as f64 / all.total as f64))
    }

    /// The least difference of the similarities; 0 by default.
    pub fn with_margin(self, margin: f64) -> Self {
        self.with(|triplets| triplets.margin = margin)
    }
}

impl Default for TripletMetric {
    fn default() -> Self {
        Self::new()
    }
}

/// The input of [`TripletMetric`], of which [the module](super) has an example: [similarities](crate::model::Similarity) of N anchors.
#[derive(Clone, Debug)]
pub struct TripletInput {
    /// The anchors' similarities to their positives, `[N]`.
    pub positive: Tensor<1>,
    /// The anchors' similarities to their negatives, `[N]`.
    pub negative: Tensor<1>,
}

impl Collected for Triplets {
    type Input = TripletInput;

    fn add(&mut self, input: &TripletInput) -> Result<bool, TensorReadError> {
        if input.positive.dims()[0] > 0 {
            let bound = input.negative.clone().add_scalar(self.margin);
            let correct = input.positive.clone().greater(bound).try_into_data()?;
            self.correct += correct.iter::<bool>().filter(|correct| *correct).count();
            self.total += correct.num_elements();
        }
        Ok(false)
    }

    fn count(&self) -> Option<usize> {
        Some(self.total)
    }
}
