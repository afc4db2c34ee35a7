//! Special and added tokens: their names, their ids, and what they are for.

use super::{bert, changed, fixture, limited, vocabulary_with};
use crate::prelude::*;

#[test]
fn special_tokens_are_found_by_the_names_that_the_files_give_them() {
    let vocabulary = fs::read_to_string(fixture("tokenizer/vocab.txt")).unwrap();
    let vocabulary = vocabulary.replace("[MASK]", "<hide>").replace("[PAD]", "<fill>");
    let dir = folder(&[("vocab.txt", vocabulary.as_bytes())]);
    let as_text = json!({"mask_token": "<hide>", "pad_token": "<fill>"});
    let in_full =
        json!({"mask_token": {"content": "<hide>", "lstrip": false}, "pad_token": {"content": "<fill>"}});
    for name in ["tokenizer_config.json", "special_tokens_map.json"] {
        for content in [&as_text, &in_full] {
            fs::write(dir.path().join(name), content.to_string()).unwrap();
            let tokenizer = BertTokenizer::from_pretrained(dir.path()).unwrap();
            assert_eq!((tokenizer.mask_token_id(), tokenizer.pad_token_id()), (8, 0));
            // In a text it is one token.
            assert_eq!(tokenizer.encode("<hide>").unwrap().input_ids(), [6, 8, 7]);
            fs::remove_file(dir.path().join(name)).unwrap();
        }
    }
}

#[test]
fn special_tokens_without_a_role_are_not_split_and_not_masked() {
    let config =
        json!({"additional_special_tokens": ["[unused1]"], "extra_special_tokens": {"x": "[unused2]"}});
    let dir = vocabulary_with(&[("tokenizer_config.json", config)]);
    let tokenizer = BertTokenizer::from_pretrained(dir.path()).unwrap();
    assert_eq!(tokenizer.special_token_ids(), [0, 2, 3, 5, 6, 7, 8]);
    assert_eq!(tokenizer.encode("[unused1]").unwrap().input_ids(), [6, 2, 7]);
}

/// `classes` has the ids of texts with them.
#[test]
fn tokens_added_to_a_vocabulary_count_and_follow_its_last() {
    let decoder = json!({"486": {"content": "[speaker]", "special": true}, "487": {"content": "zebra"}});
    let dir = vocabulary_with(&[("tokenizer_config.json", json!({"added_tokens_decoder": decoder}))]);
    let tokenizer = BertTokenizer::from_pretrained(dir.path()).unwrap();
    assert_eq!(tokenizer.vocab_size(), 488);
    assert_eq!(tokenizer.special_token_ids().last(), Some(&486));

    let dir = vocabulary_with(&[("added_tokens.json", json!({"zebra": 500}))]);
    let error = fails!(BertTokenizer::from_pretrained(dir.path()), Error::CorruptTokenizer { .. });
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(cause.contains("zebra is an added token of id 500"), "{cause}");
}

#[test]
fn a_vocabulary_with_gaps_counts_up_to_its_largest_id() {
    let dir = changed("tokenizer", |tokenizer| tokenizer["model"]["vocab"]["cat"] = json!(999));
    assert_eq!(BertTokenizer::from_pretrained(dir).unwrap().vocab_size(), 1000);
    // What the post-processor adds is looked up in the model's table, too.
    for (folder, place) in [
        ("tokenizer", "/post_processor/special_tokens/[SEP]/ids/0"),
        ("roberta_tokenizer", "/post_processor/sep/1"),
    ] {
        let dir = changed(folder, |file| *file.pointer_mut(place).unwrap() = json!(5000));
        assert_eq!(BertTokenizer::from_pretrained(dir).unwrap().vocab_size(), 5001);
    }
}

#[test]
fn every_special_token_that_is_missing_is_named_and_a_tokenizer_of_another_model_refused() {
    let vocabulary = fs::read_to_string(fixture("tokenizer/vocab.txt")).unwrap();
    for token in ["pad", "unk", "cls", "sep", "mask"] {
        let name = format!("[{}]", token.to_uppercase());
        let dir = folder(&[("vocab.txt", vocabulary.replace(&name, "[other]").as_bytes())]);
        let expected = format!("has no {token}_token: its vocabulary lacks {name}");
        let result = BertTokenizer::from_pretrained(dir.path());
        fails!(result, Error::File { problem, .. } if problem.starts_with(&expected));
    }

    // The unknown token of a tokenizer.json is the model's own; an added token is none.
    for (folder, place, entry) in [
        ("tokenizer", "/model/unk_token", json!("[NEW]")),
        ("tokenizer", "/model/vocab", json!({"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[MASK]": 3})),
        ("roberta_tokenizer", "/model/unk_token", json!("[NEW]")),
    ] {
        let dir = changed(folder, |file| *file.pointer_mut(place).unwrap() = entry.clone());
        let result = BertTokenizer::from_pretrained(dir);
        fails!(result, Error::File { problem, .. } if problem.contains("no unk_token:"));
    }
    assert!(bert().check_vocabulary(486).is_ok());
    says(bert().check_vocabulary(485), "has 486 tokens, but the model has 485 word embeddings");

    // What says so is in the table of errors. RoBERTa's positions count from the padding id.
    let result = limited(bert(), &BertEmbeddingsConfig::roberta_base());
    fails!(result, Error::Config { field: "pad_token_id", .. });
}

#[test]
fn texts_become_examples_of_which_whole_words_are_masked() {
    let tokenizer = bert().with_pad_to_multiple_of(8).unwrap();
    let config = MaskedLmCollatorConfig::for_tokenizer(&tokenizer);
    assert_eq!((config.vocab_size, config.mask_token_id), (486, 8));
    assert_eq!((config.pad_token_id, &config.special_token_ids[..]), (0, &[0, 5, 6, 7, 8][..]));
    assert_eq!(config.pad_to_multiple_of, Some(8));

    let encoding = tokenizer.encode_pair("unthinkable playing", "catless [MASK] dogs. \u{1F389}").unwrap();
    let example = MaskedLmExample::from(encoding.clone());
    assert_eq!(example.input_ids, encoding.input_ids());
    assert_eq!(example.token_type_ids.as_deref(), Some(encoding.token_type_ids()));
    assert_eq!(example.word_ids.as_deref(), Some(encoding.word_ids()));

    let config = config.with_whole_word_masking(true).with_mlm_probability(1.0);
    let collator = config.with_mask_replace_prob(1.0).with_random_replace_prob(0.0).init();
    let batch = collator.collate(&[example], 1, &device()).unwrap();
    let special = |id: &u32| tokenizer.special_token_ids().contains(id);
    let words: Vec<u32> = encoding.input_ids().iter().copied().filter(|id| !special(id)).collect();
    assert_eq!(batch.labels().unwrap().into_data().iter::<u32>().collect::<Vec<_>>(), words);
    let masked: Vec<u32> = batch.input.input_ids().unwrap().into_data().iter().collect();
    let mut expected: Vec<u32> =
        encoding.input_ids().iter().map(|id| if special(id) { *id } else { 8 }).collect();
    assert!(expected.contains(&5), "an unknown word is a special token and stays");
    expected.resize(expected.len().next_multiple_of(8), 0);
    assert_eq!(masked, expected);
}
