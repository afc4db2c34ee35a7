//! Files of pairs and triplets of sentences to batches, and of plain text.

use crate::prelude::*;
use burn::data::dataset::Dataset;

/// The texts of a row, and its label.
type Row = (Vec<String>, Option<f32>);

fn open(name: &str, text: &str, columns: &Columns) -> Result<Vec<Row>, burn_bert::Error> {
    let dir = folder(&[(name, text.as_bytes())]);
    let pairs = SentencePairs::open(dir.path().join(name), columns)?;
    let row = |pair: SentencePair| ([vec![pair.anchor, pair.positive], pair.negatives].concat(), pair.label);
    Ok(pairs.iter().map(|pair| row(pair.unwrap())).collect())
}

fn row(sentences: &[&str], label: Option<f32>) -> (Vec<String>, Option<f32>) {
    (sentences.iter().copied().map(String::from).collect(), label)
}

#[test]
fn columns_beside_the_label_are_sentences_in_their_order() {
    let all = Columns::default();
    for (name, text) in [
        ("a.csv", "score,b,a\r\n0.5,x,\"y, z\"\r\n-1,u,v\r\n"),
        ("a.tsv", "b\ta\tscore\nx\ty, z\t0.5\nu\tv\t-1\n"),
        (
            "a.jsonl",
            "{\"b\": \"x\", \"score\": 0.5, \"a\": \"y, z\"}\n\n{\"a\": \"v\", \"score\": -1, \"b\": \"u\"}\n",
        ),
    ] {
        let expected = [row(&["x", "y, z"], Some(0.5)), row(&["u", "v"], Some(-1.0))];
        assert_eq!(open(name, text, &all).unwrap(), expected, "{name}");
    }
    let triplets = "anchor,positive,negative_1,negative_2\na,b,c,d\n";
    assert_eq!(open("a.csv", triplets, &all).unwrap(), [row(&["a", "b", "c", "d"], None)]);
    for name in ["label", "labels", "score", "scores", "similarity", "Label", "SCORE"] {
        let found = open("a.csv", &format!("a,b,{name}\nx,y,1\n"), &all).unwrap();
        assert_eq!(found, [row(&["x", "y"], Some(1.0))]);
    }
    // What numbers the rows is no sentence; pandas writes its index without a name.
    for name in ["", "id", "ID", "idx", "Index", "query_id", "Unnamed: 0"] {
        let found = open("a.csv", &format!("{name},anchor,positive\n0,x,y\n1,u,v\n"), &all).unwrap();
        assert_eq!(found, [row(&["x", "y"], None), row(&["u", "v"], None)], "{name:?}");
    }
    let found =
        open("a.json", "[{\"id\": 7, \"a\": \"x\", \"b\": \"y\", \"score\": \"0.5\"}]", &all).unwrap();
    assert_eq!(found, [row(&["x", "y"], Some(0.5))]);
}

#[test]
fn columns_are_said_to_be_what_they_were_read_as_and_those_in_an_odd_order_are_pointed_out() {
    let summary = |header: &str, columns: &Columns| {
        let row = "x,".repeat(header.split(',').count());
        let dir = folder(&[("a.csv", format!("{header}\n{}\n", row.trim_end_matches(',')).as_bytes())]);
        SentencePairs::open(dir.path().join("a.csv"), columns).unwrap().summary()
    };
    let all = Columns::default();
    let found = summary(",anchor,positive,hard", &all);
    let roles: Vec<_> = found.columns.iter().map(|(name, role)| (name.as_str(), role.as_str())).collect();
    let expected = [
        ("\"\"", "not read"),
        ("\"anchor\"", "anchor"),
        ("\"positive\"", "positive"),
        ("\"hard\"", "negative"),
    ];
    assert_eq!((roles, found.notes.len()), (expected.to_vec(), 0));
    // Those of sentence-transformers' warning about the order of columns.
    for (header, named) in [
        ("answer,query", "column \"answer\" is number 1 of the sentences, but by its name number 2"),
        ("positive,anchor", "column \"positive\" is number 1"),
        ("text,Question", "column \"Question\" is number 2 of the sentences, but by its name number 1"),
        ("id,anchor,negative,positive", "column \"negative\" is number 2"),
    ] {
        let notes = summary(header, &all).notes;
        assert!(notes.len() == 1 && notes[0].starts_with(named), "{header}: {notes:?}");
    }
    for header in ["query,answer", "question,context", "anchor,positive,negative", "premise,hypothesis"] {
        let count = usize::from(header.starts_with("premise")); // sentence-transformers warns of it, too
        assert_eq!(summary(header, &all).notes.len(), count, "{header}");
    }
    assert!(summary("answer,query", &all.with_texts(["answer", "query"])).notes.is_empty(), "it is chosen");
}

/// A label beside chosen sentences, such as the classes of natural language inference, is read only if it is chosen, too.
#[test]
fn columns_are_chosen_by_name_and_by_index() {
    let named = || Columns::default().with_texts(["q", "a"]);
    let unnamed = || Columns::default().without_header();
    let rows = [
        ("a.csv", "id,a,q,y\n7,x,z,2\n", named().with_label("y"), row(&["z", "x"], Some(2.0))),
        (
            "a.jsonl",
            "{\"id\": 7, \"a\": \"x\", \"q\": \"z\", \"y\": 2}\n{\"q\": \"z\", \"a\": \"x\", \"y\": 2}",
            named().with_label("y"),
            row(&["z", "x"], Some(2.0)),
        ),
        ("a.tsv", "label\tb\nc\td\n", unnamed(), row(&["label", "b"], None)),
        ("a.tsv", "1\tb\tc\n", unnamed().with_texts([2, 1]).with_label(0), row(&["c", "b"], Some(1.0))),
        ("a.csv", "q,a,label\nx,y,entailment\n", named(), row(&["x", "y"], None)),
        ("a.jsonl", "{\"q\": \"x\", \"a\": \"y\", \"label\": \"no\"}\n", named(), row(&["x", "y"], None)),
    ];
    each(rows, |(name, text, columns, expected)| {
        assert_eq!(open(name, text, &columns).unwrap()[0], expected, "{name}: {text}")
    });
    // A label that the first row lacks is not dropped from the others.
    let later = "{\"q\": \"x\", \"a\": \"y\"}\n{\"q\": \"x\", \"a\": \"y\", \"score\": 1}\n";
    says(open("a.jsonl", later, &named().with_label("score")), "line 1: the row has no field \"score\"");
}

#[test]
fn what_is_no_pair_is_an_error_that_names_the_line() {
    let all = Columns::default();
    let rows = [
        ("a.csv", "a,b,c\nx,y,z\nx,y\n", "line 3: the row has 2 fields, but the first row has 3"),
        ("a.csv", "a,b,c\nx,y, \n", "line 2: the row has no sentence in column 2"),
        ("a.csv", "a,score\nx,1\n", "are [\"a\", \"score\"], of which 1 has sentences"),
        ("a.jsonl", "{\"a\": \"x\", \"score\": 1}\n", "are [\"a\", \"score\"], of which 1 has sentences"),
        ("a.csv", "a,b,score,label\nx,y,0.5,1\n", "of which [\"score\", \"label\"] may have labels"),
        (
            "a.jsonl",
            "{\"a\": \"x\", \"b\": \"y\"}\n{\"a\": \"x\"}\n",
            "line 2: the row has 1 field, but the first row has 2",
        ),
        ("a.jsonl", "{\"a\": \"x\", \"b\": \"y\"}\n{\"a\": \"x\", \"c\": \"y\"}\n", "has no field \"b\""),
        ("a.jsonl", "{\"a\": \"x\", \"b\": [\"y\"]}\n", "which is not a string"),
        (
            "a.jsonl",
            "{\"a\": \"x\", \"b\": \"y\", \"label\": \"one\"}\n",
            "has the label \"one\", which is not a number in [-1e15, 1e15]",
        ),
        ("a.jsonl", "{\"a\": \"x\", \"b\": \"y\", \"b\": \"z\"}\n", "it has the field \"b\" twice"),
        // A column of labels under another name, and the number of a row.
        ("a.csv", "a,b,rating\nx,y,0.5\nx,y,1\n", "column \"rating\" of"),
        (
            "a.jsonl",
            "{\"number\": \"7\", \"a\": \"x\", \"b\": \"y\"}\n",
            "has numbers alone, and would be read as sentences",
        ),
        ("a.jsonl", "\n", "has no"),
        ("a.txt", "", "the extension of"),
    ];
    each(rows, |(name, text, problem)| says(open(name, text, &all), problem));
    // Not if they are chosen, nor if one is a text.
    open("a.csv", "a,b\n1,2\n", &Columns::default().with_texts(["a", "b"])).unwrap();
    open("a.csv", "a,b\n1,2\nx,y\n", &all).unwrap();
    for label in ["z", "NaN", ""] {
        let error = open("a.csv", &format!("a,b,score\nx,y,{label}\n"), &all).unwrap_err().to_string();
        let problem = format!("the row has the label {label:?}, which is not a number in [-1e15, 1e15]");
        assert!(error.contains(&format!("line 2: {problem}")), "{error}");
    }
    let missing = open("a.csv", "a,b\nx,y\n", &all.clone().with_label("score")).unwrap_err().to_string();
    assert!(missing.contains("column \"score\" of") && missing.contains("is not in the header"), "{missing}");
    let result = open("a.jsonl", "{\"a\": \"x\", \"b\": \"y\"}\n", &all.with_label("score"));
    says(result, "line 1: the row has no field \"score\"");
}

#[test]
fn the_negatives_of_a_batch_follow_its_positives_column_by_column() {
    let dir = folder(&[("a.csv", b"anchor,positive,n1,n2\na,b,c,d\ne,f,g,h\n")]);
    let tokenizer = tokenizer_of(&["a", "b", "c", "d", "e", "f", "g", "h"]);
    let pairs = SentencePairs::open(dir.path().join("a.csv"), &Columns::default()).unwrap();
    assert_eq!((pairs.has_labels(), pairs.num_negatives(), pairs.sizes()), (false, 2, vec![4, 4]));
    let device = device();
    let batch_tokenizer = tokenizer.clone();
    let batches = Batches::new(pairs, move |pairs: &[_], device: &_| {
        SentencePair::batch(pairs, &batch_tokenizer, device)
    });
    let batch = EpochLoader::new(batches, 2, &device).unwrap().epoch(0).next().unwrap().unwrap();
    let ids = |input: &burn_bert::BertEmbeddingsInput| -> Vec<i64> {
        input.input_ids().unwrap().narrow(1, 1, 1).into_data().iter().collect()
    };
    assert_eq!((ids(&batch.anchors), ids(&batch.candidates)), (vec![5, 9], vec![6, 10, 7, 11, 8, 12]));
    assert_eq!(batch.labels, None);

    let pair = |negatives: &[&str], label| SentencePair {
        negatives: negatives.iter().copied().map(String::from).collect(),
        label,
        ..SentencePair::new("a", "b")
    };
    let batch = |pairs: Vec<SentencePair>| SentencePair::batch(&pairs, &tokenizer, &device);
    let refused = |pairs| batch(pairs).unwrap_err().to_string();
    let labelled = batch(vec![pair(&[], Some(0.5)), pair(&[], Some(1.0))]).unwrap();
    assert_eq!(labelled.labels, Some(vec![0.5, 1.0]));
    let found = refused(vec![pair(&["c"], None), pair(&[], None)]);
    assert!(found.contains("pairs[1] has 0 negatives, but pairs[0] has 1 negative"), "{found}");
    let found = refused(vec![pair(&[], Some(1.0)), pair(&[], None)]);
    assert!(found.contains("pairs[1] and pairs[0] must both have a label, or neither"), "{found}");
    let found = refused(vec![pair(&[], Some(f32::NAN))]);
    assert!(found.contains("pairs[0] has the label NaN, which is not finite"), "{found}");
}

// Text files for masked language modelling

#[test]
fn lines_are_trimmed_whatever_ends_them_and_what_is_not_utf8_is_named_by_line_and_byte() {
    for (content, expected) in [
        ("one\n\n  two words \n\t\n\u{3000}\nthree", &["one", "two words", "three"][..]),
        ("\n\n\nlast\n\n", &["last"]),
        ("\u{feff}我爱\r\n北京\r\n", &["我爱", "北京"]),
        // Only at the start of the file is it a byte order mark.
        ("a\n\u{feff}b", &["a", "\u{feff}b"]),
    ] {
        let dir = folder(&[("text", content.as_bytes())]);
        let found = PlainText::open(dir.path().join("text")).unwrap();
        let expected = PlainText::new(expected.iter().copied()).unwrap();
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    }
    for (content, expected) in [
        (&b"first\nsecond\r\n\nthe caf\xe9 is open\nlast\n"[..], (4, 22)),
        // The file breaks off in a character.
        (&"我爱北京".as_bytes()[..10], (1, 9)),
    ] {
        let dir = folder(&[("text", content)]);
        let error = PlainText::open(dir.path().join("text")).unwrap_err();
        let Error::NotUtf8 { line, offset, .. } = error else { panic!("{error:?}") };
        assert_eq!((line, offset), expected, "{content:?}");
    }
}

/// Byte 2²⁰ is inside a word, and inside a character where there is no white space.
#[test]
fn a_line_of_megabytes_has_the_tokens_of_its_words() {
    let words = "cat 中中 ".repeat(100_000);
    for (line, tokens) in [(words, 300_000), ("中".repeat(400_000), 400_000)] {
        let windows = PlainText::new([line]).unwrap().windows(tokenizer_of(&["cat", "中"]), 7).unwrap();
        assert_eq!(windows.len(), tokens / 5);
        let all = windows.iter().flat_map(|window| window.unwrap().input_ids);
        assert!(all.filter(|id| ![2, 3].contains(id)).all(|id| [5, 6].contains(&id)), "no [UNK]");
    }
}
