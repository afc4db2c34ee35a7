//! Labelled texts and words to batches: labels, how words and pieces are aligned, and the order of epochs.

use crate::prelude::*;
use burn::data::dataset::InMemDataset;

fn tokenizer() -> BertTokenizer {
    tokenizer_of(&["the", "cat", "##s", "sat", "##ting", "ho", "##t"])
}

/// The hundred texts in batches of one number each.
fn loader(batch_size: usize) -> EpochLoader<SequenceClassificationBatch> {
    EpochLoader::new(batches(), batch_size, &device()).unwrap()
}

/// The same, with texts of similar lengths in each.
fn bucketed_loader(batch_size: usize) -> EpochLoader<SequenceClassificationBatch> {
    EpochLoader::new(batches().with_lengths(hundred().1), batch_size, &device()).unwrap()
}

fn batches() -> Batches<SequenceClassificationBatch> {
    let tokenizer = tokenizer();
    let batch = move |texts: &[_], device: &_| LabelledText::batch(texts, &tokenizer, 1, device);
    Batches::new(InMemDataset::new(hundred().0), batch)
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
    let item = |words: &[&str], tags: &[usize]| LabelledTokens {
        tokens: words.iter().map(ToString::to_string).collect(),
        tags: tags.to_vec(),
    };
    // The neighbours `cat` are two words; `dog` is unknown, one piece all the same.
    let items = vec![item(&["Cats", "cat", "cat"], &[2, 1, 0]), item(&["sitting", "hot", "dog"], &[1, 2, 0])];
    let batch = |items: Vec<LabelledTokens>, tokenizer: &BertTokenizer| {
        let sentences = LabelledSentences::new(items, ["a", "b", "c"].map(String::from).to_vec()).unwrap();
        let windows = TokenWindow::cut(&sentences, tokenizer).unwrap();
        let batch = TokenWindow::batch(&windows, tokenizer, &device()).unwrap();
        (batch, windows.iter().map(|window| window.sentence).collect::<Vec<_>>())
    };
    let (whole, sentences) = batch(items.clone(), &tokenizer);
    let ids = whole.input.input_ids().unwrap().into_data().iter::<i64>().collect::<Vec<_>>();
    assert_eq!(ids, [2, 6, 7, 6, 6, 3, 2, 1, 10, 11, 1, 3]);
    assert_eq!(tagged(&whole), [(1, 2), (3, 1), (4, 0), (7, 1), (8, 2), (10, 0)]);
    assert_eq!(sentences, [0, 1]);

    // In two windows of four pieces, and padded.
    let short = tokenizer.with_model_max_length(4);
    let (cut, sentences) = batch(vec![items[0].clone(), item(&["the"], &[0])], &short);
    assert_eq!((cut.input.dims(), sentences), ([3, 4], vec![0, 0, 1]));
    assert_eq!(tagged(&cut), [(1, 2), (5, 1), (6, 0), (9, 0)]);
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
fn labels_become_ids_marks_or_numbers_and_texts_of_which_only_some_have_a_second_one_are_refused() {
    let batch = |labels: [Label; 2]| {
        let [first, second] = labels;
        let items = labelled(&[("the cats", first), ("the", second)]);
        LabelledText::batch(&items, &tokenizer(), 3, &device())
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
    let batch = |items: &[_]| LabelledText::batch(items, &tokenizer(), 2, &device());
    let mut items = labelled(&[("the cats", Label::Class(1)), ("the", Label::Class(0))]);
    items[0].pair = Some("cats".into());
    fails!(batch(&items), Error::Data { .. });
    items[1].pair = Some(String::new());
    assert_eq!(batch(&items).unwrap().input.dims(), [2, 8]); // [CLS] the cat ##s [SEP] cat ##s [SEP]
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
fn epoch(loader: &EpochLoader<SequenceClassificationBatch>, number: usize) -> (Vec<Vec<usize>>, usize) {
    let mut padded = 0;
    let batches = loader.epoch(number).map(|batch| {
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
    let in_order = epoch(&loader(), 0).0;
    assert_eq!(in_order.concat(), (0..103).collect::<Vec<_>>());
    assert_eq!((in_order.len(), in_order[25].len()), (26, 3));

    let shuffled = loader().with_shuffling(5);
    let (first, padded) = epoch(&shuffled, 0);
    let (second, _) = epoch(&shuffled, 1);
    assert_eq!(sorted(&first), (0..103).collect::<Vec<_>>());
    assert!(first != second && first != in_order);
    assert_eq!(epoch(&shuffled, 0).0, first, "whatever was read before it");
    assert_eq!(epoch(&loader().with_shuffling(5).starting_at(1, 103), 1).0, second);
    assert_ne!(epoch(&loader().with_shuffling(6), 0).0, first);

    let (batches, less_padded) = epoch(&bucketed_loader(4).with_shuffling(5), 0);
    assert_eq!(sorted(&batches), (0..103).collect::<Vec<_>>());
    assert!(batches[..25].iter().all(|batch| batch.len() == 4));
    assert!(less_padded * 4 < padded, "{less_padded} padded instead of {padded}");
    let longest = batches.iter().map(|batch| batch.iter().map(|&item| lengths[item]).max());
    assert!(!longest.is_sorted_by(|a, b| a >= b), "batches come in no order of length");
    let whole = epoch(&bucketed_loader(usize::MAX).with_shuffling(5), 0).0;
    assert_eq!(whole.iter().map(Vec::len).collect::<Vec<_>>(), [103], "a batch larger than any dataset");
    says(EpochLoader::new(self::batches().with_lengths(vec![1]), 4, &Device::default()), "lengths");

    // Epochs of ten batches: passes go on from one to the next, and a stopped run too.
    let tens = loader().with_shuffling(5).with_batches_per_epoch(10).unwrap();
    let epochs = [0, 1, 2, 3, 4, 5].map(|number| epoch(&tens, number).0);
    assert!(epochs.iter().flatten().all(|batch| batch.len() == 4));
    assert_eq!((tens.num_batches(), epochs[3].len()), (10, 10));
    let items = epochs.concat().concat();
    assert_eq!(sorted(&[items[..103].to_vec()]), (0..103).collect::<Vec<_>>());
    assert_eq!(sorted(&[items[103..206].to_vec()]), (0..103).collect::<Vec<_>>());
    assert_eq!(epoch(&tens.starting_at(4, 160), 4).0, epochs[4]);
}

#[test]
fn ranks_share_every_epoch_with_as_many_batches_and_about_as_many_tokens() {
    let (_, lengths) = hundred();
    for (batch_size, ranks) in [(4, 1), (4, 2), (4, 3), (2, 17), (51, 2), (1, 103)] {
        let shards: Vec<_> = (0..ranks)
            .map(|rank| {
                let loader = bucketed_loader(batch_size).with_shuffling(3).shard(rank, ranks).unwrap();
                let batches = epoch(&loader, 0).0;
                assert_eq!(loader.num_batches(), batches.len());
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
fn data_of_the_caller_are_checked_when_they_are_given() {
    let names = || ["a", "b"].map(String::from).to_vec();
    let text = |text: &str, label| LabelledText { text: text.into(), pair: None, label };
    let pair = |label| LabelledText { pair: Some("b".into()), ..text("a", label) };
    let rows = [
        (vec![], "texts has shape [0]"),
        (vec![text("a", Label::Class(2))], "texts[0] has the label 2, but the labels are [\"a\", \"b\"]"),
        (vec![text("a", Label::Classes(vec![0, 7]))], "texts[0] has the label 7"),
        (vec![text("a", Label::Value(f32::NAN))], "texts[0] has the label NaN"),
        (
            vec![text("a", Label::Class(0)), text("b", Label::Value(1.0))],
            "texts[1] has the label Value(1.0), but texts[0] has Class(0)",
        ),
        (
            vec![text("a", Label::Class(0)), pair(Label::Class(0))],
            "texts[1] and texts[0] must both have a second text, or neither",
        ),
        (vec![pair(Label::Relevance(1.5))], "texts[0] has the label 1.5, which is not a relevance in [0, 1]"),
        (vec![text("a", Label::Relevance(1.0))], "texts[0] has a relevance, but no second text"),
    ];
    each(rows, |(texts, expected)| says(LabelledTexts::new(texts, names()), expected));
    let words =
        |tokens: &[&str], tags| LabelledTokens { tokens: tokens.iter().map(|&t| t.into()).collect(), tags };
    let rows = [
        (words(&[], vec![]), "sentences[0] has no words"),
        (words(&["a"], vec![0, 1]), "sentences[0] has 1 token, but 2 tags"),
        (words(&["a"], vec![2]), "sentences[0] has the label 2, but the labels are"),
    ];
    each(rows, |(sentence, expected)| says(LabelledSentences::new(vec![sentence], names()), expected));
}
