//! The scores that `fine_tune` prints at the end.

#[path = "../../examples/fine_tune/scores.rs"]
mod scores;

use crate::checkpoint::{checkpoint, text};
use crate::prelude::*;

fn tokenizer(dir: &Path) -> BertTokenizer {
    BertTokenizer::from_pretrained(dir).unwrap()
}

#[test]
fn predictions_of_a_class_that_the_file_lacks_count_in_the_confusion_matrix() {
    let (_turn, dir) = (turn(), checkpoint());
    let names = ["bad", "good", "unsure"].map(String::from).to_vec();
    let config =
        BertForSequenceClassificationConfig::from_pretrained(dir.path()).unwrap().with_id2label(names);
    let device = Device::default();
    let (mut model, _report) =
        BertForSequenceClassification::from_pretrained_with_new_head(&config, dir.path(), &device).unwrap();
    // It predicts the last class, whatever the text.
    let bias = Tensor::from_floats([0.0, 0.0, 100.0], &device);
    model.classifier.out_proj.bias = Some(burn::module::Param::from_tensor(bias));
    let pipeline = Pipeline::new(model, tokenizer(dir.path())).unwrap();
    // The file's classes are two of them, with other ids.
    let texts = vec![text("good", Label::Class(0)), text("bad film", Label::Class(1))];
    let texts = LabelledTexts::new(texts, ["good", "bad"].map(String::from).to_vec()).unwrap();
    let expected = [
        "predicted |       bad      good    unsure |     F1",
        "      bad |         0         0         1 | 0.0000",
        "     good |         0         0         1 | 0.0000",
        "   unsure |         0         0         0 | 0.0000",
    ];
    assert_eq!(scores::by_class(&pipeline, &texts).unwrap().lines().collect::<Vec<_>>(), expected);
}

/// Question answering by a head that is drawn.
fn answers(dir: &Path) -> Pipeline<BertForQuestionAnswering> {
    let device = Device::default();
    device.seed(3);
    let (model, _report) = BertForQuestionAnswering::from_pretrained(dir, &device).unwrap();
    Pipeline::new(model, tokenizer(dir)).unwrap()
}

#[test]
fn no_answer_is_predicted_only_for_files_in_which_a_question_has_none() {
    let (_turn, dir) = (turn(), checkpoint());
    let pipeline = answers(dir.path());
    let example = |context: &str, answers: &[&str]| SquadExample {
        id: context.into(),
        question: "who ?".into(),
        context: context.into(),
        answers: answers.iter().map(|answer| (answer.to_string(), 0)).collect(),
    };
    // A text of one word has one answer.
    let words = ["Ada", "Paris", "cat", "film", "mat", "good", "boring", "wrote"];
    let answered: Vec<_> = words.iter().map(|word| example(word, &[word])).collect();
    let scores = |examples: &[SquadExample]| scores::squad(&pipeline, examples, Some(16), 2).unwrap();
    assert_eq!(scores(&answered), SquadScores { exact: 100.0, f1: 100.0 });
    // With a question that has none, the null wins where its logit is the highest.
    let some = [&answered[..], &[example("sat", &[])]].concat();
    let threshold = TextOptions::new().with_top_k(1).with_no_answer_threshold(0.0);
    let questions: Vec<_> = some.iter().map(|example| (&example.question, &example.context)).collect();
    let found = pipeline.answers(&questions, &threshold).unwrap();
    let texts: Vec<&str> = found.iter().map(|answers| answers[0].text.as_str()).collect();
    assert_eq!(scores(&some), SquadScores::from_predictions(&some, &texts));
    assert!(texts.contains(&""), "of {texts:?} none is the null: the threshold changes nothing");
}

#[test]
fn answers_are_found_in_the_windows_that_training_had() {
    let (_turn, dir) = (turn(), checkpoint());
    let pipeline = answers(dir.path());
    let context = "the film was good a cat sat on the mat Ada lives in Paris";
    let example = SquadExample {
        question: "who ?".into(),
        context: context.into(),
        answers: vec![("Ada lives".into(), context.find("Ada").unwrap())],
        ..SquadExample::default()
    };
    // Of a window of nine tokens, three are the text's: no answer has four words.
    let limited = tokenizer(dir.path()).with_model_max_length(8);
    let short = Pipeline::new(pipeline.model().clone(), limited).unwrap();
    let options = TextOptions::new().with_top_k(1).with_stride(1);
    let found = short.answers(&[(&example.question, &example.context)], &options).unwrap();
    let expected = SquadScores::from_predictions(std::slice::from_ref(&example), &[&found[0][0].text]);
    assert_eq!(scores::squad(&pipeline, &[example], Some(8), 1).unwrap(), expected);
}
