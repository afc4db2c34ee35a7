//! Masked language modelling: the collator's statistics, words masked as a whole, the tied head, the loss.

use crate::prelude::*;

const PAD: u32 = 0;
const MASK: u32 = 3;
const WORDS: usize = 24;

/// More ids, of words that are masked as a whole.
const VOCAB: usize = 1000;

fn collator(vocab_size: usize) -> MaskedLmCollatorConfig {
    MaskedLmCollatorConfig::new(vocab_size, MASK, PAD, vec![PAD, 1, 2, MASK])
}

fn config() -> BertForMaskedLmConfig {
    BertForMaskedLmConfig::new(small_bert(WORDS, 8).with_num_hidden_layers(2))
}

#[test]
fn tokens_are_masked_at_the_rates_of_bert() {
    let collator = collator(WORDS).init();
    let ids: Vec<u32> = (0..200_000).map(|i| 4 + i % 20).collect();
    let mut after = ids.clone();
    let masked = collator.mask(&mut after, None, 1);
    let n = masked.len();
    assert_share(n, ids.len(), 0.15);
    let masks = masked.iter().filter(|&&(place, _)| after[place] == MASK).count();
    let same = masked.iter().filter(|&&(place, label)| after[place] == label).count();
    // A random word is [MASK] or the word itself in one of 24 draws each.
    assert_share(masks, n, 0.8 + 0.1 / WORDS as f64);
    assert_share(same, n, 0.1 + 0.1 / WORDS as f64);
    for word in 0..WORDS as u32 {
        let drawn = masked.iter().filter(|&&(place, label)| after[place] == word && label != word).count();
        if word != MASK {
            assert_share(drawn, n, 0.1 / WORDS as f64);
        }
    }
}

#[test]
fn what_is_not_masked_stays_labels_are_what_was_there_and_the_seed_decides() {
    let collator = collator(WORDS).with_mlm_probability(0.5).init();
    let ids: Vec<u32> = (0..1000).map(|i| i % WORDS as u32).collect();
    let mask = |seed| {
        let mut after = ids.clone();
        (collator.mask(&mut after, None, seed), after)
    };
    let (masked, after) = mask(2);
    assert_eq!(mask(2), (masked.clone(), after.clone()));
    assert_ne!(mask(3).0, masked);
    let places: Vec<usize> = masked.iter().map(|&(place, _)| place).collect();
    assert!(places.is_sorted());
    for (place, (&before, &after)) in ids.iter().zip(&after).enumerate() {
        match masked.iter().find(|&&(masked, _)| masked == place) {
            Some(&(_, label)) => assert!(label == before && label > MASK, "special tokens are never masked"),
            None => assert_eq!(after, before),
        }
    }
}

#[test]
fn sequences_are_padded_to_the_longest_with_types_and_positions() {
    let device = device();
    let unmasked = collator(WORDS).with_mlm_probability(0.0).init();
    let examples = [
        MaskedLmExample::new(vec![1, 7, 2])
            .with_token_type_ids(vec![0, 1, 1])
            .with_position_ids(vec![4, 5, 6]),
        MaskedLmExample::new(vec![1, 2]).with_token_type_ids(vec![0, 0]).with_position_ids(vec![9, 8]),
    ];
    let batch = unmasked.collate(&examples, 0, &device).unwrap();
    assert_eq!(input_ids(&batch), [1, 7, 2, 1, 2, PAD]);
    assert_eq!(batch.padding, Some(PaddingMask::from_lengths(&[3, 2], 3).unwrap()));

    let expected = BertEmbeddingsInput::from_rows(&[[1, 7, 2], [1, 2, 0]], &device)
        .unwrap()
        .with_token_type_ids(&[[0, 1, 1], [0, 0, 0]])
        .unwrap()
        .with_position_ids(&[[4, 5, 6], [9, 8, 0]])
        .unwrap();
    let model = config().init(&device);
    let found = model.bert.embeddings.forward(&batch.input);
    found.into_data().assert_eq(&model.bert.embeddings.forward(&expected).into_data(), true);

    // Padding has its own id wherever it is among the special ones.
    let short = [MaskedLmExample::new(vec![1, 2]), MaskedLmExample::new(vec![1])];
    for special in [vec![1, 2, 9], vec![9, 1, 2], vec![]] {
        let collator = MaskedLmCollatorConfig::new(VOCAB, MASK, 9, special).with_mlm_probability(0.0).init();
        assert_eq!(input_ids(&collator.collate(&short, 0, &device).unwrap()), [1, 2, 1, 9]);
    }

    let multiple = collator(VOCAB).with_mlm_probability(0.0).with_pad_to_multiple_of(Some(4)).init();
    let words = |length: u32| MaskedLmExample::new((4..4 + length).collect());
    for (lengths, padded) in [(&[5, 2][..], Some(8)), (&[4], None)] {
        let examples: Vec<_> = lengths.iter().map(|&length| words(length)).collect();
        let batch = multiple.collate(&examples, 0, &device).unwrap();
        let seq = padded.unwrap_or(4);
        assert_eq!(batch.input.dims(), [lengths.len(), seq]);
        let lengths: Vec<usize> = lengths.iter().map(|&length| length as usize).collect();
        assert_eq!(batch.padding, padded.map(|seq| PaddingMask::from_lengths(&lengths, seq).unwrap()));
        let row = |&length: &usize| (0..seq as u32).map(move |i| if i < length as u32 { 4 + i } else { PAD });
        assert_eq!(input_ids(&batch), lengths.iter().flat_map(row).collect::<Vec<_>>());
    }
}

/// `parity_models` has the loss of such a batch.
#[test]
fn a_batch_is_masked_as_its_seed_says_and_has_the_labels() {
    let collator = collator(WORDS).with_mlm_probability(0.5).init();
    let mut ids = [1, 7, 8, 9, 10, 11, 12, 13, 14, 2];
    let batch = collator.collate(&[MaskedLmExample::new(ids.into())], 11, &device()).unwrap();
    let masked = collator.mask(&mut ids, None, 11);
    assert!(masked.len() > 2 && masked.len() < 8, "some tokens are masked and some are not");
    assert_eq!(batch.num_masked(), masked.len());
    let labels: Vec<u32> = batch.labels().unwrap().into_data().iter().collect();
    assert_eq!(input_ids(&batch), ids);
    assert!(batch.positions().iter().map(|[_, place]| *place).zip(labels).eq(masked));
}

#[test]
fn the_tied_head_trains_the_padding_row_as_in_pytorch_unless_told_not_to() {
    let device = autodiff();
    let tied = larger(config().init(&device));
    let mut held = tied.clone();
    held.head.train_padding_row = false;
    let examples = [vec![1, 7, 8, 9, 10, 2], vec![1, 11, 12, 2], vec![1, 5, 6, 2, 13, 2]];
    let collator = collator(WORDS).with_mlm_probability(0.5).init();
    let batch = collator.collate(&examples.map(MaskedLmExample::new), 11, &device).unwrap();
    let run = |model: &BertForMaskedLm| {
        let output = model.forward(&batch);
        let gradients = output.loss.clone().backward();
        let words = values(model.bert.embeddings.word_embeddings.weight.grad(&gradients).unwrap());
        (values(output.logits.unwrap()), words)
    };
    let (tied_scores, tied_gradient) = run(&tied);
    let (held_scores, held_gradient) = run(&held);
    assert_eq!(held_scores, tied_scores);
    assert!(tied_gradient[..8].iter().all(|&value| value != 0.0), "{:?}", &tied_gradient[..8]);
    assert_eq!(held_gradient[..8], [0.0; 8]);
    assert_close(&held_gradient[8..], &tied_gradient[8..], F32);
}

/// Words of one, two and three tokens in turn, each id other than its neighbours'.
fn words(count: u32) -> (Vec<u32>, Vec<Option<u32>>) {
    let tokens = (0..count).flat_map(|word| std::iter::repeat_n(Some(word), 1 + word as usize % 3));
    let words: Vec<_> = tokens.collect();
    let ids = (0..words.len() as u32).map(|i| 4 + i % 900).collect();
    (ids, words)
}

/// Checks a share of n against p, within four standard errors.
fn assert_share(found: usize, n: usize, p: f64) {
    let (share, error) = (found as f64 / n as f64, 4.0 * (p * (1.0 - p) / n as f64).sqrt());
    assert!((share - p).abs() < error, "{share} is not {p} ± {error}");
}

fn input_ids(batch: &MaskedLmBatch) -> Vec<u32> {
    batch.input.input_ids().unwrap().into_data().iter().collect()
}

#[test]
fn a_word_is_masked_as_a_whole_or_not_at_all_at_the_rate_of_bert() {
    let (ids, words) = words(60_000);
    let mut after = ids.clone();
    let masked = collator(VOCAB).init().mask(&mut after, Some(&words), 1);

    let mut is_masked = vec![false; ids.len()];
    for &(place, label) in &masked {
        is_masked[place] = true;
        assert_eq!(label, ids[place]);
    }
    let mut masked_words = [0; 3];
    for (word, same) in words.chunk_by(|a, b| a == b).scan(0, |start, word| {
        let same = &is_masked[*start..*start + word.len()];
        *start += word.len();
        Some((word, same))
    }) {
        assert!(same.iter().all(|&masked| masked == same[0]), "{word:?} is masked in part");
        masked_words[word.len() - 1] += usize::from(same[0]);
    }
    // Each word counts once, however long it is.
    masked_words.into_iter().for_each(|count| assert_share(count, 20_000, 0.15));

    // Within a word each token is drawn for by itself. A random id is any of 1000.
    let masks = masked.iter().filter(|&&(place, _)| after[place] == MASK).count();
    let kept = masked.iter().filter(|&&(place, label)| after[place] == label).count();
    assert_share(masks, masked.len(), 0.8 + 0.1 / VOCAB as f64);
    assert_share(kept, masked.len(), 0.1 + 0.1 / VOCAB as f64);
    let pairs = masked.chunk_by(|a, b| words[a.0] == words[b.0]).filter(|word| word.len() == 2);
    let pairs: Vec<_> = pairs.map(|word| (after[word[0].0] == MASK, after[word[1].0] == MASK)).collect();
    let both = pairs.iter().filter(|&&(a, b)| a && b).count();
    assert_share(both, pairs.len(), 0.64);
}

#[test]
fn special_tokens_are_never_masked_and_end_a_word() {
    let collator = collator(VOCAB).with_mlm_probability(0.5).init();
    let mut together = 0;
    for seed in 0..200 {
        let mut ids = [1, 7, 2, 8, MASK, 9, PAD];
        // Both texts of a pair count words from 0; an odd tokenizer gives even special tokens a word.
        let words = [None, Some(0), None, Some(0), Some(0), Some(0), Some(0)];
        let masked = collator.mask(&mut ids, Some(&words), seed);
        assert_eq!((ids[0], ids[2], ids[4], ids[6]), (1, 2, MASK, PAD));
        let places: Vec<_> = masked.iter().map(|&(place, _)| place).collect();
        assert!(places.iter().all(|place| [1, 3, 5].contains(place)));
        together += usize::from(places.len() == 3);
    }
    assert_share(together, 200, 0.125);
}

#[test]
fn batches_hide_whole_words_if_asked_to_and_tokens_of_no_word_stand_for_themselves() {
    let device = device();
    let (ids, words) = words(900);
    let example = MaskedLmExample::new(ids.clone()).with_word_ids(words.clone());
    let collate = |config: MaskedLmCollatorConfig| {
        config.init().collate(std::slice::from_ref(&example), 7, &device).unwrap()
    };
    let mask = |words: Option<&[Option<u32>]>| {
        let mut masked = ids.clone();
        (collator(VOCAB).init().mask(&mut masked, words, 7), masked)
    };
    let ((_, whole), (places, single)) = (mask(Some(&words)), mask(None));
    assert_ne!(whole, single);
    assert_eq!(mask(Some(&vec![None; ids.len()])), (places, single.clone()));
    assert_eq!(input_ids(&collate(collator(VOCAB).with_whole_word_masking(true))), whole);
    assert_eq!(input_ids(&collate(collator(VOCAB))), single, "word ids alone change nothing");
}

#[test]
fn the_collator_refuses_what_it_cannot_batch() {
    let whole_words = collator(WORDS).with_whole_word_masking(true).init();
    let collator = collator(WORDS).init();
    let collate = |examples: &[MaskedLmExample]| collator.collate(examples, 0, &device()).unwrap_err();
    assert!(matches!(collate(&[]), Error::Empty { .. }));
    assert!(matches!(collate(&[MaskedLmExample::new(vec![])]), Error::Empty { .. }));
    let short = MaskedLmExample::new(vec![1, 2]).with_token_type_ids(vec![0]);
    assert!(matches!(collate(&[short]), Error::ShapeMismatch { input: "token_type_ids", .. }));
    let some = [MaskedLmExample::new(vec![1]).with_position_ids(vec![0]), MaskedLmExample::new(vec![1])];
    assert!(matches!(collate(&some), Error::ShapeMismatch { input: "position_ids", .. }));
    // An example without word ids has a row in the table of errors.
    let few = MaskedLmExample::new(vec![1, 7, 2]).with_word_ids(vec![None]);
    fails!(whole_words.collate(&[few], 0, &device()), Error::ShapeMismatch { input: "word_ids", .. });
}
