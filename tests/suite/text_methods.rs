//! What `encode`, `classify`, `rank`, `entities` and `answers` have in common.

use crate::tolerance::values;
use burn::module::{Module, ModuleMapper, Param};
use burn::prelude::*;
use burn_bert::model::{
    AnswersConfig, BertForQuestionAnswering, BertForQuestionAnsweringConfig, BertForSentenceEmbedding,
    BertForSentenceEmbeddingConfig, BertForSequenceClassification, BertForSequenceClassificationConfig,
    BertForTokenClassification, BertForTokenClassificationConfig, BertModelConfig, EncodeConfig,
    EntitiesConfig, Prompts,
};
use burn_bert::text::BertTokenizer;
use burn_bert::{BertEmbeddingsConfig, Error};

const TEXTS: [&str; 2] = ["Ada wrote it", "who it Ada"];

/// A model for each of the methods.
#[derive(Module, Debug)]
struct Models {
    sentences: BertForSentenceEmbedding,
    classifier: BertForSequenceClassification,
    ranker: BertForSequenceClassification,
    tokens: BertForTokenClassification,
    questions: BertForQuestionAnswering,
}

impl Models {
    /// With half of everything dropped in training.
    fn new(device: &Device) -> Self {
        let embeddings = BertEmbeddingsConfig::new().with_vocab_size(9).with_hidden_size(8);
        let bert = BertModelConfig::new(embeddings.with_hidden_dropout_prob(0.5))
            .with_num_hidden_layers(1)
            .with_num_attention_heads(2)
            .with_intermediate_size(16)
            .with_attention_probs_dropout_prob(0.5);
        let classifier = BertForSequenceClassificationConfig::new(bert.clone());
        let prompts = Prompts::new().with("query", "who ");
        Self {
            sentences: BertForSentenceEmbeddingConfig::new(bert.clone()).with_prompts(prompts).init(device),
            classifier: classifier.init(device),
            ranker: classifier.with_num_labels(1).init(device),
            tokens: BertForTokenClassificationConfig::new(bert.clone()).init(device),
            questions: BertForQuestionAnsweringConfig::new(bert).init(device),
        }
    }

    /// What each method gives for the texts.
    fn results(&self) -> [Result<String, Error>; 5] {
        let tokenizer = tokenizer();
        let encodings = tokenizer.encode_batch(&TEXTS).unwrap();
        let questions = TEXTS.map(|text| ("who", text));
        let text = |vectors: Tensor<2>| format!("{:?}", values(vectors));
        [
            self.sentences.encode(&tokenizer, &TEXTS, &EncodeConfig::new()).map(text),
            self.classifier.classify(&tokenizer, &encodings).map(|found| format!("{found:?}")),
            self.ranker.rank(&tokenizer, "who", &TEXTS).map(|found| format!("{found:?}")),
            self.tokens
                .entities(&tokenizer, &TEXTS, &EntitiesConfig::new())
                .map(|found| format!("{found:?}")),
            self.questions
                .answers(&tokenizer, &questions, &AnswersConfig::new())
                .map(|found| format!("{found:?}")),
        ]
    }
}

fn tokenizer() -> BertTokenizer {
    let dir = tempfile::tempdir().unwrap();
    let words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nwho\nada\nwrote\nit\n";
    std::fs::write(dir.path().join("vocab.txt"), words).unwrap();
    BertTokenizer::from_pretrained(dir.path()).unwrap()
}

#[test]
fn a_model_in_training_reads_texts_without_dropout_and_without_a_graph() {
    let models = Models::new(&Device::default().autodiff());
    let expected = models.valid().results().map(Result::unwrap);
    for _ in 0..3 {
        assert_eq!(models.results().map(Result::unwrap), expected);
    }
    let vectors = models.sentences.encode(&tokenizer(), &TEXTS, &EncodeConfig::new()).unwrap();
    assert!(!vectors.is_autodiff());
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
        for result in Models::new(&Device::default()).map(&mut All(value)).results() {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Data { .. }), "{error}");
            assert!(error.to_string().contains("of text 0 are not finite"), "{error}");
        }
    }
}

#[test]
fn a_prompt_and_the_name_of_one_are_not_both_taken() {
    let model = Models::new(&Device::default()).sentences;
    let encode = |config: &EncodeConfig| model.encode(&tokenizer(), &TEXTS, config);
    let prompt = EncodeConfig::new().with_prompt(Some("who ".into()));
    for name in ["query", "unknown"] {
        let error = encode(&prompt.clone().with_prompt_name(Some(name.into()))).unwrap_err();
        assert!(matches!(error, Error::Config { field: "prompt_name", .. }), "{error}");
    }
    let named = encode(&EncodeConfig::new().with_prompt_name(Some("query".into()))).unwrap();
    named.into_data().assert_eq(&encode(&prompt).unwrap().into_data(), true);
}

/// transformers' pipeline takes a stride of min(128, max_seq_len / 2), and cuts no text that fits.
#[test]
fn the_default_stride_fits_every_length_that_has_room_for_the_question() {
    let model = Models::new(&Device::default()).questions;
    let answers = |length: Option<usize>, question: &str, text: &str, config: AnswersConfig| {
        let tokenizer = match length {
            Some(length) => tokenizer().with_model_max_length(length),
            None => tokenizer(),
        };
        model.answers(&tokenizer, &[(question, text)], &config)
    };
    let whole = answers(None, "who", TEXTS[0], AnswersConfig::new()).unwrap();
    for length in [7, 8, 40, 128, 131, 200] {
        assert_eq!(answers(Some(length), "who", TEXTS[0], AnswersConfig::new()).unwrap(), whole, "{length}");
    }
    let long = "ada wrote it ".repeat(10);
    // Beside the question and three special tokens a window has room for 8 tokens, and for 3.
    for (question, stride) in [("who", 6), ("who wrote it who wrote it", 1)] {
        let found = answers(Some(12), question, &long, AnswersConfig::new()).unwrap();
        let expected = answers(Some(12), question, &long, AnswersConfig::new().with_doc_stride(stride));
        assert_eq!(found, expected.unwrap());
    }
    let error = answers(Some(7), "who wrote it who", &long, AnswersConfig::new()).unwrap_err();
    assert!(error.to_string().contains("the 4 tokens of \"who wrote it who\""), "{error}");
}
