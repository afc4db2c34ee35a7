//! Labelled files to batches: what is read, how words and pieces are aligned, and what is refused.

use crate::prelude::*;
use burn::data::dataloader::DataLoader;
use burn::data::dataset::{Dataset, InMemDataset};

/// A file in a folder of its own.
fn file(name: &str, text: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let dir = folder(&[(name, text.as_ref())]);
    let path = dir.path().join(name);
    (dir, path)
}

fn tokenizer() -> BertTokenizer {
    let words =
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "##ting", "ho", "##t"];
    let dir = folder(&[("vocab.txt", (words.join("\n") + "\n").as_bytes())]);
    BertTokenizer::from_pretrained(dir.path()).unwrap()
}

/// The hundred texts in batches of one number each.
fn loader(batch_size: usize) -> EpochLoader<SequenceBatcher> {
    EpochLoader::new(batches(), batch_size, &device()).unwrap()
}

/// The same, with texts of similar lengths in each.
fn bucketed_loader(batch_size: usize) -> EpochLoader<SequenceBatcher> {
    EpochLoader::new(batches().with_lengths(hundred().1), batch_size, &device()).unwrap()
}

fn batches() -> Batches<SequenceBatcher> {
    Batches::new(InMemDataset::new(hundred().0), SequenceBatcher::new(tokenizer(), 1))
}

/// A file that is deleted once it is read.
fn open(name: &str, text: impl AsRef<[u8]>, columns: &TextColumns) -> Result<LabelledTexts, Error> {
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
    let unnamed = TextColumns::default().with_text(1).with_label(2, LabelKind::Value).without_header();
    let [zero, one] = [0, 1].map(Label::Class);
    for (name, content, columns, expected) in [
        // Commas, quotes and line breaks in quotes.
        (
            "a.csv",
            "\u{feff}label,text\r\npos,\"a, \"\"b\"\"\nc\"\r\nneg,d\r\npos,\"\"\r\n",
            TextColumns::default(),
            vec![text("a, \"b\"\nc", one.clone()), text("d", zero.clone()), text("", one)],
        ),
        // Quotes that are closed, or are none.
        (
            "a.csv",
            "text,label\n\"a \"\"b\"\"\",c\nd \"e,c\n\"f\"g\"h,c\n",
            TextColumns::default(),
            ["a \"b\"", "d \"e", "fg\"h"].map(|found| text(found, zero.clone())).to_vec(),
        ),
        (
            "a.tsv",
            "0\tsay \"no\t3\n1\t\"\t-0.5\n",
            unnamed,
            vec![text("say \"no", Label::Value(3.0)), text("\"", Label::Value(-0.5))],
        ),
        ("a.csv", "text , label\na,b\n", TextColumns::default(), vec![text("a", zero.clone())]),
        // A name that the header has twice is chosen by index; others may be there twice.
        (
            "a.csv",
            "text,label,text,other,other\na,b,c,d,e\n",
            TextColumns::default().with_text(2),
            vec![text("c", zero)],
        ),
    ] {
        let texts = open(name, content, &columns).unwrap();
        assert_eq!(all(&texts), expected, "{content:?}");
        assert_eq!(texts.sizes().len(), texts.len());
    }
}

#[test]
fn a_malformed_row_is_an_error_that_names_file_and_line() {
    let csv = [
        ("text,label\na,b\nc\n", 3, "1 field"),
        ("text,label\n\"a\n\",b\nc,d,e\n", 4, "3 fields"),
        ("text,label\na,b\nc,\n", 3, "no label"),
        // Lines count with blank ones before them, and those in quotes.
        ("text,label\na,b\n\n\nc,\n", 5, "no label"),
        ("text,label\r\na,b\r\n\r\n\r\nc,\r\n", 5, "no label"),
        ("text,label\ra,b\r\rc,\r", 4, "no label"),
        ("text,label\n\"\n\",b\n\nc,\n", 5, "no label"),
        ("text,label\na,b\n\"c,d\ne,f\ng,h\n", 3, "not closed"),
        ("text,label\n\"a\nb\",c\n\"d \"\" e,f\n", 4, "not closed"),
        ("text,label\na,\"b", 2, "not closed"),
        ("\"text,label\na,b\n", 1, "not closed"),
    ];
    let jsonl = [
        ("{\"text\": \"a\", \"label\": 1}\n\n{\"text\": \"a\"}\n", 3, "no field"),
        ("{\"text\": \"a\", \"label\": 1}\n{\"text\": \n", 2, "JSON object"),
        ("{\"text\": 5, \"label\": 1}\n", 1, "not a string"),
        ("{\"text\": \"a\", \"label\": -1}\n", 1, "name or an id"),
        ("[1]\n", 1, "JSON object"),
        ("{\"text\": \"a\", \"label\": \"\"}\n", 1, "no label"),
        ("{\"text\": \"a\", \"label\": 1, \"text\": \"b\"}\n", 1, "\"text\" twice"),
    ];
    let lists = [
        ("a.jsonl", "{\"text\": \"a\", \"label\": [\"b\", \" \"]}\n", 1, "no label"),
        // As Python prints a list.
        ("a.tsv", "text\tlabel\nx\t['a', 'b']\n", 2, "JSON list"),
    ];
    let numbers = ["abc", "NaN", "inf", "", "1e300", "-1e16"].map(|value| format!("text,label\na,{value}\n"));
    let of_numbers = numbers.iter().map(|text| ("a.csv", text.as_str(), 2, "not a number"));
    let of_numbers =
        of_numbers.chain([("a.jsonl", "{\"text\": \"a\", \"label\": 1e300}", 1, "not a number")]);
    let csv = csv.map(|(text, line, problem)| ("a.csv", text, line, problem));
    let jsonl = jsonl.map(|(text, line, problem)| ("a.jsonl", text, line, problem));
    for (kind, cases) in [
        (LabelKind::Class, csv.into_iter().chain(jsonl).collect::<Vec<_>>()),
        (LabelKind::Classes, lists.into()),
        (LabelKind::Value, of_numbers.collect()),
    ] {
        for (name, text, line, problem) in cases {
            let error = open(name, text, &TextColumns::default().with_label("label", kind)).unwrap_err();
            assert!(matches!(&error, Error::Row { line: found, .. } if *found == line), "{text:?}: {error}");
            let message = error.to_string();
            assert!(message.contains(name) && message.contains(problem), "{text:?}: {message}");
        }
    }
    for name in ["a.csv", "a.jsonl"] {
        let error = open(name, b"text,label\na,b\n\xff,b\n", &TextColumns::default()).unwrap_err();
        assert!(matches!(error, Error::NotUtf8 { line: 3, offset: 15, .. }), "{error}");
    }
}

/// Beside those whose messages tests/suite/errors lists.
#[test]
fn columns_that_are_not_there_are_errors() {
    let unnamed = TextColumns::default().without_header();
    for (name, content, columns) in
        [("a.csv", "a,b\n", unnamed), ("a.jsonl", "{}\n", TextColumns::default().with_text(0))]
    {
        assert!(matches!(open(name, content, &columns), Err(Error::Data { .. })), "{content:?}");
    }
    let missing = LabelledTexts::open("/nowhere/a.csv", &TextColumns::default()).unwrap_err();
    assert!(matches!(missing, Error::Io { .. }), "{missing}");
}

#[test]
fn sentences_come_from_columns_and_from_json_lines() {
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
    for (name, content, words, tags, names) in [
        (
            "a.txt",
            "-DOCSTART- -X- O O\n\nThe DT O\ncats NNS B-A\n\n\nsat VBD O\n",
            vec![vec!["The", "cats"], vec!["sat"]],
            vec![vec![1, 0], vec![1]],
            vec!["B-A", "O"],
        ),
        (
            "a.jsonl",
            "{\"tokens\": [\"The\", \"cats\"], \"ner_tags\": [\"O\", \"B-A\"]}\n\n{\"tokens\": [\"sat\"], \"tags\": [\"O\"]}\n",
            vec![vec!["The", "cats"], vec!["sat"]],
            vec![vec![1, 0], vec![1]],
            vec!["B-A", "O"],
        ),
        // Other white space than what separates is part of a word or a tag.
        (
            "a.conll",
            "New York\tNNP\tB A\n10\u{a0}000\tCD\tO\n\u{a0}\tX\tO\n",
            vec![vec!["New York", "10\u{a0}000", "\u{a0}"]],
            vec![vec![0, 1, 1]],
            vec!["B A", "O"],
        ),
        ("a.conll", "10\u{a0}000 CD  O\n a O\n", vec![vec!["10\u{a0}000", "a"]], vec![vec![0, 0]], vec!["O"]),
        // Comments are no words.
        (
            "a.conll",
            "# id 3f\tdomain=en\nAda _ _ B\n# _ _ O\n\n# text = 5 a\nHi _ _ O\n",
            vec![vec!["Ada", "#"], vec!["Hi"]],
            vec![vec![0, 1], vec![1]],
            vec!["B", "O"],
        ),
        (
            "a.conllu",
            &conll_u.concat(),
            vec![vec!["vamos", "nos", "#"], vec!["mar"]],
            vec![vec![3, 1, 2], vec![0]],
            vec!["NOUN", "PRON", "SYM", "VERB"],
        ),
    ] {
        let (_dir, path) = file(name, content);
        let sentences = LabelledSentences::open(&path).unwrap();
        assert_eq!(sentences.names().names(), names);
        let found: Vec<_> = sentences.iter().map(Result::unwrap).collect();
        assert!(found.iter().map(|found| &found.tokens).eq(&words), "{content:?}: {found:?}");
        assert!(found.iter().map(|found| &found.tags).eq(&tags), "{content:?}: {found:?}");
    }
    for (name, text, line) in [
        ("a.txt", "a O\n\nb\n", 3),
        // A bare carriage return ends no line.
        ("a.txt", "a O\n\rb O\r\n", 2),
        ("a.txt", "a O\rb O\r", 1),
        // A column is missing, and the next is none.
        ("a.conll", "\tO\tB\n", 1),
        ("a.conll", "a\t\n", 1),
        ("a.conll", "a\tO\t\n", 1),
        ("a.conll", "a \n", 1),
        ("a.conllu", "# x\n1\tAda\tAda\n", 2),
        ("a.jsonl", "{\"tokens\": [\"a\"], \"tags\": []}", 1),
        ("a.jsonl", "{\"tokens\": [\"a\"], \"tags\": [\"\"]}\n", 1),
        ("a.jsonl", "{\"tokens\": [\"a\"], \"tags\": [1], \"tags\": [0]}\n", 1),
    ] {
        let (_dir, path) = file(name, text);
        let error = LabelledSentences::open(&path).unwrap_err();
        assert!(matches!(error, Error::Row { line: found, .. } if found == line), "{text:?}: {error}");
    }
}

#[test]
fn json_lines_hold_names_ids_lists_and_numbers() {
    let ids = "{\"text\": \"x\", \"label\": 1, \"other\": []}\n\n{\"label\": 0, \"text\": \"y\"}";
    let texts = open("a.jsonl", ids, &TextColumns::default()).unwrap();
    assert_eq!(all(&texts), [text("x", Label::Class(1)), text("y", Label::Class(0))]);
    assert_eq!(texts.names().names(), ["LABEL_0", "LABEL_1"]);

    let lists = "{\"text\": \"x\", \"label\": [\"b\", \"a\", \"b\"]}\n{\"text\": \"y\", \"label\": []}\n";
    let columns = TextColumns::default().with_label("label", LabelKind::Classes);
    let texts = open("a.json", lists, &columns).unwrap();
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

/// Where the labelled pieces are, and their labels.
fn tagged(batch: &TokenClassificationBatch) -> Vec<(i64, i64)> {
    let (labels, [_, seq]) = (batch.labels().unwrap().into_data(), batch.input.dims());
    let places = batch.positions().iter().map(|[row, column]| (row * seq + column) as i64);
    places.zip(labels.iter::<i64>()).collect()
}

#[test]
fn the_first_piece_of_a_word_has_its_tag_and_the_others_none() {
    let tokenizer = tokenizer();
    let device = device();
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
    let batch = |labels: [Label; 2]| {
        let [first, second] = labels;
        let items = labelled(&[("the cats", first), ("the", second)]);
        SequenceBatcher::new(tokenizer(), 3).try_batch(items, &device())
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
    let batcher = SequenceBatcher::new(tokenizer(), 2);
    let mut items = labelled(&[("the cats", Label::Class(1)), ("the", Label::Class(0))]);
    items[0].pair = Some("cats".into());
    let error = batcher.try_batch(items.clone(), &device()).unwrap_err();
    assert!(matches!(error, Error::Data { .. }), "{error}");
    items[1].pair = Some(String::new());
    let batch = batcher.try_batch(items, &device()).unwrap();
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
    let (_, lengths) = hundred();
    let loader = || loader(4);
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

    let bucketed = bucketed_loader(4).with_shuffling(5);
    let (batches, less_padded) = epoch(&bucketed);
    assert_eq!(sorted(&batches), (0..103).collect::<Vec<_>>());
    assert!(batches[..25].iter().all(|batch| batch.len() == 4));
    assert!(less_padded * 4 < padded, "{less_padded} padded instead of {padded}");
    let longest = batches.iter().map(|batch| batch.iter().map(|&item| lengths[item]).max());
    assert!(!longest.is_sorted_by(|a, b| a >= b), "batches come in no order of length");
    let halves = [bucketed.slice(0, 52), bucketed.slice(52, 103)];
    let halves = halves.each_ref().map(|half| epoch(half.as_ref()).0).concat();
    assert_eq!(sorted(&halves), (0..103).collect::<Vec<_>>());
    assert!(EpochLoader::new(self::batches().with_lengths(vec![1]), 4, &Device::default()).is_err());

    // Whoever looks at the batches before training does not change what the trainer's copy has.
    assert_eq!(epoch(loader().with_shuffling(5).to_device(&device()).as_ref()).0, first);
    assert_eq!(epoch(shuffled.to_device(&device()).as_ref()).0, first, "after two epochs of its own");

    // Epochs of ten batches: passes go on from one to the next, and a stopped run too.
    let tens = loader().with_shuffling(5).with_batches_per_epoch(10).unwrap();
    let epochs = [(); 6].map(|()| epoch(&tens).0);
    assert!(epochs.iter().flatten().all(|batch| batch.len() == 4));
    assert_eq!((tens.num_items(), epochs[3].len()), (40, 10));
    let items = epochs.concat().concat();
    assert_eq!(sorted(&[items[..103].to_vec()]), (0..103).collect::<Vec<_>>());
    assert_eq!(sorted(&[items[103..206].to_vec()]), (0..103).collect::<Vec<_>>());
    assert_eq!(epoch(&tens.starting_after(4)).0, epochs[4]);
}

#[test]
fn ranks_share_every_epoch_with_as_many_batches_and_about_as_many_tokens() {
    let (_, lengths) = hundred();
    for (batch_size, ranks) in [(4, 1), (4, 2), (4, 3), (2, 17), (51, 2), (1, 103)] {
        let shards: Vec<_> = (0..ranks)
            .map(|rank| {
                let loader = bucketed_loader(batch_size).with_shuffling(3).shard(rank, ranks).unwrap();
                let batches = epoch(&loader).0;
                assert_eq!(loader.num_items(), batches.concat().len());
                batches
            })
            .collect();
        let mut all = shards.concat().concat();
        all.sort_unstable();
        assert_eq!(all, (0..103).collect::<Vec<_>>(), "{batch_size} × {ranks}: every text once");
        for step in 0..shards.iter().map(Vec::len).max().unwrap() {
            let tokens =
                shards.iter().map(|shard| shard[step].iter().map(|&item| lengths[item]).sum::<usize>());
            let (least, most) = (tokens.clone().min().unwrap(), tokens.max().unwrap());
            // Ranks take turns in items sorted by length, of which the longest has ten words.
            assert!(least + 10 >= most, "{batch_size} × {ranks}, step {step}: {least} to {most} words");
        }
    }
    for (rank, ranks) in [(2, 2), (0, 0), (0, 104)] {
        assert!(matches!(loader(4).shard(rank, ranks), Err(Error::Config { .. })), "{rank} of {ranks}");
    }
}

#[test]
fn an_item_that_fits_no_batch_is_an_error_of_its_own_batch() {
    let labels = [Label::Class(0), Label::Class(1), Label::Class(0), Label::Value(1.0)];
    let items = labelled(&labels.map(|label| ("the", label)));
    let batcher = SequenceBatcher::new(tokenizer(), 2);
    let loader = EpochLoader::new(Batches::new(InMemDataset::new(items), batcher), 2, &device()).unwrap();
    let batches: Vec<_> =
        loader.iter().map(|batch| batch.map(drop).map_err(|error| error.to_string())).collect();
    assert!(batches[0].is_ok());
    let message = batches[1].as_ref().unwrap_err();
    assert!(message.contains("mix kinds of labels"), "{message}");
}

#[test]
fn a_file_that_is_read_may_be_deleted_and_takes_72_bytes_a_row_beside_its_texts() {
    let texts = open("a.tsv", "text\tlabel\nthe\ta\ncat\tb\n", &TextColumns::default()).unwrap();
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

    // Ids stay ids, and an integer of JSON is one, unless it may be a name.
    let (_dir, train) = file("train.csv", "text,label\na,1\nb,0\n");
    let numbered = LabelledTexts::open(&train, &default).unwrap();
    let again = LabelledTexts::open_with_names(&train, &default, numbered.names()).unwrap();
    assert_eq!(all(&again), [text("a", Label::Class(1)), text("b", Label::Class(0))]);
    let (_dir, ids) = file("ids.jsonl", "{\"text\": \"a\", \"label\": 1}\n");
    let texts = LabelledTexts::open_with_names(&ids, &default, &names).unwrap();
    assert_eq!(all(&texts), [text("a", Label::Class(1))]);
    let (_dir, ids) = file("ids.jsonl", "{\"text\": \"a\", \"label\": 2}\n");
    for names in [names, LabelNames::new(["2", "1", "0"]).unwrap()] {
        let error = LabelledTexts::open_with_names(&ids, &default, &names).unwrap_err();
        assert!(matches!(&error, Error::Row { line: 1, .. }), "{error}");
    }
}

/// Each list is the labels of a file, in its order.
#[test]
fn labels_with_a_number_among_them_are_the_ids_0_to_n_or_refused() {
    let open = |labels: &[&str]| {
        let rows: String = labels.iter().map(|label| format!("a,{label}\n")).collect();
        open("a.csv", format!("text,label\n{rows}"), &TextColumns::default())
    };
    let ids = |texts: LabelledTexts| all(&texts).into_iter().map(|(_, _, label)| label).collect::<Vec<_>>();
    assert_eq!(ids(open(&["2", "0", "1", "2"]).unwrap()), [2, 0, 1, 2].map(Label::Class));
    assert_eq!(
        ids(open(&["nan", "1st", "a"]).unwrap()),
        [2, 0, 1].map(Label::Class),
        "words in sorted order"
    );
    for (labels, wrong) in [
        (&["0", "1", "2", "-1"] as &[&str], "-1"),
        (&["0.0", "1.0", "2.0", "10.0"], "0.0"),
        (&["00", "0"], "00"),
        (&["+1", "1", "0"], "+1"),
        (&["1", "5"], "5"),
        (&["7", "100001"], "100001"),
        (&["0", "1", "a"], "a"),
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
    let texts = open("a.csv", "text,label\na,no\nb,yes\nc,no\n", &TextColumns::default()).unwrap();
    assert_eq!(texts.to_string(), "3 texts of 2 classes\n  0 \"no\": 2\n  1 \"yes\": 1");
    let numbers = TextColumns::default().with_label("label", LabelKind::Value);
    let texts = open("a.csv", "text,label\na,1.5\nb,-2\n", &numbers).unwrap();
    assert_eq!(texts.to_string(), "2 texts with numbers from -2 to 1.5");
    let (_dir, path) = file("a.conll", "Ada B\nlaughs O\n\nHi O\n");
    let sentences = LabelledSentences::open(&path).unwrap();
    assert_eq!(sentences.to_string(), "2 sentences of 3 words with 2 tags\n  0 \"B\": 1\n  1 \"O\": 2");
}

#[test]
fn a_json_list_in_a_table_is_a_list_of_classes() {
    let columns = TextColumns::default().with_label("label", LabelKind::Classes);
    let lists = "text\tlabel\nx\t[\"b, c\", \"a\"]\ny\ta,d\nz\t[]\n";
    let texts = open("a.tsv", lists, &columns).unwrap();
    assert_eq!(texts.names().names(), ["a", "b, c", "d"]);
    let classes = all(&texts).into_iter().map(|(_, _, label)| label).collect::<Vec<_>>();
    assert_eq!(classes, [vec![0, 1], vec![0, 2], vec![]].map(Label::Classes));
    assert!(open("a.tsv", "text\tlabel\nx\t[\"a\"]\n", &TextColumns::default()).is_err());
}

#[test]
fn a_device_is_no_labelled_file() {
    let dir = tempdir().unwrap();
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
    let loader = bucketed_loader(usize::MAX).with_shuffling(5);
    assert_eq!(epoch(&loader).0.iter().map(Vec::len).collect::<Vec<_>>(), [103]);
}

#[test]
fn an_empty_part_of_a_loader_has_no_batch_and_ends() {
    let part = loader(4).slice(5, 5);
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
    let vocabulary = BertTokenizer::from_pretrained(dir.path()).unwrap_err();
    assert!(matches!(vocabulary, Error::File { .. }), "{vocabulary}");
}
