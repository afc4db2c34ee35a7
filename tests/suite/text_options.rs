//! What texts become by the options of pipelines and by prompts in training, against transformers' pipelines and
//! sentence-transformers (tests/fixtures/make_pipelines.py).

use crate::prelude::*;

fn cases() -> Value {
    json(fixture("pipelines/cases.json"))
}

fn tokenizer() -> BertTokenizer {
    BertTokenizer::from_pretrained(fixture("tokenizer")).unwrap()
}

#[track_caller]
fn assert_near(found: f64, expected: &Value) {
    let expected = expected.as_f64().unwrap();
    // Probabilities of several words are small.
    assert!((found - expected).abs() < 1e-5_f64.min(1e-4 * expected), "{found}, {expected}");
}

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

#[test]
fn targets_of_masks_are_scored_as_by_transformers_and_masks_are_filled_together() {
    let cases = cases();
    let (model, _) = BertForMaskedLm::from_pretrained(fixture("pipelines/masked"), &device()).unwrap();
    let pipeline = Pipeline::new(model, tokenizer()).unwrap();
    let targets = TextOptions::new().with_targets(list(&cases["targets"]));
    for case in cases["masked"].as_array().unwrap() {
        let text = [case["text"].as_str().unwrap()];
        let found = &pipeline.fill_mask(&text, &targets).unwrap()[0];
        let expected = case["found"].as_array().unwrap();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.len(), expected.as_array().unwrap().len());
            for (word, expected) in found.iter().zip(expected.as_array().unwrap()) {
                let shown = json!([word.token_id, word.word, word.text]);
                assert_eq!(shown, json!(expected.as_array().unwrap()[..3]));
                assert_near(word.score, &expected[3]);
                let replaced = match word.word.as_str() {
                    "jump" => Some("jumped-over".to_string()),
                    _ => None,
                };
                assert_eq!(word.replaced_target, replaced, "{}", word.word);
            }
        }
        let two = pipeline.fill_mask(&text, &targets.clone().with_top_k(2)).unwrap();
        assert!(two[0].iter().zip(found).all(|(two, all)| two[..] == all[..2]));
        // Of so few targets no beam is lost.
        let together = &pipeline.fill_masks(&text, &targets.clone().with_top_k(5)).unwrap()[0];
        let expected = case["jointly"].as_array().unwrap();
        assert_eq!(together.len(), expected.len());
        for (found, expected) in together.iter().zip(expected) {
            assert_eq!(json!(found.token_ids), expected[0]);
            assert_near(found.score, &expected[1]);
            assert_eq!(found.words.len(), found.token_ids.len());
        }
        // The first of the best, whatever the number that is asked for.
        let one = &pipeline.fill_masks(&text, &targets.clone().with_top_k(1)).unwrap()[0];
        assert_eq!(one[..], together[..1]);
    }
    let all = TextOptions::new();
    let found = &pipeline.fill_masks(&["The [MASK] sat on the [MASK]."], &all).unwrap()[0][0];
    let [first, second] = [&found.words[0], &found.words[1]];
    assert_eq!(found.text, format!("the {first} sat on the {second}."));
    let unknown = all.clone().with_targets(strings(&["☃", "cat"]));
    let found = &pipeline.fill_mask(&["[MASK]"], &unknown).unwrap()[0][0];
    let unknown = found.iter().find(|word| word.word == "[UNK]").unwrap();
    assert_eq!(unknown.replaced_target.as_deref(), Some("☃"));
    for targets in [vec![], strings(&["cat", ""])] {
        let result = pipeline.fill_mask(&["[MASK]"], &all.clone().with_targets(targets));
        fails!(result, Error::Config { field: "targets", .. });
    }
    says(pipeline.fill_masks(&["[MASK]", "the cat"], &all), "text 1 has no [MASK]");
}

#[test]
fn labels_without_training_are_scored_as_by_transformers() {
    let cases = cases();
    let (model, _) =
        BertForSequenceClassification::from_pretrained(fixture("cross_encoder/three_labels"), &device())
            .unwrap();
    let pipeline = |names: Vec<String>| {
        let config = model.config().with_id2label(names);
        let dir = fixture("cross_encoder/three_labels");
        let (model, _) =
            BertForSequenceClassification::from_pretrained_with(&config, dir, &device()).unwrap();
        Pipeline::new(model, tokenizer()).unwrap()
    };
    let texts: Vec<String> = list(&cases["texts"]);
    let texts: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    let mut orders = Vec::new();
    for case in cases["zero_shot"].as_array().unwrap() {
        let rule = &case["rule"];
        let mut options = TextOptions::new().with_batch_size(2);
        if let Some(template) = rule["hypothesis_template"].as_str() {
            options = options.with_hypothesis_template(template.into());
        }
        if rule["multi_label"] == true {
            options = options.with_multi_label(true);
        }
        let labels = rule.get("candidate_labels").unwrap_or(&cases["labels"]);
        let labels: Vec<String> = list(labels);
        let found = pipeline(list(&case["names"])).classify_zero_shot(&texts, &labels, &options).unwrap();
        assert_eq!(found.len(), texts.len());
        for (found, expected) in found.iter().zip(case["found"].as_array().unwrap()) {
            assert_eq!(found.len(), labels.len());
            for (label, expected) in found.iter().zip(expected.as_array().unwrap()) {
                assert_eq!(label.label, expected[0]);
                assert_near(label.score, &expected[1]);
            }
            orders.push(found[0].label.clone());
        }
    }
    assert!(orders.iter().any(|label| *label != orders[0]));
    let (nli, all) = (strings(&["contradiction", "neutral", "entailment"]), TextOptions::new());
    let pipeline_of_nli = pipeline(nli);
    let one = pipeline_of_nli.classify_zero_shot(&texts, &["a", "b"], &all.clone().with_top_k(1)).unwrap();
    assert!(one.iter().all(|labels| labels.len() == 1 && labels[0].is_predicted));
    let several = all.clone().with_multi_label(true);
    for (options, threshold) in [(several.clone(), 0.5), (several.with_threshold(0.01), 0.01)] {
        let found =
            pipeline_of_nli.classify_zero_shot(&texts, &["a", "b", "dog"], &options).unwrap().concat();
        assert!(found.iter().all(|label| label.is_predicted == (label.score >= threshold)), "{found:?}");
    }
    // A label alone has a probability of its own.
    let alone =
        ["a", "b", "dog", "cat sat"].map(|label| pipeline_of_nli.classify_zero_shot(&texts, &[label], &all));
    let alone = alone.into_iter().flat_map(|found| found.unwrap().concat());
    let alone: Vec<bool> = alone
        .inspect(|label| assert_eq!(label.is_predicted, label.score >= 0.5))
        .map(|label| label.is_predicted)
        .collect();
    assert!(alone.contains(&false), "{alone:?}");
    fails!(
        pipeline_of_nli.classify_zero_shot::<_, &str>(&texts, &[], &all),
        Error::Config { field: "labels", .. }
    );
    let template = all.clone().with_hypothesis_template("about it".into());
    let result = pipeline_of_nli.classify_zero_shot(&texts, &["a"], &template);
    fails!(result, Error::Config { field: "hypothesis_template", .. });
    says(pipeline_of_nli.classify_zero_shot(&texts, &["dog ".repeat(60)], &all), "shorten it");
    let other = pipeline(strings(&["no", "perhaps", "yes"]));
    fails!(other.classify_zero_shot(&texts, &["a"], &all), Error::Config { field: "id2label", .. });
}

#[test]
fn embeddings_are_cut_then_normalised_and_a_prompt_is_added_once() {
    let cases = cases();
    let texts: Vec<String> = list(&cases["texts"]);
    let embedder =
        Pipeline::<BertForSentenceEmbedding>::from_pretrained(fixture("sentences/max"), &device()).unwrap();
    let options = TextOptions::new().with_normalize(true);
    let nomic = options.clone().with_layer_norm(true).with_truncate_dim(4);
    for (name, options) in [("cut", options.with_truncate_dim(3)), ("nomic", nomic)] {
        let found = to_vectors(embedder.encode(&texts, &options).unwrap());
        let expected: Vec<Vec<f64>> = list(&cases["vectors"][name]);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            let found: Vec<f64> = found.iter().map(|&value| value.into()).collect();
            assert_close(&found, &expected, MODEL_F32);
        }
    }
    let all = TextOptions::new();
    let prompted = ["What did the cat do? who ran?", "who ran?"];
    let vectors = to_vectors(embedder.encode_query(&prompted, &all).unwrap());
    assert_eq!(vectors[0], vectors[1]);
    let plain = to_vectors(embedder.encode(&prompted[1..], &all.clone().with_prompt("")).unwrap());
    assert_ne!(vectors[0], plain[0]);
}

#[test]
fn embeddings_are_quantized_as_by_sentence_transformers() {
    let quantized = &cases()["quantized"];
    let tensor = |name: &str| {
        let rows: Vec<Vec<f32>> = list(&quantized[name]);
        let shape = [rows.len(), rows[0].len()];
        Tensor::<2>::from_data(TensorData::new(rows.concat(), shape), &device())
    };
    let embeddings = tensor("embeddings");
    let ranges = EmbeddingRanges::new(tensor("calibration")).unwrap();
    let int8 = quantize_embeddings(&embeddings, EmbeddingPrecision::Int8(&ranges)).unwrap();
    assert_eq!(json!(int8), quantized["int8"]);
    let binary = quantize_embeddings(&embeddings, EmbeddingPrecision::Binary).unwrap();
    assert_eq!(json!(binary), quantized["binary"]);
    let read_back = ranges.dequantize(&int8, &device()).unwrap();
    assert_close(&values(read_back), &list::<Vec<Vec<f64>>>(&quantized["read_back"]).concat(), MODEL_F32);
    let narrow = embeddings.clone().narrow(1, 0, 3);
    fails!(quantize_embeddings(&narrow, EmbeddingPrecision::Int8(&ranges)), Error::ShapeMismatch { .. });
    fails!(ranges.dequantize(&[vec![1]], &device()), Error::ShapeMismatch { .. });
    fails!(EmbeddingRanges::new(embeddings.narrow(0, 0, 1)), Error::Data { .. });
}

#[cfg(feature = "train")]
mod training {
    use super::*;
    use burn_bert::training::{Trainer, TrainingArguments, TrainingPrompts, evaluate};

    fn pairs(cases: &Value) -> SentencePairs {
        let rows: Vec<[String; 3]> = list(&cases["pairs"]);
        let pair = |[anchor, positive, negative]: [String; 3]| SentencePair {
            negatives: vec![negative],
            ..SentencePair::new(anchor, positive)
        };
        SentencePairs::new(rows.into_iter().map(pair).collect(), Vec::new()).unwrap()
    }

    fn prompts(case: &Value) -> Option<TrainingPrompts> {
        match case["kind"].as_str().unwrap() {
            "none" => None,
            "one" => Some([case["prompts"].as_str().unwrap()].into()),
            "columns" => Some(TrainingPrompts::Texts(list(&case["prompts"]))),
            _ => Some(TrainingPrompts::Names(list(&case["prompts"]))),
        }
    }

    fn arguments(dir: &Path) -> TrainingArguments {
        TrainingArguments::new(dir).with_silent(true).with_batch_size(3).with_epochs(1)
    }

    /// With and without the prompts' tokens in the pooling; of whole batches and of mini-batches.
    #[test]
    fn a_batch_with_prompts_has_the_loss_of_sentence_transformers() {
        let (cases, dir) = (cases(), tempdir().unwrap());
        for case in cases["trained"].as_array().unwrap() {
            let (model, _) = BertForSentenceEmbedding::from_pretrained(
                fixture("sentences").join(case["model"].as_str().unwrap()),
                &device(),
            )
            .unwrap();
            let tokenizer = BertTokenizer::from_pretrained(fixture("sentences/max")).unwrap();
            let arguments = TrainingArguments { prompts: prompts(case), ..arguments(dir.path()) };
            for mini_batch_size in [None, Some(2)] {
                let config = model.config().with_mini_batch_size(mini_batch_size);
                let dir = fixture("sentences").join(case["model"].as_str().unwrap());
                let (model, _) =
                    BertForSentenceEmbedding::from_pretrained_with(&config, dir, &device()).unwrap();
                let pipeline = Pipeline::new(model, tokenizer.clone()).unwrap();
                let found = evaluate(&pipeline, pairs(&cases), &arguments).unwrap()["Loss"];
                assert_near(found, &case["loss"]);
            }
        }
    }

    #[test]
    fn prompts_of_training_are_saved_and_what_cannot_be_put_before_texts_is_refused() {
        let (cases, dir) = (cases(), tempdir().unwrap());
        let source = fixture("sentences/max");
        let run = |name: &str, prompts: TrainingPrompts| {
            let arguments = arguments(&dir.path().join(name)).with_prompts(prompts);
            Trainer::<BertForSentenceEmbedding, _>::from_pretrained(&source, pairs(&cases), arguments)?
                .train()
        };
        let trained = run("columns", ["a question: ", "a text: "].into()).unwrap();
        let trained_prompts = trained.pipeline.model().config().prompts;
        let saved = json(dir.path().join("columns/config_sentence_transformers.json"));
        assert_eq!(
            (&saved["prompts"]["query"], &saved["prompts"]["document"]),
            (&json!("a question: "), &json!("a text: "))
        );
        assert_eq!(saved["prompts"]["passage"], "");
        assert_eq!(saved["default_prompt_name"], "query", "that of the checkpoint");
        assert_eq!(trained_prompts.text(Some("document")).unwrap(), "a text: ");
        let one = run("one", ["a dog. "].into()).unwrap().pipeline.model().config().prompts;
        for name in [None, Some("query"), Some("document")] {
            assert_eq!(one.text(name).unwrap(), "a dog. ");
        }
        let own = run("own", TrainingPrompts::Names(strings(&["query"]))).unwrap();
        let (before, _) = BertForSentenceEmbedding::from_pretrained(&source, &device()).unwrap();
        assert_eq!(own.pipeline.model().config().prompts, before.config().prompts);

        says(run("a", TrainingPrompts::Names(strings(&["other"]))), "have no \"other\"");
        says(run("b", ["", "", "", ""].into()), "prompts are 4, but must be 1 to 3");
        says(run("c", TrainingPrompts::Texts(Vec::new())), "prompts are 0");
        let pipeline = || Pipeline::<BertForSentenceEmbedding>::from_pretrained(&source, &device()).unwrap();
        let given = arguments(dir.path()).with_prompts(["a dog. "]);
        says(Trainer::new(pipeline(), pairs(&cases), given.clone()).map(drop), "choose them by their names");
        let masked = fixture("pipelines/masked");
        let (model, _) = BertForMaskedLm::from_pretrained(masked, &device()).unwrap();
        let texts = PlainText::new(["the cat sat on the mat. ".repeat(20)]).unwrap();
        let result = evaluate(&Pipeline::new(model, tokenizer()).unwrap(), texts, &given);
        says(result, "are put before sentence pairs and the queries of rerankers alone");
    }
}
