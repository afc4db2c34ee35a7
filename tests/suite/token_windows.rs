//! Windows of tagged sentences: the tags of parts of a word, and the tokens that `Pipeline::entities` reads.

use crate::prelude::*;
use burn_bert::metrics::EntityScores;

fn named(names: &str) -> Vec<String> {
    names.split(' ').map(String::from).collect()
}

/// The names of the labels of a word that the tokenizer takes for several.
fn tags_of_parts(word: &str, tag: &str, names: &[String]) -> Vec<String> {
    let tag = names.iter().position(|name| name == tag).unwrap();
    let sentence = LabelledTokens { tokens: vec![word.into()], tags: vec![tag] };
    let sentences = LabelledSentences::new(vec![sentence], names.to_vec()).unwrap();
    let windows = TokenWindow::of(&sentences, &tokenizer_of(&["a", "b", "-"])).unwrap();
    windows[0].labels.iter().filter_map(|&label| names.get(usize::try_from(label).ok()?)).cloned().collect()
}

#[test]
fn parts_of_a_word_have_the_tags_of_one_entity_in_each_scheme() {
    for (scheme, whole, parts) in [
        ("O B-X I-X", "B-X", "B-X I-X I-X"),
        ("O B-X I-X", "I-X", "I-X I-X I-X"),
        ("O B-X I-X E-X S-X", "S-X", "B-X I-X E-X"),
        ("O B-X I-X E-X S-X", "E-X", "I-X I-X E-X"),
        ("O B-X I-X L-X U-X", "U-X", "B-X I-X L-X"),
        ("O B-X M-X E-X S-X", "S-X", "B-X M-X E-X"),
        ("O B-X I-X E-X S-X", "O", "O O O"),
        ("O B-X M-X E-X W-X", "W-X", "B-X M-X E-X"),
        ("O B I", "B", "B I I"),
        ("O B I L U", "U", "B I L"),
        ("O B I", "O", "O O O"),
    ] {
        let (names, parts) = (named(scheme), named(parts));
        assert_eq!(tags_of_parts("a-b", whole, &names), parts, "{whole} of {scheme}");
        assert_eq!(tags_of_parts("a", whole, &names), [whole]);
        assert_eq!(entities(&parts), u64::from(whole != "O"), "{whole} of {scheme}");
    }
    for (tags, count) in [
        ("S-X S-X", 2),
        ("U-X U-X", 2),
        ("B-X E-X", 1),
        ("B-X L-X B-X L-X", 2),
        ("B-X I-X E-X S-X B-X E-X", 3),
        ("B-X M-X E-X B-X", 2),
        ("I-X B-X I-X", 2),
        ("I-X I-Y", 2),
    ] {
        assert_eq!(entities(&named(tags)), count, "{tags}");
    }
}

fn entities(tags: &[String]) -> u64 {
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    let mut scores = EntityScores::default();
    scores.add(&tags, &tags);
    scores.total().present
}

/// The kinds of tokenizers by their fixtures, and ModernBERT's: byte-level, with special tokens of a template.
fn tokenizer(kind: &str) -> BertTokenizer {
    let classes = fixture("tokenizer_classes");
    if kind != "modernbert" {
        return BertTokenizer::from_pretrained(classes.join(kind)).unwrap();
    }
    let mut file = json(classes.join("roberta/tokenizer.json"));
    let special = |name: &str| json!({"SpecialToken": {"id": name, "type_id": 0}});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let token = |name: &str| json!({"id": name, "ids": [file["model"]["vocab"][name]], "tokens": [name]});
    file["post_processor"] = json!({
        "type": "TemplateProcessing", "single": [special("<s>"), text, special("</s>")], "pair": [],
        "special_tokens": {"<s>": token("<s>"), "</s>": token("</s>")},
    });
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("tokenizer.json"), file.to_string()).unwrap();
    fs::write(dir.path().join("config.json"), r#"{"model_type": "modernbert"}"#).unwrap();
    BertTokenizer::from_pretrained(dir.path()).unwrap()
}

#[test]
fn words_that_are_tagged_have_the_tokens_of_their_text_and_its_labels() {
    let names = named("O B-PER I-PER B-LOC I-LOC");
    for kind in ["bert", "roberta", "xlm_roberta", "camembert", "deberta_v2", "modernbert"] {
        for (raw, words, expected) in [
            (
                "Ada (Berlin-Mitte) saw London,Paris.",
                "Ada| ( Berlin-Mitte@ ) saw London@ , Paris@ .",
                &["Ada", "Berlin-Mitte", "London", "Paris"][..],
            ),
            ("«Анна» едет в Минск, Омск.", "« Анна| » едет в Минск@ , Омск@ .", &["Анна", "Минск", "Омск"]),
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
            let text = raw.split(' ').map(|word| (word.to_string(), 0)).unzip();
            for length in [512, 9] {
                let tokenizer = tokenizer(kind).with_model_max_length(length);
                let windows = |(tokens, tags): &(Vec<String>, Vec<usize>)| {
                    let sentence = LabelledTokens { tokens: tokens.clone(), tags: tags.clone() };
                    let sentences = LabelledSentences::new(vec![sentence], names.clone()).unwrap();
                    TokenWindow::of(&sentences, &tokenizer).unwrap()
                };
                let (tagged, read) = (windows(&(Vec::clone(&tokens), Vec::clone(&tags))), windows(&text));
                let mut found: Vec<(String, usize)> = Vec::new();
                assert_eq!(tagged.len(), read.len(), "{kind}: {raw}");
                for (tagged, read) in tagged.iter().zip(&read) {
                    assert_eq!(tagged.encoding.input_ids(), read.encoding.input_ids(), "{kind}: {raw}");
                    // Of a word in two windows, the first has the label.
                    for (label, (start, end)) in tagged.labels.iter().zip(read.encoding.offsets()) {
                        match label {
                            1 | 3 => found.push((raw[*start..*end].trim().into(), *end)),
                            2 | 4 => {
                                let (entity, before) = found.last_mut().unwrap();
                                entity.push_str(&raw[*before..*end]);
                                *before = *end;
                            }
                            _ => {}
                        }
                    }
                }
                // The last word of an entity may have more tokens.
                let is_entity = |((found, end), expected): (&(String, usize), &&str)| {
                    let rest = expected.strip_prefix(found.as_str());
                    rest.is_some_and(|rest| !rest.contains('-') && raw[*end..].starts_with(rest))
                };
                assert_eq!(found.len(), expected.len(), "{kind}, {length}: {found:?}");
                assert!(found.iter().zip(expected).all(is_entity), "{kind}, {length}: {found:?}");
            }
        }
    }
}
