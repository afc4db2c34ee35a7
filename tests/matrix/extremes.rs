//! The smallest and the longest inputs of every model, nothing but padding, and ids without a row.

use crate::models::{Architecture, ForHead, Head, Texts, VOCABULARY, architectures, for_each_head};
use crate::refusals::unless_panics;
use crate::sample::Sample;
use crate::tolerance::values;
use burn::prelude::*;
use burn_bert::PositionEmbeddingType;
use std::panic::{set_hook, take_hook};

struct Extremes<'a> {
    sample: &'a Sample,
    number: usize,
    architecture: &'a Architecture,
    red: Vec<String>,
}

/// How many batches there are of each model.
const CASES: usize = 18;

/// What a batch must give.
enum Expected {
    Finite,
    /// A finite loss, or the error of a head that reads a token where there is none.
    FiniteOrRefused,
    Message(String),
}
use Expected::*;

impl ForHead for Extremes<'_> {
    fn run<M: Module>(&mut self, head: &Head<M>) {
        let device = Device::default().autodiff();
        let Some(model) = head.model(self.architecture.config(0.0), &device) else { return };
        let (pad, longest) = (self.architecture.pad(), self.architecture.longest());
        let texts = |rows: Vec<Vec<i32>>| Texts::new(rows, pad);
        let mut cases: Vec<(Texts, Expected)> = [(1, 1), (3, 1), (1, longest), (2, longest)]
            .map(|(batch, seq)| (texts(vec![vec![4; seq]; batch]), Finite))
            .into();
        // These positions are computed, however many there are.
        let beyond = match self.architecture.positions() {
            PositionEmbeddingType::Rotary | PositionEmbeddingType::Disentangled => Finite,
            _ => Message("the sequence needs position".into()),
        };
        cases.push((texts(vec![vec![4; longest + 1]]), beyond));
        for seq in [1, 5, longest] {
            let lengths = [[0, 0], [1, 0], [0, 1]];
            cases.extend(lengths.map(|lengths| {
                (Texts { seq, ..texts(lengths.map(|length| vec![4; length]).into()) }, FiniteOrRefused)
            }));
        }
        for id in [-1, VOCABULARY as i32, i32::MIN, i32::MAX] {
            let message = format!("input_ids[1][1] is {id}, but there are {VOCABULARY} word embeddings");
            cases.push((texts(vec![vec![4, 5, 6], vec![4, id, 6]]), Message(message)));
        }
        assert_eq!(cases.len(), CASES);
        let is_taken = |case: &usize| self.sample.has(&[self.number, head.number, *case]);
        for (texts, expected) in (0..).zip(cases).filter(|(case, _)| is_taken(case)).map(|(_, case)| case) {
            // The loss, taken backward, or the message of the error.
            let run = || {
                let (loss, _) = texts.run(head.run, &model, &device);
                drop(loss.clone().backward());
                values(loss)[0]
            };
            let found = unless_panics(run);
            let is_expected = match (&expected, &found) {
                (Finite | FiniteOrRefused, Ok(loss)) => loss.is_finite(),
                (FiniteOrRefused, Err(message)) => message.contains("padding"),
                (Message(expected), Err(message)) => message.starts_with(expected),
                _ => false,
            };
            if !is_expected {
                let [name, head] = [&*self.architecture.name, head.name];
                let lengths: Vec<usize> = texts.ids.iter().map(Vec::len).collect();
                self.red.push(format!("{name}, {head}, {lengths:?} of {}: {found:?}", texts.seq));
            }
        }
    }
}

#[test]
fn extreme_batches_have_finite_losses_or_errors_that_say_what_is_wrong_in_every_model() {
    // Of thousands of errors none is printed: with its backtrace each takes longer than a model.
    let (hook, own) = (take_hook(), std::thread::current().id());
    set_hook(Box::new(move |info| {
        if std::thread::current().id() != own {
            hook(info);
        }
    }));
    let architectures = architectures(8);
    let sample = Sample::new(&architectures, &[CASES]);
    let mut red = Vec::new();
    for (number, architecture) in architectures.iter().enumerate() {
        let mut extremes = Extremes { sample: &sample, number, architecture, red };
        for_each_head(&mut extremes);
        red = extremes.red;
    }
    drop(take_hook());
    println!("{sample}");
    assert!(red.is_empty(), "{} red, {sample}:\n{}", red.len(), red.join("\n"));
}
