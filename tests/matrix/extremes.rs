//! The smallest and the longest inputs of every model, nothing but padding, and ids without a row.

use crate::models::{Architecture, ForHead, Head, Texts, VOCABULARY, architectures, for_each_head};
use crate::refusals::unless_panics;
use crate::tolerance::values;
use burn::prelude::*;
use burn_bert::PositionEmbeddingType;
use std::panic::{set_hook, take_hook};

struct Extremes<'a> {
    architecture: &'a Architecture,
    count: usize,
    red: Vec<String>,
}

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
        let of = |rows: Vec<Vec<i32>>| Texts::new(rows, pad);
        let mut cases: Vec<(Texts, Expected)> = [(1, 1), (3, 1), (1, longest), (2, longest)]
            .map(|(batch, seq)| (of(vec![vec![4; seq]; batch]), Finite))
            .into();
        // These positions are computed, however many there are.
        let beyond = match self.architecture.positions() {
            PositionEmbeddingType::Rotary | PositionEmbeddingType::Disentangled => Finite,
            _ => Message("the sequence needs position".into()),
        };
        cases.push((of(vec![vec![4; longest + 1]]), beyond));
        for seq in [1, 5, longest] {
            let lengths = [[0, 0], [1, 0], [0, 1]];
            cases.extend(lengths.map(|lengths| {
                (Texts { seq, ..of(lengths.map(|length| vec![4; length]).into()) }, FiniteOrRefused)
            }));
        }
        for id in [-1, VOCABULARY as i32, i32::MIN, i32::MAX] {
            let message = format!("input_ids[1][1] is {id}, but there are {VOCABULARY} word embeddings");
            cases.push((of(vec![vec![4, 5, 6], vec![4, id, 6]]), Message(message)));
        }
        for (texts, expected) in cases {
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
            self.count += 1;
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
    let (mut count, mut red) = (0, Vec::new());
    for architecture in &architectures(8) {
        let mut extremes = Extremes { architecture, count: 0, red: Vec::new() };
        for_each_head(&mut extremes);
        count += extremes.count;
        red.append(&mut extremes.red);
    }
    drop(take_hook());
    println!("{count} batches");
    assert!(red.is_empty(), "{} of {count}:\n{}", red.len(), red.join("\n"));
}
