//! What the methods of pipelines have in common.

use crate::prelude::*;
use burn::module::ModuleMapper;

/// One is empty, and the last longer than the 16 tokens that the models read.
const TEXTS: [&str; 4] = [
    "Ada wrote it",
    "",
    "who it Ada",
    "ada it who wrote ada it who wrote ada it who wrote ada it who wrote it",
];

const TASKS: [&str; 8] =
    ["encode", "encode_query", "encode_document", "classify", "rank", "entities", "answers", "fill_mask"];

/// A model for each of the tasks.
#[derive(Module, Debug)]
struct Models {
    sentences: BertForSentenceEmbedding,
    classifier: BertForSequenceClassification,
    ranker: BertForSequenceClassification,
    tokens: BertForTokenClassification,
    questions: BertForQuestionAnswering,
    words: BertForMaskedLm,
}

impl Models {
    /// With half of everything dropped in training.
    fn new(device: &Device) -> Self {
        let mut bert = small_bert(9, 8).with_attention_probs_dropout_prob(0.5);
        bert.embeddings.hidden_dropout_prob = 0.5;
        let classifier = BertForSequenceClassificationConfig::new(bert.clone());
        let prompts = Prompts::new().with("query", "who ");
        Self {
            sentences: BertForSentenceEmbeddingConfig::new(bert.clone()).with_prompts(prompts).init(device),
            classifier: classifier.init(device),
            ranker: classifier.with_num_labels(1).init(device),
            tokens: BertForTokenClassificationConfig::new(bert.clone()).init(device),
            questions: BertForQuestionAnsweringConfig::new(bert.clone()).init(device),
            words: BertForMaskedLmConfig::new(bert).init(device),
        }
    }

    /// What a task gives for texts, and its numbers in an order that does not depend on them.
    fn run(&self, task: &str, texts: &[&str], options: &TextOptions) -> Result<(String, Vec<f64>), Error> {
        let sentences = || pipeline(self.sentences.clone());
        let embeddings = |vectors: Tensor<2>| {
            assert!(!vectors.is_autodiff());
            (format!("{:?}", vectors.to_data()), values(vectors))
        };
        Ok(match task {
            "encode" => embeddings(sentences().encode(texts, options)?),
            "encode_query" => embeddings(sentences().encode_query(texts, options)?),
            "encode_document" => embeddings(sentences().encode_document(texts, options)?),
            "classify" => {
                let found = pipeline(self.classifier.clone()).classify(texts, options)?;
                let mut labels = found.clone().concat();
                labels.chunks_mut(2).for_each(|labels| labels.sort_by(|a, b| a.label.cmp(&b.label)));
                (format!("{found:?}"), labels.iter().map(|label| label.score).collect())
            }
            "rank" => {
                let found = pipeline(self.ranker.clone()).rank("who", texts, options)?;
                let mut ranked = found.clone();
                ranked.sort_by_key(|ranked| ranked.index);
                (format!("{found:?}"), ranked.iter().map(|ranked| ranked.score).collect())
            }
            "entities" => {
                let found = pipeline(self.tokens.clone()).entities(texts, options)?;
                (format!("{found:?}"), found.concat().iter().map(|entity| entity.score).collect())
            }
            "answers" => {
                let questions: Vec<_> = texts.iter().map(|text| ("who", text)).collect();
                let found = pipeline(self.questions.clone()).answers(&questions, options)?;
                (format!("{found:?}"), found.iter().filter_map(|found| Some(found.first()?.logit)).collect())
            }
            "fill_mask" => {
                let texts: Vec<_> = texts.iter().map(|text| format!("[MASK] {text}")).collect();
                let found = pipeline(self.words.clone()).fill_mask(&texts, options)?;
                (format!("{found:?}"), found.concat().iter().map(|words| words[0].score).collect())
            }
            other => panic!("{other}"),
        })
    }

    /// What every task gives for [`TEXTS`]: each token's entity, and the best of the rest.
    fn all(&self, options: &TextOptions) -> Vec<(String, Vec<f64>)> {
        let run = |task: &&str| {
            let options = match *task {
                "entities" => {
                    options.clone().with_aggregation(Aggregation::None).with_ignored_labels(Vec::new())
                }
                _ => options.clone(),
            };
            self.run(task, &TEXTS, &options).unwrap()
        };
        TASKS.iter().map(run).collect()
    }
}

fn pipeline<M: Stored>(model: M) -> Pipeline<M> {
    Pipeline::new(model, tokenizer()).unwrap()
}

fn tokenizer() -> BertTokenizer {
    tokenizer_of(&["who", "ada", "wrote", "it"])
}

#[test]
fn a_model_in_training_reads_texts_without_dropout_and_without_a_graph() {
    let models = Models::new(&autodiff());
    let expected = models.valid().all(&TextOptions::new());
    for _ in 0..3 {
        assert_eq!(models.all(&TextOptions::new()), expected);
    }
    // What a pipeline gives back can be trained again.
    let (model, _) = pipeline(models.words).into_parts();
    let words = |model: &BertForMaskedLm| model.bert.embeddings.word_embeddings.weight.val();
    assert!(!words(&model).is_require_grad() && words(&model.train()).is_require_grad());
}

#[test]
fn a_text_has_the_same_results_in_batches_of_every_size() {
    let models = Models::new(&device());
    let expected = models.all(&TextOptions::new());
    for size in [1, 3, 4, 1000] {
        assert_eq!(models.all(&TextOptions::new().with_batch_size(size)), expected, "{size}");
    }
}

#[test]
fn texts_are_read_with_adapters_and_with_weights_in_16_bits_and_quantised() {
    let device = device();
    let models = Models::new(&device);
    let expected = models.all(&TextOptions::new());
    let layers =
        || ParamGroup::from_regex(r"layers\..*(query|key|value|intermediate|output)\.weight$").unwrap();
    let mut quantizer = quantizer();
    // The second matrix of a new adapter is zero, so that it changes nothing.
    let adapted = models.clone().apply_lora(Lora::new(2, 4.0).set_param_group(layers()));
    for (name, model, tolerance) in [
        ("LoRA", adapted, 1e-5),
        ("bf16", cast_module(models.clone(), FloatDType::BF16).unwrap(), 0.1),
        ("f16", cast_module(models.clone(), FloatDType::F16).unwrap(), 0.02),
        ("f64", cast_module(models.clone(), FloatDType::F64).unwrap(), 1e-5),
        ("quantised layers", models.clone().quantize_weights_group(&mut quantizer, layers()), 0.1),
        ("quantised", models.clone().quantize_weights(&mut quantizer), 0.1),
    ] {
        for ((task, (_, found)), (_, expected)) in
            TASKS.iter().zip(model.all(&TextOptions::new())).zip(&expected)
        {
            assert_eq!(found.len(), expected.len(), "{name}, {task}");
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < tolerance, "{name}, {task}: {found} is not {expected}");
            }
        }
        for task in TASKS {
            let (_, none) = model.run(task, &[], &TextOptions::new()).unwrap();
            assert!(none.is_empty(), "{name}, {task}");
        }
    }
}

#[test]
fn what_is_not_finite_is_an_error_of_every_method() {
    struct All(f32);
    impl ModuleMapper for All {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|tensor| tensor.full_like(self.0))
        }
    }
    for value in [f32::NAN, f32::INFINITY] {
        let models = Models::new(&device()).map(&mut All(value));
        for task in TASKS {
            let error = fails!(models.run(task, &TEXTS, &TextOptions::new()), Error::Data { .. });
            assert!(error.to_string().contains("of text 0 are not finite"), "{task}: {error}");
        }
    }
}

#[test]
fn an_option_that_a_task_does_not_read_is_an_error() {
    let models = Models::new(&device());
    let encode = &["prompt", "truncate_dim"][..];
    let reads = [
        encode,
        encode,
        encode,
        &["top_k"],
        &["top_k", "prompt"],
        &["stride", "aggregation", "ignored_labels"],
        &["top_k", "stride", "max_answer_len", "no_answer_threshold"],
        &["top_k"],
    ];
    let new = TextOptions::new;
    let options = [
        ("prompt", new().with_prompt("who ")),
        ("prompt", new().with_prompt_name("query")),
        ("top_k", new().with_top_k(1)),
        ("stride", new().with_stride(1)),
        ("aggregation", new().with_aggregation(Aggregation::Max)),
        ("ignored_labels", new().with_ignored_labels(Vec::new())),
        ("max_answer_len", new().with_max_answer_len(2)),
        ("no_answer_threshold", new().with_no_answer_threshold(0.0)),
        ("truncate_dim", new().with_truncate_dim(3)),
    ];
    for (task, reads) in TASKS.into_iter().zip(reads) {
        for (field, options) in &options {
            // The ranker has no prompt of this name.
            if task == "rank" && format!("{options:?}").contains("Name(") {
                continue;
            }
            match models.run(task, &TEXTS, options) {
                Ok(_) => assert!(reads.contains(field), "{task} ignores {field}"),
                Err(error) => {
                    assert!(!reads.contains(field), "{task}, {field}: {error}");
                    assert!(
                        matches!(&error, Error::Config { field: found, .. } if found == field),
                        "{error}"
                    );
                    assert!(error.to_string().contains(&format!("{task} does not read it")), "{error}");
                }
            }
        }
        for (name, options) in [("batch_size", new().with_batch_size(0)), ("top_k", new().with_top_k(0))] {
            let error = models.run(task, &[], &options).unwrap_err();
            assert!(matches!(error, Error::Config { field, .. } if field == name), "{task}: {error}");
        }
    }
}

#[test]
fn of_a_prompt_as_a_text_and_one_by_its_name_the_later_counts() {
    let pipeline = pipeline(Models::new(&device()).sentences);
    let encode = |options: TextOptions| pipeline.encode(&TEXTS, &options).unwrap().into_data();
    let named = encode(TextOptions::new().with_prompt_name("query"));
    named.assert_eq(&encode(TextOptions::new().with_prompt("it ").with_prompt_name("query")), true);
    assert_ne!(named, encode(TextOptions::new().with_prompt_name("query").with_prompt("it ")));
}

/// transformers' pipeline takes a stride of min(128, max_seq_len / 2), and cuts no text that fits.
#[test]
fn the_default_stride_fits_every_length_that_has_room_for_the_question() {
    let mut model = Models::new(&device()).questions;
    model.bert.embeddings.extend_positions(200, burn_bert::PositionFill::Tile).unwrap();
    let answers = |length: usize, question: &str, text: &str, options: TextOptions| {
        let tokenizer = tokenizer().with_model_max_length(length);
        Pipeline::new(model.clone(), tokenizer).unwrap().answers(&[(question, text)], &options)
    };
    let whole = answers(1000, "who", TEXTS[0], TextOptions::new()).unwrap();
    for length in [7, 8, 40, 128, 131, 200] {
        assert_eq!(answers(length, "who", TEXTS[0], TextOptions::new()).unwrap(), whole, "{length}");
    }
    let long = "ada wrote it ".repeat(10);
    // Beside the question and three special tokens a window has room for 8 tokens, and for 3.
    for (question, stride) in [("who", 6), ("who wrote it who wrote it", 1)] {
        let found = answers(12, question, &long, TextOptions::new()).unwrap();
        let expected = answers(12, question, &long, TextOptions::new().with_stride(stride));
        assert_eq!(found, expected.unwrap());
    }
    says(answers(7, "who wrote it who", &long, TextOptions::new()), "the 4 tokens of \"who wrote it who\"");
}
