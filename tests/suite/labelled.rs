//! Labelled files to batches: what is read, how words and pieces are aligned, and what is refused.

use burn::data::dataloader::DataLoader;
use burn::data::dataset::{Dataset, InMemDataset};
use burn::prelude::*;
use burn_bert::Error;
use burn_bert::model::{SequenceClassificationBatch, TokenClassificationBatch};
use burn_bert::text::BertTokenizer;
use burn_bert::training::{
    Label, LabelKind, LabelNames, LabelledLoader, LabelledSentences, LabelledText, LabelledTexts,
    LabelledTokens, SequenceBatcher, TextColumns, TokenBatcher, TryBatcher,
};
use std::fs;
use std::path::{Path, PathBuf};

/// A file in a folder of its own.
fn file(name: &str, text: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    (dir, path)
}

fn tokenizer(dir: &Path) -> BertTokenizer {
    let words =
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "##ting", "ho", "##t"];
    fs::write(dir.join("vocab.txt"), words.join("\n") + "\n").unwrap();
    BertTokenizer::from_pretrained(dir).unwrap()
}

fn all(texts: &LabelledTexts) -> Vec<(String, Option<String>, Label)> {
    texts.iter().map(|text| text.map(|text| (text.text, text.pair, text.label)).unwrap()).collect()
}

fn text(text: &str, label: Label) -> (String, Option<String>, Label) {
    (text.into(), None, label)
}

#[test]
fn a_csv_has_quoted_fields_with_commas_quotes_and_line_breaks() {
    let (_dir, path) =
        file("a.csv", "\u{feff}label,text\r\npos,\"a, \"\"b\"\"\nc\"\r\nneg,d\r\npos,\"\"\r\n");
    let texts = LabelledTexts::open(&path, &TextColumns::default()).unwrap();
    assert_eq!(texts.names().names(), ["neg", "pos"]);
    let expected =
        [text("a, \"b\"\nc", Label::Class(1)), text("d", Label::Class(0)), text("", Label::Class(1))];
    assert_eq!(all(&texts), expected);
    // In any order.
    assert_eq!(texts.get(2).unwrap().text, "");
    assert_eq!(texts.get(0).unwrap().text, "a, \"b\"\nc");
    assert_eq!(texts.sizes().len(), 3);
}

#[test]
fn a_tsv_takes_quotes_for_what_they_are() {
    let (_dir, path) = file("a.tsv", "0\tsay \"no\t3\n1\t\"\t-0.5\n");
    let columns = TextColumns::default().with_text(1).with_label(2, LabelKind::Value).without_header();
    let texts = LabelledTexts::open(&path, &columns).unwrap();
    assert_eq!(all(&texts), [text("say \"no", Label::Value(3.0)), text("\"", Label::Value(-0.5))]);
    assert!(texts.names().is_empty());
}

#[test]
fn json_lines_hold_names_ids_lists_and_numbers() {
    let (_dir, path) =
        file("a.jsonl", "{\"text\": \"x\", \"label\": 2, \"other\": []}\n\n{\"label\": 0, \"text\": \"y\"}");
    let texts = LabelledTexts::open(&path, &TextColumns::default()).unwrap();
    assert_eq!(all(&texts), [text("x", Label::Class(2)), text("y", Label::Class(0))]);
    assert_eq!(texts.names().names(), ["LABEL_0", "LABEL_1", "LABEL_2"]);
    // No file has so many classes: these are names.
    let (_dir, path) = file("a.csv", "text,label\na,100001\nb,7\n");
    let texts = LabelledTexts::open(&path, &TextColumns::default()).unwrap();
    assert_eq!(texts.names().names(), ["100001", "7"]);

    let lists = "{\"text\": \"x\", \"label\": [\"b\", \"a\", \"b\"]}\n{\"text\": \"y\", \"label\": []}\n";
    let (_dir, path) = file("a.json", lists);
    let columns = TextColumns::default().with_label("label", LabelKind::Classes);
    let texts = LabelledTexts::open(&path, &columns).unwrap();
    assert_eq!(all(&texts), [text("x", Label::Classes(vec![0, 1])), text("y", Label::Classes(vec![]))]);
}

#[test]
fn pairs_and_names_of_another_file_are_kept() {
    let (_dir, path) = file("a.tsv", "p\th\ty\na\tb\tno\n");
    let columns = TextColumns::default().with_text("p").with_pair("h").with_label("y", LabelKind::Class);
    let names = LabelNames::new(["yes", "no"]).unwrap();
    let texts = LabelledTexts::open_with_names(&path, &columns, &names).unwrap();
    assert_eq!(all(&texts), [("a".into(), Some("b".into()), Label::Class(1))]);
    let error =
        LabelledTexts::open_with_names(&path, &columns, &LabelNames::new(["x"]).unwrap()).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("a.tsv, line 2") && message.contains("\"no\""), "{message}");
    assert!(LabelNames::new(["x", "x"]).is_err());
}

#[test]
fn a_malformed_row_is_an_error_that_names_file_and_line() {
    let cases: [(&str, &[u8], u64); 8] = [
        ("a.csv", b"text,label\na,b\nc\n", 3),
        ("a.csv", b"text,label\n\"a\n\",b\nc,d,e\n", 4),
        ("a.csv", b"text,label\na,b\nc,\n", 3),
        ("a.jsonl", b"{\"text\": \"a\", \"label\": 1}\n\n{\"text\": \"a\"}\n", 3),
        ("a.jsonl", b"{\"text\": \"a\", \"label\": 1}\n{\"text\": \n", 2),
        ("a.jsonl", b"{\"text\": 5, \"label\": 1}\n", 1),
        ("a.jsonl", b"{\"text\": \"a\", \"label\": -1}\n", 1),
        ("a.jsonl", b"[1]\n", 1),
    ];
    for (name, text, line) in cases {
        let (_dir, path) = file(name, text);
        let error = LabelledTexts::open(&path, &TextColumns::default()).unwrap_err();
        assert!(matches!(&error, Error::Row { line: found, .. } if *found == line), "{name} {line}: {error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    for value in ["abc", "NaN", "inf", ""] {
        let (_dir, path) = file("a.csv", format!("text,label\na,{value}\n"));
        let columns = TextColumns::default().with_label("label", LabelKind::Value);
        assert!(matches!(LabelledTexts::open(&path, &columns), Err(Error::Row { line: 2, .. })), "{value}");
    }
    for name in ["a.csv", "a.jsonl"] {
        let (_dir, path) = file(name, b"text,label\na,b\n\xff,b\n");
        let error = LabelledTexts::open(&path, &TextColumns::default()).unwrap_err();
        assert!(matches!(error, Error::NotUtf8 { line: 3, offset: 15, .. }), "{error}");
    }
}

#[test]
fn a_column_that_is_not_there_and_a_file_without_rows_are_errors() {
    let open = |name, text: &str, columns: &TextColumns| {
        let (_dir, path) = file(name, text);
        LabelledTexts::open(&path, columns).unwrap_err()
    };
    let default = TextColumns::default();
    assert!(matches!(open("a.csv", "a,label\n1,2\n", &default), Error::Data { .. }));
    let unnamed = default.clone().without_header();
    assert!(matches!(open("a.csv", "a,b\n", &unnamed), Error::Data { .. }));
    let placed = default.clone().with_text(0);
    assert!(matches!(open("a.jsonl", "{}\n", &placed), Error::Data { .. }));
    assert!(matches!(open("a.txt", "a\n", &default), Error::Data { .. }));
    assert!(matches!(open("a.csv", "text,label\n", &default), Error::File { .. }));
    assert!(matches!(open("a.jsonl", "\n\n", &default), Error::File { .. }));
    let missing = LabelledTexts::open("/nowhere/a.csv", &default).unwrap_err();
    assert!(matches!(missing, Error::Io { .. }), "{missing}");
}

#[test]
fn sentences_come_from_conll_and_from_json_lines() {
    let conll = "-DOCSTART- -X- O O\n\nThe DT O\ncats NNS B-A\n\n\nsat VBD O\n";
    let json = "{\"tokens\": [\"The\", \"cats\"], \"ner_tags\": [\"O\", \"B-A\"]}\n\n{\"tokens\": [\"sat\"], \"tags\": [\"O\"]}\n";
    for (name, text) in [("a.txt", conll), ("a.jsonl", json)] {
        let (_dir, path) = file(name, text);
        let sentences = LabelledSentences::open(&path).unwrap();
        assert_eq!(sentences.names().names(), ["B-A", "O"]);
        let expected = [
            LabelledTokens { tokens: vec!["The".into(), "cats".into()], tags: vec![1, 0] },
            LabelledTokens { tokens: vec!["sat".into()], tags: vec![1] },
        ];
        for i in [1, 0] {
            assert_eq!(sentences.get(i).unwrap(), expected[i], "{name}");
        }
    }
    for (name, text, line) in
        [("a.txt", "a O\n\nb\n", 3), ("a.jsonl", "{\"tokens\": [\"a\"], \"tags\": []}", 1)]
    {
        let (_dir, path) = file(name, text);
        let error = LabelledSentences::open(&path).unwrap_err();
        assert!(matches!(error, Error::Row { line: found, .. } if found == line), "{error}");
    }
}

/// Where the labelled pieces are, and their labels.
fn tagged(batch: &TokenClassificationBatch) -> Vec<(i64, i64)> {
    let (labels, [_, seq]) = (batch.labels().unwrap().into_data(), batch.input.dims());
    let places = batch.positions().iter().map(|[row, column]| (row * seq + column) as i64);
    places.zip(labels.iter::<i64>()).collect()
}

#[test]
fn the_first_piece_of_a_word_has_its_tag_and_the_others_none() {
    let dir = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(dir.path());
    let device = Device::default();
    let item = |words: &[&str], tags: &[usize]| LabelledTokens {
        tokens: words.iter().map(ToString::to_string).collect(),
        tags: tags.to_vec(),
    };
    // The neighbours `cat` are two words; `dog` is unknown, one piece all the same.
    let items = vec![item(&["Cats", "cat", "cat"], &[2, 1, 0]), item(&["sitting", "hot", "dog"], &[1, 2, 0])];
    let batch = TokenBatcher::new(tokenizer.clone()).try_batch(items.clone(), &device).unwrap();
    let ids = batch.input.input_ids().unwrap().into_data().iter::<i64>().collect::<Vec<_>>();
    assert_eq!(ids, [2, 6, 7, 6, 6, 3, 2, 1, 10, 11, 1, 3]);
    assert_eq!(tagged(&batch), [(1, 2), (3, 1), (4, 0), (7, 1), (8, 2), (10, 0)]);

    // Cut after four pieces, and padded.
    let short = TokenBatcher::new(tokenizer.with_model_max_length(4));
    let cut = short.try_batch(vec![items[0].clone(), item(&["the"], &[0])], &device).unwrap();
    assert_eq!(cut.input.dims(), [2, 4]);
    assert_eq!(tagged(&cut), [(1, 2), (5, 0)]);
    for (tags, problem) in [(vec![0], "one tag each"), (vec![usize::MAX, 0, 0], "18446744073709551615")] {
        let items = vec![LabelledTokens { tags, ..items[0].clone() }];
        let error = short.try_batch(items, &device).unwrap_err();
        assert!(matches!(error, Error::Data { .. }) && error.to_string().contains(problem), "{error}");
    }
}

fn labelled(texts: &[(&str, Label)]) -> Vec<LabelledText> {
    let text = |(text, label): &(&str, Label)| LabelledText {
        text: text.to_string(),
        pair: None,
        label: label.clone(),
    };
    texts.iter().map(text).collect()
}

#[test]
fn labels_become_ids_marks_or_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let device = Device::default();
    let batch = |labels: [Label; 2]| {
        let [first, second] = labels;
        let items = labelled(&[("the cats", first), ("the", second)]);
        SequenceBatcher::new(tokenizer(dir.path()), 3).try_batch(items, &device)
    };
    let classes = batch([Label::Class(2), Label::Class(0)]).unwrap();
    assert_eq!(classes.input.dims(), [2, 5]);
    assert!(classes.padding.is_some());
    let ids = classes.classes().unwrap().into_data();
    assert_eq!(ids.iter::<i64>().collect::<Vec<_>>(), [2, 0]);
    let many = batch([Label::Classes(vec![0, 2]), Label::Classes(vec![])]).unwrap();
    assert!(many.classes().is_none());
    let marks = many.targets().unwrap().into_data();
    assert_eq!(marks.iter::<f64>().collect::<Vec<_>>(), [1.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    let values = batch([Label::Value(0.5), Label::Value(-2.0)]).unwrap();
    let values = values.targets().unwrap();
    assert_eq!(values.dims(), [2, 1]);
    assert_eq!(values.into_data().iter::<f64>().collect::<Vec<_>>(), [0.5, -2.0]);
    for labels in [
        [Label::Class(usize::MAX), Label::Class(0)],
        [Label::Classes(vec![]), Label::Classes(vec![3])],
        [Label::Class(0), Label::Value(1.0)],
    ] {
        assert!(matches!(batch(labels), Err(Error::Data { .. })));
    }
}

#[test]
fn texts_of_which_only_some_have_a_second_one_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let batcher = SequenceBatcher::new(tokenizer(dir.path()), 2);
    let mut items = labelled(&[("the cats", Label::Class(1)), ("the", Label::Class(0))]);
    items[0].pair = Some("cats".into());
    let error = batcher.try_batch(items.clone(), &Device::default()).unwrap_err();
    assert!(matches!(error, Error::Data { .. }), "{error}");
    items[1].pair = Some(String::new());
    let batch = batcher.try_batch(items, &Device::default()).unwrap();
    assert_eq!(batch.input.dims(), [2, 8]); // [CLS] the cat ##s [SEP] cat ##s [SEP]
}

/// A hundred texts of one to ten words, of which the first so many classes say which it is.
fn hundred() -> (Vec<LabelledText>, Vec<usize>) {
    let lengths: Vec<usize> = (0..103).map(|i| 1 + i * 7 % 10).collect();
    let texts = lengths.iter().enumerate().map(|(i, &length)| LabelledText {
        text: "the ".repeat(length),
        pair: None,
        label: Label::Value(i as f32),
    });
    (texts.collect(), lengths)
}

/// Which texts the batches of an epoch hold, and the places that are padded.
fn epoch(loader: &dyn DataLoader<SequenceClassificationBatch>) -> (Vec<Vec<usize>>, usize) {
    let mut padded = 0;
    let batches = loader.iter().map(|batch| {
        let batch = batch.unwrap();
        let ids = batch.input.input_ids().unwrap().into_data();
        padded += ids.iter::<i64>().filter(|&id| id == 0).count();
        let values = batch.targets().unwrap().into_data();
        values.iter::<f64>().map(|value| value as usize).collect()
    });
    (batches.collect(), padded)
}

#[test]
fn a_shuffled_epoch_has_every_text_once_and_follows_from_seed_and_number() {
    let dir = tempfile::tempdir().unwrap();
    let (texts, lengths) = hundred();
    let loader = || {
        let batcher = SequenceBatcher::new(tokenizer(dir.path()), 1);
        LabelledLoader::new(InMemDataset::new(texts.clone()), batcher, 4, &Device::default()).unwrap()
    };
    let sorted = |batches: &[Vec<usize>]| {
        let mut all = batches.concat();
        all.sort_unstable();
        all
    };
    let in_order = epoch(&loader()).0;
    assert_eq!(in_order.concat(), (0..103).collect::<Vec<_>>());
    assert_eq!((in_order.len(), in_order[25].len()), (26, 3));

    let shuffled = loader().with_shuffling(5);
    let (first, padded) = epoch(&shuffled);
    let (second, _) = epoch(&shuffled);
    assert_eq!(sorted(&first), (0..103).collect::<Vec<_>>());
    assert!(first != second && first != in_order);
    assert_eq!(epoch(&loader().with_shuffling(5)).0, first);
    assert_eq!(epoch(&loader().with_shuffling(5).starting_after(1)).0, second);
    assert_ne!(epoch(&loader().with_shuffling(6)).0, first);

    let bucketed = loader().with_shuffling(5).with_length_bucketing(lengths.clone()).unwrap();
    let (batches, less_padded) = epoch(&bucketed);
    assert_eq!(sorted(&batches), (0..103).collect::<Vec<_>>());
    assert!(batches[..25].iter().all(|batch| batch.len() == 4));
    assert!(less_padded * 4 < padded, "{less_padded} padded instead of {padded}");
    let longest = batches.iter().map(|batch| batch.iter().map(|&item| lengths[item]).max());
    assert!(!longest.is_sorted_by(|a, b| a >= b), "batches come in no order of length");
    let halves = [bucketed.slice(0, 52), bucketed.slice(52, 103)];
    let halves = halves.each_ref().map(|half| epoch(half.as_ref()).0).concat();
    assert_eq!(sorted(&halves), (0..103).collect::<Vec<_>>());
    assert!(loader().with_length_bucketing(vec![1]).is_err());
}

#[test]
fn an_item_that_fits_no_batch_is_an_error_of_its_own_batch() {
    let dir = tempfile::tempdir().unwrap();
    let labels = [Label::Class(0), Label::Class(1), Label::Class(0), Label::Value(1.0)];
    let items = labelled(&labels.map(|label| ("the", label)));
    let batcher = SequenceBatcher::new(tokenizer(dir.path()), 2);
    let loader = LabelledLoader::new(InMemDataset::new(items), batcher, 2, &Device::default()).unwrap();
    let batches: Vec<_> =
        loader.iter().map(|batch| batch.map(drop).map_err(|error| error.to_string())).collect();
    assert!(batches[0].is_ok());
    let message = batches[1].as_ref().unwrap_err();
    assert!(message.contains("mix kinds of labels"), "{message}");
}

#[test]
fn a_file_that_is_read_may_be_deleted_and_takes_72_bytes_a_row_beside_its_texts() {
    let (dir, path) = file("a.tsv", "text\tlabel\nthe\ta\ncat\tb\n");
    let texts = LabelledTexts::open(&path, &TextColumns::default()).unwrap();
    drop(dir);
    assert_eq!(all(&texts), [text("the", Label::Class(0)), text("cat", Label::Class(1))]);
    assert_eq!((size_of::<LabelledText>(), size_of::<LabelledTokens>()), (72, 48));
}

#[test]
fn a_number_is_an_id_only_where_the_classes_have_numbers_for_names() {
    let (_dir, train) = file("train.csv", "text,label\na,good\nb,bad\n");
    let (_dir, valid) = file("valid.csv", "text,label\na,good\nb,1\n");
    let default = TextColumns::default();
    let names = LabelledTexts::open(&train, &default).unwrap().names().clone();
    let error = LabelledTexts::open_with_names(&valid, &default, &names).unwrap_err();
    assert!(matches!(&error, Error::Row { line: 3, .. }), "{error}");
    assert!(error.to_string().contains("\"1\""), "{error}");

    // Ids stay ids, and an integer of JSON is one.
    let (_dir, train) = file("train.csv", "text,label\na,2\nb,0\n");
    let numbered = LabelledTexts::open(&train, &default).unwrap();
    let again = LabelledTexts::open_with_names(&train, &default, numbered.names()).unwrap();
    assert_eq!(all(&again), [text("a", Label::Class(2)), text("b", Label::Class(0))]);
    let (_dir, ids) = file("ids.jsonl", "{\"text\": \"a\", \"label\": 1}\n");
    let texts = LabelledTexts::open_with_names(&ids, &default, &names).unwrap();
    assert_eq!(all(&texts), [text("a", Label::Class(1))]);
    let (_dir, ids) = file("ids.jsonl", "{\"text\": \"a\", \"label\": 2}\n");
    assert!(LabelledTexts::open_with_names(&ids, &default, &names).is_err());
}

#[test]
fn a_json_list_in_a_table_is_a_list_of_classes() {
    let columns = TextColumns::default().with_label("label", LabelKind::Classes);
    let (_dir, path) = file("a.tsv", "text\tlabel\nx\t[\"b, c\", \"a\"]\ny\ta,d\nz\t[]\n");
    let texts = LabelledTexts::open(&path, &columns).unwrap();
    assert_eq!(texts.names().names(), ["a", "b, c", "d"]);
    let classes = all(&texts).into_iter().map(|(_, _, label)| label).collect::<Vec<_>>();
    assert_eq!(classes, [vec![0, 1], vec![0, 2], vec![]].map(Label::Classes));
    // As Python prints a list.
    let (_dir, path) = file("a.tsv", "text\tlabel\nx\t['a', 'b']\n");
    let error = LabelledTexts::open(&path, &columns).unwrap_err();
    assert!(error.to_string().contains("is not a JSON list"), "{error}");
    let (_dir, path) = file("a.tsv", "text\tlabel\nx\t[\"a\"]\n");
    assert!(LabelledTexts::open(&path, &TextColumns::default()).is_err());
}

#[test]
fn an_empty_label_is_none() {
    for (name, content, kind) in [
        ("a.jsonl", "{\"text\": \"a\", \"label\": \"\"}\n", LabelKind::Class),
        ("a.jsonl", "{\"text\": \"a\", \"label\": [\"b\", \" \"]}\n", LabelKind::Classes),
        ("a.csv", "text,label\na,\n", LabelKind::Class),
    ] {
        let (_dir, path) = file(name, content);
        let error =
            LabelledTexts::open(&path, &TextColumns::default().with_label("label", kind)).unwrap_err();
        assert!(error.to_string().contains("has no label"), "{error}");
    }
    let (_dir, path) = file("a.jsonl", "{\"tokens\": [\"a\"], \"tags\": [\"\"]}\n");
    assert!(LabelledSentences::open(&path).is_err());
}

#[test]
fn white_space_within_a_word_of_columns_is_kept() {
    let open = |content: &str| {
        let (_dir, path) = file("a.conll", content);
        LabelledSentences::open(&path).map(|sentences| (sentences.get(0).unwrap(), sentences.names().clone()))
    };
    let (sentence, names) = open("New York\tNNP\tB A\n10\u{a0}000\tCD\tO\n\u{a0}\tX\tO\n").unwrap();
    assert_eq!(sentence.tokens, ["New York", "10\u{a0}000", "\u{a0}"]);
    assert_eq!(names.names(), ["B A", "O"]);
    let (sentence, names) = open("10\u{a0}000 CD  O\n a O\n").unwrap();
    assert_eq!(sentence.tokens, ["10\u{a0}000", "a"]);
    assert_eq!(names.names(), ["O"]);
    // A column is missing, and the next is none.
    for content in ["\tO\tB\n", "a\t\n", "a\tO\t\n", "a \n"] {
        assert!(matches!(open(content), Err(Error::Row { line: 1, .. })), "{content:?}");
    }
}

#[test]
fn a_column_that_the_header_has_twice_is_refused() {
    let (_dir, path) = file("a.csv", "text,label,text,other,other\na,b,c,d,e\n");
    let error = LabelledTexts::open(&path, &TextColumns::default()).unwrap_err();
    assert!(error.to_string().contains("twice"), "{error}");
    // Others do not matter, and an index says which.
    let texts = LabelledTexts::open(&path, &TextColumns::default().with_text(2)).unwrap();
    assert_eq!(all(&texts)[0].0, "c");
}

#[test]
fn spaces_around_the_names_of_a_header_do_not_count() {
    let (_dir, path) = file("a.csv", "text , label\na,b\n");
    let texts = LabelledTexts::open(&path, &TextColumns::default()).unwrap();
    assert_eq!(all(&texts), [text("a", Label::Class(0))]);
}

#[test]
fn the_line_of_a_row_counts_blank_lines_before_it() {
    for content in
        ["text,label\na,b\n\n\nc,\n", "text,label\r\na,b\r\n\r\n\r\nc,\r\n", "text,label\n\"\n\",b\n\nc,\n"]
    {
        let (_dir, path) = file("a.csv", content);
        let error = LabelledTexts::open(&path, &TextColumns::default()).unwrap_err();
        assert!(matches!(error, Error::Row { line: 5, .. }), "{error}");
    }
}

#[test]
fn a_device_is_no_labelled_file() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.csv", "a.jsonl", "a.txt"] {
        let path = dir.path().join(name);
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        let error = match name {
            "a.txt" => LabelledSentences::open(&path).unwrap_err(),
            _ => LabelledTexts::open(&path, &TextColumns::default()).unwrap_err(),
        };
        assert!(matches!(error, Error::File { .. }) && error.to_string().contains("a device"), "{error}");
    }
}

#[test]
fn a_batch_may_be_larger_than_any_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let (texts, lengths) = hundred();
    let batcher = SequenceBatcher::new(tokenizer(dir.path()), 1);
    let loader =
        LabelledLoader::new(InMemDataset::new(texts), batcher, usize::MAX, &Device::default()).unwrap();
    let loader = loader.with_shuffling(5).with_length_bucketing(lengths).unwrap();
    assert_eq!(epoch(&loader).0.iter().map(Vec::len).collect::<Vec<_>>(), [103]);
}

#[test]
fn an_empty_part_of_a_loader_has_no_batch_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let batcher = SequenceBatcher::new(tokenizer(dir.path()), 1);
    let loader = LabelledLoader::new(InMemDataset::new(hundred().0), batcher, 4, &Device::default()).unwrap();
    let part = loader.slice(5, 5);
    assert_eq!(part.num_items(), 0);
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send((part.iter().count(), part.iter().count())));
    assert_eq!(ended.recv_timeout(std::time::Duration::from_secs(20)), Ok((0, 0)));
}

#[test]
fn a_file_that_does_not_fit_into_memory_is_refused() {
    let (dir, path) = file("a.csv", "text,label\n");
    let is_refused =
        |error: &Error| matches!(error, Error::File { problem, .. } if problem.contains("4 GiB"));
    fs::File::options().write(true).open(&path).unwrap().set_len((4 << 30) + 1).unwrap();
    assert!(is_refused(&LabelledTexts::open(&path, &TextColumns::default()).unwrap_err()));
    assert!(is_refused(&LabelledSentences::open(&path).unwrap_err()));
    fs::rename(&path, dir.path().join("vocab.txt")).unwrap();
    assert!(is_refused(&BertTokenizer::from_pretrained(dir.path()).unwrap_err()));
}

#[test]
fn a_quote_that_is_not_closed_is_an_error_that_names_the_line_where_it_opened() {
    for (content, line) in [
        ("text,label\na,b\n\"c,d\ne,f\ng,h\n", 3),
        ("text,label\n\"a\nb\",c\n\"d \"\" e,f\n", 4),
        ("text,label\na,\"b", 2),
        ("\"text,label\na,b\n", 1),
    ] {
        let (_dir, path) = file("a.csv", content);
        let error = LabelledTexts::open(&path, &TextColumns::default()).unwrap_err();
        assert!(matches!(&error, Error::Row { line: found, .. } if *found == line), "{content:?}: {error}");
        assert!(error.to_string().contains("has a quote that is not closed"), "{error}");
    }
    // These quotes are closed, or are none.
    let content = "text,label\n\"a \"\"b\"\"\",c\nd \"e,c\n\"f\"g\"h,c\n\"\",c\n";
    let (_dir, path) = file("a.csv", content);
    let texts = all(&LabelledTexts::open(&path, &TextColumns::default()).unwrap());
    let texts: Vec<&str> = texts.iter().map(|(text, ..)| text.as_str()).collect();
    assert_eq!(texts, ["a \"b\"", "d \"e", "fg\"h", ""]);
}

#[test]
fn a_field_that_a_row_has_twice_is_named() {
    let (_dir, path) = file(
        "a.jsonl",
        "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\", \"label\": 1, \"text\": \"b\"}\n",
    );
    let error = LabelledTexts::open(&path, &TextColumns::default()).unwrap_err();
    assert!(matches!(&error, Error::Row { line: 2, .. }), "{error}");
    assert!(error.to_string().contains("it has the field \"text\" twice"), "{error}");
    let (_dir, path) = file("a.jsonl", "{\"tokens\": [\"a\"], \"tags\": [1], \"tags\": [0]}\n");
    let error = LabelledSentences::open(&path).unwrap_err();
    assert!(error.to_string().contains("it has the field \"tags\" twice"), "{error}");
}

#[test]
fn comments_of_columns_are_no_words() {
    let words = |name: &str, content: &str| {
        let (_dir, path) = file(name, content);
        LabelledSentences::open(&path).map(|sentences| {
            let found: Vec<_> = sentences.iter().map(|sentence| sentence.unwrap().tokens).collect();
            (found, sentences.names().names().to_vec())
        })
    };
    let (found, names) =
        words("a.conll", "# id 3f\tdomain=en\nAda _ _ B\n# _ _ O\n\n# text = 5 a\nHi _ _ O\n").unwrap();
    assert_eq!(found, [vec!["Ada", "#"], vec!["Hi"]]);
    assert_eq!(names, ["B", "O"]);
    // CoNLL-U: the words are the second column, the parts of speech the fourth.
    let row = |id: &str, word: &str, tag: &str| format!("{id}\t{word}\tx\t{tag}\t_\t_\t0\troot\t_\t_\n");
    let content = [
        "# sent_id = 1\n# text = Vámonos al mar\n".to_string(),
        row("1-2", "vámonos", "_"),
        row("1", "vamos", "VERB"),
        row("2", "nos", "PRON"),
        row("2.1", "quizá", "ADV"),
        row("3", "#", "SYM"),
        "\n# sent_id = 2\n".to_string(),
        row("1", "mar", "NOUN"),
    ];
    let (found, names) = words("a.conllu", &content.concat()).unwrap();
    assert_eq!(found, [vec!["vamos", "nos", "#"], vec!["mar"]]);
    assert_eq!(names, ["NOUN", "PRON", "SYM", "VERB"]);
    let error = words("a.conllu", "# x\n1\tAda\tAda\n").unwrap_err();
    assert!(matches!(&error, Error::Row { line: 2, .. }), "{error}");
}
