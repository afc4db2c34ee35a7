use super::examples::in_parallel;
use super::labelled_sentences::{IGNORED_LABEL, LabelledSentences, LabelledTokens, UNLABELLED, part_of_tag};
use super::labels::class_id;
use crate::error::Result;
use crate::model::TokenClassificationBatch;
use crate::pipeline::{has_scheme, word_starts};
use crate::text::{BertTokenizer, Encoding, TextBatch};
use burn::prelude::*;

/// A sentence of [`LabelledSentences`], or a part of it that a model reads at once. A list of them is a dataset as Burn's
/// `InMemDataset`.
///
/// ```
/// use burn_bert::data::{LabelledSentences, LabelledTokens, TokenWindow};
/// # use burn_bert::text::BertTokenizer;
///
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nada\nlaugh\n##s\n")?;
/// # let tokenizer = BertTokenizer::from_pretrained(dir.path())?;
/// let sentence = LabelledTokens { tokens: vec!["Ada".into(), "laughs".into()], tags: vec![1, 0] };
/// let sentences = LabelledSentences::new(vec![sentence], vec!["O".into(), "B-PER".into()])?;
/// let windows = TokenWindow::cut(&sentences, &tokenizer)?;
/// assert_eq!(windows[0].labels, [-100, 1, 0, -100, -100]); // [CLS] ada laugh ##s [SEP]
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenWindow {
    /// The tokens.
    pub encoding: Encoding,
    /// The label of each token, or [`IGNORED_LABEL`].
    pub labels: Vec<i64>,
    /// The index of its sentence among those that were cut.
    pub sentence: usize,
}

impl TokenWindow {
    /// Cuts sentences into windows of at most the tokenizer's [`model_max_length`](BertTokenizer::model_max_length), with the words and
    /// tokens that `Pipeline::entities` reads: the first token of each word has its tag, all others, and what another window has,
    /// have [`IGNORED_LABEL`]. Where one of the sentence's own words is several of these, they are one entity by the scheme of the
    /// tags' names. Errors are those of the tokenizer.
    pub fn cut(sentences: &LabelledSentences, tokenizer: &BertTokenizer) -> Result<Vec<Self>> {
        Self::cut_checking(sentences, tokenizer, &|| Ok(()))
    }

    /// [`cut`](Self::cut), in parallel; an error of `check`, which is asked before each sentence, ends it.
    pub(crate) fn cut_checking(
        sentences: &LabelledSentences,
        tokenizer: &BertTokenizer,
        check: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<Vec<Self>> {
        let cut = |index: usize| Self::cut_one(index, &sentences.items[index], tokenizer, sentences.names());
        Ok(in_parallel(sentences.items.len(), check, cut)?.into_iter().flatten().collect())
    }

    fn cut_one(
        index: usize,
        sentence: &LabelledTokens,
        tokenizer: &BertTokenizer,
        names: &[String],
    ) -> Result<Vec<Self>> {
        let text = sentence.tokens.join(" ");
        let starts = word_starts(&sentence.tokens);
        let windows = tokenizer.encode_word_windows(&text, 0)?.into_iter();
        let unlabelled = |encoding: Encoding| Self {
            labels: vec![IGNORED_LABEL; encoding.len()],
            encoding,
            sentence: index,
        };
        let mut windows: Vec<Self> = windows.map(unlabelled).collect();
        // The window, the token and the word of the sentence that each word is of.
        let mut found: Vec<(usize, usize, usize)> = Vec::new();
        let mut read = 0;
        for (number, window) in windows.iter().enumerate() {
            for word in tokenizer.words(&text, &window.encoding)? {
                // The tokens of a word that the window before did not hold.
                if word.bytes.start >= read {
                    let own = starts.partition_point(|&start| start <= word.bytes.start) - 1;
                    found.push((number, word.token, own));
                    read = word.bytes.end;
                }
            }
        }
        let has_scheme = has_scheme(names);
        for (i, &(window, token, own)) in found.iter().enumerate() {
            let is_first = i == 0 || found[i - 1].2 != own;
            let is_last = found.get(i + 1).is_none_or(|next| next.2 != own);
            let tag = sentence.tags[own];
            if tag == UNLABELLED {
                continue;
            }
            let tag = if has_scheme { part_of_tag(tag, names, is_first, is_last) } else { tag };
            windows[window].labels[token] = class_id(tag);
        }
        Ok(windows)
    }

    /// Pads windows to the longest of them. Returns [`Error::Empty`](crate::Error::Empty) without a window.
    pub fn batch(
        windows: &[Self],
        tokenizer: &BertTokenizer,
        device: &Device,
    ) -> Result<TokenClassificationBatch> {
        let encodings: Vec<Encoding> = windows.iter().map(|window| window.encoding.clone()).collect();
        let TextBatch { input, padding } = tokenizer.batch(&encodings, device)?;
        let [_, seq] = input.dims();
        let padded = |window: &Self| {
            let mut labels = window.labels.clone();
            labels.resize(seq, IGNORED_LABEL);
            labels
        };
        let labels: Vec<Vec<i64>> = windows.iter().map(padded).collect();
        TokenClassificationBatch::new(input, padding, &labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{entity_spans, tag};
    use serde_json::{Value, json};
    use std::fs;
    use std::path::Path;

    /// The kinds of tokenizers by their fixtures, and ModernBERT's: byte-level, with special tokens of a template.
    fn tokenizer(kind: &str) -> BertTokenizer {
        let classes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer_classes");
        if kind != "modernbert" {
            return BertTokenizer::from_pretrained(classes.join(kind)).unwrap();
        }
        let mut file: Value =
            serde_json::from_slice(&fs::read(classes.join("roberta/tokenizer.json")).unwrap()).unwrap();
        let special = |name: &str| json!({"SpecialToken": {"id": name, "type_id": 0}});
        let text = json!({"Sequence": {"id": "A", "type_id": 0}});
        let token = |name: &str| json!({"id": name, "ids": [file["model"]["vocab"][name]], "tokens": [name]});
        file["post_processor"] = json!({
            "type": "TemplateProcessing", "single": [special("<s>"), text, special("</s>")], "pair": [],
            "special_tokens": {"<s>": token("<s>"), "</s>": token("</s>")},
        });
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tokenizer.json"), file.to_string()).unwrap();
        fs::write(dir.path().join("config.json"), r#"{"model_type": "modernbert"}"#).unwrap();
        BertTokenizer::from_pretrained(dir.path()).unwrap()
    }

    #[test]
    fn raw_text_has_the_tokens_and_the_spans_of_the_words_of_training() {
        let names = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"].map(String::from);
        for kind in ["bert", "roberta", "xlm_roberta", "camembert", "deberta_v2", "modernbert"] {
            for (raw, words, expected) in [
                (
                    "Ada (Berlin-Mitte) saw London,Paris.",
                    "Ada| ( Berlin-Mitte@ ) saw London@ , Paris@ .",
                    &["Ada", "Berlin-Mitte", "London", "Paris"][..],
                ),
                (
                    "«Анна» едет в Минск, Омск.",
                    "« Анна| » едет в Минск@ , Омск@ .",
                    &["Анна", "Минск", "Омск"],
                ),
                (
                    "我爱北京的秋天，天安门上太阳升。",
                    "我 爱 北京@ 的 秋天 ， 天安门@ 上 太阳 升 。",
                    &["北京", "天安门"],
                ),
                ("มาลีเดินมาตรัง", "มาลี| เดิน มา ตรัง@", &["มาลี", "ตรัง"]),
            ] {
                let tagged = words.split_whitespace().map(|word| {
                    let tag = if word.ends_with('|') { 1 } else { 3 * usize::from(word.ends_with('@')) };
                    (word.trim_end_matches(['|', '@']).to_string(), tag)
                });
                let (tokens, tags) = tagged.unzip();
                for length in [512, 9] {
                    let tokenizer = tokenizer(kind).with_model_max_length(length);
                    let sentence = LabelledTokens { tokens: Vec::clone(&tokens), tags: Vec::clone(&tags) };
                    let trained = TokenWindow::cut_one(0, &sentence, &tokenizer, &names).unwrap();
                    let read = tokenizer.encode_word_windows(raw, 0).unwrap();
                    let ids: Vec<&[u32]> = read.iter().map(Encoding::input_ids).collect();
                    let expected_ids: Vec<&[u32]> =
                        trained.iter().map(|window| window.encoding.input_ids()).collect();
                    assert_eq!(ids, expected_ids, "{kind}: {raw}");
                    let mut tagged = Vec::new();
                    for (window, trained) in read.iter().zip(&trained) {
                        for word in tokenizer.words(raw, window).unwrap() {
                            // Of a word in two windows, the first has the label.
                            if let Ok(label) = usize::try_from(trained.labels[word.token]) {
                                tagged.push((tag(&names[label], true), word.bytes));
                            }
                        }
                    }
                    let spans = entity_spans(tagged.iter().map(|(tag, _)| *tag)).into_iter();
                    let spans = spans.filter(|(kind, _)| *kind != "O");
                    let found: Vec<&str> = spans
                        .map(|(_, words)| &raw[tagged[words.start].1.start..tagged[words.end - 1].1.end])
                        .collect();
                    assert_eq!(found, expected, "{kind}, {length}");
                }
            }
        }
    }
}
