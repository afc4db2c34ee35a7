//! A model for questions learns to answer.

use crate::files::fixture;
use crate::turn;
use burn::data::dataloader::DataLoader;
use burn::data::dataset::InMemDataset;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn_bert::BertEmbeddingsConfig;
use burn_bert::data::{Batches, EpochLoader, QuestionWindow, QuestionWindowBatcher, SquadExample};
use burn_bert::metrics::SquadScores;
use burn_bert::model::{BertForQuestionAnsweringConfig, BertModelConfig};
use burn_bert::optim::{AdamWConfig, adamw, clip_by_global_norm};
use burn_bert::pipeline::{Pipeline, TextOptions};
use burn_bert::text::BertTokenizer;

fn tokenizer() -> BertTokenizer {
    BertTokenizer::from_pretrained(fixture("tokenizer")).unwrap().with_model_max_length(32)
}

fn bert() -> BertModelConfig {
    let embeddings = BertEmbeddingsConfig::new()
        .with_vocab_size(tokenizer().vocab_size())
        .with_hidden_size(32)
        .with_max_position_embeddings(64)
        .with_hidden_dropout_prob(0.0);
    BertModelConfig::new(embeddings)
        .with_num_hidden_layers(2)
        .with_num_attention_heads(4)
        .with_intermediate_size(64)
        .with_attention_probs_dropout_prob(0.0)
}

#[test]
fn a_model_learns_the_answers_of_a_squad_file() {
    let _turn = turn();
    let device = Device::default().autodiff();
    device.seed(5);
    let examples: Vec<SquadExample> = SquadExample::read(fixture("answers/squad.json")).unwrap();
    let questions: Vec<_> = examples.iter().map(|example| (&example.question, &example.context)).collect();
    let tokenizer = tokenizer();
    let windows = QuestionWindow::of(&examples, &tokenizer, 8).unwrap();
    assert!(windows.len() > examples.len(), "some texts are too long for one window");
    let windows = InMemDataset::new(windows);
    let batches = Batches::new(windows, QuestionWindowBatcher::new(tokenizer.clone()));
    let loader = EpochLoader::new(batches, 32, &device).unwrap();
    let mut model = BertForQuestionAnsweringConfig::new(bert()).init(&device);
    let scores = |model: &burn_bert::model::BertForQuestionAnswering| {
        let options = TextOptions::new().with_stride(8).with_no_answer_threshold(0.0);
        let pipeline = Pipeline::new(model.clone(), tokenizer.clone()).unwrap();
        let answers = pipeline.answers(&questions, &options).unwrap();
        let texts: Vec<&str> = answers.iter().map(|answers| answers[0].text.as_str()).collect();
        SquadScores::of(&examples, &texts)
    };
    let before = scores(&model);
    let mut optimizer = adamw(&AdamWConfig::new()).unwrap();
    let mut losses = Vec::new();
    for _ in 0..400 {
        for batch in loader.iter() {
            let loss = model.try_forward(&batch.unwrap()).unwrap().loss;
            losses.push(loss.clone().into_scalar::<f32>());
            let mut gradients = GradientsParams::from_grads(loss.backward(), &model);
            clip_by_global_norm(&model, &mut gradients, 1.0).unwrap();
            model = optimizer.step(3e-3, model, gradients);
        }
    }
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    assert!(last < first / 10.0, "{first} → {last}");
    let after = scores(&model);
    assert!(after.exact >= 75.0 && after.exact > before.exact, "{before:?} → {after:?}");
}
