//! Files of every kind that the crate reads, changed at random: whatever is in them, reading ends soon, with a value or an
//! error, without a panic, and with no more memory than 64 MiB and 16 times the file.
//!
//! `BURN_BERT_MUTANTS` is the number of files, `BURN_BERT_MUTANTS_SEED` the seed of the first, and the others follow it. A
//! million:
//!
//!     BURN_BERT_MUTANTS=1000000 cargo test --features train --test mutated_files
//!
//! A file that fails is made again with its seed and `BURN_BERT_MUTANTS=1`. It stays in a folder of the run below the one
//! that Cargo gives to integration tests; the test says which.

#[path = "support/mod.rs"]
mod support;
use support::*;

use burn::data::dataset::InMemDataset;
use burn::prelude::*;
use burn_bert::BertEmbeddings;
use burn_bert::data::*;
use burn_bert::model::*;
use burn_bert::pipeline::Pipeline;
use burn_bert::text::BertTokenizer;
use burn_bert::training::{History, Trainer, TrainingArguments};
use counting_allocator::{Counting, count};
use files::{fixture, vocabulary, walk};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use small_bert::small_bert;
use std::alloc::System;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// Of 20,000 files, none takes a hundredth of this.
const SLOW: Duration = Duration::from_secs(10);

/// When reading began, in milliseconds since the program did; 0 between two files.
static BEGAN: AtomicU64 = AtomicU64::new(0);

/// Allocations of other tests would count.
static ALONE: Mutex<()> = Mutex::new(());

type Outcome = Result<(), Box<dyn Error>>;

/// A name, how often it is drawn, what fills its directory with valid files, and what reads them.
type Kind = (&'static str, usize, fn(&Path), fn(&Path) -> Outcome);

const KINDS: [Kind; 22] = [
    ("classifier", 20, |dir| copy("classifiers/bert_sequence", dir), read_classifier),
    ("adapter", 10, make_adapter, read_classifier),
    ("eurobert", 10, make_eurobert, read_classifier_of_texts),
    ("sentences", 15, |dir| copy("sentences/dense", dir), read_sentence_model),
    ("modules", 8, |dir| copy("sentences/modules", dir), read_sentence_model),
    ("layers", 6, |dir| copy("sentences/layers", dir), read_sentence_model),
    ("shards", 8, |dir| copy("checkpoints/bert_sharded", dir), read_embeddings),
    ("zip.bin", 12, |dir| make_bin("zip.bin", dir), read_embeddings),
    ("legacy.bin", 12, |dir| make_bin("legacy.bin", dir), read_embeddings),
    ("bert", 10, |dir| copy("tokenizer", dir), read_tokenizer),
    ("vocab.txt", 4, make_vocabulary, read_tokenizer),
    ("roberta", 10, |dir| copy("roberta_tokenizer", dir), read_tokenizer),
    ("albert", 10, |dir| copy("families/albert_tokenizer", dir), read_tokenizer),
    ("vocab.json", 4, |dir| make_without_json("roberta", dir), read_tokenizer),
    ("xlm_roberta", 6, |dir| make_without_json("xlm_roberta", dir), read_tokenizer),
    ("camembert", 4, |dir| make_without_json("camembert", dir), read_tokenizer),
    ("deberta_v2", 4, |dir| make_without_json("deberta_v2", dir), read_tokenizer),
    ("spiece.model", 6, |dir| make_without_json("albert", dir), read_tokenizer),
    ("texts", 12, make_texts, read_texts),
    ("tokens", 8, make_tokens, read_tokens),
    ("squad", 8, |dir| copy("answers/squad.json", dir), read_squad),
    ("run", 12, make_run, read_run),
];

/// A file or a directory of the fixtures into `dir`, but for the texts that are compared with transformers.
fn copy(path: &str, dir: &Path) {
    let from = fixture(path);
    if from.is_file() {
        fs::copy(&from, dir.join(from.file_name().unwrap())).unwrap();
        return;
    }
    for file in walk(&from).into_iter().filter(|file| !file.ends_with("cases.json")) {
        fs::create_dir_all(dir.join(&file).parent().unwrap()).unwrap();
        fs::copy(from.join(&file), dir.join(&file)).unwrap();
    }
}

fn read_classifier(dir: &Path) -> Outcome {
    Ok(BertForSequenceClassification::from_pretrained(dir, &Device::default()).map(drop)?)
}

fn make_adapter(dir: &Path) {
    copy("adapters/classifier", dir);
    copy("classifiers/bert_sequence", dir);
}

fn make_eurobert(dir: &Path) {
    copy("families/eurobert_first_token", dir);
    copy("../published/tokenizers/eurobert", dir);
    let settings = r#"{"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "pad_token": "<|end_of_text|>",
        "mask_token": "<|mask|>"}"#;
    fs::write(dir.join("tokenizer_config.json"), settings).unwrap();
}

fn read_classifier_of_texts(dir: &Path) -> Outcome {
    read_tokenizer(dir)?;
    read_classifier(dir)
}

fn read_sentence_model(dir: &Path) -> Outcome {
    let (model, _) = BertForSentenceEmbedding::from_pretrained(dir, &Device::default())?;
    Ok(model.limit_tokenizer(BertTokenizer::from_pretrained(dir)?).map(drop)?)
}

fn make_bin(name: &str, dir: &Path) {
    copy("checkpoints/bert/config.json", dir);
    fs::copy(fixture("checkpoints").join(name), dir.join("pytorch_model.bin")).unwrap();
}

fn read_embeddings(dir: &Path) -> Outcome {
    Ok(BertEmbeddings::from_pretrained(dir, &Device::default()).map(drop)?)
}

fn make_vocabulary(dir: &Path) {
    copy("tokenizer/vocab.txt", dir);
    copy("tokenizer/tokenizer_config.json", dir);
    let added = r#"{"pad_token": "[PAD]", "mask_token": {"content": "[MASK]", "lstrip": true}}"#;
    fs::write(dir.join("special_tokens_map.json"), added).unwrap();
    fs::write(dir.join("added_tokens.json"), r#"{"[speaker]": 486, "zebra": 487}"#).unwrap();
}

/// A tokenizer of a class without its `tokenizer.json`.
fn make_without_json(class: &str, dir: &Path) {
    copy(&format!("tokenizer_classes/{class}"), dir);
    fs::remove_file(dir.join("tokenizer.json")).unwrap();
    let config = r#"{"do_lower_case": true, "add_prefix_space": true, "truncation_side": "left", "foo_token": "<foo>"}"#;
    fs::write(dir.join("tokenizer_config.json"), config).unwrap();
}

fn read_tokenizer(dir: &Path) -> Outcome {
    let tokenizer = BertTokenizer::from_pretrained(dir)?;
    let encoding = tokenizer.encode("The cat's \u{e9}t\u{e9}  [MASK] sat on 10 mats!")?;
    tokenizer.decode(encoding.input_ids())?;
    let tokenizer = tokenizer.with_model_max_length(8);
    tokenizer.encode_pair("unthinkable", "a pair of texts that is too long, and is cut")?;
    tokenizer.encode_windows("the quick brown fox jumps over the lazy dog", 2)?;
    Ok(())
}

fn make_texts(dir: &Path) {
    let csv =
        "text,label,score\nA good film,good,1.5\n\"Bad, \"\"very\"\" bad\",bad,-2\n\"two\nlines\",good,0\n";
    fs::write(dir.join("texts.csv"), csv).unwrap();
    let lines = "{\"text\": \"A good film\", \"label\": 1}\n{\"label\": 0, \"text\": \"B\\u00e9\"}\n\n{\"text\": \"\", \"label\": 2}\n";
    fs::write(dir.join("texts.jsonl"), lines).unwrap();
    fs::write(dir.join("pairs.tsv"), "anchor\tpositive\tscore\na question\tan answer\t0.5\nb\tc\t1\n")
        .unwrap();
}

fn read_texts(dir: &Path) -> Outcome {
    let columns = Columns::default().with_texts(["anchor", "positive"]).with_label("score");
    // Each file on its own: one that fails must not hide the others.
    let csv = LabelledTexts::open(dir.join("texts.csv"), &Columns::default()).map(drop);
    let json = LabelledTexts::open(dir.join("texts.jsonl"), &Columns::default()).map(drop);
    let pairs = SentencePairs::open(dir.join("pairs.tsv"), &columns).map(drop);
    Ok(csv.and(json).and(pairs)?)
}

fn make_tokens(dir: &Path) {
    let conll = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nPeter NNP B-NP B-PER\nBlackburn NNP I-NP I-PER\n";
    fs::write(dir.join("tokens.conll"), conll).unwrap();
    let lines = "{\"tokens\": [\"EU\", \"rejects\"], \"ner_tags\": [\"B-ORG\", \"O\"]}\n{\"tokens\": [\"Peter\"], \"ner_tags\": [\"B-PER\"]}\n";
    fs::write(dir.join("tokens.jsonl"), lines).unwrap();
    fs::write(dir.join("lines.txt"), "first\r\n\n  second line of text\nthird \u{e9}\n").unwrap();
}

fn read_tokens(dir: &Path) -> Outcome {
    let conll = LabelledSentences::open(dir.join("tokens.conll")).map(drop);
    let json = LabelledSentences::open(dir.join("tokens.jsonl")).map(drop);
    let lines = PlainText::open(dir.join("lines.txt")).map(drop);
    Ok(conll.and(json).and(lines)?)
}

fn read_squad(dir: &Path) -> Outcome {
    Ok(SquadExample::read(dir.join("squad.json")).map(drop)?)
}

/// A run of so many epochs: resuming it reads everything.
fn run(dir: &Path, epochs: usize, is_resumed: bool) -> burn_bert::Result<()> {
    let item = |id| MaskedLmExample::new(vec![2, 5 + id, 6, 3]);
    let collator = MaskedLmCollatorConfig::new(9, 4, 0, vec![0, 1, 2, 3, 4]).init();
    let batches = |first: u32| {
        let items = (first..first + 2).map(item).collect();
        collator.clone().batches(InMemDataset::new(items))
    };
    let arguments = TrainingArguments::new(dir.join("output")).with_epochs(epochs).with_silent(true);
    let pipeline = Pipeline::new(masked_lm(), BertTokenizer::from_pretrained(dir.join("tokenizer"))?)?;
    let trainer = Trainer::new(pipeline, batches(0), arguments.with_resume(is_resumed))?;
    trainer.with_validation(batches(2)).train().map(drop)
}

fn masked_lm() -> BertForMaskedLm {
    let device = Device::default();
    device.seed(1);
    BertForMaskedLmConfig::new(small_bert(9, 4)).init(&device.autodiff())
}

fn make_run(dir: &Path) {
    fs::create_dir(dir.join("tokenizer")).unwrap();
    fs::write(dir.join("tokenizer/vocab.txt"), vocabulary(&["a", "b", "c", "d"])).unwrap();
    run(dir, 1, false).unwrap();
}

/// Goes on for another epoch. The checksums are made to fit, or no change would be seen by what reads the records.
fn read_run(dir: &Path) -> Outcome {
    let training = dir.join("output/training");
    // Of the mutant before, which may have been trained.
    let _ = fs::remove_dir_all(training.join("checkpoint-2"));
    let path = training.join("checkpoint-1/state.msgpack");
    let mut state = fs::read(&path)?;
    state.truncate(state.len().saturating_sub(4));
    if let Ok((history, items, _)) = rmp_serde::from_slice::<(History, usize, [u32; 2])>(&state) {
        let [model, optimizer] =
            ["model", "optimizer"].map(|name| training.join(format!("checkpoint-1/{name}.bpk")));
        let sums = [crc32fast::hash(&fs::read(model)?), crc32fast::hash(&fs::read(optimizer)?)];
        state = rmp_serde::to_vec(&(history, items, sums))?;
    }
    state.extend(crc32fast::hash(&state).to_le_bytes());
    fs::write(&path, state)?;
    Ok(run(dir, 2, true)?)
}

struct Random(ChaCha8Rng);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0.random_range(0..bound.max(1))
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    fn range(&mut self, length: usize, most: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        start..(start + self.below(most.min(length - start) + 1))
    }
}

/// A file with up to four changes.
fn mutated(file: &[u8], random: &mut Random) -> Vec<u8> {
    const SYNTAX: &[u8] = b"\0\xff\"{}[],:\n\t\\ -0e.P\xc3";
    let numbers = "0 -1 1e308 4294967296 9223372036854775807 18446744073709551615 0.5 1e400 null";
    let numbers: Vec<&str> = numbers.split(' ').collect();
    let mut bytes = file.to_vec();
    for _ in 0..=random.below(4) {
        let place = random.below(bytes.len());
        match random.below(9) {
            _ if bytes.is_empty() => bytes.push(random.pick(SYNTAX)),
            0 => bytes[place] ^= 1 << random.below(8),
            1 => bytes[place] = random.pick(SYNTAX),
            2 => bytes.truncate(place),
            3 => drop(bytes.drain(random.range(bytes.len(), 64))),
            4 => bytes.insert(place, random.pick(SYNTAX)),
            5 => {
                let part = bytes[random.range(bytes.len(), 64)].repeat(1 << random.below(7));
                bytes.splice(place..place, part);
            }
            6 => {
                let part = bytes[random.range(bytes.len(), 256)].to_vec();
                let replaced = random.range(bytes.len(), 256);
                bytes.splice(replaced, part);
            }
            7 => {
                let huge =
                    random.pick(&[u64::MAX, 1 << 63, u64::from(u32::MAX), 1 << 31, 1 << 20, 0]).to_le_bytes();
                let length = random.pick(&[1, 2, 4, 8]).min(bytes.len() - place);
                bytes[place..place + length].copy_from_slice(&huge[..length]);
            }
            _ => {
                let Some(start) = bytes[place..].iter().position(u8::is_ascii_digit) else { continue };
                let start = place + start;
                let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                bytes.splice(start..start + length, random.pick(&numbers).bytes());
            }
        }
    }
    bytes
}

/// What goes wrong when `read` reads a file of so many bytes; `None` if nothing does.
fn problem(read: impl FnOnce() -> Outcome, size: usize, panic: &Mutex<String>) -> Option<String> {
    let limit = (64 << 20) + 16 * size;
    let began = Instant::now();
    let (outcome, used) = count(|| catch_unwind(AssertUnwindSafe(|| drop(read()))));
    if outcome.is_err() {
        return Some(format!("panic {}", panic.lock().unwrap()));
    }
    let memory = (used.peak > limit).then(|| format!("memory: {} MiB", used.peak >> 20));
    memory.or_else(|| (began.elapsed() > SLOW).then(|| format!("slow: {:?}", began.elapsed())))
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}")))
}

/// Ends the program when a file is read for a minute, since nothing else ends it. The file stays in `root`.
fn watch(program: Instant, root: &Path) -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let began = BEGAN.load(Relaxed);
        if began > 0 && program.elapsed() > Duration::from_millis(began) + 6 * SLOW {
            // Past the capture of tests, which an abort leaves unread.
            let _ = writeln!(std::io::stderr(), "a file in {} is read without an end", root.display());
            std::process::abort();
        }
    }
}

#[test]
fn no_mutated_file_panics_hangs_or_takes_much_memory() {
    let _alone = ALONE.lock();
    // A folder of its own for each run. It is removed at the end only, so that what fails can be looked at.
    let folder = tempfile::Builder::new().prefix("mutated_files_").tempdir_in(env!("CARGO_TARGET_TMPDIR"));
    let root = folder.unwrap().keep();
    println!("files: {}", root.display());
    let dirs = KINDS.map(|(name, _, make, read)| {
        let dir = root.join(name);
        fs::create_dir_all(&dir).unwrap();
        make(&dir);
        let read_file = |file| (fs::read(dir.join(&file)).unwrap(), file);
        let files: Vec<(Vec<u8>, PathBuf)> = walk(&dir).into_iter().map(read_file).collect();
        read(&dir).unwrap_or_else(|error| panic!("{name}: {error}"));
        (dir, files)
    });
    let panic = Arc::new(Mutex::new(String::new()));
    let (message, hook, program) = (panic.clone(), take_hook(), Instant::now());
    set_hook(Box::new(move |info| *message.lock().unwrap() = info.to_string().replace('\n', ": ")));
    let watched = root.clone();
    std::thread::spawn(move || -> () { watch(program, &watched) });

    let draws: Vec<usize> = (0..KINDS.len()).flat_map(|i| vec![i; KINDS[i].1]).collect();
    let first = setting("BURN_BERT_MUTANTS_SEED", 0);
    let mut problems: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for seed in first..first + setting("BURN_BERT_MUTANTS", 20_000) {
        let mut random = Random(ChaCha8Rng::seed_from_u64(seed));
        let kind = random.pick(&draws);
        let ((name, _, _, read), (dir, files)) = (KINDS[kind], &dirs[kind]);
        files.iter().for_each(|(bytes, file)| fs::write(dir.join(file), bytes).unwrap());
        let (bytes, file) = &files[random.below(files.len())];
        let mutant = mutated(bytes, &mut random);
        fs::write(dir.join(file), &mutant).unwrap();
        BEGAN.store(program.elapsed().as_millis() as u64 + 1, Relaxed);
        if let Some(problem) = problem(|| read(dir), mutant.len(), &panic) {
            eprintln!("seed {seed}: {name}/{}: {problem}", file.display());
            let start: String = problem.chars().take(160).collect();
            problems.entry(format!("{name}: {start}")).or_default().push(seed);
        }
        BEGAN.store(0, Relaxed);
    }
    set_hook(hook);
    assert!(problems.is_empty(), "{problems:#?}");
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_text_of_ten_million_bytes_takes_the_memory_of_the_tokens_that_are_kept() {
    let _alone = ALONE.lock();
    let text = "!".repeat(10_000_000);
    for folder in ["tokenizer", "families/mpnet_tokenizer"] {
        let tokenizer = BertTokenizer::from_pretrained(fixture(folder)).unwrap().with_model_max_length(512);
        let (encoding, used) = count(|| tokenizer.encode(&text).unwrap());
        assert_eq!(encoding.len(), 512);
        assert!(used.peak < 32 << 20, "{folder}: {} MiB", used.peak >> 20);
    }
}
