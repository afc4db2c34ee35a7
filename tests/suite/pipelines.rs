//! Pipelines: loading and saving, words for masks, semantic search.

use crate::families;
use crate::prelude::*;
use crate::transformers::{Python, real_checkpoint};
use std::cell::RefCell;

const WORDS: &[&str] = &["the", "cat", "sat", "##s"];

fn tokenizer(dir: &Path) -> BertTokenizer {
    fs::write(dir.join("vocab.txt"), vocabulary(WORDS)).unwrap();
    BertTokenizer::from_pretrained(dir).unwrap()
}

fn pipeline<M: Stored>(model: M) -> Pipeline<M> {
    Pipeline::new(model, tokenizer_of(WORDS)).unwrap()
}

#[test]
fn what_is_saved_together_is_loaded_together() {
    let (source, dir) = (tempdir().unwrap(), tempdir().unwrap());
    fs::write(source.path().join("tokenizer_config.json"), r#"{"do_lower_case": false}"#).unwrap();
    fs::write(source.path().join("README.md"), "mine").unwrap();
    let model = BertForSequenceClassificationConfig::new(small_bert(9, 8)).init(&device());
    let saved = Pipeline::new(model, tokenizer(source.path())).unwrap();
    let dir = dir.path().join("new");
    let texts = ["the cats sat", "The cat"];
    let expected = saved.classify(&texts, &TextOptions::new()).unwrap();
    // The second time into the directory that it was loaded from.
    for _ in 0..2 {
        saved.save_pretrained(&dir).unwrap();
        let loaded = Pipeline::<BertForSequenceClassification>::from_pretrained(&dir, &device()).unwrap();
        assert_eq!(loaded.classify(&texts, &TextOptions::new()).unwrap(), expected);
        assert_eq!(loaded.tokenizer().model_max_length(), Some(16), "the positions of the model");
        loaded.save_pretrained(&dir).unwrap();
        let names: Vec<String> = files_of(&dir).into_keys().collect();
        assert_eq!(names, ["config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"]);
    }
    // A file of weights is a name of its directory, and a vocabulary of any name is saved under the usual one.
    let weights = dir.join("model.safetensors");
    Pipeline::<BertForSequenceClassification>::from_pretrained(weights, &device()).unwrap();
    let other = tempdir().unwrap();
    let words = other.path().join("words");
    fs::rename(dir.join("vocab.txt"), &words).unwrap();
    fs::remove_file(dir.join("tokenizer_config.json")).unwrap();
    fs::write(other.path().join("tokenizer.json"), "of another").unwrap();
    BertTokenizer::from_pretrained(&words).unwrap().save_pretrained(&dir).unwrap();
    assert_eq!(fs::read_to_string(dir.join("vocab.txt")).unwrap(), vocabulary(WORDS));
    assert!(!dir.join("tokenizer.json").exists());
}

#[test]
fn a_save_beside_another_tokenizer_writes_nothing() {
    let (source, dir) = (tempdir().unwrap(), tempdir().unwrap());
    let model = BertForMaskedLmConfig::new(small_bert(9, 8)).init(&device());
    let pipeline = Pipeline::new(model, tokenizer(source.path())).unwrap();
    // It would be read in place of vocab.txt.
    fs::write(dir.path().join("tokenizer.json"), "old").unwrap();
    fails!(pipeline.save_pretrained(dir.path()), Error::File { path, .. } if path.ends_with("tokenizer.json"));
    assert!(files_of(&dir).into_iter().eq([("tokenizer.json".to_string(), b"old".to_vec())]));
}

#[test]
fn a_head_that_a_checkpoint_lacks_is_an_error_that_says_what_to_do() {
    let dir = tempdir().unwrap();
    let bare = BertForSentenceEmbeddingConfig::new(small_bert(9, 8)).init(&device());
    Pipeline::new(bare, tokenizer(dir.path())).unwrap().save_pretrained(dir.path()).unwrap();
    let error = Pipeline::<BertForTokenClassification>::from_pretrained(dir.path(), &device())
        .unwrap_err()
        .to_string();
    assert!(error.contains("has no classifier.weight, classifier.bias, and"), "{error}");
    assert!(error.contains("fine-tune it first") && error.contains("Pipeline::new"), "{error}");
    let (model, _) = BertForTokenClassification::from_pretrained(dir.path(), &device()).unwrap();
    assert!(pipeline(model).entities(&["the cat"], &TextOptions::new()).is_ok());
}

#[test]
fn masks_are_filled_one_by_one_in_their_order_and_a_text_without_one_is_named() {
    let pipeline = pipeline(BertForMaskedLmConfig::new(small_bert(12, 8)).init(&device()));
    let texts = ["[MASK] cats sat", "the [MASK] [MASK]"];
    let all = pipeline.fill_mask(&texts, &TextOptions::new().with_top_k(100)).unwrap();
    assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2]);
    for words in all.concat() {
        assert_eq!(words.len(), 12, "rows of the model that the vocabulary lacks, too");
        assert!((words.iter().map(|word| word.score).sum::<f64>() - 1.0).abs() < 1e-6);
        assert!(words.is_sorted_by(|a, b| a.score >= b.score));
    }
    let filled = |mask: &[burn_bert::pipeline::FilledMask], id: u32| {
        let found = mask.iter().find(|word| word.token_id == id).unwrap();
        (found.word.clone(), found.text.clone())
    };
    let pair = |word: &str, text: &str| (word.to_string(), text.to_string());
    assert_eq!(filled(&all[0][0], 5), pair("the", "the cats sat"));
    assert_eq!(filled(&all[0][0], 4), pair("[MASK]", "cats sat"));
    assert_eq!(filled(&all[0][0], 11), pair("", "cats sat"));
    assert_eq!(filled(&all[1][0], 6), pair("cat", "[CLS] the cat [MASK] [SEP]"));
    assert_eq!(filled(&all[1][1], 8), pair("##s", "[CLS] the [MASK]s [SEP]"));
    let five = pipeline.fill_mask(&texts, &TextOptions::new()).unwrap();
    assert!(five.iter().flatten().zip(all.iter().flatten()).all(|(five, all)| five[..] == all[..5]));
    let behind = format!("{} [MASK]", "cat ".repeat(40));
    for text in ["the cat", "", &behind] {
        let error = pipeline.fill_mask(&["[MASK] cat", text], &TextOptions::new()).unwrap_err().to_string();
        let read = pipeline.tokenizer().encode(text).unwrap().len();
        let expected = format!("text 1 has no [MASK] in the {read} tokens that are read");
        assert!(error.starts_with(&expected), "{error}");
    }
}

thread_local! {
    static WARNINGS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the warnings of each thread apart.
struct Warnings;

impl log::Log for Warnings {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }

    fn log(&self, record: &log::Record) {
        if record.target().starts_with("burn_bert") {
            WARNINGS
                .with_borrow_mut(|warnings| warnings.push(format!("{} {}", record.level(), record.args())));
        }
    }

    fn flush(&self) {}
}

#[test]
fn one_warning_of_a_call_says_how_many_texts_were_cut_and_windows_cut_none() {
    log::set_logger(&Warnings).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    #[track_caller]
    fn warns<T>(result: burn_bert::Result<T>, expected: &[&str]) {
        result.unwrap();
        assert_eq!(WARNINGS.take(), expected);
    }
    let (bert, device) = (|| small_bert(12, 8), device());
    let (short, exact, long) = ("the cat", "cat ".repeat(14), "cat ".repeat(15));
    let texts = [&long, short, &exact, &long];
    let options = TextOptions::new().with_batch_size(1);
    let two = ["WARN 2 of 4 texts were cut at 16 tokens"];
    let classifier =
        pipeline(BertForSequenceClassificationConfig::new(bert()).with_num_labels(1).init(&device));
    warns(classifier.classify(&texts, &options), &two);
    warns(classifier.classify(&texts[1..3], &options), &[]);
    warns(
        classifier.classify(&[(short, exact.as_str()), (short, short)], &options),
        &["WARN 1 of 2 texts were cut at 16 tokens"],
    );
    // The query and a separator take three tokens more.
    warns(classifier.rank(short, &texts, &options), &["WARN 3 of 4 texts were cut at 16 tokens"]);
    let names = ["entailment", "other"].map(String::from).to_vec();
    let nli = BertForSequenceClassificationConfig::new(bert()).with_id2label(names).init(&device);
    let template = options.clone().with_hypothesis_template("{}".into());
    let cut = ["WARN 3 of 4 texts were cut at 16 tokens"];
    warns(pipeline(nli).classify_zero_shot(&texts, &["cat", "sat"], &template), &cut);
    let embedder = pipeline(BertForSentenceEmbeddingConfig::new(bert()).init(&device));
    warns(embedder.encode(&texts, &options), &two);
    let masked = pipeline(BertForMaskedLmConfig::new(bert()).init(&device));
    let texts = texts.map(|text| format!("[MASK] {text}"));
    warns(masked.fill_mask(&texts, &options), &cut);
    warns(masked.fill_masks(&texts, &TextOptions::new()), &cut);
    let tagger = pipeline(BertForTokenClassificationConfig::new(bert()).init(&device));
    let reader = pipeline(BertForQuestionAnsweringConfig::new(bert()).init(&device));
    warns(tagger.entities(&texts, &options), &[]);
    warns(reader.answers(&[("the cat", &long)], &options), &[]);
}

#[test]
fn an_encoding_says_whether_it_was_cut() {
    let tokenizer = tokenizer_of(WORDS);
    for limit in [3, 8, 9] {
        let limited = tokenizer.clone().with_model_max_length(limit);
        for length in 0..12 {
            let words = vec!["cat"; length];
            let text = words.join(" ");
            let is_cut = |encoding: burn_bert::Result<Encoding>| encoding.unwrap().is_truncated();
            assert_eq!(is_cut(limited.encode(&text)), length + 2 > limit, "{length} of {limit}");
            assert!(!is_cut(tokenizer.encode(&text)));
            // Words without a token cut nothing.
            let after = [&words[..], &["", ""]].concat();
            let before = [&[""], &words[..]].concat();
            for words in [&words, &after, &before] {
                assert_eq!(is_cut(limited.encode_words(words)), length + 2 > limit, "{words:?} of {limit}");
            }
            for pair in 0..7 {
                let pair_text = "sat ".repeat(pair);
                let found = is_cut(limited.encode_pair(&text, &pair_text));
                assert_eq!(found, length + pair + 3 > limit, "{length} and {pair} of {limit}");
            }
            let windows = limited.encode_windows(&text, 0).unwrap();
            assert!(windows.iter().all(|window| !window.is_truncated()));
        }
    }
    // Of a long text the start alone is tokenised.
    assert!(tokenizer.clone().with_model_max_length(8).encode(&"cat ".repeat(9999)).unwrap().is_truncated());
}

/// Against a plain loop, over more queries and a larger corpus than are compared at once.
#[test]
fn the_most_similar_of_a_corpus_are_found_in_parts() {
    let (queries, rows, width) = (130, 70_000, 3);
    // Small whole numbers: many similarities are equal, and all are exact. The longest vectors, which are the most similar, are
    // few, and in both parts of the corpus.
    let value = |i: usize, axis: usize, bound: usize| {
        ((i * 7919 + axis * 104_729 + i * i % 31) % (2 * bound + 1)) as f32 - bound as f32
    };
    let bound = |row: usize| if row % 16_384 == 7 || row % 64 == 5 && row > 66_000 { 5 } else { 2 };
    let embeddings = |rows: usize, bound: &dyn Fn(usize) -> usize| {
        let row = |i: usize| (0..width).map(move |axis| value(i, axis, bound(i)));
        Tensor::<2>::from_data(TensorData::new((0..rows).flat_map(row).collect(), [rows, width]), &device())
    };
    let (asked, corpus) = (embeddings(queries, &|_| 5), embeddings(rows, &bound));
    for similarity in [Similarity::Dot, Similarity::Manhattan] {
        let config = BertForSentenceEmbeddingConfig::new(small_bert(9, 8)).with_similarity(similarity);
        let pipeline = pipeline(config.init(&device()));
        let found = pipeline.search(&asked, &corpus, 7).unwrap();
        assert_eq!(found.len(), queries);
        for query in [0, 1, 127, 128, 129] {
            let score = |row: usize| -> f64 {
                let pairs = (0..width).map(|axis| (value(query, axis, 5), value(row, axis, bound(row))));
                let terms = pairs.map(|(a, b)| match similarity {
                    Similarity::Dot => a * b,
                    _ => -(a - b).abs(),
                });
                terms.sum::<f32>().into()
            };
            let mut expected: Vec<_> = (0..rows).map(|index| Ranked { index, score: score(index) }).collect();
            expected.sort_by(|a, b| b.score.total_cmp(&a.score));
            assert_eq!(found[query], expected[..7], "{similarity:?}, {query}");
        }
    }
}

#[test]
fn what_cannot_be_searched_is_an_error_and_nothing_is_found_in_nothing() {
    let pipeline = pipeline(BertForSentenceEmbeddingConfig::new(small_bert(9, 8)).init(&device()));
    let corpus = Tensor::<2>::ones([3, 8], &device());
    let none = Tensor::<2>::zeros([0, 8], &device());
    assert_eq!(pipeline.search(&corpus, &none, 2).unwrap(), [const { Vec::new() }; 3]);
    assert!(pipeline.search(&none, &corpus, 2).unwrap().is_empty());
    assert_eq!(pipeline.search(&corpus, &corpus, 9).unwrap()[2].len(), 3);
    fails!(pipeline.search(&corpus, &corpus, 0), Error::Config { field: "top_k", .. });
    let narrow = corpus.clone().narrow(1, 0, 4);
    for error in [
        pipeline.search(&narrow, &corpus, 1).unwrap_err(),
        pipeline.similarity(&narrow, &corpus).unwrap_err(),
    ] {
        assert!(matches!(error, Error::ShapeMismatch { input: "embeddings", .. }), "{error}");
    }
    says(pipeline.search(&corpus, &(corpus.clone() * f32::NAN), 1), "similarities of text 0 are not finite");
}

#[test]
#[ignore = "needs Python with transformers, named by BURN_BERT_PYTHON"]
fn words_and_filled_texts_equal_those_of_transformers_pipeline() {
    let (dir, out) = (tempdir().unwrap(), tempdir().unwrap());
    let texts = ["The cat sat on the {} .", "{} cats don't sit {} the mats!", "Straße {}, 我爱 Berlin", "{}"];
    for (family, name) in [
        (Family::Bert, "bert"),
        (Family::Roberta, "roberta"),
        (Family::MpNet, "mpnet"),
        (Family::Albert, "albert"),
    ] {
        let tokenizer = tokenizer_of_family(name);
        let mut config = BertForMaskedLmConfig::new(families::config(family));
        config.bert.embeddings.vocab_size = tokenizer.vocab_size();
        config.bert.embeddings.max_position_embeddings = 40; // transformers' pipeline cuts nothing
        let pipeline = Pipeline::new(config.init(&device()), tokenizer).unwrap();
        let dir = dir.path().join(format!("{family:?}"));
        pipeline.save_pretrained(&dir).unwrap();
        let mask = pipeline.tokenizer().id_to_token(pipeline.tokenizer().mask_token_id()).unwrap();
        let texts: Vec<String> = texts.iter().map(|text| text.replace("{}", &mask)).collect();
        fs::write(out.path().join("texts.json"), json!(texts).to_string()).unwrap();
        Python::named().check("filled", &dir, out.path());
        let all = TextOptions::new().with_top_k(pipeline.tokenizer().vocab_size());
        let found = pipeline.fill_mask(&texts, &all).unwrap();
        let expected = json(out.path().join("filled.json"));
        assert_eq!(expected.as_array().unwrap().len(), texts.len());
        for (found, expected) in found.iter().zip(expected.as_array().unwrap()) {
            assert_eq!(found.len(), expected.as_array().unwrap().len());
            for (words, expected) in found.iter().zip(expected.as_array().unwrap()) {
                // By token: scores of a new model are close to each other.
                let mut words = words.clone();
                words.sort_by_key(|word| word.token_id);
                for (word, expected) in words.iter().zip(expected.as_array().unwrap()) {
                    assert_eq!(word.token_id, expected["token"]);
                    assert_eq!(word.word, expected["token_str"], "{family:?}");
                    assert_eq!(word.text, expected["sequence"], "{family:?}");
                    let score = expected["score"].as_f64().unwrap();
                    assert!((word.score - score).abs() < 1e-6, "{family:?}: {word:?}, {score}");
                }
            }
        }
    }
}

/// Queries, documents, similarities and the best documents of each query.
fn assert_searched(dir: &Path) {
    let out = tempdir().unwrap();
    Python::named().check("searched", dir, out.path());
    let expected = File::at(&out.path().join("f32.safetensors"));
    let found = json(out.path().join("found.json"));
    let texts = |name: &str| list::<Vec<String>>(&found[name]);
    let pipeline = Pipeline::<BertForSentenceEmbedding>::from_pretrained(dir, &device()).unwrap();
    let queries = pipeline.encode_query(&texts("queries"), &TextOptions::new()).unwrap();
    let corpus = pipeline.encode_document(&texts("corpus"), &TextOptions::new()).unwrap();
    assert_close(&values(queries.clone()), &expected.values("queries"), MODEL_F32);
    assert_close(&values(corpus.clone()), &expected.values("corpus"), MODEL_F32);
    let similarities = values(pipeline.similarity(&queries, &corpus).unwrap());
    assert_close(&similarities, &expected.values("similarities"), MODEL_F32);
    let ranked = pipeline.search(&queries, &corpus, 4).unwrap();
    let expected: Vec<Vec<(usize, f64)>> = list(&found["found"]);
    assert_eq!((ranked.len(), ranked[0].len()), (expected.len(), 4));
    for (ranked, expected) in ranked.iter().flatten().zip(expected.iter().flatten()) {
        assert_eq!(ranked.index, expected.0, "{ranked:?}, {expected:?}");
        assert!((ranked.score - expected.1).abs() < 1e-5, "{ranked:?}, {expected:?}");
    }
}

#[test]
#[ignore = "needs Python with sentence-transformers and a checkpoint of it, named by BURN_BERT_PYTHON and \
            BURN_BERT_CHECKPOINT"]
fn semantic_search_with_a_real_checkpoint_equals_sentence_transformers() {
    assert_searched(&real_checkpoint());
}

#[test]
#[ignore = "needs Python with sentence-transformers, named by BURN_BERT_PYTHON"]
fn queries_and_documents_have_the_prompts_that_sentence_transformers_gives_them() {
    let all = tempdir().unwrap();
    let prompts = [
        Prompts::new(),
        Prompts::new().with("query", "a question: ").with("document", "the dog "),
        Prompts::new().with("query", "a question: ").with("passage", "the dog ").with_default("passage"),
        Prompts::new().with("corpus", "the dog ").with_default("corpus"),
    ];
    let similarities = [Similarity::Cosine, Similarity::Dot, Similarity::Euclidean, Similarity::Manhattan];
    for (i, (prompts, similarity)) in prompts.into_iter().zip(similarities).enumerate() {
        let tokenizer = BertTokenizer::from_pretrained(fixture("tokenizer")).unwrap();
        let mut config = BertForSentenceEmbeddingConfig::new(families::config(Family::Bert))
            .with_prompts(prompts)
            .with_include_prompt(i != 1)
            .with_similarity(similarity);
        config.bert.embeddings.vocab_size = tokenizer.vocab_size();
        let dir = all.path().join(i.to_string());
        Pipeline::new(config.init(&device()), tokenizer).unwrap().save_pretrained(&dir).unwrap();
        assert_searched(&dir);
    }
}
