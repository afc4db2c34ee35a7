//! Limits, truncation and windows.

use super::{bert, changed, limited, roberta};
use crate::prelude::*;
use tokenizers::utils::truncation::{TruncationParams, truncate_encodings};
use tokenizers::{PostProcessor, Tokenizer};

#[test]
fn truncation_and_padding_of_the_file_are_a_limit_and_no_more() {
    let dir = changed("tokenizer", |tokenizer| {
        tokenizer["truncation"] =
            json!({"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 3});
        tokenizer["padding"] = json!({
            "strategy": {"Fixed": 32}, "direction": "Left", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"
        });
    });
    let tokenizer = BertTokenizer::from_pretrained(dir.path()).unwrap();
    assert_eq!(tokenizer.model_max_length(), Some(16));
    assert_eq!(tokenizer.encode("the cat").unwrap().len(), 4);
    let long = "cat ".repeat(50);
    assert_eq!(tokenizer.encode(&long).unwrap().len(), 16);
    assert_eq!(tokenizer.encode_windows(&long, 0).unwrap().len(), 4);

    // What tokenizer_config.json says comes first.
    fs::write(dir.path().join("tokenizer_config.json"), r#"{"model_max_length": 20}"#).unwrap();
    assert_eq!(BertTokenizer::from_pretrained(dir.path()).unwrap().model_max_length(), Some(20));
    let endless = r#"{"model_max_length": 1000000000000000019884624838656}"#;
    fs::write(dir.path().join("tokenizer_config.json"), endless).unwrap();
    assert_eq!(BertTokenizer::from_pretrained(dir.path()).unwrap().model_max_length(), None);
}

#[test]
fn a_model_limits_the_length_of_texts_to_the_longest_that_fits() {
    let long = "cat ".repeat(600);
    let absolute = BertEmbeddingsConfig::new().with_max_position_embeddings(64);
    let tokenizer = limited(bert(), &absolute).unwrap();
    assert_eq!(tokenizer.model_max_length(), Some(64));
    assert_eq!(tokenizer.encode(&long).unwrap().len(), 64);
    for (stated, expected) in [(32, 32), (100, 64), (usize::MAX, 64)] {
        let before = limited(bert().with_model_max_length(stated), &absolute).unwrap();
        let after = limited(bert(), &absolute).unwrap().with_model_max_length(stated);
        assert_eq!((before.model_max_length(), after.model_max_length()), (Some(expected), Some(expected)));
    }

    let base = BertEmbeddingsConfig::roberta_base();
    assert_eq!(base.max_sequence_length(), Some(512));
    let tokenizer = limited(roberta().with_model_max_length(1000), &base).unwrap();
    assert_eq!(tokenizer.model_max_length(), Some(512));
    let relative =
        absolute.clone().with_position_embedding_type(burn_bert::PositionEmbeddingType::RelativeKey);
    assert_eq!(limited(bert(), &relative).unwrap().model_max_length(), Some(64));
    // A model's limit is not the tokenizer's own: the next model has another.
    let longer = absolute.clone().with_max_position_embeddings(128);
    let again = limited(limited(bert(), &absolute).unwrap(), &longer).unwrap();
    assert_eq!(again.model_max_length(), Some(128));
    // Rotary positions have no end: only what a model was trained with, unless a longer text is asked for.
    let mut rotary = crate::families::config(Family::NomicBert);
    (rotary.embeddings.vocab_size, rotary.embeddings.max_position_embeddings) = (bert().vocab_size(), 64);
    let model = rotary.init(&device());
    let [trained, longer] = [bert(), bert().with_model_max_length(100)].map(|tokenizer| {
        let encoding = model.limit_tokenizer(tokenizer).unwrap().encode(&long).unwrap();
        let batch = bert().batch(&[encoding], &device()).unwrap();
        model.try_forward(&batch.input, None).unwrap().last_hidden_state.dims()
    });
    assert_eq!([trained[1], longer[1]], [64, 100]);
    let device = device();
    let small = [
        (bert(), BertEmbeddingsConfig::new().with_max_position_embeddings(9)),
        (roberta(), BertEmbeddingsConfig::roberta_base().with_max_position_embeddings(9)),
    ];
    for (tokenizer, config) in small {
        let config = config.with_vocab_size(tokenizer.vocab_size()).with_hidden_size(4);
        let embeddings = config.init(&device);
        let length = config.max_sequence_length().unwrap();
        let forward = |length| {
            let tokenizer = tokenizer.clone().with_model_max_length(length);
            let encoding = tokenizer.encode("the cat sat on the mat and the dog sat on the mat").unwrap();
            assert_eq!(encoding.len(), length);
            embeddings.try_forward(&tokenizer.batch(&[encoding], &device).unwrap().input)
        };
        assert!(forward(length).is_ok());
        assert!(matches!(forward(length + 1), Err(Error::SequenceTooLong { .. })));
    }
}

fn is_too_short(error: &Error, special_tokens: usize) -> bool {
    let found = format!("have no room for the {special_tokens} special tokens;");
    matches!(error, Error::Data { problem, .. } if problem.starts_with(&found))
}

#[test]
fn a_limit_below_the_special_tokens_is_an_error() {
    let two = bert().with_model_max_length(2);
    assert_eq!(two.encode("the cat").unwrap().input_ids(), [6, 7]);
    let error = two.encode_pair("the", "cat").unwrap_err();
    assert!(is_too_short(&error, 3), "{error:?}");
    let one = bert().with_model_max_length(1);
    assert!(is_too_short(&one.encode("").unwrap_err(), 2));
    assert!(is_too_short(&one.encode_batch(&["a", "b"]).unwrap_err(), 2));
    assert!(is_too_short(&one.encode_windows("a", 0).unwrap_err(), 2));
    let four = roberta().with_model_max_length(3).encode_pair("a", "b").unwrap_err();
    assert!(is_too_short(&four, 4), "{four:?}");
}

#[test]
fn a_stride_that_windows_cannot_hold_and_a_batch_without_texts_are_errors() {
    let tokenizer = bert().with_model_max_length(8);
    assert!(tokenizer.encode_windows("cat", 5).is_ok());
    for stride in [6, 7, 8, usize::MAX] {
        let result = tokenizer.encode_windows(&"cat ".repeat(7), stride);
        fails!(result, Error::Data { problem, .. } if problem.contains("for only 6"));
    }
    says(bert().with_model_max_length(2).encode_windows("cat", 0), "room for only 0");
    // Without a limit there is one window.
    assert_eq!(bert().encode_windows("cat dog", 9).unwrap(), [bert().encode("cat dog").unwrap()]);
    fails!(bert().batch(&[], &device()), Error::Empty { .. });
    for multiple in [0, 65_537, usize::MAX] {
        fails!(bert().with_pad_to_multiple_of(multiple), Error::Config { field: "pad_to_multiple_of", .. });
    }
}

/// Tokenizers that are cut early, with what makes it hard: lookahead, growth, deletion, tokens that take spaces.
fn varied_tokenizers() -> Vec<tempfile::TempDir> {
    let spaces = json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "});
    let sequence = |types: &[&str]| {
        let parts = types.iter().map(|name| json!({ "type": name }));
        json!({"type": "Sequence", "normalizers": parts.chain([spaces.clone()]).collect::<Vec<_>>()})
    };
    let metaspace =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    vec![
        changed("tokenizer", |_| {}),
        changed("roberta_tokenizer", |_| {}),
        changed("roberta_tokenizer", |file| file["normalizer"] = sequence(&["Nmt", "NFC"])),
        changed("families/mpnet_tokenizer", |_| {}),
        changed("families/albert_tokenizer", |_| {}),
        changed("families/albert_tokenizer", |file| {
            file["normalizer"] = sequence(&["NFKD", "Lowercase"]);
            file["pre_tokenizer"] = metaspace.clone();
        }),
    ]
}

/// The reference is the library that transformers uses, which tokenises the whole and then cuts.
#[test]
fn a_long_text_has_the_tokens_of_the_whole_text() {
    let pieces: Vec<&str> = "the|cat|unthinkable| | | |  |!!!|'re|'|``|中文|e\u{301}\u{323}|\u{fdfa}|[MASK]| <mask>|  <mask>  |[MASK] |\0|\
                             \0 \0|\t\n|▁|ﬁ|10|\u{200d}|🏳\u{fe0f}|İ|s|.|-"
        .split('|')
        .collect();
    let mut seed = 7_u64;
    let mut below = |bound: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % bound
    };
    let mut text = || {
        let mut text = String::new();
        for _ in 0..below(3500) {
            let times = if below(60) == 0 { below(300) } else { 1 };
            text.push_str(&pieces[below(pieces.len())].repeat(times));
        }
        text
    };
    let texts: Vec<String> = (0..16).map(|_| text()).collect();
    for dir in varied_tokenizers() {
        let ours = BertTokenizer::from_pretrained(dir.path()).unwrap();
        let library = Tokenizer::from_file(dir.path().join("tokenizer.json")).unwrap();
        for (i, text) in texts.iter().enumerate() {
            let max_length = [8, 9, 40, 100][i % 4];
            let ours = ours.clone().with_model_max_length(max_length);
            let pair = &texts[(i + 1) % texts.len()];
            let cut = |pair: Option<&str>| {
                let post_processor = library.get_post_processor().unwrap();
                let room = max_length - post_processor.added_tokens(pair.is_some());
                let params = TruncationParams { max_length: room, ..Default::default() };
                let [text, pair] =
                    [Some(text.as_str()), pair].map(|text| Some(library.encode(text?, false).unwrap()));
                let (mut text, mut pair) = truncate_encodings(text.unwrap(), pair, &params).unwrap();
                // The library would combine each piece of the one with each of the other.
                pair.as_mut().map(|pair| (text.take_overflowing(), pair.take_overflowing()));
                library.post_process(text, pair, true).unwrap()
            };
            let found = [ours.encode(text).unwrap(), ours.encode_pair(text, pair).unwrap()];
            let expected = [cut(None), cut(Some(pair))];
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.input_ids(), expected.get_ids());
                assert_eq!(found.word_ids(), expected.get_word_ids());
            }
            let (room, stride) =
                (max_length - expected[0].get_special_tokens_mask().iter().sum::<u32>() as usize, i % 4);
            let params = TruncationParams { max_length: room, stride, ..Default::default() };
            let (mut first, _) =
                truncate_encodings(library.encode(text.as_str(), false).unwrap(), None, &params).unwrap();
            let windows = first.take_overflowing();
            let inner = |window: &Encoding| window.input_ids()[1..window.len() - 1].to_vec();
            let found: Vec<_> = ours.encode_windows(text, stride).unwrap().iter().map(inner).collect();
            let expected = std::iter::once(&first).chain(&windows).map(|window| window.get_ids().to_vec());
            assert_eq!(found, expected.collect::<Vec<_>>());
        }
    }
}

/// A word is tokenised whole, and 200 times its size would be taken for the few tokens that are kept.
#[test]
fn a_word_of_a_quarter_of_a_megabyte_is_read_and_a_longer_one_refused_by_name() {
    for tokenizer in ["bert", "roberta", "mpnet", "albert"].map(tokenizer_of_family) {
        let tokenizer = tokenizer.with_model_max_length(16);
        let whole = tokenizer.clone().with_model_max_length(usize::MAX);
        for (before, after) in [("", ""), ("the cat ", ""), ("the cat ", " the cat")] {
            let with = |count: usize| format!("{before}{}{after}", "a".repeat(count));
            let [found, expected] = [&tokenizer, &whole].map(|own| own.encode(&with(256 << 10)).unwrap());
            let kept = found.len() - 1; // and the separator
            assert_eq!(found.input_ids()[..kept], expected.input_ids()[..kept]);
            let longer = with((256 << 10) + 16);
            for result in [tokenizer.encode(&longer), tokenizer.encode_words(&[&longer])] {
                let error = result.unwrap_err().to_string();
                assert!(error.ends_with("bytes without a break between words; shorten it"), "{error}");
            }
        }
        fails!(tokenizer.encode(&format!("the{}cat", " ".repeat(1 << 20))), Error::Data { .. });
    }
}

#[test]
fn many_words_have_the_pieces_of_the_first_ones() {
    let words: Vec<&str> = ["cat", "", "unthinkable", "\0", "dogs."].into_iter().cycle().take(5000).collect();
    for tokenizer in [bert(), roberta()] {
        let whole = tokenizer.encode_words(&words).unwrap();
        let cut = tokenizer.with_model_max_length(300).encode_words(&words).unwrap();
        assert_eq!(cut.input_ids()[..299], whole.input_ids()[..299]);
        assert_eq!((cut.len(), &cut.word_ids()[..299]), (300, &whole.word_ids()[..299]));
    }
}
