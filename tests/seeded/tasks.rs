//! Every task trains by a few lines: data, arguments, a checkpoint, and what comes out is used.

use crate::checkpoint::{arguments, checkpoint, reviews, text};
use crate::prelude::*;
use anyhow::Result;

#[test]
fn a_classifier_from_a_csv() -> Result<()> {
    let (_turn, dir) = (turn(), checkpoint());
    let (model, csv, out) = (dir.path(), dir.path().join("train.csv"), dir.path().join("out"));
    let once = "text,label\nthe film was good,positive\nbad film,negative\n";
    fs::write(&csv, once.to_string() + &"good,positive\nwas bad,negative\n".repeat(100))?;

    let train = LabelledTexts::open(&csv, &Columns::default())?;
    let arguments = TrainingArguments::new(&out).with_epochs(8).with_learning_rate(1e-2);
    let trained = Trainer::from_pretrained(model, train, arguments)?.with_validation_share(0.2).train()?;
    println!("{}", trained.history);
    let labels = trained.pipeline.classify(&["good", "was bad"], &TextOptions::new())?;

    assert_eq!((labels[0][0].label.as_str(), labels[1][0].label.as_str()), ("positive", "negative"));
    // The metrics of the data are what the answers for their texts add up to.
    let data = LabelledTexts::open(&csv, &Columns::default())?;
    let found = trained.evaluate(data.clone())?;
    let (mut right, mut loss) = (0, 0.0);
    for item in data.iter() {
        let LabelledText { text, label, .. } = item?;
        let Label::Class(class) = label else { panic!("{label:?}") };
        let answer = trained.pipeline.classify(&[&text], &TextOptions::new().with_top_k(2))?;
        let truth = answer[0].iter().find(|found| Some(&found.label) == data.names().get(class));
        right += usize::from(answer[0][0].label == truth.unwrap().label);
        loss -= truth.unwrap().score.ln() / data.len() as f64;
    }
    let share = 100.0 * right as f64 / data.len() as f64;
    assert!((found["Accuracy"] - share).abs() < 1e-4, "{} is not {share}", found["Accuracy"]);
    // Two of the texts occur once, and may be held out.
    assert!(right + 2 >= data.len(), "{right}: {}", trained.history);
    assert!((found["Loss"] - loss).abs() < 1e-4, "{} is not {loss}", found["Loss"]);
    // What was saved is what was returned, with its tokenizer.
    let saved = Pipeline::<BertForSequenceClassification>::from_pretrained(&out, &Device::default())?;
    let again = saved.classify(&["good", "was bad"], &TextOptions::new())?;
    assert_eq!(again, labels);
    Ok(())
}

#[test]
fn several_labels_and_numbers() -> Result<()> {
    let (_turn, dir) = (turn(), checkpoint());
    let texts = ["good cat", "bad film", "good film", "the cat was bad"];
    let labels = |text: &str| (0..2).filter(|&id| text.contains(["good", "film"][id])).collect();
    let many = (0..48).map(|i| text(texts[i % 4], Label::Classes(labels(texts[i % 4])))).collect();
    let many = LabelledTexts::new(many, ["good", "film"].map(String::from).to_vec())?;
    let settings = arguments(&dir.path().join("many")).with_epochs(40);
    // As Pipeline takes it, too: the weights, with config and tokenizer beside them.
    let weights = dir.path().join("model.safetensors");
    let trained = Trainer::from_pretrained(weights, many.clone(), settings)?;
    let trained = trained.with_validation(many.clone()).train()?;
    let found = trained.pipeline.classify(&["good cat"], &TextOptions::new())?;
    assert_eq!((found[0].len(), found[0][0].label.as_str()), (2, "good"), "each label has a probability");
    // The logged metrics are what these probabilities add up to, over eight labels of four texts.
    let (mut right, mut loss, mut correct, mut named) = (0.0, 0.0, 0.0, 0.0);
    for (text, answer) in texts.iter().zip(trained.pipeline.classify(&texts, &TextOptions::new())?) {
        for label in &answer {
            let (p, is_there) = (label.score, text.contains(&label.label));
            right += 100.0 / 8.0 * f64::from((p > 0.5) == is_there);
            correct += f64::from(p > 0.5 && is_there);
            named += f64::from(p > 0.5) + f64::from(is_there);
            loss -= if is_there { p } else { 1.0 - p }.ln() / 8.0;
        }
    }
    let best = &trained.history.evaluations[trained.history.best.unwrap()].valid;
    assert!((best["Hamming Score @ Threshold(0.5)"] - right).abs() < 1e-4, "{right}: {}", trained.history);
    assert!(
        (best["Micro F1"] - 2.0 * correct / named).abs() < 1e-12,
        "{correct}, {named}: {}",
        trained.history
    );
    assert!(["Micro precision", "Micro recall", "Macro F1"].iter().all(|name| best.contains_key(*name)));
    assert!((best["Loss"] - loss).abs() < 1e-4, "{loss}: {}", trained.history);
    // So small a model tells the labels apart, and not always both of one text.
    assert!(right >= 75.0, "{}", trained.history);
    thresholds_have_the_best_f1(&trained.pipeline, &texts, &dir.path().join("many"))?;
    // Trained further without validation data, the model has none.
    let settings = arguments(&dir.path().join("further")).with_epochs(1);
    let further = Trainer::from_pretrained(dir.path().join("many"), many, settings)?.train()?;
    assert_eq!(further.pipeline.model().config().label_thresholds, None);

    let value =
        |i: usize| text(texts[i % 4], Label::Value(if texts[i % 4].contains("good") { 2.0 } else { -1.0 }));
    let numbers = LabelledTexts::new((0..48).map(value).collect(), Vec::new())?;
    let settings = arguments(&dir.path().join("numbers")).with_epochs(12);
    let trained = Trainer::from_pretrained(dir.path(), numbers.clone(), settings)?;
    let trained = trained.with_validation(numbers).train()?;
    let last = &trained.history.evaluations.last().unwrap().valid;
    assert!(last["Spearman"] > 0.8 && last["Loss"] < 0.1, "{}", trained.history);
    Ok(())
}

/// Against all thresholds that probabilities allow, of texts that have the labels in their words.
fn thresholds_have_the_best_f1(
    pipeline: &Pipeline<BertForSequenceClassification>,
    texts: &[&str],
    saved: &Path,
) -> Result<()> {
    let thresholds = pipeline.model().config().label_thresholds.expect("they were chosen");
    let found = pipeline.classify(texts, &TextOptions::new())?;
    for (id, name) in pipeline.model().id2label().iter().enumerate() {
        let scored: Vec<(f64, bool)> = (found.iter().zip(texts))
            .map(|(found, text)| {
                let label = found.iter().find(|label| label.label == *name).unwrap();
                assert_eq!(label.is_predicted, label.score >= thresholds[id]);
                (label.score, text.contains(name.as_str()))
            })
            .collect();
        let f1 = |threshold: f64| {
            let predicted = scored.iter().filter(|(score, _)| *score >= threshold);
            let (all, right) = (predicted.clone().count(), predicted.filter(|(_, has)| *has).count());
            2.0 * right as f64 / (all + scored.iter().filter(|(_, has)| *has).count()) as f64
        };
        let best = scored.iter().map(|(score, _)| f1(*score)).fold(0.0, f64::max);
        assert_eq!(f1(thresholds[id]), best, "{name}: {scored:?}");
    }
    // Both are in the directory, and what an evaluation counts.
    let config = crate::files::config_json(saved);
    assert_eq!(config["label_thresholds"], serde_json::json!(thresholds));
    let read = Pipeline::<BertForSequenceClassification>::from_pretrained(saved, &Device::default())?;
    assert_eq!(read.classify(texts, &TextOptions::new())?, found);
    let labels = |text: &&str| (0..2).filter(|&id| text.contains(["good", "film"][id])).collect();
    let data = texts.iter().map(|words| text(words, Label::Classes(labels(words)))).collect();
    let data = LabelledTexts::new(data, ["good", "film"].map(String::from).to_vec())?;
    // Far apart, so that a count by one half would be another.
    for thresholds in [thresholds, vec![1e-6, 1.0 - 1e-6]] {
        let (model, tokenizer) = read.clone().into_parts();
        let pipeline = Pipeline::new(model.with_label_thresholds(Some(thresholds))?, tokenizer)?;
        let found = pipeline.classify(texts, &TextOptions::new())?;
        let (mut counted, mut right, mut present, mut equal) = (0.0, 0.0, 0.0, 0.0);
        for (label, text) in found.iter().zip(texts).flat_map(|(found, text)| found.iter().zip([text; 2])) {
            let is_there = text.contains(&label.label);
            counted += f64::from(label.is_predicted);
            present += f64::from(is_there);
            right += f64::from(label.is_predicted && is_there);
            equal += 100.0 / 8.0 * f64::from(label.is_predicted == is_there);
        }
        let metrics = evaluate(&pipeline, data.clone(), &arguments(saved))?;
        assert!((metrics["Micro F1"] - 2.0 * right / (counted + present)).abs() < 1e-12, "{metrics:?}");
        assert!((metrics["Hamming Score @ Threshold(0.5)"] - equal).abs() < 1e-4, "{metrics:?}");
    }
    Ok(())
}

#[test]
fn a_reranker_from_a_csv() -> Result<()> {
    let (_turn, dir) = (turn(), checkpoint());
    let csv = dir.path().join("train.csv");
    let rows: String = (0..8).map(|i| format!("q{i},good a{i},1\nq{i},bad a{i},0\n")).collect();
    fs::write(&csv, "query,text,label\n".to_string() + &rows.repeat(12))?;

    let columns = Columns::default().with_texts(["query", "text"]).with_kind(LabelKind::Relevance);
    let pairs = LabelledTexts::open(&csv, &columns)?;
    let arguments = arguments(&dir.path().join("out")).with_epochs(4);
    let trained =
        Trainer::from_pretrained(dir.path(), pairs.clone(), arguments)?.with_validation(pairs).train()?;
    let ranked = trained.pipeline.rank("q2", &["bad a5", "good a2"], &TextOptions::new())?;

    assert_eq!(ranked[0].index, 1, "{ranked:?}\n{}", trained.history);
    Ok(())
}

#[test]
fn a_tagger_from_conll() -> Result<()> {
    let (_turn, dir) = (turn(), checkpoint());
    let conll = dir.path().join("train.conll");
    let sentences =
        "Ada B-PER\nlives O\nin O\nParis B-LOC\n. O\n\nthe O\ncat O\nwas O\nin O\nParis B-LOC\n\n";
    fs::write(&conll, sentences.repeat(100))?;

    let train = LabelledSentences::open(&conll)?;
    let arguments = arguments(&dir.path().join("out")).with_epochs(8).with_metric_for_best_model("Entity F1");
    let trained =
        Trainer::from_pretrained(dir.path(), train, arguments)?.with_validation_share(0.2).train()?;
    let entities = trained.pipeline.entities(&["Ada was in Paris."], &TextOptions::new())?;
    let words = ["the", "cat", "was", "in", "Paris", "."];
    let in_words = &trained.pipeline.entities_in_words(&[words], &TextOptions::new())?[0];
    assert_eq!((in_words.len(), in_words[0].words.clone(), &*in_words[0].text), (1, Some(4..5), "Paris"));

    let found: Vec<_> =
        entities[0].iter().map(|entity| (entity.label.as_str(), entity.text.as_str())).collect();
    assert_eq!(found, [("PER", "Ada"), ("LOC", "Paris")]);
    Ok(())
}

#[test]
fn answers_from_squad() -> Result<()> {
    let (_turn, dir) = (turn(), checkpoint());
    let example = |i: usize| {
        let (question, answer, start) = [("who lives ?", "Ada", 0), ("where ?", "Paris", 13)][i % 2];
        // Each text has two questions, which are held out together.
        let context = format!("Ada lives in Paris . q{}", i / 2 % 8);
        let answers = vec![(answer.into(), start)];
        SquadExample { id: i.to_string(), question: question.into(), context, answers }
    };

    let train: Vec<SquadExample> = (0..48).map(example).collect();
    let arguments = arguments(&dir.path().join("out")).with_epochs(10);
    let trained =
        Trainer::from_pretrained(dir.path(), train, arguments)?.with_validation_share(0.2).train()?;
    let answers = trained.pipeline.answers(&[("where ?", "Ada lives in Paris .")], &TextOptions::new())?;

    assert_eq!(answers[0][0].text, "Paris", "{}", trained.history);
    Ok(())
}

#[test]
fn masked_language_modelling_of_a_text() -> Result<()> {
    let (_turn, dir) = (turn(), checkpoint());
    let text = dir.path().join("text.txt");
    fs::write(&text, "the cat sat on a mat .\n".repeat(100))?;

    let train = PlainText::open(&text)?;
    let arguments = arguments(&dir.path().join("out")).with_epochs(15).with_max_length(16);
    let trained =
        Trainer::from_pretrained(dir.path(), train, arguments)?.with_validation_share(0.1).train()?;
    let words = trained.pipeline.fill_mask(&["the cat [MASK] on a mat ."], &TextOptions::new())?;

    let last = &trained.history.evaluations.last().unwrap().valid;
    assert!(last["Loss"] < 0.6 * trained.history.initial["Loss"], "{}", trained.history);
    println!("{:?}", words[0]);
    Ok(())
}

#[test]
fn sentence_embeddings_from_pairs_triplets_and_scores() -> Result<()> {
    let (_turn, dir) = (turn(), checkpoint());
    let rows = |row: fn(usize) -> String| (0..8).map(row).collect::<String>();
    let pairs = rows(|i| format!("who q{i} ?,the a{i} .\n"));
    let triplets = rows(|i| format!("who q{i} ?,the a{i} .,the a{} .\n", (i + 3) % 8));
    let scores = rows(|i| {
        (0..8).map(|j| format!("who q{i} ?,the a{j} .,{}\n", f64::from(u8::from(i == j)))).collect()
    });
    for (name, csv, metric) in [
        ("pairs", "anchor,positive\n".to_string() + &pairs.repeat(10), "Accuracy@1"),
        ("triplets", "anchor,positive,negative\n".to_string() + &triplets.repeat(10), "Triplet accuracy"),
        ("scores", "sentence1,sentence2,score\n".to_string() + &scores.repeat(3), "Spearman"),
    ] {
        let file = dir.path().join(name).with_extension("csv");
        fs::write(&file, csv)?;

        let train = SentencePairs::open(&file, &Columns::default())?;
        let valid = |i: usize| SentencePair {
            negatives: vec![format!("a{}", (i + 5) % 8); train.num_negatives()],
            label: train.has_labels().then_some((i % 2) as f32),
            ..SentencePair::new(
                format!("q{i}"),
                format!("a{}", if train.has_labels() { i / 2 * 2 + 1 } else { i }),
            )
        };
        let valid = SentencePairs::new((0..8).map(valid).collect(), Vec::new())?;
        let arguments = arguments(&dir.path().join(name)).with_epochs(12);
        let trained =
            Trainer::from_pretrained(dir.path(), train, arguments)?.with_validation(valid).train()?;
        let options = TextOptions::new();
        let queries = trained.pipeline.encode_query(&["q3", "q6"], &options)?;
        let corpus: Vec<String> = (0..8).map(|i| format!("a{i}")).collect();
        let found =
            trained.pipeline.search(&queries, &trained.pipeline.encode_document(&corpus, &options)?, 1)?;

        let last = trained.history.valid(metric).pop().flatten();
        assert!(last.is_some_and(|score| score > 0.8), "{name}: {}", trained.history);
        assert_eq!((found[0][0].index, found[1][0].index), (3, 6), "{name}: {}", trained.history);
    }
    Ok(())
}

#[test]
fn a_model_that_was_configured_by_hand() -> Result<()> {
    let (_turn, dir) = (turn(), checkpoint());
    let config = BertForSequenceClassificationConfig::from_pretrained(dir.path())?
        .with_id2label(["positive", "unsure", "negative"].map(String::from).into())
        .with_class_weights(Some(vec![1.0, 1.0, 5.0]));
    let device = Device::default().autodiff();
    let (model, _report) = BertForSequenceClassification::from_pretrained_with(&config, dir.path(), &device)?;
    let pipeline = Pipeline::new(model, BertTokenizer::from_pretrained(dir.path())?)?;
    // The data's classes are some of the model's, in another order.
    let trained = Trainer::new(pipeline, reviews(160), arguments(&dir.path().join("out")).with_epochs(8))?
        .with_validation(reviews(8))
        .train()?;
    let found = trained.pipeline.classify(&["good", "bad film"], &TextOptions::new())?;
    assert_eq!((found[0][0].label.as_str(), found[1][0].label.as_str()), ("positive", "negative"));

    // On its own, without training.
    let alone = evaluate(&trained.pipeline, reviews(8), &arguments(&dir.path().join("unused")))?;
    assert_eq!(alone, trained.evaluate(reviews(8))?);
    assert!(!dir.path().join("unused").exists());
    Ok(())
}

#[test]
fn class_weights_and_label_smoothing_are_arguments() -> Result<()> {
    let (_turn, dir) = (turn(), checkpoint());
    let settings = |name: &str| {
        let settings = arguments(&dir.path().join(name)).with_epochs(1);
        settings.with_class_weights(vec![1.0, 5.0]).with_label_smoothing_factor(0.2)
    };
    let trained = Trainer::from_pretrained(dir.path(), reviews(48), settings("out"))?;
    let trained = trained.with_validation(reviews(7)).train()?;
    let config = trained.pipeline.model().config();
    assert_eq!((config.class_weights, config.label_smoothing), (Some(vec![1.0, 5.0]), 0.2));

    // Those of the data's classes, of which a checkpoint may have another order.
    let texts = reviews(4).iter().map(|text| text.unwrap()).collect();
    let reversed = LabelledTexts::new(texts, ["positive", "negative"].map(String::from).to_vec())?;
    let checkpoint = BertForSequenceClassificationConfig::from_pretrained(dir.path().join("out"))?;
    assert_eq!(checkpoint.id2label, ["negative", "positive"]);
    let config =
        TrainingData::<BertForSequenceClassification>::config(&reversed, checkpoint, &settings("other"));
    assert_eq!((config.id2label[0].as_str(), config.class_weights), ("negative", Some(vec![5.0, 1.0])));
    // compute_class_weight("balanced", classes=[0, 1], y=[0, 1, 1, 1]) of scikit-learn 1.9
    let texts = [0, 1, 1, 1].map(|class| text("good", Label::Class(class)));
    let texts = LabelledTexts::new(texts.to_vec(), ["no", "yes"].map(String::from).to_vec())?;
    assert_close(&texts.balanced_class_weights(), &[2.0, 0.6666666666666666], F64);

    let text = PlainText::new(["the cat sat on a mat ."])?;
    says(
        Trainer::<BertForMaskedLm, _>::from_pretrained(dir.path(), text, settings("text")),
        "class_weights is set, but the data have no classes",
    );
    let given = Trainer::new(trained.pipeline, reviews(8), settings("given"));
    says(given, "class_weights is set, but the model is given");
    Ok(())
}
