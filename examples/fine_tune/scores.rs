//! What a trained model makes of the validation file, by itself and not batch by batch as in training.

use anyhow::Result;
use burn::data::dataset::Dataset;
use burn_bert::data::{Label, LabelledTexts, SquadExample};
use burn_bert::metrics::{ConfusionMatrix, SquadScores};
use burn_bert::model::{BertForQuestionAnswering, BertForSequenceClassification};
use burn_bert::pipeline::{Pipeline, TextOptions};

/// A table of how often each class of the model was predicted for each class of some texts, which may have fewer classes.
pub fn confusion(
    pipeline: &Pipeline<BertForSequenceClassification>,
    texts: &LabelledTexts,
) -> Result<String> {
    let (mut matrix, options) = (ConfusionMatrix::default(), TextOptions::new().with_top_k(1));
    let items = (0..texts.len()).map(|index| texts.get(index)).collect::<Result<Vec<_>, _>>()?;
    let pairs: Vec<_> = items.iter().filter_map(|item| Some((&item.text, item.pair.as_ref()?))).collect();
    let found = match pairs.is_empty() {
        true => pipeline.classify(&items.iter().map(|item| &item.text).collect::<Vec<_>>(), &options)?,
        false => pipeline.classify(&pairs, &options)?,
    };
    let model = pipeline.model();
    for (item, found) in items.iter().zip(&found) {
        let Label::Class(truth) = item.label else { continue };
        // Both by name: the file's classes have other ids than the model's.
        let ids = (model.label2id(&texts.names()[truth]), model.label2id(&found[0].label));
        if let (Some(truth), Some(predicted)) = ids {
            matrix.add(truth, predicted);
        }
    }
    Ok(matrix.to_text(model.id2label()).trim_end().to_string())
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
    Ok(SquadScores::of(examples, &texts))
}
