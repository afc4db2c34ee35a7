//! Masked language modelling: the collator's statistics, the tied head, the loss.

use crate::prelude::*;
use crate::whole_word_masking::assert_share;

const PAD: u32 = 0;
const MASK: u32 = 3;
const WORDS: usize = 24;

fn collator() -> MaskedLmCollatorConfig {
    MaskedLmCollatorConfig::new(WORDS, MASK, PAD, vec![PAD, 1, 2, MASK])
}

fn config() -> BertForMaskedLmConfig {
    BertForMaskedLmConfig::new(small_bert(WORDS, 8).with_num_hidden_layers(2))
}

#[test]
fn tokens_are_masked_at_the_rates_of_bert() {
    let collator = collator().init();
    let ids: Vec<u32> = (0..200_000).map(|i| 4 + i % 20).collect();
    let mut after = ids.clone();
    let masked = collator.mask(&mut after, 1);
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
fn what_is_not_masked_stays_and_labels_are_what_was_there() {
    let collator = collator().with_mlm_probability(0.5).init();
    let ids: Vec<u32> = (0..1000).map(|i| i % WORDS as u32).collect();
    let mut after = ids.clone();
    let masked = collator.mask(&mut after, 2);
    let places: Vec<usize> = masked.iter().map(|&(place, _)| place).collect();
    assert!(places.is_sorted());
    for (place, (&before, &after)) in ids.iter().zip(&after).enumerate() {
        match masked.iter().find(|&&(masked, _)| masked == place) {
            Some(&(_, label)) => assert_eq!(label, before),
            None => assert_eq!(after, before),
        }
    }
}

#[test]
fn special_tokens_are_never_masked() {
    let collator = collator().with_mlm_probability(1.0).init();
    let mut ids = [PAD, 1, 2, MASK, 4];
    assert_eq!(collator.mask(&mut ids, 3), [(4, 4)]);
    assert_eq!(ids[..4], [PAD, 1, 2, MASK]);
}

#[test]
fn the_seed_decides_what_is_masked() {
    let collator = collator().init();
    let mask = |seed| {
        let mut ids: Vec<u32> = (0..500).map(|i| 4 + i % 20).collect();
        (collator.mask(&mut ids, seed), ids)
    };
    assert_eq!(mask(5), mask(5));
    assert_ne!(mask(5), mask(6));
}

#[test]
fn sequences_are_padded_to_the_longest_with_types_and_positions() {
    let device = device();
    let collator = collator().with_mlm_probability(0.0).init();
    let examples = [
        MaskedLmExample::new(vec![1, 7, 2])
            .with_token_type_ids(vec![0, 1, 1])
            .with_position_ids(vec![4, 5, 6]),
        MaskedLmExample::new(vec![1, 2]).with_token_type_ids(vec![0, 0]).with_position_ids(vec![9, 8]),
    ];
    let batch = collator.collate(&examples, 0, &device).unwrap();
    let ids: Vec<i64> = batch.input.input_ids().unwrap().into_data().iter().collect();
    assert_eq!(ids, [1, 7, 2, 1, 2, PAD.into()]);
    let padding: Vec<bool> = batch.padding.clone().unwrap().rows().flatten().copied().collect();
    assert_eq!(padding, [false, false, false, false, false, true]);

    let expected = BertEmbeddingsInput::from_rows(&[[1, 7, 2], [1, 2, 0]], &device)
        .unwrap()
        .with_token_type_ids(&[[0, 1, 1], [0, 0, 0]])
        .unwrap()
        .with_position_ids(&[[4, 5, 6], [9, 8, 0]])
        .unwrap();
    let model = config().init(&device);
    let found = model.bert.embeddings.forward(&batch.input);
    found.into_data().assert_eq(&model.bert.embeddings.forward(&expected).into_data(), true);

    let even = collator.collate(&[MaskedLmExample::new(vec![1, 2])], 0, &device).unwrap();
    assert!(even.padding.is_none());
}

/// `parity_models` has the loss of such a batch.
#[test]
fn a_batch_is_masked_as_its_seed_says_and_has_the_labels() {
    let collator = collator().with_mlm_probability(0.5).init();
    let mut ids = [1, 7, 8, 9, 10, 11, 12, 13, 14, 2];
    let batch = collator.collate(&[MaskedLmExample::new(ids.into())], 11, &device()).unwrap();
    let masked = collator.mask(&mut ids, 11);
    assert!(masked.len() > 2 && masked.len() < 8, "some tokens are masked and some are not");
    assert_eq!(batch.num_masked(), masked.len());
    let found: Vec<u32> = batch.input.input_ids().unwrap().into_data().iter().collect();
    let labels: Vec<u32> = batch.labels().unwrap().into_data().iter().collect();
    assert_eq!(found, ids);
    assert!(batch.positions().iter().map(|[_, place]| *place).zip(labels).eq(masked));
}

#[test]
fn the_head_reads_the_word_embeddings_and_holds_no_copy() {
    let device = autodiff();
    let mut model = config().init(&device);
    assert!(model.head.decoder.is_none());
    let vectors = Tensor::<2>::ones([1, 8], &device);
    let before = values(model.scores(vectors.clone()).unwrap());
    let words = &mut model.bert.embeddings.word_embeddings.weight;
    *words = words.clone().map(|table| table.mul_scalar(2.0).detach().require_grad());
    let doubled: Vec<f64> = before.iter().map(|score| 2.0 * score).collect();
    assert_close(&values(model.scores(vectors).unwrap()), &doubled, F32);
}

#[test]
fn the_tied_head_trains_the_padding_row_as_in_pytorch_unless_told_not_to() {
    let device = autodiff();
    let tied = larger(config().init(&device));
    let mut held = tied.clone();
    held.head.train_padding_row = false;
    let examples = [vec![1, 7, 8, 9, 10, 2], vec![1, 11, 12, 2], vec![1, 5, 6, 2, 13, 2]];
    let collator = collator().with_mlm_probability(0.5).init();
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

#[test]
fn biases_start_at_zero_and_dropout_is_where_bert_has_it() {
    let config = config();
    let bert = config.bert.clone().with_attention_probs_dropout_prob(0.2);
    let model = BertForMaskedLmConfig::new(bert.clone()).init(&device());
    assert_eq!(model.bert.config(), bert);
    for layer in &model.bert.encoder.layers {
        for linear in [&layer.attention.query, &layer.attention_output, &layer.intermediate, &layer.output] {
            assert!(values(linear.bias.as_ref().unwrap().val()).iter().all(|&value| value == 0.0));
        }
    }
    assert!(values(model.head.bias.val()).iter().all(|&value| value == 0.0));
}

#[test]
fn the_configs_epsilon_is_that_of_every_layer_norm() {
    let device = device();
    let mut config = config();
    config.bert.embeddings.layer_norm_eps = 0.75;
    let model = config.init(&device);
    let layers = model.bert.encoder.layers.iter();
    let norms = layers.flat_map(|layer| [&layer.attention_layer_norm, &layer.output_layer_norm]);
    let norms = norms.chain([&model.bert.embeddings.layer_norm, &model.head.layer_norm]);
    let rstd = 1.0 / 1.75f64.sqrt(); // of numbers whose mean is 0 and whose variance is 1
    for norm in norms {
        let row = Tensor::<2>::from_floats([[1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0]], &device);
        assert_close(&values(norm.forward(row)), &[rstd, -rstd].repeat(4), F32);
    }
}
