//! Windows of tagged sentences: the tags of parts of a word.

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
    let windows = TokenWindow::cut(&sentences, &tokenizer_of(&["a", "b", "-"])).unwrap();
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
