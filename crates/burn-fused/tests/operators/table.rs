//! The operators with their samples: one entry for each. What is said of an operator is said of all of them, in `main.rs`.

use burn::prelude::*;
use burn::tensor::DType;
use burn_fused::{
    Activation, Moves, Norm, Positions, Precision, Rows, Sequences, add_drop_out, add_layer_norm, attention,
    autocast, bias_activation, cross_entropy, drop_out, embed_layer_norm, gated_activation, linear, lookup,
    rotary, self_attention,
};

type Forward = Box<dyn Fn(&[Tensor<1>]) -> Tensor<1> + Send + Sync>;
type Naive = Box<dyn Fn(&[Vec<f64>]) -> Vec<f64> + Send + Sync>;

/// An operator on inputs of some sizes, as a function of flat leaves.
pub struct Sample {
    pub name: String,
    /// How many values each leaf has.
    pub leaves: Vec<usize>,
    pub forward: Forward,
    /// The output by plain loops, for samples without dropout.
    pub naive: Option<Naive>,
    pub dropout: f64,
    pub dtypes: &'static [DType],
    /// What multiplies the tolerances: how many times more is rounded than in the others.
    pub roundings: f64,
    /// Whether the gradient is the derivative of the output wherever the leaves are: not where a row is padding, nor at 0
    /// of a ReLU.
    pub is_smooth: bool,
}

const ALL: &[DType] = &[DType::F64, DType::F32, DType::F16, DType::BF16];

impl Sample {
    fn new(
        name: String,
        leaves: &[usize],
        forward: impl Fn(&[Tensor<1>]) -> Tensor<1> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            leaves: leaves.to_vec(),
            forward: Box::new(forward),
            naive: None,
            dropout: 0.0,
            dtypes: ALL,
            roundings: 1.0,
            is_smooth: true,
        }
    }

    /// What plain loops give; with dropout nothing, whatever they give.
    fn naive(self, naive: impl Fn(&[Vec<f64>]) -> Vec<f64> + Send + Sync + 'static) -> Self {
        let naive: Naive = Box::new(naive);
        Self { naive: (self.dropout == 0.0).then_some(naive), ..self }
    }
}

pub fn table() -> Vec<Sample> {
    let entries = [
        add_layer_norms,
        bias_activations,
        attentions,
        self_attentions,
        cross_entropies,
        linears,
        moves,
        lookups,
        embed_layer_norms,
        rotaries,
        drop_outs,
    ];
    entries.into_iter().flat_map(|entry| entry()).collect()
}

fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let count = tensor.shape().num_elements();
    tensor.reshape([count])
}

/// Bounds 1 / σ: three values that are nearly equal would otherwise multiply the rounding of f32 by up to 300.
const EPSILON: f64 = 1e-2;

/// (row − mean) / √(variance + ε) · γ + β
fn normalized(row: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    let count = row.len() as f64;
    let mean = row.iter().sum::<f64>() / count;
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    let scaled = row.iter().map(|x| (x - mean) / (variance + EPSILON).sqrt());
    scaled.zip(gamma.iter().zip(beta)).map(|(x, (gamma, beta))| x * gamma + beta).collect()
}

fn add_layer_norms() -> Vec<Sample> {
    let sample = |rows: usize, hidden: usize, dropout: f64, is_view: bool| {
        let forward = move |leaves: &[Tensor<1>]| {
            let [x, bias, residual, gamma, beta] = leaves else { panic!("five leaves") };
            let norm = Norm { gamma: gamma.clone(), beta: Some(beta.clone()), epsilon: EPSILON };
            // A view whose rows are columns in memory.
            let x = match is_view {
                true => x.clone().reshape([hidden, rows]).transpose(),
                false => x.clone().reshape([rows, hidden]),
            };
            flat(add_layer_norm(
                x,
                Some(bias.clone()),
                residual.clone().reshape([rows, hidden]),
                norm,
                dropout,
            ))
        };
        let name = format!("add_layer_norm of {rows} x {hidden}, dropout {dropout}, view {is_view}");
        let leaves = [rows * hidden, hidden, rows * hidden, hidden, hidden];
        let sample = Sample { dropout, ..Sample::new(name, &leaves, forward) };
        sample.naive(move |leaves| {
            let x = |i: usize| leaves[0][if is_view { i % hidden * rows + i / hidden } else { i }];
            let sum = |i: usize| x(i) + leaves[1][i % hidden] + leaves[2][i];
            let row = |row: usize| (0..hidden).map(|column| sum(row * hidden + column)).collect::<Vec<_>>();
            (0..rows).flat_map(|i| normalized(&row(i), &leaves[3], &leaves[4])).collect()
        })
    };
    let mut samples: Vec<_> = [(0, 3), (1, 1), (3, 5), (70, 3), (129, 127), (65, 768), (3, 1023)]
        .into_iter()
        .flat_map(|(rows, hidden)| [sample(rows, hidden, 0.0, false), sample(rows, hidden, 0.1, false)])
        .collect();
    samples.extend([sample(4, 7, 0.9, false), sample(80, 24, 0.0, true), sample(301, 257, 0.1, true)]);
    samples
}

fn bias_activations() -> Vec<Sample> {
    let sample = |activation: Activation, [rows, columns]: [usize; 2], [is_biased, is_gated]: [bool; 2]| {
        let gate = 1 + usize::from(is_biased);
        let forward = move |leaves: &[Tensor<1>]| {
            let matrix = |leaf: &Tensor<1>| leaf.clone().reshape([rows, columns]);
            let (x, bias) = (matrix(&leaves[0]), is_biased.then(|| leaves[1].clone()));
            flat(match leaves.get(gate) {
                Some(gate) => gated_activation(x, bias, matrix(gate), activation),
                None => bias_activation(x, bias, activation),
            })
        };
        let name = format!("{activation:?} of {rows} x {columns}, biased {is_biased}, gated {is_gated}");
        let mut leaves = vec![rows * columns];
        leaves.extend(is_biased.then_some(columns));
        leaves.extend(is_gated.then_some(rows * columns));
        let sample = Sample::new(name, &leaves, forward);
        let activate: fn(f64) -> f64 = match activation {
            // Checked against PyTorch's values on their own: std has no erf.
            Activation::Gelu => return sample,
            Activation::Relu => |z| z.max(0.0),
            Activation::Silu => |z| z / (1.0 + (-z).exp()),
            Activation::Tanh => f64::tanh,
            Activation::QuickGelu => |z| z / (1.0 + (-1.702 * z).exp()),
            _ => |z| z / 2.0 * (1.0 + (0.797_884_560_802_865_4 * (z + 0.044715 * z.powi(3))).tanh()),
        };
        let sample = Sample { is_smooth: activation != Activation::Relu, ..sample };
        sample.naive(move |leaves| {
            let bias = |i: usize| if is_biased { leaves[1][i % columns] } else { 0.0 };
            let gate = |i: usize| leaves.get(gate).map_or(1.0, |gate| gate[i]);
            leaves[0].iter().enumerate().map(|(i, x)| activate(x + bias(i)) * gate(i)).collect()
        })
    };
    let sizes = [[0, 3], [1, 1], [70, 3], [300, 127], [65, 768], [3, 1023]];
    let activations =
        [Activation::Gelu, Activation::GeluTanh, Activation::QuickGelu, Activation::Silu, Activation::Relu];
    let plain = activations
        .into_iter()
        .flat_map(|activation| sizes.map(|size| sample(activation, size, [true, false])));
    let gated = [Activation::Gelu, Activation::Silu, Activation::Relu, Activation::Tanh];
    let sizes = [[0, 3], [70, 3], [129, 127]];
    let gated =
        gated.into_iter().flat_map(|activation| sizes.map(|size| sample(activation, size, [true; 2])));
    let without_bias = [Activation::Gelu, Activation::Silu, Activation::Tanh]
        .into_iter()
        .flat_map(|activation| [false, true].map(|gated| sample(activation, [70, 127], [false, gated])));
    plain.chain(gated).chain(without_bias).collect()
}

/// What sequences have a bias of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bias {
    Without,
    /// Of their own.
    Each,
    /// For all.
    One,
}

#[derive(Clone)]
struct Heads {
    lengths: Vec<usize>,
    heads: usize,
    /// Of one head.
    columns: usize,
    bias: Bias,
    /// Whether queries, and keys, are multiplied with vectors of distances.
    distances: [bool; 2],
    window: Option<usize>,
}

impl Heads {
    /// DeBERTa's where there are distances.
    fn scale(&self) -> Option<f64> {
        (self.distances != [false; 2]).then(|| (3.0 * self.columns as f64).sqrt().recip())
    }

    /// The leaves of bias and distances, of which there are so many before.
    fn positions(&self, before: usize) -> [Option<usize>; 3] {
        let [by_query, by_key] = self.distances;
        let mut next = before..;
        [self.bias != Bias::Without, by_query, by_key].map(|is_there| is_there.then(|| next.next().unwrap()))
    }

    /// Softmax of every row, then the weighted sum.
    fn naive(&self, leaves: &[Vec<f64>]) -> Vec<f64> {
        let [bias, by_query, by_key] = self.positions(3);
        let (hidden, longest) = (self.heads * self.columns, *self.lengths.iter().max().unwrap());
        let mut output = vec![0.0; leaves[0].len()];
        let mut first = 0;
        for (sequence, &length) in self.lengths.iter().enumerate() {
            for (head, i) in (0..self.heads).flat_map(|head| (0..length).map(move |i| (head, i))) {
                let at = |which: usize, token: usize, column: usize| {
                    leaves[which][(first + token) * hidden + head * self.columns + column]
                };
                let weight = |j: usize| {
                    let distance = |leaf: Option<usize>, column: usize| {
                        let row = j + longest - 1 - i;
                        leaf.map_or(0.0, |leaf| leaves[leaf][row * hidden + head * self.columns + column])
                    };
                    let score = (0..self.columns).map(|column| {
                        let [query, key] = [at(0, i, column), at(1, j, column)];
                        query * key + query * distance(by_query, column) + key * distance(by_key, column)
                    });
                    let score: f64 = score.sum();
                    let own = if self.bias == Bias::One { 0 } else { sequence };
                    let index = ((own * self.heads + head) * longest + i) * longest + j;
                    let bias = bias.map_or(0.0, |leaf| leaves[leaf][index]);
                    let scale = self.scale().unwrap_or((self.columns as f64).sqrt().recip());
                    (score * scale + bias).exp()
                };
                let is_near = |j: usize| self.window.is_none_or(|window| i.abs_diff(j) <= window);
                let weights: Vec<f64> =
                    (0..length).map(|j| if is_near(j) { weight(j) } else { 0.0 }).collect();
                let sum: f64 = weights.iter().sum();
                for column in 0..self.columns {
                    let value = weights.iter().enumerate().map(|(j, weight)| weight / sum * at(2, j, column));
                    output[(first + i) * hidden + head * self.columns + column] = value.sum();
                }
            }
            first += length;
        }
        output
    }
}

fn attentions() -> Vec<Sample> {
    use Bias::{Each, One, Without};
    type Case = (Vec<usize>, [usize; 2], Bias, f64, Option<usize>, [bool; 2]);
    let sample = |(lengths, [heads, columns], bias, dropout, window, distances): Case, is_joint: bool| {
        let (tokens, hidden) = (lengths.iter().sum::<usize>(), heads * columns);
        let longest = lengths.iter().copied().max().unwrap();
        let name = format!(
            "attention of {lengths:?}, {heads} x {columns}, bias {bias:?}, distances {distances:?}, window {window:?}, \
             dropout {dropout}"
        );
        let case = Heads { lengths: lengths.clone(), heads, columns, bias, distances, window };
        let dims = [if bias == One { 1 } else { lengths.len() }, heads, longest, longest];
        let mut leaves = if is_joint { vec![3 * tokens * hidden] } else { vec![tokens * hidden; 3] };
        let (positions, scale) = (case.positions(leaves.len()), case.scale());
        leaves.extend((bias != Without).then(|| dims.iter().product::<usize>()));
        let vectors = [2 * longest.max(1) - 1, hidden];
        leaves.extend(distances.iter().filter(|is_there| **is_there).map(|_| vectors[0] * hidden));
        let forward = move |leaves: &[Tensor<1>]| {
            // Views of a joint product, as a model has them.
            let rows = [0, 1, 2].map(|i| match is_joint {
                true => leaves[0].clone().reshape([tokens, 3 * hidden]).narrow(1, i * hidden, hidden),
                false => leaves[i].clone().reshape([tokens, hidden]),
            });
            let [bias, by_query, by_key] = positions.map(|leaf| leaf.map(|leaf| leaves[leaf].clone()));
            let [by_query, by_key] = [by_query, by_key].map(|leaf| leaf.map(|leaf| leaf.reshape(vectors)));
            let bias = bias.map(|leaf| leaf.reshape(dims));
            let positions = Positions { bias, by_query, by_key, scale };
            let sequences = Sequences::new(lengths.clone(), &rows[0].device());
            let sequences = window.map_or(sequences.clone(), |window| sequences.with_window(window));
            flat(attention(rows, &sequences, heads, positions, dropout))
        };
        let sample = Sample { dropout, ..Sample::new(name, &leaves, forward) };
        // The reference takes seconds for each; one of them is computed in 16 bits.
        let sample =
            if longest > 1024 && bias == Without { Sample { dtypes: &ALL[..2], ..sample } } else { sample };
        if is_joint { sample } else { sample.naive(move |leaves| case.naive(leaves)) }
    };
    let neither = [false; 2];
    let cases = [
        // As many tokens as a tile has, one less and one more; heads of as many columns as a slice of one, and more.
        (vec![1], [1, 1], Without, 0.0, None, neither),
        (vec![0, 0], [2, 3], Without, 0.0, None, neither),
        (vec![3, 0, 5, 1], [3, 5], Each, 0.0, None, neither),
        (vec![4, 2, 0, 5], [2, 3], Each, 0.4, None, neither),
        (vec![17, 17], [3, 5], Each, 0.1, None, neither),
        (vec![65, 63, 64], [1, 16], Each, 0.1, None, neither),
        (vec![129, 3, 64], [2, 64], Without, 0.9, None, neither),
        (vec![0, 31, 1], [1, 127], Each, 0.0, None, neither),
        (vec![31, 9, 31], [2, 24], Each, 0.1, None, neither),
        (vec![129, 70, 129, 5], [3, 33], Each, 0.1, None, neither),
        (vec![300], [2, 3], Without, 0.1, None, neither),
        // More columns than kernels take.
        (vec![5, 2], [1, 260], Without, 0.1, None, neither),
        // Several parts of the keys.
        (vec![1030, 3], [1, 4], Without, 0.0, None, neither),
        (vec![1030], [1, 3], Each, 0.1, None, neither),
        // Several blocks of queries, whose keys are not all; windows that end at, before and behind a sequence's end.
        (vec![3, 0, 5, 1], [3, 5], Each, 0.0, Some(0), neither),
        (vec![31, 9, 31], [2, 24], Each, 0.1, Some(8), neither),
        (vec![129, 70, 129, 5], [3, 33], Each, 0.0, Some(70), neither),
        (vec![300], [2, 3], Without, 0.1, Some(64), neither),
        (vec![520, 3], [1, 4], Without, 0.0, Some(30), neither),
        (vec![1100], [1, 3], Without, 0.1, Some(450), neither),
        // One block of queries and several, of which the last is short.
        (vec![1, 1], [1, 1], Without, 0.0, None, [true, true]),
        (vec![3, 0, 5, 1], [3, 5], Each, 0.0, None, [true, true]),
        (vec![31, 9, 31], [2, 24], Without, 0.1, None, [true, false]),
        (vec![17, 40], [2, 7], Without, 0.0, None, [false, true]),
        (vec![129, 70, 5], [2, 33], Each, 0.1, None, [true, true]),
        (vec![300, 3], [1, 4], Without, 0.0, Some(30), [true, true]),
        (vec![1030], [1, 3], Without, 0.0, None, [true, true]),
        (vec![70, 0, 130, 64], [1, 70], Without, 0.1, None, [true, true]),
        // One bias for all sequences, in one block of queries and several, with what else is added.
        (vec![3, 0, 5, 1], [3, 5], One, 0.0, None, neither),
        (vec![31, 9, 31], [2, 24], One, 0.1, Some(8), neither),
        (vec![129, 70, 129, 5], [3, 33], One, 0.1, None, neither),
        (vec![0, 300, 0, 130], [2, 3], One, 0.1, Some(64), neither),
        (vec![300, 0, 140], [2, 3], One, 0.0, None, [true, true]),
    ];
    let joint = sample((vec![7, 5], [2, 4], Without, 0.1, None, neither), true);
    cases.into_iter().map(|case| sample(case, false)).chain([joint]).collect()
}

fn self_attentions() -> Vec<Sample> {
    type Case = (Vec<usize>, [usize; 2], Bias, [bool; 2], f64);
    let sample = |(lengths, [heads, columns], bias, distances, dropout): Case| {
        let (tokens, hidden) = (lengths.iter().sum::<usize>(), heads * columns);
        let name = format!(
            "self-attention of {lengths:?}, {heads} x {columns}, bias {bias:?}, distances {distances:?}, dropout {dropout}"
        );
        let case = Heads { lengths: lengths.clone(), heads, columns, bias, distances, window: None };
        let longest = *lengths.iter().max().unwrap();
        let dims = [if bias == Bias::One { 1 } else { lengths.len() }, heads, longest, longest];
        let vectors = [2 * longest - 1, hidden];
        let mut leaves = vec![tokens * hidden];
        leaves.extend([hidden * hidden; 3]);
        leaves.extend([hidden; 3]);
        let positions = case.positions(leaves.len());
        leaves.extend((bias != Bias::Without).then(|| dims.iter().product::<usize>()));
        leaves.extend(distances.iter().filter(|is_there| **is_there).map(|_| vectors[0] * hidden));
        // Logits of about 1.
        let scale = (hidden as f64).sqrt().recip();
        let (lengths, of_logits) = (lengths.clone(), case.scale());
        let forward = move |leaves: &[Tensor<1>]| {
            let x = leaves[0].clone().reshape([tokens, hidden]).mul_scalar(scale);
            let layers =
                [1, 2, 3].map(|i| (leaves[i].clone().reshape([hidden; 2]), Some(leaves[3 + i].clone())));
            let [bias, by_query, by_key] = positions.map(|leaf| leaf.map(|leaf| leaves[leaf].clone()));
            let [by_query, by_key] = [by_query, by_key].map(|leaf| leaf.map(|leaf| leaf.reshape(vectors)));
            let bias = bias.map(|leaf| leaf.reshape(dims));
            let positions = Positions { bias, by_query, by_key, scale: of_logits };
            let sequences = Sequences::new(lengths.clone(), &x.device());
            flat(self_attention(x, layers, &sequences, heads, positions, dropout, true))
        };
        // The parts have samples in 16 bits.
        let sample = Sample { dropout, dtypes: &ALL[..2], ..Sample::new(name, &leaves, forward) };
        sample.naive(move |leaves| {
            let rows = [1, 2, 3].map(|i| -> Vec<f64> {
                let value = |row: usize, column: usize| {
                    let terms =
                        (0..hidden).map(|k| leaves[0][row * hidden + k] * leaves[i][k * hidden + column]);
                    terms.sum::<f64>() * scale + leaves[3 + i][column]
                };
                (0..tokens * hidden).map(|at| value(at / hidden, at % hidden)).collect()
            });
            case.naive(&rows.into_iter().chain(leaves[7..].iter().cloned()).collect::<Vec<_>>())
        })
    };
    let (neither, without) = ([false; 2], Bias::Without);
    let cases = [
        (vec![3, 0, 5, 1], [2, 8], Bias::Each, neither, 0.0),
        (vec![1, 0], [2, 8], without, [true; 2], 0.0),
        (vec![70, 5], [3, 16], Bias::One, [true; 2], 0.0),
        (vec![129, 70], [1, 64], without, [false, true], 0.1),
        (vec![5, 2], [3, 5], without, neither, 0.1),
        // More columns than kernels take.
        (vec![3, 2], [1, 272], without, neither, 0.0),
    ];
    cases.into_iter().map(sample).collect()
}

fn rotaries() -> Vec<Sample> {
    let angle = |row: usize, pair: usize| (row * 7 % 31) as f64 / (1 + pair) as f64;
    let sample = |[rows, heads, half]: [usize; 3]| {
        let forward = move |leaves: &[Tensor<1>]| {
            let x = leaves[0].clone().reshape([rows, 2 * heads * half]);
            let table = |value: fn(f64) -> f64| {
                let values = (0..rows).flat_map(|row| (0..half).map(move |pair| value(angle(row, pair))));
                let data = TensorData::new(values.collect::<Vec<f64>>(), [rows, half]);
                let dtype = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
                Tensor::<2>::from_data(data, (&x.device().without_autodiff(), dtype))
            };
            flat(rotary(x.clone(), [table(f64::cos), table(f64::sin)], heads))
        };
        let name = format!("rotary of {rows} x {heads} heads of {} columns", 2 * half);
        Sample::new(name, &[rows * heads * 2 * half], forward).naive(move |leaves| {
            let turned = |i: usize| {
                let (row, column) = (i / (2 * heads * half), i % (2 * half));
                let (sin, cos) = angle(row, column % half).sin_cos();
                let other = if column < half { -leaves[0][i + half] } else { leaves[0][i - half] };
                leaves[0][i] * cos + other * sin
            };
            (0..leaves[0].len()).map(turned).collect()
        })
    };
    [[0, 1, 2], [1, 1, 1], [5, 3, 7], [70, 2, 32], [129, 12, 32]].into_iter().map(sample).collect()
}

fn drop_outs() -> Vec<Sample> {
    let sample = |(([rows, columns], dropout), operands): (([usize; 2], f64), usize)| {
        let forward = move |leaves: &[Tensor<1>]| {
            let [x, residual] = [0, operands - 1].map(|i| leaves[i].clone().reshape([rows, columns]));
            flat(if operands == 1 { drop_out(x, dropout) } else { add_drop_out(x, residual, dropout) })
        };
        let sum = move |leaves: &[Vec<f64>], i| leaves.iter().map(|x| x[i]).sum();
        let name = format!("drop_out of {rows} x {columns}, dropout {dropout}, operands {operands}");
        let sample = Sample { dropout, ..Sample::new(name, &vec![rows * columns; operands], forward) };
        let naive = move |leaves: &[Vec<f64>]| (0..rows * columns).map(|i| sum(leaves, i)).collect();
        sample.naive(naive)
    };
    let shapes = [([0, 3], 0.1), ([3, 5], 0.0), ([1, 1], 0.1), ([70, 127], 0.1), ([65, 768], 0.9)];
    shapes.into_iter().flat_map(|shape| [1, 2].map(|operands| sample((shape, operands)))).collect()
}

fn cross_entropies() -> Vec<Sample> {
    let label = |row: usize, classes: usize| (row * 7919 + 3) % classes;
    let sample = |[rows, classes]: [usize; 2], spread: f64| {
        let forward = move |leaves: &[Tensor<1>]| {
            let logits = leaves[0].clone().mul_scalar(spread).reshape([rows, classes]);
            let labels: Vec<i32> = (0..rows).map(|row| label(row, classes) as i32).collect();
            // The sum over rows: a mean of 300 would have gradients too small to compare.
            cross_entropy(logits.clone(), Tensor::from_ints(labels.as_slice(), &logits.device()))
                .mul_scalar(rows as f64)
        };
        let name = format!("cross_entropy of {rows} x {classes} within {spread}");
        Sample::new(name, &[rows * classes], forward).naive(move |leaves| {
            let loss = |(row, logits): (usize, &[f64])| {
                let sum: f64 = logits.iter().map(|x| (spread * x).exp()).sum();
                sum.ln() - spread * logits[label(row, classes)]
            };
            vec![leaves[0].chunks(classes).enumerate().map(loss).sum()]
        })
    };
    let sizes = [[1, 1], [1, 2], [3, 31], [2, 257], [5, 1023], [40, 1000], [300, 3], [64, 2000]];
    sizes.into_iter().flat_map(|size| [0.125, 1.0, 16.0].map(|spread| sample(size, spread))).collect()
}

/// In bf16 wherever the weights are f32: leaves hold values that need no rounding.
fn linears() -> Vec<Sample> {
    let sample = |[rows, inputs, outputs]: [usize; 3]| {
        let forward = move |leaves: &[Tensor<1>]| {
            let [x, weight, bias] = leaves else { panic!("three leaves") };
            let (x, weight) = (x.clone().reshape([rows, inputs]), weight.clone().reshape([inputs, outputs]));
            // A device without bf16 computes the same in f32, and refuses autocast, which `refusals` tests.
            let precision = Precision::Bf16.check(&x.device()).map_or(Precision::F32, |()| Precision::Bf16);
            flat(autocast(precision, || linear(x, weight, Some(bias.clone()))))
        };
        let name = format!("linear of {rows} x {inputs} x {outputs} in autocast");
        Sample::new(name, &[rows * inputs, inputs * outputs, outputs], forward).naive(move |leaves| {
            let at = |row: usize, column: usize| {
                let terms =
                    (0..inputs).map(|i| leaves[0][row * inputs + i] * leaves[1][i * outputs + column]);
                terms.sum::<f64>() + leaves[2][column]
            };
            (0..rows)
                .flat_map(|row| (0..outputs).map(move |column| (row, column)))
                .map(|(i, j)| at(i, j))
                .collect()
        })
    };
    let sizes = [[1, 1, 1], [70, 3, 5], [129, 127, 65], [3, 1023, 33], [301, 257, 129]];
    sizes.into_iter().map(sample).collect()
}

fn moves() -> Vec<Sample> {
    let sample = |(from, rows, columns): (&'static [usize], usize, usize)| {
        let forward = move |leaves: &[Tensor<1>]| {
            let x = leaves[0].clone().reshape([rows, columns]);
            flat(Moves::new(from, rows, &x.device()).expect("no row twice").apply(x))
        };
        let sample = Sample::new(format!("rows {from:?} of {rows} x {columns}"), &[rows * columns], forward);
        sample.naive(move |leaves| {
            let row =
                |&i: &usize| leaves[0].chunks(columns).nth(i).map_or(vec![0.0; columns], <[f64]>::to_vec);
            from.iter().flat_map(row).collect()
        })
    };
    let cases: [(&[usize], usize, usize); 7] = [
        (&[0], 1, 1),
        (&[2, 0, 1], 3, 5),
        (&[4, 0, 4, 3], 4, 127),
        (&[1, 5], 6, 768),
        (&[3, 3, 3], 3, 2),
        (&[], 3, 5),
        (&[0, 0], 0, 5),
    ];
    cases.into_iter().map(sample).collect()
}

fn lookups() -> Vec<Sample> {
    let sample = |ids: Vec<usize>, rows: usize, columns: usize, padding_idx: Option<usize>| {
        let indices = ids.clone();
        let forward = move |leaves: &[Tensor<1>]| {
            let ids: Vec<i64> = indices.iter().map(|&id| id as i64).collect();
            let shape = [1, ids.len()];
            let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, shape), &leaves[0].device());
            let table = leaves[0].clone().reshape([rows, columns]);
            flat(lookup(table, ids, padding_idx).squeeze_dim::<2>(0))
        };
        let name = format!("lookup of {} in {rows} x {columns}, padding {padding_idx:?}", ids.len());
        let sample = Sample::new(name, &[rows * columns], forward);
        let sample = Sample { is_smooth: padding_idx.is_none(), ..sample };
        // An id outside the table reads the nearest row.
        let first = move |&id: &usize| id.min(rows - 1) * columns;
        sample.naive(move |leaves| {
            ids.iter().map(first).flat_map(|first| leaves[0][first..first + columns].to_vec()).collect()
        })
    };
    vec![
        sample(vec![0], 1, 1, None),
        sample(vec![2, 0, 7, 2, 1], 3, 5, Some(2)),
        sample((0..1100).map(|i| i / 7).collect(), 158, 33, None),
        sample(vec![1; 130], 4, 70, Some(0)),
        sample(vec![], 3, 5, None),
    ]
}

/// Which rows of a table stand in a role.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Absent,
    Lookup,
    /// With row 1 as padding.
    Padded,
    Shared,
    Range,
    Row,
    Values,
}
use Role::*;

fn embed_layer_norms() -> Vec<Sample> {
    // `one`: every id is the same.
    let sample = |roles: [Role; 3],
                  [batch, seq]: [usize; 2],
                  hidden: usize,
                  vocab: usize,
                  one: bool,
                  dropout: f64| {
        let rows_of = move |role: Role| match role {
            Absent => 0,
            Values => batch * seq,
            _ => vocab,
        };
        let id = move |index: usize| if one { 1 } else { (index * 7919 + index / 3) % vocab };
        let mut leaves: Vec<usize> = roles.iter().map(|&role| rows_of(role) * hidden).collect();
        leaves.extend([hidden, hidden]);
        let forward = move |leaves: &[Tensor<1>]| {
            let device = leaves[0].device();
            let ids = |count: usize| {
                let ids: Vec<i32> = (0..count).map(|index| id(index) as i32).collect();
                Tensor::<1, Int>::from_ints(ids.as_slice(), &device).reshape([count / seq, seq])
            };
            let rows: [Rows; 3] = std::array::from_fn(|i| {
                let table = || leaves[i].clone().reshape([rows_of(roles[i]), hidden]);
                match roles[i] {
                    Absent => Rows::Absent,
                    Lookup => Rows::Lookup { table: table(), ids: ids(batch * seq), padding_idx: None },
                    Padded => Rows::Lookup { table: table(), ids: ids(batch * seq), padding_idx: Some(1) },
                    Shared => Rows::Lookup { table: table(), ids: ids(seq), padding_idx: None },
                    Range => Rows::Range { table: table(), first: vocab - seq },
                    Row => Rows::Row { table: table(), row: vocab - 1 },
                    Values => Rows::Values(leaves[i].clone().reshape([batch, seq, hidden])),
                }
            });
            let norm = Norm { gamma: leaves[3].clone(), beta: Some(leaves[4].clone()), epsilon: EPSILON };
            flat(embed_layer_norm([batch, seq], rows, norm, dropout))
        };
        let name = format!(
            "embed_layer_norm of {roles:?}, {batch} x {seq} x {hidden} of {vocab}, one id {one}, dropout {dropout}"
        );
        let sample = Sample { dropout, roundings: 3.0, ..Sample::new(name, &leaves, forward) };
        let sample = Sample { is_smooth: !roles.contains(&Padded), ..sample };
        // The reference adds thousands of 16-bit gradients to one row in 16 bits.
        let sample = if batch * seq >= 8192 { Sample { dtypes: &ALL[..2], ..sample } } else { sample };
        sample.naive(move |leaves| {
            let vector = |i: usize, token: usize| {
                let row = match roles[i] {
                    Absent => return vec![0.0; hidden],
                    Lookup | Padded => id(token),
                    Shared => id(token % seq),
                    Range => vocab - seq + token % seq,
                    Row => vocab - 1,
                    Values => token,
                };
                leaves[i][row * hidden..(row + 1) * hidden].to_vec()
            };
            let sum = |token: usize| {
                let [a, b, c] = [0, 1, 2].map(|i| vector(i, token));
                (0..hidden).map(|column| a[column] + b[column] + c[column]).collect::<Vec<_>>()
            };
            (0..batch * seq).flat_map(|token| normalized(&sum(token), &leaves[3], &leaves[4])).collect()
        })
    };
    let bert = [Padded, Row, Range];
    let mut samples: Vec<_> = [(1, 1), (3, 31), (127, 2), (768, 65), (1023, 40)]
        .into_iter()
        .flat_map(|(hidden, seq)| {
            [0.0, 0.1].map(|dropout| sample(bert, [3, seq], hidden, 200, false, dropout))
        })
        .collect();
    samples.extend([
        sample([Lookup, Row, Range], [2, 5], 7, 9, false, 0.4),
        sample([Lookup, Lookup, Shared], [2, 65], 13, 65, false, 0.0),
        sample([Values, Padded, Shared], [2, 31], 16, 40, false, 0.1),
        sample([Absent, Values, Range], [1, 129], 33, 150, false, 0.0),
        sample([Row, Absent, Absent], [4, 2], 5, 3, false, 0.0),
        sample([Absent, Absent, Lookup], [2, 3], 4, 5, false, 0.9),
        // Nothing but padding, and one row for 8,192 tokens.
        sample(bert, [3, 129], 127, 129, true, 0.1),
        sample([Lookup, Row, Shared], [16, 512], 16, 513, true, 0.1),
        sample([Lookup, Lookup, Shared], [8192, 1], 3, 2, false, 0.0),
    ]);
    samples
}
