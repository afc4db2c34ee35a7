//! A text's logits have the same bits alone, in any batch, at any place in it, with any padding, on any number of threads.

use crate::models::{Architecture, ForHead, Head, Run, Texts, VOCABULARY, architectures, for_each_head};
use crate::sample::Sample;
use burn::prelude::*;
use burn_bert::Family;
use burn_bert::PositionEmbeddingType::Absolute;
use burn_bert::functional::{Precision, autocast};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rayon::{ThreadPool, ThreadPoolBuilder};

struct Batches<'a> {
    sample: &'a Sample,
    number: usize,
    architecture: &'a Architecture,
    random: StdRng,
    threads: &'a [ThreadPool],
    compared: usize,
    red: Vec<String>,
}

const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::Bf16];

/// The logits of each text of a batch.
fn logits<M: Module>(run: Run<M>, of_tokens: bool, model: &M, texts: &Texts) -> Vec<Vec<f64>> {
    let (_, logits) = texts.run(run, model, &Device::default());
    let rows: Vec<usize> = texts.ids.iter().map(|ids| if of_tokens { ids.len() } else { 1 }).collect();
    let width = logits.len() / rows.iter().sum::<usize>();
    let mut rest = logits.as_slice();
    rows.iter().map(|count| rest.split_off(..count * width).unwrap().to_vec()).collect()
}

impl ForHead for Batches<'_> {
    fn run<M: Module>(&mut self, head: &Head<M>) {
        let Some(model) = head.model(self.architecture.config(0.1), &Device::default()) else { return };
        let pad = self.architecture.pad();
        let is_relative = self.architecture.positions() != Absolute;
        for (i, precision) in PRECISIONS.into_iter().enumerate() {
            let is_taken = |round: usize| self.sample.has(&[self.number, head.number, i, round]);
            if !(0..self.threads.len()).any(is_taken) {
                continue;
            }
            let random = &mut self.random;
            let mut text = || {
                let length = if random.random_bool(0.3) { 1 } else { random.random_range(2..=40) };
                (0..length).map(|_| random.random_range(2..VOCABULARY as i32)).collect::<Vec<_>>()
            };
            let pool: Vec<Vec<i32>> = (0..6).map(|_| text()).collect();
            let (run, of_tokens) = (head.run, head.of_tokens);
            let compute =
                move |model: &M, texts: &Texts| autocast(precision, || logits(run, of_tokens, model, texts));
            let of_one = |ids: &Vec<i32>| compute(&model, &Texts::new(vec![ids.clone()], pad)).remove(0);
            let alone: Vec<_> = pool.iter().map(of_one).collect();
            for (round, threads) in self.threads.iter().enumerate().filter(|(round, _)| is_taken(*round)) {
                let size = [1, 2, 7, 19][round % 4];
                let chosen: Vec<usize> = (0..size).map(|_| self.random.random_range(0..pool.len())).collect();
                let mut texts = Texts::new(chosen.iter().map(|&text| pool[text].clone()).collect(), pad);
                texts.seq += self.random.random_range(0..8);
                // A head that reads the first token is given no padding before it; absolute positions count it.
                if head.of_tokens && is_relative && head.name != "no head" {
                    for (before, ids) in texts.before.iter_mut().zip(&texts.ids) {
                        *before = self.random.random_range(0..=texts.seq - ids.len());
                    }
                }
                let (model, batch) = (model.clone(), texts.clone());
                let found = threads.install(move || compute(&model, &batch));
                for (place, (found, &text)) in found.iter().zip(&chosen).enumerate() {
                    if *found != alone[text] {
                        let tokens = pool[text].len();
                        let [name, head] = [&*self.architecture.name, head.name];
                        self.red.push(format!(
                            "{name}, {head}, {precision}: text {place} of {size}, {tokens} tokens"
                        ));
                    }
                    self.compared += 1;
                }
            }
        }
    }
}

#[test]
fn a_texts_logits_have_the_same_bits_alone_and_in_any_batch() {
    let threads = [1, 2, 3, 8].map(|count| ThreadPoolBuilder::new().num_threads(count).build().unwrap());
    let mut architectures = architectures(48);
    // These compute as BERT or RoBERTa does.
    let same = [Family::Ernie, Family::XlmRoberta, Family::Camembert, Family::Data2VecText];
    architectures.retain(|architecture| !same.contains(&architecture.family()));
    let sample = Sample::new(&architectures, &[PRECISIONS.len(), threads.len()]);
    let (mut compared, mut red) = (0, Vec::new());
    for (number, architecture) in architectures.iter().enumerate() {
        let random = StdRng::seed_from_u64(7);
        let mut batches =
            Batches { sample: &sample, number, architecture, random, threads: &threads, compared, red };
        for_each_head(&mut batches);
        (compared, red) = (batches.compared, batches.red);
    }
    println!("{compared} texts compared, {sample}");
    assert!(red.is_empty(), "{} of {compared}:\n{}", red.len(), red.join("\n"));
}
