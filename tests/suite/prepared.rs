//! Models whose linear layers stay packed for inference.

use crate::prelude::*;
use burn_bert::functional::{Precision, autocast};
use burn_bert::{prepare_linear_layers, quantize_linear_layers};

fn model() -> BertModel {
    let config = small_bert(60, 64).with_num_hidden_layers(2).with_intermediate_size(96);
    config.init(&device())
}

/// Of few tokens and of many.
fn hidden(model: &BertModel) -> Vec<Vec<f64>> {
    let batch =
        |rows: u32| -> Vec<[u32; 5]> { (0..rows).map(|i| [1, 3 + i % 57, 8, 59 - i % 50, 2]).collect() };
    let hidden = |rows| {
        let input = BertEmbeddingsInput::from_rows(&batch(rows), &device()).unwrap();
        values(model.forward(&input, None).last_hidden_state)
    };
    [1, 3, 30].map(hidden).to_vec()
}

#[test]
fn a_prepared_model_computes_the_same_bits_in_every_precision() {
    let wide = model();
    for plain in
        [wide.clone(), cast_module(wide.clone(), FloatDType::BF16).unwrap(), quantize_linear_layers(wide)]
    {
        let prepared = prepare_linear_layers(plain.clone());
        assert_eq!(hidden(&prepared), hidden(&plain));
        let mixed = |model: &BertModel| autocast(Precision::Bf16, || hidden(model));
        assert_eq!(mixed(&prepared), mixed(&plain));
    }
}

#[test]
fn a_prepared_model_is_saved_trained_and_moved_as_any_other() {
    let (plain, dirs) = (model(), [tempdir().unwrap(), tempdir().unwrap()]);
    // Each time, since what reads a weight in another way lays it out again.
    let prepared = || prepare_linear_layers(plain.clone());
    for (model, dir) in [plain.clone(), prepared()].iter().zip(&dirs) {
        model.save_pretrained(dir.path()).unwrap();
        model.clone().save_file(dir.path().join("model.bpk")).unwrap();
    }
    for file in ["model.safetensors", "config.json", "model.bpk"] {
        let [expected, found] = dirs.each_ref().map(|dir| fs::read(dir.path().join(file)).unwrap());
        assert!(found == expected, "{file}");
    }
    let gradients = |model: &BertModel| {
        let model = model.clone().to_device(&autodiff()).train();
        let input = BertEmbeddingsInput::from_rows(&[[1, 8, 23, 40, 2]], &autodiff()).unwrap();
        let loss = model.forward(&input, None).last_hidden_state.powi_scalar(2).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let layer = &model.encoder.layers[0];
        [&layer.attention.query, &layer.output]
            .map(|linear| values(gradients.get::<2>(linear.weight.id).unwrap()))
    };
    assert_eq!(gradients(&prepared()), gradients(&plain));
    let read = prepared();
    assert_eq!(all_values(&read), all_values(&plain));
    assert_eq!(hidden(&read), hidden(&plain));
}
