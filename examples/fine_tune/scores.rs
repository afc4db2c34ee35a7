//! What a trained model makes of the validation file, by itself and not batch by batch as in training.

use anyhow::Result;
use burn::data::dataset::Dataset;
use burn_bert::data::{Label, LabelledTexts, SquadExample};
use burn_bert::metrics::{ConfusionMatrix, EntityCounts, LabelScores, SquadScores};
use burn_bert::model::{BertForQuestionAnswering, BertForSequenceClassification};
use burn_bert::pipeline::{Pipeline, TextOptions};

/// A table of how often each class of the model was predicted for each class of some texts, which may have fewer classes; of texts
/// with several classes how often each was there and predicted.
pub fn by_class(pipeline: &Pipeline<BertForSequenceClassification>, texts: &LabelledTexts) -> Result<String> {
    let (mut matrix, mut labels) = (ConfusionMatrix::default(), LabelScores::default());
    let items = (0..texts.len()).map(|index| texts.get(index)).collect::<Result<Vec<_>, _>>()?;
    let are_several = items.iter().any(|item| matches!(item.label, Label::Classes(_)));
    let options =
        TextOptions::new().with_top_k(if are_several { pipeline.model().id2label().len() } else { 1 });
    let pairs: Vec<_> = items.iter().filter_map(|item| Some((&item.text, item.pair.as_ref()?))).collect();
    let found = match pairs.is_empty() {
        true => pipeline.classify(&items.iter().map(|item| &item.text).collect::<Vec<_>>(), &options)?,
        false => pipeline.classify(&pairs, &options)?,
    };
    let model = pipeline.model();
    for (item, found) in items.iter().zip(&found) {
        let Label::Class(truth) = item.label else {
            let Label::Classes(truth) = &item.label else { continue };
            let truth: Vec<_> = truth.iter().filter_map(|&id| model.label2id(&texts.names()[id])).collect();
            let found = found.iter().filter(|found| found.is_predicted);
            let found: Vec<_> = found.filter_map(|found| model.label2id(&found.label)).collect();
            let marks =
                |ids: &[usize]| (0..model.id2label().len()).map(|id| ids.contains(&id)).collect::<Vec<_>>();
            labels.add(&marks(&truth), &marks(&found));
            continue;
        };
        // Both by name: the file's classes have other ids than the model's.
        let ids = (model.label2id(&texts.names()[truth]), model.label2id(&found[0].label));
        if let (Some(truth), Some(predicted)) = ids {
            matrix.add(truth, predicted);
        }
    }
    let names = model.id2label();
    let table = if are_several { label_table(&labels, names) } else { matrix.to_text(names) };
    Ok(table.trim_end().to_string())
}

/// A line for each label: how often it was there and predicted.
fn label_table(scores: &LabelScores, names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| name.escape_debug().to_string()).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let line = |(name, counts): (&String, &EntityCounts)| {
        let EntityCounts { present, predicted, correct } = counts;
        let [precision, recall, f1] = [counts.precision(), counts.recall(), counts.f1()];
        format!(
            "{name:width$} {present:>7} {predicted:>9} {correct:>7} {precision:>9.4} {recall:>6.4} {f1:.4}\n"
        )
    };
    let head = format!("{:width$} present predicted correct precision recall     F1\n", "");
    names.iter().zip(scores.labels()).map(line).fold(head, |text, line| text + &line)
}

/// Exact match and F1 as SQuAD's script computes them, of windows as in training. That a question has no answer is predicted only
/// if one of the examples has none (SQuAD 2).
pub fn squad(
    pipeline: &Pipeline<BertForQuestionAnswering>,
    examples: &[SquadExample],
    max_length: Option<usize>,
    doc_stride: usize,
) -> Result<SquadScores> {
    let (model, tokenizer) = pipeline.clone().into_parts();
    let tokenizer = match max_length {
        Some(length) => tokenizer.with_model_max_length(length),
        None => tokenizer,
    };
    let questions: Vec<_> = examples.iter().map(|example| (&example.question, &example.context)).collect();
    let options = TextOptions::new().with_top_k(1).with_stride(doc_stride);
    let options = match examples.iter().any(|example| example.answers.is_empty()) {
        true => options.with_no_answer_threshold(0.0),
        false => options,
    };
    let answers = Pipeline::new(model, tokenizer)?.answers(&questions, &options)?;
    // Without a valid span there is no answer to list.
    let texts: Vec<&str> = answers.iter().map(|found| found.first().map_or("", |best| &best.text)).collect();
    Ok(SquadScores::from_predictions(examples, &texts))
}
