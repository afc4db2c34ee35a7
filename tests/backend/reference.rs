//! The layer and its gradient as loops in f64, written from the formulas and sharing no code with the crate.
//!
//! B batch, S sequence, H hidden; x the sum of three rows, x̂ = (x − mean)·rstd, y = γ·x̂ + β.

pub use crate::tolerance::values as host;
use burn::prelude::*;
use burn::tensor::DType;
use burn_bert::{BertEmbeddings, BertEmbeddingsInput, PositionEmbeddingType};

/// ε of every module in this suite.
pub const EPSILON: f64 = 1e-12;

/// Ids on the host, and what else a batch has.
#[derive(Clone, Default)]
pub struct Batch {
    pub ids: Vec<Vec<i32>>,
    pub types: Option<Vec<Vec<i32>>>,
    pub positions: Option<Vec<Vec<i32>>>,
    pub past: usize,
    /// [B, S, H] in the word table's place.
    pub embeds: Option<Vec<f64>>,
}

impl Batch {
    pub fn of<const S: usize>(ids: &[[i32; S]]) -> Self {
        Self { ids: ids.iter().map(|row| row.to_vec()).collect(), ..Self::default() }
    }

    pub fn tokens(&self) -> usize {
        self.ids.len() * self.ids[0].len()
    }

    pub fn input(&self, device: &Device) -> BertEmbeddingsInput {
        self.decorate(BertEmbeddingsInput::from_rows(&self.ids, device).unwrap())
    }

    /// The batch with vectors instead of ids, and the vectors, to ask for their gradient.
    pub fn embeds_input(
        &self,
        hidden: usize,
        device: &Device,
        dtype: DType,
    ) -> (BertEmbeddingsInput, Tensor<3>) {
        let data = TensorData::new(self.embeds.clone().unwrap(), [self.ids.len(), self.ids[0].len(), hidden]);
        let embeds = Tensor::from_data(data, (device, dtype)).require_grad();
        (self.decorate(BertEmbeddingsInput::from_embeds(embeds.clone()).unwrap()), embeds)
    }

    fn decorate(&self, mut input: BertEmbeddingsInput) -> BertEmbeddingsInput {
        if let Some(types) = &self.types {
            input = input.with_token_type_ids(types).unwrap();
        }
        if let Some(positions) = &self.positions {
            input = input.with_position_ids(positions).unwrap();
        }
        input.with_past_key_values_length(self.past)
    }
}

/// Sums, and the sums of their terms' absolute values.
#[derive(Clone, Debug)]
pub struct Sums {
    pub value: Vec<f64>,
    pub magnitude: Vec<f64>,
}

impl Sums {
    fn zeros(len: usize) -> Self {
        Self { value: vec![0.0; len], magnitude: vec![0.0; len] }
    }

    fn add(&mut self, at: usize, terms: &[f64]) {
        self.value[at] += terms.iter().sum::<f64>();
        self.magnitude[at] += terms.iter().map(|term| term.abs()).sum::<f64>();
    }
}

/// The parameters, in f64.
#[derive(Clone)]
pub struct Reference {
    pub hidden: usize,
    pub word: Vec<f64>,
    pub position: Option<Vec<f64>>,
    pub token_type: Vec<f64>,
    pub gamma: Vec<f64>,
    pub beta: Vec<f64>,
    pub scheme: PositionEmbeddingType,
    pub pad: Option<usize>,
}

/// Output and gradients of Σ upstream·y.
pub struct Expected {
    pub output: Vec<f64>,
    pub word: Sums,
    pub position: Sums,
    pub token_type: Sums,
    pub gamma: Sums,
    pub beta: Sums,
    /// Of the word rows or vectors, [B, S, H].
    pub input: Sums,
}

impl Reference {
    /// The module's parameters as they are, after whatever rounding its dtype did to them.
    pub fn of(module: &BertEmbeddings) -> Self {
        Self {
            hidden: module.hidden_size(),
            word: host(module.word_embeddings.weight.val()),
            position: module.position_embeddings.as_ref().map(|table| host(table.weight.val())),
            token_type: host(module.token_type_embeddings.as_ref().unwrap().weight.val()),
            gamma: host(module.layer_norm.gamma.val()),
            beta: module.layer_norm.beta.as_ref().map(|beta| host(beta.val())).unwrap(),
            scheme: module.position_embedding_type(),
            pad: module.word_embeddings.padding_idx(),
        }
    }

    /// The position of every token.
    fn positions(&self, batch: &Batch) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        for (b, ids) in batch.ids.iter().enumerate() {
            let mut row = Vec::new();
            let mut seen = 0;
            for (s, &id) in ids.iter().enumerate() {
                row.push(match (&batch.positions, self.scheme, self.pad) {
                    (Some(rows), _, _) => rows[if rows.len() == 1 { 0 } else { b }][s] as usize,
                    (None, PositionEmbeddingType::AfterPadding, Some(pad)) => {
                        if batch.embeds.is_none() && id as usize == pad {
                            pad
                        } else {
                            seen += 1;
                            pad + batch.past + seen
                        }
                    }
                    (None, _, _) => batch.past + s,
                });
            }
            all.push(row);
        }
        all
    }

    /// Forward and backward, one token after the other. `upstream` gets the output and returns ∂L/∂y.
    pub fn run(&self, batch: &Batch, upstream: impl FnOnce(&[f64]) -> Vec<f64>) -> Expected {
        let hidden = self.hidden;
        let positions = self.positions(batch);
        let seq = batch.ids[0].len();
        let token = |n: usize| {
            let (b, s) = (n / seq, n % seq);
            let token_type = batch.types.as_ref().map_or(0, |types| types[b][s] as usize);
            (batch.ids[b][s] as usize, token_type, positions[b][s])
        };

        let mut normalized = vec![0.0; batch.tokens() * hidden];
        let mut rstds = vec![0.0; batch.tokens()];
        let mut output = vec![0.0; batch.tokens() * hidden];
        for n in 0..batch.tokens() {
            let (id, token_type, position) = token(n);
            let mut x = vec![0.0; hidden];
            for h in 0..hidden {
                x[h] = match &batch.embeds {
                    Some(embeds) => embeds[n * hidden + h],
                    None => self.word[id * hidden + h],
                };
                x[h] += self.token_type[token_type * hidden + h];
                if let Some(table) = &self.position {
                    x[h] += table[position * hidden + h];
                }
            }
            let mean = x.iter().sum::<f64>() / hidden as f64;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / hidden as f64;
            rstds[n] = 1.0 / (variance + EPSILON).sqrt();
            for h in 0..hidden {
                normalized[n * hidden + h] = (x[h] - mean) * rstds[n];
                output[n * hidden + h] = self.gamma[h] * normalized[n * hidden + h] + self.beta[h];
            }
        }

        let upstream = upstream(&output);
        let mut expected = Expected {
            word: Sums::zeros(self.word.len()),
            position: Sums::zeros(self.position.as_ref().map_or(0, Vec::len)),
            token_type: Sums::zeros(self.token_type.len()),
            gamma: Sums::zeros(hidden),
            beta: Sums::zeros(hidden),
            input: Sums::zeros(output.len()),
            output,
        };
        for n in 0..batch.tokens() {
            let (id, token_type, position) = token(n);
            let (mut mean_g, mut mean_gx) = (0.0, 0.0);
            for h in 0..hidden {
                let g = upstream[n * hidden + h] * self.gamma[h];
                mean_g += g / hidden as f64;
                mean_gx += g * normalized[n * hidden + h] / hidden as f64;
            }
            for h in 0..hidden {
                let dy = upstream[n * hidden + h];
                let x = normalized[n * hidden + h];
                let terms = [dy * self.gamma[h], -mean_g, -x * mean_gx].map(|term| term * rstds[n]);
                expected.gamma.add(h, &[dy * x]);
                expected.beta.add(h, &[dy]);
                expected.input.add(n * hidden + h, &terms);
                expected.token_type.add(token_type * hidden + h, &terms);
                if batch.embeds.is_none() && self.pad != Some(id) {
                    expected.word.add(id * hidden + h, &terms);
                }
                let is_padding =
                    self.scheme == PositionEmbeddingType::AfterPadding && self.pad == Some(position);
                if self.position.is_some() && !is_padding {
                    expected.position.add(position * hidden + h, &terms);
                }
            }
        }
        expected
    }
}
