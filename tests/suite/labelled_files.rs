//! Labelled files: what is read, and what is refused.

use crate::prelude::*;
use burn::data::dataset::Dataset;

/// A file in a folder of its own.
fn file(name: &str, text: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let dir = folder(&[(name, text.as_ref())]);
    let path = dir.path().join(name);
    (dir, path)
}

/// A file that is deleted once it is read.
fn open(name: &str, text: impl AsRef<[u8]>, columns: &Columns) -> Result<LabelledTexts, Error> {
    let (_dir, path) = file(name, text);
    LabelledTexts::open(path, columns)
}

fn all(texts: &LabelledTexts) -> Vec<(String, Option<String>, Label)> {
    texts.iter().map(|text| text.map(|text| (text.text, text.pair, text.label)).unwrap()).collect()
}

fn text(text: &str, label: Label) -> (String, Option<String>, Label) {
    (text.into(), None, label)
}

#[test]
fn tables_have_quoted_fields_or_none_and_a_header_or_none() {
    let default = Columns::default;
    let unnamed = default().with_texts([1]).with_label(2).with_kind(LabelKind::Value).without_header();
    let [zero, one] = [0, 1].map(Label::Class);
    let [three, minus_half] = [3.0, -0.5].map(Label::Value);
    let quoted = "\u{feff}label,text\r\npos,\"a, \"\"b\"\"\nc\"\r\nneg,d\r\npos,\"\"\r\n";
    let rows = [
        // Commas, quotes and line breaks in quotes.
        ("a.csv", quoted, default(), &[("a, \"b\"\nc", &one), ("d", &zero), ("", &one)][..]),
        // Quotes that are closed, or are none.
        (
            "a.csv",
            "text,label\n\"a \"\"b\"\"\",c\nd \"e,c\n\"f\"g\"h,c\n",
            default(),
            &[("a \"b\"", &zero), ("d \"e", &zero), ("fg\"h", &zero)],
        ),
        ("a.tsv", "0\tsay \"no\t3\n1\t\"\t-0.5\n", unnamed, &[("say \"no", &three), ("\"", &minus_half)]),
        ("a.csv", "text , label\na,b\n", default(), &[("a", &zero)]),
        ("a.csv", "Label,Text\nb,a\n", default(), &[("a", &zero)]),
        ("a.csv", "Label,text,label\nb,a,c\nb,d,e\n", default(), &[("a", &zero), ("d", &one)]),
        // A name that the header has twice is chosen by index; others may be there twice.
        ("a.csv", "text,label,text,other,other\na,b,c,d,e\n", default().with_texts([2]), &[("c", &zero)]),
    ];
    each(rows, |(name, content, columns, expected)| {
        let texts = open(name, content, &columns).unwrap();
        let expected: Vec<_> = expected.iter().map(|&(found, label)| text(found, label.clone())).collect();
        assert_eq!(all(&texts), expected, "{content:?}");
        assert_eq!(texts.sizes().len(), texts.len());
    });
}

#[test]
fn a_malformed_row_is_an_error_that_names_file_and_line_and_so_are_columns_that_are_not_there() {
    let [class, classes, number] = [LabelKind::Class, LabelKind::Classes, LabelKind::Value];
    let lists =
        |labels: [&str; 2]| labels.map(|label| format!("{{\"text\": \"a\", \"label\": {label}}}\n")).concat();
    let rows = [
        (class, "a.csv", "text,label\n\"a\n\",b\nc,d,e\n", 4, "3 fields"),
        // Lines count with blank ones before them, and those in quotes.
        (class, "a.csv", "text,label\na,b\n\n\nc,\n", 5, "no label"),
        (class, "a.csv", "text,label\r\na,b\r\n\r\n\r\nc,\r\n", 5, "no label"),
        (class, "a.csv", "text,label\ra,b\r\rc,\r", 4, "no label"),
        (class, "a.csv", "text,label\n\"\n\",b\n\nc,\n", 5, "no label"),
        (class, "a.csv", "text,label\na,b\n\"c,d\ne,f\ng,h\n", 3, "not closed"),
        (class, "a.csv", "text,label\n\"a\nb\",c\n\"d \"\" e,f\n", 4, "not closed"),
        (class, "a.csv", "text,label\na,\"b", 2, "not closed"),
        (class, "a.csv", "\"text,label\na,b\n", 1, "not closed"),
        (class, "a.jsonl", "{\"text\": \"a\", \"label\": 1}\n\n{\"text\": \"a\"}\n", 3, "no field"),
        (class, "a.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \n", 2, "JSON object"),
        (class, "a.jsonl", "{\"text\": \"a\", \"label\": -1}\n", 1, "name or an id"),
        (class, "a.jsonl", "[1]\n", 1, "JSON object"),
        (class, "a.jsonl", "{\"text\": \"a\", \"label\": \"\"}\n", 1, "no label"),
        (class, "a.jsonl", "{\"text\": \"a\", \"label\": 1, \"text\": \"b\"}\n", 1, "\"text\" twice"),
        (classes, "a.jsonl", "{\"text\": \"a\", \"label\": [\"b\", \" \"]}\n", 1, "no label"),
        (classes, "a.csv", "text,label\na,b\nc,\"d,b,d\"\n", 3, "names \"d\" twice"),
        (classes, "a.jsonl", &lists(["[2]", "[0, 2, 2]"]), 2, "names 2 twice"),
        // Of zeros and ones the row is wrong that is not like the others, wherever it stands.
        (classes, "a.jsonl", &lists(["[0]", "[1, 0, 0]"]), 1, "which is not 3 zeros and ones"),
        (classes, "a.jsonl", &lists(["[1, 0, 0]", "[0, 2, 1]"]), 2, "which is not 3 zeros and ones"),
        (class, "a.json", "[{\"text\": \"a\", \"label\": 1},\n {\"text\": \"a\"}]", 2, "no field"),
        (class, "a.json", "[{\"text\": \"a\", \"label\": 1}", 1, "list that is not closed"),
        // As Python prints a list.
        (classes, "a.tsv", "text\tlabel\nx\t['a', 'b']\n", 2, "JSON list"),
        (number, "a.jsonl", "{\"text\": \"a\", \"label\": 1e300}", 1, "not a number"),
    ];
    let numbers = ["abc", "NaN", "inf", "", "1e300", "-1e16"].map(|value| format!("text,label\na,{value}\n"));
    let numbers = numbers.iter().map(|text| (number, "a.csv", text.as_str(), 2, "not a number"));
    for (kind, name, text, line, problem) in rows.into_iter().chain(numbers) {
        let error = open(name, text, &Columns::default().with_kind(kind)).unwrap_err();
        assert!(matches!(&error, Error::Row { line: found, .. } if *found == line), "{text:?}: {error}");
        let message = error.to_string();
        assert!(message.contains(name) && message.contains(problem), "{text:?}: {message}");
    }
    for name in ["a.csv", "a.jsonl"] {
        let result = open(name, b"text,label\na,b\n\xff,b\n", &Columns::default());
        fails!(result, Error::NotUtf8 { line: 3, offset: 15, .. });
    }
    // Beside those whose messages tests/suite/errors lists.
    let unnamed = Columns::default().without_header();
    for (name, content, columns) in
        [("a.csv", "a,b\n", unnamed), ("a.jsonl", "{}\n", Columns::default().with_texts([0]))]
    {
        assert!(matches!(open(name, content, &columns), Err(Error::Data { .. })), "{content:?}");
    }
    fails!(LabelledTexts::open("/nowhere/a.csv", &Columns::default()), Error::Io { .. });
}

#[test]
fn sentences_come_from_columns_and_from_json_lines() {
    const PLAIN: &str = "The/O cats/B-A; sat/O";
    // CoNLL-U: the words are the second column, the parts of speech the fourth.
    let row = |id: &str, word: &str, tag: &str| format!("{id}\t{word}\tx\t{tag}\t_\t_\t0\troot\t_\t_\n");
    let conll_u = [
        "# sent_id = 1\n# text = Vámonos al mar\n".to_string(),
        row("1-2", "vámonos", "_"),
        row("1", "vamos", "VERB"),
        row("2", "nos", "PRON"),
        row("2.1", "quizá", "ADV"),
        row("3", "#", "SYM"),
        "\n# sent_id = 2\n".to_string(),
        row("1", "mar", "NOUN"),
    ];
    let rows = [
        ("a.txt", "-DOCSTART- -X- O O\n\nThe DT O\ncats NNS B-A\n\n\nsat VBD O\n", PLAIN, "B-A,O"),
        (
            "a.jsonl",
            r#"{"tokens": ["The", "cats"], "ner_tags": ["O", "B-A"]}|{"tokens": ["sat"], "tags": ["O"]}"#,
            PLAIN,
            "B-A,O",
        ),
        (
            "a.json",
            r#"[{"words": ["The", "cats"], "labels": [" O", "B-A"]},|{"words": ["sat"], "labels": ["O "]}]"#,
            PLAIN,
            "B-A,O",
        ),
        // Partly tagged.
        (
            "a.jsonl",
            r#"{"words": ["The", "cats"], "labels": [-100, 0]}|{"words": ["sat"], "labels": [1]}"#,
            "The/- cats/LABEL_0; sat/LABEL_1",
            "LABEL_0,LABEL_1",
        ),
        // Other white space than what separates is part of a word or a tag.
        (
            "a.conll",
            "New York\tNNP\tB A\n10\u{a0}000\tCD\tO\n\u{a0}\tX\tO\n",
            "New York/B A 10\u{a0}000/O \u{a0}/O",
            "B A,O",
        ),
        ("a.conll", "10\u{a0}000 CD  O\n a O\n", "10\u{a0}000/O a/O", "O"),
        // Comments are no words.
        (
            "a.conll",
            "# id 3f\tdomain=en\nAda _ _ B\n# _ _ O\n\n# text = 5 a\nHi _ _ O\n",
            "Ada/B #/O; Hi/O",
            "B,O",
        ),
        ("a.conllu", &conll_u.concat(), "vamos/VERB nos/PRON #/SYM; mar/NOUN", "NOUN,PRON,SYM,VERB"),
    ];
    each(rows, |(name, content, expected, names)| {
        let content = if name.contains("json") { content.replace('|', "\n\n") } else { content.into() };
        let (_dir, path) = file(name, content);
        let sentences = LabelledSentences::open(&path).unwrap();
        assert_eq!(sentences.names().join(","), names);
        let word = |(word, &tag): (&String, &usize)| {
            format!("{word}/{}", sentences.names().get(tag).map_or("-", String::as_str))
        };
        let found: Vec<_> = sentences
            .iter()
            .map(|sentence| {
                sentence
                    .map(|s| s.tokens.iter().zip(&s.tags).map(word).collect::<Vec<_>>().join(" "))
                    .unwrap()
            })
            .collect();
        assert_eq!((found.join("; "), sentences.summary().len), (expected.to_string(), found.len()));
    });
    let rows = [
        // A bare carriage return ends no line.
        ("a.txt", "a O\n\rb O\r\n", 2),
        ("a.txt", "a O\rb O\r", 1),
        // A column is missing, and the next is none.
        ("a.conll", "\tO\tB\n", 1),
        ("a.conll", "a \n", 1),
        ("a.conllu", "# x\n1\tAda\tAda\n", 2),
        ("a.jsonl", "{\"tokens\": [\"a\"], \"tags\": []}", 1),
        ("a.jsonl", "{\"tokens\": [\"a\"], \"tags\": [\"\"]}\n", 1),
        ("a.jsonl", "{\"tokens\": [\"a\"], \"tags\": [1], \"tags\": [0]}\n", 1),
    ];
    each(rows, |(name, text, line)| {
        let (_dir, path) = file(name, text);
        let error = LabelledSentences::open(&path).unwrap_err();
        assert!(matches!(error, Error::Row { line: found, .. } if found == line), "{text:?}: {error}");
    });
}

#[test]
fn json_lines_hold_names_ids_lists_and_numbers_and_tables_lists_of_classes() {
    let ids = "{\"text\": \"x\", \"label\": 1, \"other\": []}\n\n{\"label\": 0, \"text\": \"y\"}";
    let texts = open("a.jsonl", ids, &Columns::default()).unwrap();
    assert_eq!(all(&texts), [text("x", Label::Class(1)), text("y", Label::Class(0))]);
    assert_eq!(texts.names(), ["LABEL_0", "LABEL_1"]);

    let lists = "{\"text\": \"x\", \"label\": [\"b\", \"a\"]}\n{\"text\": \"y\", \"label\": []}\n";
    let columns = Columns::default().with_kind(LabelKind::Classes);
    let texts = open("a.json", lists, &columns).unwrap();
    assert_eq!(all(&texts), [text("x", Label::Classes(vec![0, 1])), text("y", Label::Classes(vec![]))]);
    let lists = "text\tlabel\nx\t[\"b, c\", \"a\"]\ny\ta,d\nz\t[]\n";
    let texts = open("a.tsv", lists, &columns).unwrap();
    assert_eq!(texts.names(), ["a", "b, c", "d"]);
    let classes = all(&texts).into_iter().map(|(_, _, label)| label).collect::<Vec<_>>();
    assert_eq!(classes, [vec![0, 1], vec![0, 2], vec![]].map(Label::Classes));
    says(open("a.tsv", "text\tlabel\nx\t[\"a\"]\n", &Columns::default()), "a name or an id");

    // A list of rows, as pandas' `to_json(orient="records")` writes it, in one line or in many.
    let rows = [json!({"text": "x", "label": "b"}), json!({"text": "y", "label": "a"})];
    for list in [json!(rows).to_string(), format!("{:#}", json!(rows))] {
        let texts = open("a.json", list, &Columns::default()).unwrap();
        assert_eq!(all(&texts), [text("x", Label::Class(1)), text("y", Label::Class(0))]);
    }
}

#[test]
fn words_that_other_readers_take_for_nothing_are_texts() {
    let nothing = ["null", "NA", "None", "nan", "N/A", "NULL"];
    let csv = nothing.map(|word| format!("{word},a\n")).concat();
    let lines = nothing.map(|word| json!({"text": word, "label": "a"}).to_string()).join("\n");
    for (name, content) in [("a.csv", format!("text,label\n{csv}")), ("a.jsonl", lines)] {
        let texts = open(name, content, &Columns::default()).unwrap();
        assert_eq!(all(&texts), nothing.map(|word| text(word, Label::Class(0))), "{name}");
    }
}

/// The layout of transformers' guides and of Kaggle's comments.
#[test]
fn a_zero_or_one_for_each_class_is_read_from_lists_and_from_columns() {
    let columns = Columns::default().with_kind(LabelKind::Classes);
    let lists = |labels: &[&str], quote: &str| -> String {
        let row = |label: &&str| match quote {
            "" => format!("{{\"text\": \"x\", \"label\": {label}}}\n"),
            _ => format!("x,{quote}{label}{quote}\n"),
        };
        labels.iter().map(row).collect()
    };
    let expected = [vec![0, 2], vec![1], vec![], vec![0, 1]].map(Label::Classes);
    let found = |texts: &LabelledTexts| all(texts).into_iter().map(|(_, _, label)| label).collect::<Vec<_>>();
    for labels in [
        ["[1, 0, 1]", "[0, 1, 0]", "[0, 0, 0]", "[1, 1, 0]"],
        ["[1.0, 0.0, 1.0]", "[0.0, 1.0, 0.0]", "[0.0, 0.0, 0.0]", "[1.0, 1.0, 0.0]"],
        ["[true, false, true]", "[false, true, false]", "[false, false, false]", "[true, true, false]"],
    ] {
        for (name, text) in
            [("a.jsonl", lists(&labels, "")), ("a.csv", format!("text,label\n{}", lists(&labels, "\"")))]
        {
            let texts = open(name, &text, &columns).unwrap();
            assert_eq!((found(&texts), texts.names().len()), (expected.to_vec(), 3), "{text}");
            // A class that no text has is one.
            assert_eq!(texts.names(), ["LABEL_0", "LABEL_1", "LABEL_2"]);
            let (_dir, path) = file(name, &text);
            let names = ["toxic", "rude", "kind"].map(String::from);
            let texts = LabelledTexts::open_with_names(&path, &columns, &names).unwrap();
            assert_eq!((found(&texts), texts.names()), (expected.to_vec(), &names[..]));
            says(
                LabelledTexts::open_with_names(&path, &columns, &names[..2]),
                "which is not 2 zeros and ones",
            );
        }
    }
    // A list without a number twice is one of ids, if all others may be.
    let ids = open("a.jsonl", lists(&["[1, 0]", "[0]", "[1]"], ""), &columns).unwrap();
    assert_eq!(found(&ids), [vec![0, 1], vec![0], vec![1]].map(Label::Classes));
    let pair = open("a.jsonl", lists(&["[1, 0]", "[0, 1]", "[0, 0]"], ""), &columns).unwrap();
    assert_eq!(found(&pair), [vec![0], vec![1], vec![]].map(Label::Classes));

    let columns = Columns::default().with_labels(["toxic", "rude", "kind"]);
    let table = "id,text,toxic,rude,kind\n7,x,1,0,1\n8,x,0,1,0\n9,x,0,0,0\n6,x,1,1,0\n";
    let texts = open("a.csv", table, &columns).unwrap();
    assert_eq!(texts.names(), ["kind", "rude", "toxic"]);
    assert_eq!(found(&texts), [vec![0, 2], vec![1], vec![], vec![1, 2]].map(Label::Classes));
    let names = ["toxic", "rude", "kind"].map(String::from);
    let (_dir, path) = file("a.csv", table);
    let texts = LabelledTexts::open_with_names(&path, &columns, &names).unwrap();
    assert_eq!(found(&texts), expected);
    let unnamed = Columns::default().without_header().with_texts([0]).with_labels([1, 2]);
    let texts = open("a.csv", "x,1.0,False\ny,0.0,True\n", &unnamed).unwrap();
    assert_eq!((found(&texts), texts.names().len()), ([vec![0], vec![1]].map(Label::Classes).to_vec(), 2));
    let json = "{\"text\": \"x\", \"toxic\": true, \"rude\": 0, \"kind\": 1.0}\n";
    assert_eq!(found(&open("a.jsonl", json, &columns).unwrap()), [Label::Classes(vec![0, 2])]);
    let error = open("a.csv", "text,toxic,rude,kind\nx,1,0,1\nx,1,,0\n", &columns).unwrap_err().to_string();
    assert!(error.contains("line 3") && error.contains("which is not 3 zeros and ones"), "{error}");
}

#[test]
fn pairs_and_names_of_another_file_are_kept() {
    let (_dir, path) = file("a.tsv", "p\th\ty\na\tb\tno\n");
    let columns = Columns::default().with_texts(["p", "h"]).with_label("y");
    let names = ["yes", "no"].map(String::from).to_vec();
    let texts = LabelledTexts::open_with_names(&path, &columns, &names).unwrap();
    assert_eq!(all(&texts), [("a".into(), Some("b".into()), Label::Class(1))]);
    let result = LabelledTexts::open_with_names(&path, &columns, &["no", "yes", "no"].map(String::from));
    says(result, "label name \"no\" occurs twice");
}

#[test]
fn numbers_among_labels_are_the_ids_0_to_n_or_refused() {
    let (_dir, train) = file("train.csv", "text,label\na,good\nb,bad\n");
    let (_dir, valid) = file("valid.csv", "text,label\na,good\nb,1\n");
    let default = Columns::default();
    let names = LabelledTexts::open(&train, &default).unwrap().names().to_vec();
    fails!(LabelledTexts::open_with_names(&valid, &default, &names), Error::Row { line: 3, .. }, "\"1\"");

    // Ids stay ids, and an integer of JSON is one, unless it may be a name.
    let (_dir, train) = file("train.csv", "text,label\na,1\nb,0\n");
    let numbered = LabelledTexts::open(&train, &default).unwrap();
    let again = LabelledTexts::open_with_names(&train, &default, numbered.names()).unwrap();
    assert_eq!(all(&again), [text("a", Label::Class(1)), text("b", Label::Class(0))]);
    let (_dir, ids) = file("ids.jsonl", "{\"text\": \"a\", \"label\": 1}\n");
    let texts = LabelledTexts::open_with_names(&ids, &default, &names).unwrap();
    assert_eq!(all(&texts), [text("a", Label::Class(1))]);
    let (_dir, ids) = file("ids.jsonl", "{\"text\": \"a\", \"label\": 2}\n");
    for names in [names, ["2", "1", "0"].map(String::from).to_vec()] {
        fails!(LabelledTexts::open_with_names(&ids, &default, &names), Error::Row { line: 1, .. });
    }
    // Each list is the labels of a file, in its order.
    let open = |labels: &[&str]| {
        let rows: String = labels.iter().map(|label| format!("a,{label}\n")).collect();
        open("a.csv", format!("text,label\n{rows}"), &Columns::default())
    };
    let ids = |texts: LabelledTexts| all(&texts).into_iter().map(|(_, _, label)| label).collect::<Vec<_>>();
    assert_eq!(ids(open(&["2", "0", "1", "2"]).unwrap()), [2, 0, 1, 2].map(Label::Class));
    assert_eq!(ids(open(&["nan", "1st", "a"]).unwrap()), [2, 0, 1].map(Label::Class), "sorted words");
    for (labels, wrong) in [
        (&["0", "1", "2", "-1"] as &[&str], "-1"),
        (&["0.0", "1.0", "2.0", "10.0"], "0.0"),
        (&["00", "0"], "00"),
        (&["+1", "1", "0"], "+1"),
        (&["1", "5"], "5"),
        (&["7", "100001"], "100001"),
        (&["0", "1", "a"], "a"),
        // A zero for the letter.
        (&["B-PER", "I-PER", "0", "B-LOC"], "0"),
        (&["B-LOC", "0"], "0"),
        (&["0", "negative", "positive", "2"], "0"),
    ] {
        let error = open(labels).unwrap_err().to_string();
        assert!(error.contains(&format!("label {wrong:?}")) && error.contains("open_with_names"), "{error}");
    }
    // A tag is a label.
    let (_dir, path) = file("a.conll", "Ada 1\nlaughs 2\n");
    assert!(matches!(LabelledSentences::open(&path), Err(Error::Data { .. })));
}

#[test]
fn what_was_understood_of_a_file_is_printed() {
    let texts = open("a.csv", "text,label\na,no\nb,yes\nc,no\n", &Columns::default()).unwrap();
    let columns = "\n  \"text\": text\n  \"label\": label";
    assert_eq!(texts.to_string(), format!("3 texts of 2 classes\n  0 \"no\": 2\n  1 \"yes\": 1{columns}"));
    let texts = open("a.csv", "Label,n,text\nno,1,a\nNo,2,\nno,3, \n", &Columns::default()).unwrap();
    let summary = texts.summary();
    assert_eq!((summary.items, summary.len), ("texts", 3));
    assert_eq!(summary.classes, [("No".to_string(), 1), ("no".to_string(), 2)]);
    let columns = [("\"Label\"", "label"), ("\"n\"", "not read"), ("\"text\"", "text")];
    assert_eq!(summary.columns, columns.map(|(name, role)| (name.to_string(), role.to_string())));
    let alike = "[\"No\", \"no\"] differ in case alone, and are classes of their own";
    assert_eq!(summary.notes, ["2 of 3 texts have an empty text", alike]);
    assert!(texts.to_string().ends_with(&format!("\n  note: {alike}")), "{texts}");
    let numbers = Columns::default().with_kind(LabelKind::Value);
    let texts = open("a.csv", "text,label\na,1.5\nb,-2\n", &numbers).unwrap();
    let columns = "\n  \"text\": text\n  \"label\": label";
    assert_eq!(texts.to_string(), format!("2 texts with numbers from -2 to 1.5{columns}"));
    let (_dir, path) = file("a.conll", "Ada B\nlaughs O\n\nHi O\n");
    let sentences = LabelledSentences::open(&path).unwrap();
    let expected = "2 sentences of 2 classes\n  0 \"B\": 1\n  1 \"O\": 2\n  tags: none, each is a class; entities need tags such as B-PER and I-PER";
    assert_eq!(sentences.to_string(), expected);
    for (tags, scheme) in [
        ("B-X I-X O", "BIO"),
        ("I-X O", "IO"),
        ("B-X M-X E-X W-X O", "BIOES"),
        ("B-X I-X L-X U-X O", "BILOU"),
        ("B I O", "BIO"),
        ("B M E S", "BIOES"),
        ("B I L U O", "BILOU"),
        ("I O", "IO"),
        ("B_X I_X O", "none, each is a class; entities need tags such as B-PER and I-PER"),
        ("B O PER", "none, each is a class; entities need tags such as B-PER and I-PER"),
        ("E S O", "none, each is a class; entities need tags such as B-PER and I-PER"),
    ] {
        let lines: String = tags.split(' ').map(|tag| format!("Ada {tag}\n")).collect();
        let (_dir, path) = file("a.conll", &lines);
        assert_eq!(LabelledSentences::open(&path).unwrap().summary().scheme, Some(scheme), "{tags}");
    }
}

#[test]
fn a_tab_at_the_end_of_a_line_is_no_column_and_a_missing_tag_is_none() {
    let open = |text: &str| {
        let (_dir, path) = file("a.conll", text);
        LabelledSentences::open(&path)
    };
    let plain = open("# a b c d\nAda\tNNP\tB\nlives\tVBZ\tO\n").unwrap();
    for text in [
        "# a b c d\nAda\tNNP\tB\t\nlives\tVBZ\tO\t\n",
        "Ada\tNNP\tB\t\nlives\tVBZ\tO\n",
        "Ada\tNNP\tB\nlives\tVBZ\tO\t \t\n\t\n",
    ] {
        let found = open(text).unwrap();
        assert_eq!(format!("{found:?}"), format!("{plain:?}"), "{text:?}");
    }
    // A word that begins with a number sign is none of the comments.
    let plain = format!("{:?}", open("Ada\tO\n#1\tB-X\n").unwrap());
    assert!(plain.contains("#1"));
    assert_eq!(format!("{:?}", open("Ada\tO\t\n#1\tB-X\t\n").unwrap()), plain);
    for (text, line) in [
        ("Ada\tNNP\tB\nlives\tVBZ\t\n", 2),
        ("Ada\tNNP\t\nlives\tVBZ\tO\n", 1),
        ("Ada\t\n", 1),
        ("Ada\tB\nlives\t\t\n", 2),
    ] {
        fails!(open(text), Error::Row { line: found, .. } if *found == line);
    }
}

#[test]
fn a_row_at_the_end_of_a_long_table_is_named_by_its_line_and_takes_72_bytes_beside_its_texts() {
    assert_eq!((size_of::<LabelledText>(), size_of::<LabelledTokens>()), (72, 48));
    // Two lines each, after the header. Counted from the start for every row, they would take minutes.
    let rows = "\"a\nb\",c\r\n".repeat(100_000);
    let error = open("a.csv", format!("text,label\n{rows}\n\nd,\n"), &Columns::default()).unwrap_err();
    assert!(error.to_string().ends_with(", line 200004: the row has no label"), "{error}");
}

#[test]
fn a_device_and_a_file_that_does_not_fit_into_memory_are_refused() {
    let (dir, large) = file("a.csv", "text,label\n");
    fs::File::options().write(true).open(&large).unwrap().set_len((4 << 30) + 1).unwrap();
    let device = dir.path().join("b.csv");
    std::os::unix::fs::symlink("/dev/null", &device).unwrap();
    for (path, says) in [(&large, "4 GiB"), (&device, "a device")] {
        for error in [
            LabelledTexts::open(path, &Columns::default()).unwrap_err(),
            LabelledSentences::open(path).unwrap_err(),
        ] {
            assert!(matches!(&error, Error::File { problem, .. } if problem.contains(says)), "{error}");
        }
    }
    fs::rename(&large, dir.path().join("vocab.txt")).unwrap();
    fails!(BertTokenizer::from_pretrained(dir.path()), Error::File { .. });
}
