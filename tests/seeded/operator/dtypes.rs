//! Quantised and 16-bit tensors.

use super::Case;
use crate::devices::supported;
use crate::tolerance::{assert_close, values};
use crate::turn;
use burn::module::{Module, ModuleMapper, Param, Quantizer};
use burn::prelude::*;
use burn::tensor::quantization::{Calibration, QuantScheme, QuantStore};
use burn::tensor::{DType, Distribution};
use burn_bert::functional::{Norm, Rows, embed_layer_norm};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};

fn scheme(device: &Device) -> QuantScheme {
    let packed = QuantScheme::default();
    if device.supports_dtype(DType::QFloat(packed)) { packed } else { packed.with_store(QuantStore::Native) }
}

pub(super) fn quantised_tensors_give_what_they_dequantise_to(case: &Case) {
    let _turn = turn();
    let device = case.device.clone();
    let scheme = scheme(&device);
    let random = |rows| Tensor::<2>::random([rows, 32], Distribution::Uniform(-1.0, 1.0), &device);
    let [words, positions] = [random(8), random(4)].map(|table| table.quantize_dynamic(&scheme));
    let [gamma, beta] = [random(1), random(1)].map(|row| row.reshape([32]).quantize_dynamic(&scheme));
    let y = |words, positions, gamma, beta| {
        let lookup = |table, ids, padding_idx| Rows::Lookup { table, ids, padding_idx };
        let words = lookup(words, Tensor::from_ints([[7, 0, 3], [1, 1, 0]], &device), Some(0));
        let positions = lookup(positions, Tensor::from_ints([[2, 0, 3]], &device), None); // for both sequences
        let norm = Norm { gamma, beta: Some(beta), epsilon: 1e-12 };
        values(embed_layer_norm([2, 3], [words, Rows::Absent, positions], norm, 0.0))
    };
    let expected = y(
        words.clone().dequantize(),
        positions.clone().dequantize(),
        gamma.clone().dequantize(),
        beta.clone().dequantize(),
    );
    assert_close(&y(words, positions, gamma, beta), &expected, case.tolerance);
}

pub(super) fn quantised_module_gives_what_it_dequantises_to(case: &Case) {
    let _turn = turn();
    let device = case.device.clone();
    device.seed(3);
    let config = BertEmbeddingsConfig::new().with_vocab_size(40).with_hidden_size(32);
    let config = config.with_max_position_embeddings(16);
    let mut quantizer = Quantizer::new(Calibration::MinMax, scheme(&device));
    let module = config.init(&device).quantize_weights(&mut quantizer);
    assert!(matches!(module.layer_norm.gamma.val().dtype(), DType::QFloat(_)));
    let dequantized = module.clone().map(&mut Dequantize);
    let ids = [[5, 6, 5, 0], [9, 5, 0, 0]];
    let by_id = BertEmbeddingsInput::from_rows(&ids, &device).unwrap();
    let shared = by_id.clone().with_position_ids(&[[3, 1, 2, 0]]).unwrap();
    let vectors = Tensor::random([2, 4, 32], Distribution::Default, &device);
    for input in [by_id, shared, BertEmbeddingsInput::from_embeds(vectors).unwrap()] {
        let found = values(module.try_forward(&input).unwrap());
        assert_close(&found, &values(dequantized.forward(&input)), case.tolerance);
    }
    let ids = Tensor::<2, Int>::from_ints([[5, 0], [39, 1]], &device);
    let looked_up = |module: &BertEmbeddings| values(module.word_embeddings.forward::<2, 3>(ids.clone()));
    assert_close(&looked_up(&module), &looked_up(&dequantized), case.tolerance);
}

struct Dequantize;

impl ModuleMapper for Dequantize {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(Tensor::dequantize)
    }
}

/// 2049 tokens: a sum that f16 would round.
pub(super) fn gradients_come_back_in_the_dtype_of_their_parameter(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    for dtype in supported(&device, &[DType::F64, DType::F16, DType::BF16]) {
        for (wide, narrow) in [(DType::F32, dtype), (dtype, DType::F32)] {
            let (tokens, hidden) = (2049, 4);
            let table = Tensor::<2>::random([7, hidden], Distribution::Default, (&device, narrow));
            let table = table.require_grad();
            let [gamma, beta] =
                [1.0, 0.0].map(|value| Tensor::<1>::full([hidden], value, (&device, wide)).require_grad());
            let words = Rows::Lookup {
                table: table.clone(),
                ids: Tensor::zeros([1, tokens], &device),
                padding_idx: None,
            };
            let norm = Norm { gamma: gamma.clone(), beta: Some(beta.clone()), epsilon: 1e-12 };
            let y = embed_layer_norm([1, tokens], [words, Rows::Absent, Rows::Absent], norm, 0.0);
            assert_eq!(y.dtype(), narrow);
            let gradients = y.sum().backward();
            assert_eq!(table.grad(&gradients).unwrap().dtype(), narrow);
            assert_eq!(gamma.grad(&gradients).unwrap().dtype(), wide);
            let beta = beta.grad(&gradients).unwrap();
            assert_eq!(beta.dtype(), wide);
            if wide == DType::F32 {
                assert_eq!(values(beta), [2049.0; 4]);
            }
        }
    }
}
