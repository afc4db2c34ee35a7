//! Entities against transformers' pipeline, and their scores against seqeval's (tests/fixtures/make_entities.py).

use crate::prelude::*;

fn pipeline(name: &str) -> Pipeline<BertForTokenClassification> {
    Pipeline::new(loaded(fixture("entities").join(name)), tokenizer_of_family(name)).unwrap()
}

/// The pipeline with another maximum length.
fn cut(
    pipeline: &Pipeline<BertForTokenClassification>,
    length: usize,
) -> Pipeline<BertForTokenClassification> {
    let (model, tokenizer) = pipeline.clone().into_parts();
    Pipeline::new(model, tokenizer.with_model_max_length(length)).unwrap()
}

#[test]
fn entities_equal_those_of_transformers_pipeline() {
    let cases = json(fixture("entities/cases.json"));
    let mut compared = 0;
    for name in ["bert", "roberta", "albert"] {
        let whole = pipeline(name);
        for run in cases["runs"].as_array().unwrap().iter().filter(|run| run["model"] == name) {
            let aggregation = match run["aggregation"].as_str().unwrap() {
                "none" => Aggregation::None,
                "simple" => Aggregation::Simple,
                "first" => Aggregation::First,
                "average" => Aggregation::Average,
                "max" => Aggregation::Max,
                other => panic!("{other}"),
            };
            let options = TextOptions::new()
                .with_aggregation(aggregation)
                .with_ignored_labels(list(&run["ignored"]))
                .with_stride(run["stride"].as_u64().unwrap() as usize);
            let pipeline =
                run["max_length"].as_u64().map_or(whole.clone(), |length| cut(&whole, length as usize));
            let texts: Vec<String> = list(&run["texts"]);
            let found = pipeline.entities(&texts, &options).unwrap();
            assert_eq!(found.len(), texts.len());
            for ((text, found), expected) in texts.iter().zip(&found).zip(run["entities"].as_array().unwrap())
            {
                let expected = expected.as_array().unwrap();
                let context = format!("{name}, {aggregation:?}, {}: {text:?}", run["max_length"]);
                assert_eq!(found.len(), expected.len(), "{context}: {found:#?}\n{expected:#?}");
                for (found, expected) in found.iter().zip(expected) {
                    let [start, end] = [1, 2].map(|place| expected[place].as_u64().unwrap() as usize);
                    // transformers counts characters, and what is found slices a Rust string.
                    let [from, to] = [found.start, found.end].map(|byte| text[..byte].chars().count());
                    let expected_span = (expected[0].as_str().unwrap(), start, end);
                    assert_eq!((found.label.as_str(), from, to), expected_span, "{context}");
                    assert_eq!(found.text, text[found.start..found.end], "{context}");
                    let score = expected[3].as_f64().unwrap();
                    assert!((found.score - score).abs() < 1e-5, "{context}: {} is not {score}", found.score);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 5000, "{compared} entities");
}

#[test]
fn of_equal_labels_the_first_is_taken_and_a_stride_without_aggregation_is_refused() {
    let (mut model, tokenizer) = pipeline("bert").into_parts();
    model.classifier.weight = model.classifier.weight.map(|weight| weight * 0.0);
    model.classifier.bias = model.classifier.bias.take().map(|bias| bias.map(|bias| bias * 0.0));
    let pipeline = Pipeline::new(model, tokenizer).unwrap();
    let options = TextOptions::new().with_ignored_labels(Vec::new());
    for aggregation in [Aggregation::First, Aggregation::Average, Aggregation::Max] {
        let options = options.clone().with_aggregation(aggregation);
        let found = pipeline.entities(&["the lovable cat"], &options).unwrap().remove(0);
        assert_eq!((found.len(), found[0].label.as_str()), (1, "O"));
    }
    for stride in [1, 2] {
        let options = TextOptions::new().with_aggregation(Aggregation::None).with_stride(stride);
        fails!(pipeline.entities(&["the cat"], &options), Error::Config { field: "stride", .. });
    }
}

#[test]
fn a_type_is_what_follows_the_first_hyphen() {
    let (model, tokenizer) = pipeline("bert").into_parts();
    let names = ["O", "B-a-b", "I-a-b", "B-a-c", "I-a-c", "a-b", "d"].map(String::from);
    let config = model.config().with_id2label(names.into());
    let (model, _) =
        BertForTokenClassification::from_pretrained_with(&config, fixture("entities/bert"), &device())
            .unwrap();
    let text = "He went to the house of a small cat in Berlin, Tokyo and the city of words.";
    let pipeline = Pipeline::new(model, tokenizer).unwrap();
    let found = pipeline.entities(&[text], &TextOptions::new()).unwrap().remove(0);
    assert!(found.iter().any(|entity| ["a-b", "a-c"].contains(&entity.label.as_str())), "{found:?}");
    assert!(found.iter().all(|entity| !["O", "c"].contains(&entity.label.as_str())), "{found:?}");
}

/// In place of the types of the fixture's labels, which are seqeval's `_`.
#[test]
fn tags_that_are_letters_alone_are_entities_of_one_type() {
    let (model, tokenizer) = pipeline("bert").into_parts();
    let with_tags = |tags: [&str; 7]| {
        let config = model.config().with_id2label(tags.map(String::from).into());
        let dir = fixture("entities/bert");
        let (model, _) = BertForTokenClassification::from_pretrained_with(&config, dir, &device()).unwrap();
        Pipeline::new(model, tokenizer.clone()).unwrap()
    };
    let text = "He went to the house of a small cat in Berlin, Tokyo and the city of words.";
    let found = |tags| with_tags(tags).entities(&[text], &TextOptions::new()).unwrap().remove(0);
    // Several names may be one, as in transformers.
    let typed = found(["O", "B-_", "I-_", "B-_", "I-_", "O", "O"]);
    let bare = found(["O", "B", "I", "B", "I", "O", "O"]);
    assert!(bare.iter().any(|entity| entity.text.contains(' ')), "{bare:?}");
    assert!(bare.iter().all(|entity| entity.label == "_"));
    assert_eq!(bare, typed);
    let singles = found(["O", "W", "M", "W", "E", "O", "B"]);
    assert_eq!(singles, found(["O", "S-_", "I-_", "S-_", "E-_", "O", "B-_"]));
    // Beside another name, or without a whole scheme, they are classes.
    for classes in [
        ["O", "B", "I", "B", "I", "PER", "O"],
        ["B", "B", "I", "B", "I", "_", "_"],
        ["O", "B", "M", "B", "M", "O", "O"],
    ] {
        let found = found(classes);
        assert!(found.iter().any(|entity| ["B", "I", "M"].contains(&&*entity.label)), "{found:?}");
        assert!(found.iter().all(|entity| classes.contains(&&*entity.label)), "{found:?}");
    }
}

#[test]
fn each_token_of_a_long_text_is_returned_without_aggregation() {
    let pipeline = pipeline("roberta");
    let text = "😀 我爱 ".repeat(6); // characters of several tokens
    let all = pipeline.tokenizer().encode(&text).unwrap();
    let pipeline = cut(&pipeline, 14);
    let options = TextOptions::new().with_aggregation(Aggregation::None).with_ignored_labels(Vec::new());
    let found = pipeline.entities(&[&text], &options).unwrap().remove(0);
    assert!(pipeline.tokenizer().encode_windows(&text, 0).unwrap().len() > 2);
    let starts: Vec<usize> = found.iter().map(|entity| entity.start).collect();
    let offsets = all.offsets()[1..all.len() - 1].iter().map(|&(start, _)| start);
    assert_eq!(starts, offsets.collect::<Vec<_>>());
}

/// transformers' `return_offsets_mapping` counts characters, these are bytes.
#[test]
fn offsets_give_the_text_of_each_token() {
    let (_, tokenizer) = pipeline("bert").into_parts();
    let text = "Café 我爱 Straße";
    let encoding = tokenizer.encode(text).unwrap();
    let parts: Vec<&str> = encoding.offsets().iter().map(|&(start, end)| &text[start..end]).collect();
    assert_eq!(parts[..4], ["", "Café", "我", "爱"]);
    assert_eq!((parts.last(), parts[4..parts.len() - 1].concat()), (Some(&""), "Straße".to_string()));
    // Of a token that takes the white space on its left. The offset_mapping of transformers 5.23, in bytes.
    let cases: [(_, &[_], &[_]); 4] = [
        ("\u{3000} <mask>", &[(4, 10)], &[(4, 10)]),
        ("a\u{3000}<mask> b", &[(0, 1), (4, 10), (11, 11), (11, 12)], &[(0, 1), (4, 10), (11, 12)]),
        ("caf\u{e9}\u{a0} <mask>", &[(0, 1), (1, 2), (2, 3), (3, 5), (8, 14)], &[(0, 3), (3, 5), (8, 14)]),
        (" \u{3000}the cat", &[(1, 1), (1, 4), (1, 4), (1, 4), (4, 7), (8, 11)], &[(4, 7), (8, 11)]),
    ];
    for (text, of_roberta, of_mpnet) in cases {
        for (name, expected) in [("roberta", of_roberta), ("mpnet", of_mpnet)] {
            let encoding = tokenizer_of_family(name).encode(text).unwrap();
            assert_eq!(encoding.offsets()[1..encoding.len() - 1], *expected, "{name}: {text:?}");
        }
    }
    // Of a map that makes one character of several, several of one, and nothing of some: places of the text as it was.
    let tokenizer = BertTokenizer::from_pretrained(fixture("tokenizer_classes/xlm_roberta")).unwrap();
    let dots = |start: usize| [(start, start + 3); 3];
    let cases = [
        ("？……", [&[(0, 3); 2][..], &dots(3), &dots(6)].concat()),
        ("té\u{202f}……", [&[(0, 1), (1, 3), (6, 9)][..], &dots(6), &dots(9)].concat()),
        ("…x", vec![(0, 3), (0, 3), (0, 3), (0, 3), (3, 4)]),
        ("½ ﬁne Ⅳ", vec![(0, 2), (0, 2), (3, 6), (3, 7), (7, 8), (9, 12), (9, 12)]),
        ("e\u{301}té", vec![(0, 1), (0, 4), (4, 6)]),
        ("👩\u{200d}👩\u{200d}👧 a", vec![(0, 4), (0, 18), (19, 20), (19, 20)]),
    ];
    for (text, expected) in cases {
        let encoding = tokenizer.encode(text).unwrap();
        assert_eq!(encoding.offsets()[1..encoding.len() - 1], expected, "{text:?}");
    }
    let (_, tokenizer) = pipeline("bert").into_parts();
    let text = "the cat \u{3000} <mask>\u{3000}\u{3000}<mask> the cat the";
    let windows = tokenizer_of_family("mpnet").with_model_max_length(6).encode_windows(text, 2).unwrap();
    let offsets: Vec<_> = windows.iter().map(|window| &window.offsets()[1..window.len() - 1]).collect();
    let (masks, end) = ([(12, 18), (24, 30)], [(31, 34), (35, 38), (39, 42)]);
    let expected = [&[(0, 3), (4, 7), masks[0], masks[1]][..], &[masks[0], masks[1], end[0], end[1]], &end];
    assert_eq!(offsets, expected);
    let pair = tokenizer.encode_pair("the cat", "sat").unwrap();
    assert_eq!(pair.sequence_ids(), [None, Some(0), Some(0), None, Some(1), None]);
}
