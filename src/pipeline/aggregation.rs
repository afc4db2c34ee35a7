//! The label of a word, from the predictions for its tokens.

/// How the predictions for tokens become entities: transformers' aggregation strategies. See
/// [`Pipeline::entities`](super::Pipeline::entities).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregation {
    /// Each token is an entity, whose label has its prefix, such as `B-PER`.
    None,
    /// Adjacent tokens of one type are an entity, up to the next `B-`. The tokens of a word may be in different ones.
    Simple,
    /// A word has the label and the score of its first token; adjacent words of one type are an entity. For models whose
    /// training labelled the first token of each word, as a `TokenBatcher` does.
    #[default]
    First,
    /// A word has the label with the highest mean score over its tokens.
    Average,
    /// A word has the label and the score of its token with the highest score.
    Max,
}

impl Aggregation {
    /// Whether words are labelled; the other strategies label tokens, so that a word may be cut.
    pub(super) fn is_word_wise(self) -> bool {
        !matches!(self, Self::None | Self::Simple)
    }

    /// The label of a word and its score, given the scores of all labels for each of its tokens. Of equal scores, the first
    /// counts.
    pub(super) fn label_of(self, tokens: &[&[f64]]) -> (usize, f64) {
        let mean =
            |label: usize| tokens.iter().map(|scores| scores[label]).sum::<f64>() / tokens.len() as f64;
        let labels = 0..tokens[0].len();
        let first = match self {
            Self::Average => best(labels.map(|label| (label, mean(label)))),
            Self::Max => best(tokens.iter().flat_map(|scores| scores.iter().copied().enumerate())),
            Self::None | Self::Simple | Self::First => best(tokens[0].iter().copied().enumerate()),
        };
        first.expect("a model has at least one label")
    }
}

/// The first with the largest score.
fn best(scored: impl Iterator<Item = (usize, f64)>) -> Option<(usize, f64)> {
    scored.reduce(|a, b| if b.1 > a.1 { b } else { a })
}
