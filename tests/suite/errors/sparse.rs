//! Training of rows, and its saved state.

use super::{Row, embeddings, file, input, row};
use burn::module::{Lora, Module, Quantizer};
use burn::optim::AdamWConfig;
use burn::prelude::*;
use burn::tensor::Bytes;
use burn::tensor::quantization::{Calibration, QuantScheme, QuantStore};
use burn_bert::BertEmbeddings;
use burn_bert::sparse::{LazyAdamWConfig, RowGradients, SparseAdamConfig, SparseOptimizer};

fn device() -> Device {
    Device::default().autodiff()
}

fn module(vocab_size: usize) -> BertEmbeddings {
    embeddings().with_vocab_size(vocab_size).init(&device())
}

fn adam() -> SparseOptimizer {
    SparseAdamConfig::new().init()
}

fn gradients(module: &BertEmbeddings) -> RowGradients {
    let touched = module.touched_rows(&input()).unwrap();
    let mut gradients = touched.forward().powi_scalar(3).sum().backward();
    RowGradients::from_grads(&mut gradients, touched, module).unwrap()
}

pub fn rows() -> Vec<Row> {
    vec![
        row(
            "NotRowSparse",
            |_| {
                let module = module(10);
                let touched = module.touched_rows(&input()).unwrap();
                let loss = touched.forward().sum() + module.word_embeddings.weight.val().sum();
                RowGradients::from_grads(&mut loss.backward(), touched, &module).unwrap_err()
            },
            "the word table cannot be trained row by row: it got a dense gradient in addition to that of its rows, \
             since another part of the model reads the whole table (as a tied output head does); train it with \
             BertEmbeddings::forward, or untie the head",
            "",
        ),
        row(
            "NotRowSparse",
            |_| module(10).apply_lora(Lora::new(2, 2.0)).touched_rows(&input()).unwrap_err(),
            "the word table cannot be trained row by row: it has a LoRA adapter, whose gradient reaches every row; \
             train it with BertEmbeddings::forward",
            "",
        ),
        row(
            "NotRowSparse",
            |_| {
                let scheme = QuantScheme::default().with_store(QuantStore::Native);
                let mut quantizer = Quantizer::new(Calibration::MinMax, scheme);
                module(10).quantize_weights(&mut quantizer).touched_rows(&input()).unwrap_err()
            },
            "the word table cannot be trained row by row: it is quantised, and rows cannot be written back without \
             quantising others anew; train first and quantise afterwards",
            "",
        ),
        row(
            "Data",
            |_| adam().step(0.1, &mut module(10), gradients(&module(11))).unwrap_err(),
            "the row gradient is for a word table of shape [11, 4], but this one has shape [10, 4]; was the model \
             resized or another one passed?",
            "",
        ),
        row(
            "Data",
            |_| {
                let (mut small, mut large) = (module(10), module(11));
                let mut stepped = adam();
                let rows = gradients(&small);
                stepped.step(0.1, &mut small, rows).unwrap();
                let mut loaded = adam().from_bytes(stepped.to_bytes().unwrap(), &device()).unwrap();
                let rows = gradients(&large);
                loaded.step(0.1, &mut large, rows).unwrap_err()
            },
            "the state of the optimiser is for a word table of shape [10, 4], but this one has shape [11, 4]; was \
             the model resized or another one passed?",
            "",
        ),
        row(
            "Data",
            |_| {
                let saved = adam().to_bytes().unwrap();
                LazyAdamWConfig::new().init().from_bytes(saved, &device()).unwrap_err()
            },
            "the saved state of the row optimiser belongs to SparseAdam, but this optimiser is LazyAdamW",
            "",
        ),
        row(
            "Data",
            |_| {
                let dense = AdamWConfig::new().init().into_bytes().unwrap();
                adam().from_bytes(dense, &device()).unwrap_err()
            },
            "the saved state of the row optimiser has no `row_optimizer`, so it is not row-optimiser state",
            "",
        ),
        row(
            "RowStateFile",
            |dir| adam().load(dir.join("rows.bpk"), &device()).unwrap_err(),
            "cannot load the state of the row optimiser from DIR/rows.bpk",
            "cannot read",
        ),
        row(
            "RowStateFile",
            |dir| adam().save(file(dir, "file", "").join("rows.bpk")).unwrap_err(),
            "cannot save the state of the row optimiser to DIR/file/rows.bpk",
            "I/O error",
        ),
        row(
            "RowStateFile",
            |_| adam().from_bytes(Bytes::from_bytes_vec(vec![0; 4]), &device()).unwrap_err(),
            "cannot unpack the state of the row optimiser",
            "Invalid header",
        ),
    ]
}
