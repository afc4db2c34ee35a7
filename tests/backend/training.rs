//! Training, and moving what was trained.

use crate::case::*;
use crate::devices::supported;
use crate::tolerance::all_values;
use burn::module::{Module, Param};
use burn::nn::LinearConfig;
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn::tensor::DType;
use burn_bert::BertEmbeddings;
use burn_bert::optim::clip_by_global_norm;

pub fn a_zero_padding_row_stays_zero_under_adamw_and_no_used_row_stays(case: &Case) {
    let device = case.autodiff();
    let mut module = module(&config(), &device);
    let weight = module.word_embeddings.weight.val().slice_fill([0..1, 0..8], 0.0).detach();
    module.word_embeddings.weight = burn::module::Param::from_tensor(weight.clone());
    let mut optimizer = AdamWConfig::new().with_weight_decay(0.01).init();
    for _ in 0..10 {
        let output = module.forward(&input(&device));
        let gradients = GradientsParams::from_grads(loss(output).backward(), &module);
        module = optimizer.step(1e-3, module, gradients);
    }
    let after = host(module.word_embeddings.weight.val());
    assert!(after[..8].iter().all(|&value| value == 0.0), "{:?}", &after[..8]);
    let before = host(weight);
    assert!((8..96).all(|i| after[i] != before[i]));
}

pub fn records_and_clones_keep_their_values_while_training_goes_on(case: &Case) {
    let device = case.autodiff();
    let input = input(&device);
    let steps = |mut module: BertEmbeddings, optimizer: &mut ModuleOptimizer| {
        for _ in 0..3 {
            let gradients = GradientsParams::from_grads(loss(module.forward(&input)).backward(), &module);
            // Of a clone, as Burn's `Learner` does it.
            module = optimizer.step(1e-2, module.clone(), gradients);
        }
        module
    };
    let mut optimizer = burn_bert::optim::AdamWConfig::new().init();
    let module = steps(module(&config(), &device), &mut optimizer);
    let weights = |module: BertEmbeddings| module.into_record().into_bytes().unwrap();
    let (expected, state) = (weights(module.clone()), optimizer.into_bytes().unwrap());
    let (record, record_of_state) = (module.clone().into_record(), optimizer.to_record());
    let (clone, evaluated) = (module.clone(), module.valid());
    assert!(*weights(steps(module, &mut optimizer)) != *expected, "the steps changed nothing");
    for (name, record) in
        [("record", record), ("clone", clone.into_record()), ("copy for evaluation", evaluated.into_record())]
    {
        assert!(*record.into_bytes().unwrap() == *expected, "the {name} of the module changed");
    }
    assert!(*record_of_state.into_bytes().unwrap() == *state, "the record of the optimizer changed");
}

pub fn a_record_saved_here_loads_on_every_device(case: &Case) {
    let _held = hold_random_numbers();
    let saved = module(&config(), &case.device);
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("embeddings.bpk");
    saved.clone().save_file(&path).unwrap();
    assert_eq!(saved.clone().into_record().len(), 5, "it holds the parameters and nothing else");
    for device in crate::devices::all() {
        let loaded = config().init(&device).load_file(&path);
        assert!(all_values(&loaded) == all_values(&saved), "parameters changed on their way to {device:?}");
        let here = host(saved.forward(&input(&case.device)));
        let there = host(loaded.forward(&input(&device)));
        assert_close("output", &there, &here, case.tolerance);
        let moved = saved.clone().to_device(&device);
        assert_eq!(host(moved.forward(&input(&device))), there, "to_device differs from a record");
    }
}

pub fn a_batch_moves_between_devices_with_what_is_known_of_it(case: &Case) {
    let module = module(&config(), &case.device);
    let expected = host(module.forward(&input(&case.device)));
    for device in crate::devices::others(&case.device) {
        let input = input(&device).to_device(&case.device);
        assert_eq!(host(module.forward(&input)), expected);
    }
}

/// Two fields share one layer, whose gradient is 10 in each of its four values: ‖g‖ = 20.
pub fn a_parameter_that_two_fields_share_is_clipped_once(case: &Case) {
    let _held = hold_random_numbers();
    let device = case.autodiff();
    let linear = LinearConfig::new(2, 2).with_bias(false).init(&device);
    let model = (linear.clone(), linear);
    let gradients = || {
        let x = Tensor::<2>::ones([1, 2], &device);
        let loss = model.0.forward(x.clone()).mul_scalar(4.0) + model.1.forward(x).mul_scalar(6.0);
        GradientsParams::from_grads(loss.sum().backward(), &model)
    };
    let value = |gradients: &GradientsParams| host(gradients.get::<2>(model.0.weight.id).unwrap());

    for (max_norm, expected) in [(1.0, 0.5), (5.0, 2.5), (1e3, 10.0), (f64::INFINITY, 10.0)] {
        let mut gradients = gradients();
        let norm = clip_by_global_norm(&model, &mut gradients, max_norm).unwrap().unwrap();
        assert_close("norm", &host(norm), &[20.0], case.tolerance);
        assert_close("clipped", &value(&gradients), &[expected; 4], case.tolerance);
    }
}

/// A device's `min` may pass over NaN.
pub fn a_gradient_that_is_not_a_number_reaches_all_that_are_clipped_beside_it(case: &Case) {
    let device = case.autodiff();
    let param = || -> Param<Tensor<1>> { Param::from_tensor(Tensor::ones([3], &device)) };
    let model = (param(), param());
    let loss = model.0.val().mul_scalar(f32::NAN) + model.1.val();
    let mut gradients = GradientsParams::from_grads(loss.sum().backward(), &model);
    let norm = clip_by_global_norm(&model, &mut gradients, 1.0).unwrap().unwrap();
    assert!(host(norm)[0].is_nan());
    for id in [model.0.id, model.1.id] {
        assert!(host(gradients.get::<1>(id).unwrap()).iter().all(|g| g.is_nan()));
    }
}

/// Beside f64 the norm is f64.
pub fn gradients_of_every_dtype_are_clipped_by_one_norm(case: &Case) {
    let device = case.autodiff();
    for dtype in supported(&case.device, &[DType::F64, DType::F16, DType::BF16]) {
        let param = |value: f32, dtype| -> Param<Tensor<1>> {
            Param::from_tensor(Tensor::from_data(TensorData::from([value]), (&device, dtype)))
        };
        let model = (param(3.0, dtype), param(4.0, DType::F32));
        let squares = model.0.val().square().cast(DType::F32) + model.1.val().square();
        let mut gradients = GradientsParams::from_grads(squares.mul_scalar(0.5).backward(), &model);
        assert_eq!(host(gradients.get::<1>(model.0.id).unwrap()), [3.0], "{dtype:?}");
        let norm = clip_by_global_norm(&model, &mut gradients, 2.5).unwrap().unwrap();
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        assert_eq!((norm.dtype(), host(norm)), (wide, vec![5.0]), "{dtype:?}");
        for (id, expected, of) in [(model.0.id, 1.5, dtype), (model.1.id, 2.0, DType::F32)] {
            let clipped = gradients.get::<1>(id).unwrap();
            assert_eq!(clipped.dtype(), of);
            assert!((host(clipped)[0] - expected).abs() < 1e-2, "{of:?} beside {dtype:?}");
        }
    }
}
