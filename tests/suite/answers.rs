//! Answers, training windows and SQuAD's scores against the published rules (tests/fixtures/make_answers.py).

use crate::prelude::*;
use burn::train::metric::{Adaptor, LossInput};
use burn_bert::metrics::SquadScores;
use burn_bert::training::TrainableModel;

fn cases() -> Value {
    json(fixture("answers/cases.json"))
}

fn examples() -> Vec<SquadExample> {
    SquadExample::read(fixture("answers/squad.json")).unwrap()
}

fn model(name: &str) -> (BertForQuestionAnswering, BertTokenizer) {
    let model: BertForQuestionAnswering = loaded(fixture("answers").join(name));
    (model.clone(), model.limit_tokenizer(tokenizer_of_family(name)).unwrap())
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

#[test]
fn answers_equal_those_of_squads_post_processing() {
    let (cases, examples) = (cases(), examples());
    let questions: Vec<_> =
        examples.iter().map(|example| (example.question.as_str(), example.context.as_str())).collect();
    let mut compared = 0;
    for name in ["bert", "roberta", "distilbert", "electra", "mpnet", "albert"] {
        let (model, tokenizer) = model(name);
        for run in cases["runs"].as_array().unwrap().iter().filter(|run| run["model"] == name) {
            let tokenizer = tokenizer.clone().with_model_max_length(number(&run["max_length"]));
            let pipeline = Pipeline::new(model.clone(), tokenizer).unwrap();
            let options = TextOptions::new()
                .with_max_answer_len(number(&run["max_answer_len"]))
                .with_stride(number(&run["stride"]));
            let top_k = run["top_k"].as_u64();
            let options = top_k.map_or(options.clone(), |top_k| options.with_top_k(top_k as usize));
            let threshold = run["threshold"].as_f64();
            let options = threshold.map_or(options.clone(), |limit| options.with_no_answer_threshold(limit));
            let found = pipeline.answers(&questions, &options).unwrap();
            for ((answers, expected), (question, text)) in
                found.iter().zip(run["answers"].as_array().unwrap()).zip(&questions)
            {
                let context = format!("{name}, {options:?}, {}: {question}", run["max_length"]);
                let expected = expected.as_array().unwrap();
                // The rules count characters, and what is found slices a Rust string.
                let characters = |byte: usize| text[..byte].chars().count();
                let spans = |answers: &[Answer]| -> Vec<[usize; 2]> {
                    answers.iter().map(|answer| [answer.start, answer.end].map(characters)).collect()
                };
                let expected_spans: Vec<_> =
                    expected.iter().map(|answer| [number(&answer[0]), number(&answer[1])]).collect();
                assert_eq!(spans(answers), expected_spans, "{context}\n{answers:#?}\n{expected:#?}");
                for (answer, expected) in answers.iter().zip(expected) {
                    assert_eq!(answer.text, text[answer.start..answer.end]);
                    for (found, expected) in [(answer.score, &expected[2]), (answer.logit, &expected[3])] {
                        let expected = expected.as_f64().unwrap();
                        assert!((found - expected).abs() < 2e-5, "{context}: {found} is not {expected}");
                    }
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 2500, "{compared} answers");
}

#[test]
fn training_windows_have_the_tokens_of_the_answer() {
    let (cases, examples) = (cases(), examples());
    for run in cases["targets"].as_array().unwrap() {
        let (_, tokenizer) = model(run["model"].as_str().unwrap());
        let tokenizer = tokenizer.with_model_max_length(number(&run["max_length"]));
        let windows = QuestionWindow::cut(&examples, &tokenizer, number(&run["stride"])).unwrap();
        let found: Vec<_> = windows.iter().map(|window| window.answer).collect();
        assert_eq!(json!(found), run["targets"], "{}", run["model"]);
        assert!(windows.iter().map(|window| window.example).is_sorted());
        let dims = [windows.len(), windows.iter().map(|window| window.encoding.len()).max().unwrap()];
        let batch = QuestionWindow::batch(&windows, &tokenizer, &device()).unwrap();
        assert_eq!(batch.input.dims(), dims);
    }
}

/// In SQuAD's post-processing, no answer has to be above the best by more than the threshold, and of equal logits it is the
/// last.
#[test]
fn an_answer_that_ties_with_no_answer_is_the_answer() {
    let (mut model, tokenizer) = model("bert");
    model.qa_outputs.weight = model.qa_outputs.weight.map(|weight| weight * 0.0);
    model.qa_outputs.bias = model.qa_outputs.bias.take().map(|bias| bias.map(|bias| bias * 0.0));
    let pipeline = Pipeline::new(model, tokenizer).unwrap();
    let find = |threshold: f64| {
        let options = TextOptions::new().with_stride(0).with_no_answer_threshold(threshold);
        pipeline.answers(&[("who", "the cat sat")], &options).unwrap().remove(0)
    };
    let found = find(0.0);
    assert!(found.iter().all(|answer| answer.logit == 0.0) && !found[0].is_impossible(), "{found:?}");
    assert!(found[found.len() - 1].is_impossible(), "{found:?}");
    assert!(find(-1e-6)[0].is_impossible());
}

#[test]
fn squads_files_are_read_in_both_versions_and_answers_not_at_their_place_are_not_learned() {
    let examples = examples();
    assert_eq!(examples.len(), 9);
    assert_eq!(examples[0].answers, [("Berlin".to_string(), 13), ("to Berlin".to_string(), 10)]);
    assert_eq!((examples[3].id.as_str(), examples[3].answers.len()), ("q3", 0));

    let read = |text: &str| {
        let dir = folder(&[("v1.json", text.as_bytes())]);
        SquadExample::read(dir.path().join("v1.json"))
    };
    let question = |answer: &str, start: usize| {
        let answers = json!([{ "text": answer, "answer_start": start }]);
        json!({ "id": "1", "question": "?", "answers": answers })
    };
    let read_one = |question: Value| {
        let paragraph = json!({ "context": "我爱 it", "qas": [question] });
        let file = json!({ "version": "1.1", "data": [{ "title": "t", "paragraphs": [paragraph] }] });
        read(&file.to_string())
    };
    assert_eq!(read_one(question("爱", 1)).unwrap()[0].answers, [("爱".to_string(), 1)]);
    for (answer, start) in [("爱", 0), ("爱", 2), ("爱", 5), ("爱", 6), ("爱", 1 << 40), ("", 1)] {
        fails!(read_one(question(answer, start)), Error::Data { what, .. } if what.contains("\"1\""));
    }
    // The rows of Hugging Face's datasets, as JSON lines, in a list and in a field; ids may be numbers.
    let row = |id: Value, answer: &str, start: i64| {
        let answers = json!({ "text": [answer], "answer_start": [start] });
        json!({ "id": id, "title": "t", "context": "我爱 it", "question": "?", "answers": answers })
    };
    let rows = [row(json!(7), "爱", 1), row(json!("b"), "it", 3)];
    for text in
        [format!("{}\n{}\n", rows[0], rows[1]), json!(rows).to_string(), json!({ "data": rows }).to_string()]
    {
        let found = read(&text).unwrap();
        let ids: Vec<&str> = found.iter().map(|example| example.id.as_str()).collect();
        assert_eq!((ids, &found[1].answers), (vec!["7", "b"], &vec![("it".to_string(), 3)]), "{text}");
        assert_eq!(found[0].context, "我爱 it");
    }
    let none =
        json!({ "id": "c", "context": "it", "question": "?", "answers": { "text": [], "answer_start": [] } });
    assert_eq!(read(&none.to_string()).unwrap()[0].answers, []);
    let mut unequal = rows[0].clone();
    unequal["answers"]["answer_start"] = json!([1, 2]);
    fails!(read(&unequal.to_string()), Error::Json { .. });
    // Misplaced answers are counted and named, and left out on request.
    let rows = [
        row(json!(1), "it", 2),
        rows[0].clone(),
        row(json!(3), "爱", -1),
        row(json!(4), "", 0),
        row(json!(5), "x", 0),
    ];
    let error = read(&json!(rows).to_string()).unwrap_err().to_string();
    let expected = "has the answer \"it\" at character 2, but its text is another there; correct answer_start, which \
                    counts characters; so have 4 of 5 questions, the next being [\"3\", \"4\"]";
    assert!(error.starts_with("question \"1\" of ") && error.ends_with(expected), "{error}");
    let dir = folder(&[("rows.json", json!(rows).to_string().as_bytes())]);
    let (placed, misplaced) = SquadExample::read_placed(dir.path().join("rows.json")).unwrap();
    assert_eq!((placed.len(), placed[0].id.as_str()), (1, "7"));
    let are_named = misplaced
        .iter()
        .zip([1, 3, 4, 5])
        .all(|(text, id)| text.starts_with(&format!("question \"{id}\" has")));
    assert!(are_named && misplaced.len() == 4, "{misplaced:?}");
    assert!(misplaced[1].contains("at character -1"), "{misplaced:?}");
    // An answer to a question without one is not learned.
    let mut impossible = question("爱", 1);
    impossible["is_impossible"] = json!(true);
    assert_eq!(read_one(impossible).unwrap()[0].answers, []);
    for text in ["{}", "[]", "{\"data\": 3}", "", "{\"data\": []}"] {
        fails!(read(text), Error::Json { .. } | Error::File { .. });
    }
    let (_, tokenizer) = model("bert");
    // A start that counts bytes.
    for answer in [("cat".to_string(), 6), ("cat".to_string(), usize::MAX), (String::new(), 0)] {
        let answers = vec![answer];
        let (question, context) = ("Who?".into(), "Ünd cat".into());
        let example = SquadExample { id: "q7".into(), question, context, answers };
        fails!(QuestionWindow::cut(&[example], &tokenizer, 0), Error::Data { what, .. } if what == "question \"q7\"");
    }
}

#[test]
fn a_question_begins_where_pythons_lstrip_leaves_it() {
    let windows = |question: &str| {
        let example =
            SquadExample { question: question.into(), context: "a cat".into(), ..Default::default() };
        QuestionWindow::cut(&[example], &tokenizer_of_family("roberta"), 0).unwrap()
    };
    assert_eq!(windows("\u{1c}\u{1f} \u{85}\u{3000}who"), windows("who"));
    assert_ne!(windows("\u{1b}who"), windows("who"));
}

#[test]
fn exact_match_and_f1_are_squads() {
    let cases = cases();
    let (mut examples, mut predictions) = (Vec::new(), Vec::new());
    for case in cases["scored"].as_array().unwrap() {
        let answers: Vec<String> = list(&case[0]);
        let answers = answers.into_iter().map(|answer| (answer, 0)).collect();
        let example = SquadExample { answers, ..SquadExample::default() };
        let scores =
            SquadScores::from_predictions(std::slice::from_ref(&example), &[case[1].as_str().unwrap()]);
        let expected = [&case[2], &case[3]].map(|score| score.as_f64().unwrap());
        assert_eq!(scores.exact, expected[0], "{case}");
        assert!((scores.f1 - expected[1]).abs() < 1e-9, "{case}: {}", scores.f1);
        examples.push(example);
        predictions.push(case[1].as_str().unwrap());
    }
    let scores = SquadScores::from_predictions(&examples, &predictions);
    let total = [0, 1].map(|which| cases["total"][which].as_f64().unwrap());
    assert!((scores.exact - total[0]).abs() < 1e-9 && (scores.f1 - total[1]).abs() < 1e-9);
}

#[test]
fn answers_are_places_within_their_sequences() {
    let device = autodiff();
    let model = BertForQuestionAnsweringConfig::new(small_bert(20, 8)).init(&device);
    let input = BertEmbeddingsInput::from_rows(&[[2, 7, 9, 3], [2, 8, 3, 0]], &device).unwrap();
    let padding = Some(PaddingMask::from_lengths(&[4, 3], 4).unwrap());
    let batch = |answers: &[[usize; 2]]| {
        QuestionAnsweringBatch::new(input.clone(), padding.clone(), answers).unwrap()
    };
    // Three of the four places are known.
    let item = model.outcome(&batch(&[[1, 2], [9, 0]])).unwrap().output;
    assert_eq!(item.logits.dims(), [3, 4]);
    assert_eq!(values(item.classes.clone().unwrap().float()), [1.0, 2.0, 0.0]);
    let _: LossInput = item.adapt();

    let result = QuestionAnsweringBatch::new(input.clone(), None, &[[0, 0]]);
    fails!(result, Error::ShapeMismatch { input: "labels", .. });
    let mut replaced = batch(&[[1, 3], [0, 0]]);
    replaced.input = BertEmbeddingsInput::from_rows(&[[2, 7], [2, 8]], &device).unwrap();
    replaced.padding = None;
    assert!(matches!(model.try_forward(&replaced), Err(Error::LabelOutOfRange { .. })));
}

#[test]
fn settings_that_find_no_answer_are_refused() {
    let (model, tokenizer) = model("bert");
    let answers = |options: &TextOptions, length: usize| {
        let tokenizer = tokenizer.clone().with_model_max_length(length);
        let pipeline = Pipeline::new(model.clone(), tokenizer).unwrap();
        pipeline.answers(&[("Who?", "The cat sat.")], options)
    };
    let options = TextOptions::new().with_stride(0);
    let none = options.clone().with_max_answer_len(0);
    fails!(answers(&none, 40), Error::Config { field: "max_answer_len", .. });
    // [CLS] who ? [SEP] … [SEP]
    let full = answers(&options, 5).unwrap_err();
    assert!(full.to_string().starts_with("windows that overlap by 0 tokens"), "{full}");
    assert!(full.to_string().contains("the 2 tokens of \"Who?\""), "{full}");
    // A long question is not printed as a whole.
    let long = "who wrote ".repeat(30);
    let long = tokenizer.with_model_max_length(40).encode_pair_windows(&long, "The cat sat.", 0).unwrap_err();
    assert!(long.to_string().contains("who wrote \"…") && long.to_string().len() < 250, "{long}");
}
