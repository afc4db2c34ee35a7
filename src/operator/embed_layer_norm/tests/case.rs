//! Inputs of the operator, drawn at random.

use crate::operator::dropout::Dropout;
use crate::operator::embed_layer_norm::rows::Rows;
use crate::operator::embed_layer_norm::{EmbedLayerNorm, EmbedLayerNormOp};
use crate::operator::inputs::Fields;
use crate::operator::kernels::Output;
use crate::operator::path::Path;
use burn::backend::ops::{FloatTensorOps, IntTensorOps};
use burn::backend::tensor::{Device, FloatTensor, IntTensor};
use burn::backend::{Backend, Flex};
use burn::tensor::{FloatDType, TensorData};
use proptest::prelude::*;
use rand::{Rng, RngExt};

/// A backend under test.
pub(in crate::operator::embed_layer_norm) trait Kernels:
    Backend
{
    /// Whether the kernels take this input, rather than leave it to the reference.
    fn take(input: &EmbedLayerNorm<Self>) -> bool;

    /// y, and the mean and rstd of each token.
    fn forward(input: EmbedLayerNorm<Self>) -> Output<EmbedLayerNormOp, Self>;

    fn backward(
        input: EmbedLayerNorm<Self>,
        statistics: [FloatTensor<Self>; 2],
        grad: FloatTensor<Self>,
        needs: [bool; 5],
    ) -> Vec<Option<FloatTensor<Self>>>;

    fn device() -> Device<Self> {
        Default::default()
    }
}

/// Which summand stands in a role, and whether it has a padding row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Absent,
    Lookup { padding: bool },
    Shared { padding: bool },
    Range,
    Row,
    Values,
}

/// Which ids a lookup gets.
#[derive(Clone, Copy, Debug)]
pub(in crate::operator::embed_layer_norm) enum Ids {
    Random,
    All(u32),
}

#[derive(Clone, Debug)]
pub(in crate::operator::embed_layer_norm) struct Case {
    pub(super) shape: [usize; 2],
    pub(super) hidden: usize,
    pub(super) vocab: usize,
    pub(super) kinds: [Kind; 3],
    pub(super) ids: Ids,
    pub(super) dropout: f64,
    pub(super) needs: [bool; 5],
    pub(super) seed: u64,
}

pub(super) fn case() -> impl Strategy<Value = Case> {
    let kind = || {
        prop_oneof![
            Just(Kind::Absent),
            any::<bool>().prop_map(|padding| Kind::Lookup { padding }),
            any::<bool>().prop_map(|padding| Kind::Shared { padding }),
            Just(Kind::Range),
            Just(Kind::Row),
            Just(Kind::Values),
        ]
    };
    (
        (1usize..5, prop::sample::select(vec![1usize, 2, 31, 65, 129])),
        prop::sample::select(vec![(1usize, 30522usize), (3, 30522), (127, 2), (768, 200), (1023, 150)]),
        [kind(), kind(), kind()],
        prop_oneof![3 => Just(Ids::Random), 1 => Just(Ids::All(0)), 1 => Just(Ids::All(1))],
        prop::sample::select(vec![0.0, 0.1, 0.9]),
        any::<[bool; 5]>(),
        any::<u64>(),
    )
        .prop_map(|((batch, seq), (hidden, vocab), kinds, ids, dropout, needs, seed)| Case {
            shape: [batch, seq],
            hidden,
            vocab: if vocab == 2 { 2 } else { vocab.max(seq) },
            kinds: kinds.map(|kind| match kind {
                Kind::Range if vocab < seq => Kind::Row,
                kind => kind,
            }),
            ids,
            dropout,
            needs,
            seed,
        })
}

pub(in crate::operator::embed_layer_norm) fn float(shape: &[usize], rng: &mut impl Rng) -> FloatTensor<Flex> {
    let values = (0..shape.iter().product()).map(|_| rng.random_range(-1.0..1.0f32)).collect::<Vec<_>>();
    Flex::float_from_data(TensorData::new(values, shape), &Default::default())
}

pub(in crate::operator::embed_layer_norm) fn int(values: Vec<i32>, shape: [usize; 2]) -> IntTensor<Flex> {
    Flex::int_from_data(TensorData::new(values, shape), &Default::default())
}

impl Case {
    fn rows(&self, kind: Kind, rng: &mut impl Rng) -> Rows<Flex> {
        let [batch, seq] = self.shape;
        let mut ids = |sequences: usize| {
            let id = |_| match self.ids {
                Ids::Random => rng.random_range(0..self.vocab as i32),
                Ids::All(id) => id as i32,
            };
            int((0..sequences * seq).map(id).collect(), [sequences, seq])
        };
        let (ids, padding) = match kind {
            Kind::Lookup { padding } => (Some(ids(batch)), padding),
            Kind::Shared { padding } => (Some(ids(1)), padding),
            _ => (None, false),
        };
        let mut table = || float(&[self.vocab, self.hidden], rng);
        match (kind, ids) {
            (_, Some(ids)) => Rows::Lookup { table: table(), ids, padding_idx: padding.then_some(0) },
            (Kind::Range, _) => Rows::Range { table: table(), first: self.vocab - seq },
            (Kind::Row, _) => Rows::Row { table: table(), row: 1 },
            (Kind::Values, _) => Rows::Values(float(&[batch, seq, self.hidden], rng)),
            _ => Rows::Absent,
        }
    }

    pub(in crate::operator::embed_layer_norm) fn input(&self, rng: &mut impl Rng) -> EmbedLayerNorm<Flex> {
        let [words, token_types, positions] = self.kinds.map(|kind| self.rows(kind, rng));
        let dropout = match self.dropout {
            0.0 => Dropout::Inactive,
            prob => Dropout::Philox { seeds: int(vec![1, 70, 7000, 65535], [1, 4]), row: 0, prob },
        };
        let [gamma, beta] = std::array::from_fn(|_| float(&[self.hidden], rng));
        EmbedLayerNorm {
            shape: self.shape,
            words,
            token_types,
            positions,
            gamma,
            beta,
            epsilon: 1e-3,
            dropout,
            path: Path::Fused,
        }
    }
}

/// BERT's layout at full vocabulary.
pub(in crate::operator::embed_layer_norm) fn bert(shape: [usize; 2], hidden: usize, ids: Ids) -> Case {
    let kinds = [Kind::Lookup { padding: true }, Kind::Row, Kind::Range];
    Case { shape, hidden, vocab: 30522, kinds, ids, dropout: 0.1, needs: [true; 5], seed: 1 }
}

/// The same input on another backend, in `dtype`.
pub(super) fn moved<B: Kernels>(input: &EmbedLayerNorm<Flex>, dtype: FloatDType) -> EmbedLayerNorm<B> {
    let float = &mut |tensor| moved_float::<B>(&tensor, dtype);
    EmbedLayerNormOp::map::<Flex, B>(input.clone(), float, &mut |tensor| moved_int::<B>(&tensor))
}

pub(super) fn moved_float<B: Kernels>(tensor: &FloatTensor<Flex>, dtype: FloatDType) -> FloatTensor<B> {
    let data = tensor.clone().into_data().convert_dtype(dtype.into());
    B::float_from_data(data, &B::device())
}

fn moved_int<B: Kernels>(tensor: &IntTensor<Flex>) -> IntTensor<B> {
    B::int_from_data(tensor.clone().into_data(), &B::device())
}
