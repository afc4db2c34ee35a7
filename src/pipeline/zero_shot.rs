//! Texts to labels that no model was trained with, by natural language inference.

use super::classify::{ScoredLabel, scored_labels};
use super::{Pipeline, TextOptions, softmax};
use crate::error::Result;
use crate::layers::ensure;
use crate::model::BertForSequenceClassification;

impl Pipeline<BertForSequenceClassification> {
    /// Zero-shot classification: the labels of each text, of any that are given, the one with the highest score first. The model
    /// is one of natural language inference (NLI), with a label whose name begins with `entail`.
    ///
    /// The text is the premise, which alone is cut, and the hypothesis is the template with a label in it. The score is the softmax
    /// of the entailment logits over the labels; with `multi_label`, or of a single label, it is that of entailment and
    /// contradiction, which is the model's first label, or the last if entailment is the first. Reads `hypothesis_template`,
    /// `multi_label`, `threshold`, by default 0.5 of several or of one alone, and `top_k`, by default all labels. Errors are those of [every
    /// method](Pipeline#errors), and [`Error::Config`](crate::Error::Config) without labels, for a template without `{}`, or if no
    /// label of the model is entailment.
    ///
    /// ```
    /// # use burn_bert::{Result, model::BertForSequenceClassification, pipeline::*};
    /// # fn example(nli: Pipeline<BertForSequenceClassification>) -> Result<()> {
    /// let options = TextOptions::new().with_hypothesis_template("This text is about {}.".into());
    /// let found = nli.classify_zero_shot(&["The bread is burnt."], &["food", "travel"], &options)?;
    /// println!("{} {:.2}", found[0][0].label, found[0][0].score);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Source: `ZeroShotClassificationPipeline` of transformers 5.24.
    pub fn classify_zero_shot<T: AsRef<str> + Sync, L: AsRef<str>>(
        &self,
        texts: &[T],
        labels: &[L],
        options: &TextOptions,
    ) -> Result<Vec<Vec<ScoredLabel>>> {
        options.check("classify_zero_shot", &["hypothesis_template", "multi_label", "threshold", "top_k"])?;
        let template = options.hypothesis_template.as_deref().unwrap_or("This example is {}.");
        ensure(template.contains("{}"), "hypothesis_template", || {
            format!("is {template:?}, but must have {{}} where the label comes")
        })?;
        ensure(!labels.is_empty(), "labels", || "are none, but there must be one or more".into())?;
        let names = self.model.id2label();
        let entailment = names.iter().position(|name| name.to_lowercase().starts_with("entail"));
        ensure(entailment.is_some() && names.len() > 1, "id2label", || {
            format!(
                "is {names:?}, but a model of natural language inference has entailment and another label"
            )
        })?;
        let entailment = entailment.expect("it was checked");
        let contradiction = if entailment == 0 { names.len() - 1 } else { 0 };
        let hypotheses: Vec<String> =
            labels.iter().map(|label| template.replace("{}", label.as_ref())).collect();
        let is_alone = options.multi_label == Some(true) || labels.len() == 1;
        // A pair for each label, as the windows of one text.
        let pairs = self.map_windows(
            texts,
            options,
            |text| {
                let pair = |hypothesis: &String| self.tokenizer.encode_premise(text.as_ref(), hypothesis);
                hypotheses.iter().map(pair).collect()
            },
            |batch| Ok(self.model.logits(&batch.input, batch.padding.as_ref())?.unsqueeze_dim(1)),
            |_, _, logits| [logits[contradiction], logits[entailment]],
        )?;
        let scored = |logits: Vec<[f64; 2]>| {
            let scores = match is_alone {
                true => logits.iter().map(|logits| softmax(logits)[1]).collect(),
                false => softmax(&logits.iter().map(|logits| logits[1]).collect::<Vec<_>>()),
            };
            let own = is_alone.then_some(|_| 0.5);
            scored_labels(&scores, options, |id| labels[id].as_ref().into(), own)
        };
        Ok(pairs.into_iter().map(scored).collect())
    }
}
