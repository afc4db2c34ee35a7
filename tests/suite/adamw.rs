//! AdamW and clipping beside PyTorch, their state, what they refuse, and the mean of several batches' gradients.

use crate::prelude::*;
use crate::small_bert::small;
use burn::module::ModuleVisitor;
use burn::optim::ModuleOptimizer;
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::optim::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::optim::lr_scheduler::module_lr_scheduler::{ModuleLrScheduler, ModuleLrSchedulerConfig};
use burn_bert::optim::{AdamWConfig, adamw, clip_by_global_norm};

/// The parameters of the fixtures, and of other tests.
#[derive(Module, Debug)]
struct Parameters {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
    gamma: Param<Tensor<1>>,
    beta: Param<Tensor<1>>,
    table: Param<Tensor<2>>,
}

impl Parameters {
    fn new(device: &Device, dtype: DType, data: impl Fn(&str) -> TensorData) -> Self {
        fn param<const D: usize>(data: TensorData, device: &Device, dtype: DType) -> Param<Tensor<D>> {
            Param::from_tensor(Tensor::from_data(data, (device, dtype)).require_grad())
        }
        Self {
            weight: param(data("weight"), device, dtype),
            bias: param(data("bias"), device, dtype),
            gamma: param(data("gamma"), device, dtype),
            beta: param(data("beta"), device, dtype),
            table: param(data("table"), device, dtype),
        }
    }

    /// Random ones: a table of more values than one thread works on, and not a multiple of anything.
    fn random(dtype: DType) -> Self {
        Self::new(&autodiff(), dtype, |name| match name {
            "weight" => random([3, 7]),
            "bias" => random([7]),
            "gamma" => random([1]),
            "beta" => random([64]),
            _ => random([331, 257]),
        })
    }

    /// Gradients for all parameters, in their dtype.
    fn gradients(&self, data: impl Fn(&str, usize) -> Vec<f64>) -> GradientsParams {
        struct Register<F>(String, F, GradientsParams);
        impl<F: Fn(&str, usize) -> Vec<f64>> ModuleVisitor for Register<F> {
            fn enter_module(&mut self, name: &str, _container: &str) {
                self.0 = name.into();
            }
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let value = param.val().inner();
                let data = TensorData::new(self.1(&self.0, value.shape().num_elements()), value.shape());
                self.2.register(param.id, Tensor::<D>::from_data(data, (&value.device(), value.dtype())));
            }
        }
        let mut register = Register(String::new(), data, GradientsParams::new());
        self.visit(&mut register);
        register.2
    }
}

fn random<const D: usize>(shape: [usize; D]) -> TensorData {
    let count: usize = shape.iter().product();
    let flat = Tensor::<1>::random([count], Distribution::Normal(0.0, 1.0), &device());
    TensorData::new(flat.into_data().iter::<f32>().collect(), shape)
}

/// A fixture of `tests/fixtures/make_adamw.py`.
struct Fixture {
    file: File,
    dtype: DType,
    settings: serde_json::Value,
}

impl Fixture {
    fn open(case: &str, dtype: DType) -> Self {
        let suffix = if dtype == DType::F64 { "f64" } else { "f32" };
        let file = File::at(&fixture(&format!("adamw/{case}_{suffix}.safetensors")));
        Self { settings: file.metadata("settings"), file, dtype }
    }

    fn module(&self) -> Parameters {
        Parameters::new(&autodiff(), self.dtype, |name| self.file.data(name))
    }

    /// The gradients of step `step`.
    fn gradients(&self, module: &Parameters, step: usize) -> GradientsParams {
        module.gradients(|name, count| {
            self.file.values(&format!("grad.{name}"))[step * count..][..count].to_vec()
        })
    }

    /// The learning rates, with one of its own for `table`.
    fn schedule(&self) -> ModuleLrScheduler {
        let base = self.settings["rates"][0].as_f64().unwrap();
        let own = base * self.settings["groups"][2]["rate"].as_f64().unwrap();
        let falling = |rate: f64| LinearLrSchedulerConfig::new(rate, 0.0, 20);
        let schedule = ModuleLrSchedulerConfig::new(falling(base).into());
        schedule.with_group(ParamGroup::from_path("table"), falling(own)).init().unwrap()
    }

    fn group(&self, index: usize) -> AdamWConfig {
        let setting = |name: &str| self.settings["groups"][index][name].as_f64().unwrap();
        AdamWConfig::new().with_epsilon(setting("eps")).with_weight_decay(setting("weight_decay"))
    }
}

#[test]
fn ten_steps_with_parameter_groups_and_with_clipping_equal_pytorchs() {
    for (case, dtype, tolerance) in [
        ("plain", DType::F32, F32),
        ("plain", DType::F64, F64),
        ("clipped", DType::F32, F32),
        ("clipped", DType::F64, F64),
    ] {
        let fixture = Fixture::open(case, dtype);
        let (mut module, mut schedule) = (fixture.module(), fixture.schedule());
        let table = ParamGroup::from_path("table");
        let mut optimizer =
            adamw(&fixture.group(0)).unwrap().with_group(table, fixture.group(2).build().unwrap(), None);
        let (max_norm, mut norms) = (fixture.settings["max_norm"].as_f64().unwrap(), Vec::new());
        for step in 0..10 {
            let mut gradients = fixture.gradients(&module, step);
            if case == "clipped" {
                norms
                    .extend(values(clip_by_global_norm(&module, &mut gradients, max_norm).unwrap().unwrap()));
            }
            let rate = schedule.step();
            assert!((rate.base() - fixture.settings["rates"][step].as_f64().unwrap()).abs() < 1e-15);
            module = optimizer.step(rate, module, gradients);
        }
        for (name, found) in parameters(&module, None) {
            assert_close(&found, &fixture.file.values(&format!("after.{name}")), tolerance);
        }
        if case == "clipped" {
            assert!(norms.iter().any(|&norm| norm < max_norm) && norms.iter().any(|&norm| norm > max_norm));
            assert_close(&norms, &fixture.file.values("norms"), tolerance);
        } else {
            assert_moments(&optimizer, &module, &fixture, tolerance);
        }
    }
}

/// The moments of the parameters, as Burn's record has them.
fn assert_moments(optimizer: &ModuleOptimizer, module: &Parameters, fixture: &Fixture, tolerance: Tolerance) {
    let reader = burn_pack::Reader::from_bytes(optimizer.into_bytes().unwrap()).unwrap();
    let mut compared = 0;
    for tensor in reader.into_tensors().unwrap() {
        let (name, dtype, shape, id, bytes) = tensor.into_parts().unwrap();
        let params = [("weight", module.weight.id), ("table", module.table.id), ("bias", module.bias.id)];
        let Some((param, _)) = params.iter().find(|(_, param)| Some(param.val()) == id) else { continue };
        let moment = if name.ends_with("moment_1") { "exp_avg" } else { "exp_avg_sq" };
        let found: Vec<f64> = TensorData::from_bytes(bytes, shape, dtype).iter().collect();
        assert_close(&found, &fixture.file.values(&format!("{moment}.{param}")), tolerance);
        compared += 1;
    }
    assert_eq!(compared, 6);
}

/// Some steps with gradients that are the same for the same step.
fn train(mut module: Parameters, steps: std::ops::Range<u64>, optimizer: &mut ModuleOptimizer) -> Parameters {
    for step in steps {
        let gradients = module.gradients(|name, count| {
            let wave = |i: usize| ((i as f64 + name.len() as f64) * (step as f64 + 0.7)).sin() * 0.1;
            (0..count).map(wave).collect()
        });
        module = optimizer.step(1e-2, module, gradients);
    }
    module
}

#[test]
fn a_state_that_was_saved_goes_on_as_if_nothing_had_stopped() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let (start, optimizer) = (Parameters::random(dtype), || adamw(&AdamWConfig::new()).unwrap());
        let whole = train(start.clone(), 0..6, &mut optimizer());
        let mut first = optimizer();
        let halfway = train(start, 0..3, &mut first);
        let mut second = optimizer().from_bytes(first.into_bytes().unwrap()).unwrap();
        let found = train(halfway, 3..6, &mut second);
        assert!(parameters(&found, None) == parameters(&whole, None), "{dtype:?}");
    }
}

#[test]
fn burns_adamw_and_this_one_take_each_others_state() {
    let burns = || burn::optim::AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01).init();
    let ours = || AdamWConfig::new().init();
    // Burn's takes no f64 state: it reads moments as f32 and then cannot add them to f64 gradients.
    let in_f64 = vec![(burns(), ours())];
    let cases = [(DType::F32, vec![(burns(), ours()), (ours(), burns())]), (DType::F64, in_f64)];
    for (dtype, orders) in cases {
        let start = Parameters::random(dtype);
        let expected = train(start.clone(), 0..6, &mut burns());
        for (mut first, second) in orders {
            let halfway = train(start.clone(), 0..3, &mut first);
            let mut second = second.from_bytes(first.into_bytes().unwrap()).unwrap();
            let found = train(halfway, 3..6, &mut second);
            assert_close(&all_values(&found), &all_values(&expected), TRAINING);
        }
    }
}

/// Gradients of 1e-4, whose square no f16 holds: in f16 moments v would be 0 and a step η·m/ε.
#[test]
fn moments_of_f16_parameters_hold_the_squares_of_small_gradients() {
    let module = Parameters::random(DType::F16);
    let before = all_values(&module);
    let gradients = module.gradients(|_, count| vec![1e-4; count]);
    let after = all_values(&AdamWConfig::new().with_weight_decay(0.0).init().step(0.125, module, gradients));
    for (before, after) in before.iter().zip(after) {
        let step = before - after;
        assert!((step - 0.125).abs() < 2e-3, "{before} to {after}");
    }
}

#[test]
fn gradients_of_another_dtype_are_clipped_and_stepped_too_and_without_any_nothing_is() {
    let module = Parameters::random(DType::F32);
    let step = |dtype: DType| {
        let mut gradients = GradientsParams::new();
        let device = device();
        let table =
            Tensor::<2>::from_data(TensorData::new(vec![0.25f64; 331 * 257], [331, 257]), (&device, dtype));
        gradients.register(module.table.id, table);
        let config = AdamWConfig::new().with_epsilon(1.0); // with a small one the clip factor cancels
        let norm = clip_by_global_norm(&module, &mut gradients, 1.0).unwrap().unwrap();
        let stepped = adamw(&config).unwrap().step(1e-1, module.clone(), gradients);
        (values(stepped.table.val()), values(norm))
    };
    let [narrow, wide] = [DType::F32, DType::F64].map(step);
    assert_close(&wide.1, &narrow.1, F32);
    assert_close(&wide.0, &narrow.0, F32);
    let before = parameters(&module, None);
    let mut gradients = GradientsParams::new();
    assert!(clip_by_global_norm(&module, &mut gradients, 1.0).unwrap().is_none());
    let module = adamw(&AdamWConfig::new()).unwrap().step(1e-3, module, gradients);
    assert!(parameters(&module, None) == before);
}

/// A parameter of ones with a gradient of ones, always under the same id.
fn ones(size: usize) -> (Param<Tensor<1>>, GradientsParams) {
    let ones = Tensor::ones([size], &autodiff());
    let module = Param::initialized(7.into(), ones.require_grad());
    let gradients = GradientsParams::from_grads(module.val().sum().backward(), &module);
    (module, gradients)
}

#[test]
fn norms_rates_and_states_that_cannot_be_are_refused() {
    for norm in [-1.0, 0.0, f64::NAN] {
        let (module, mut gradients) = ones(3);
        let error = clip_by_global_norm(&module, &mut gradients, norm).unwrap_err();
        assert_eq!(error.to_string(), format!("max_norm is {norm}, but must be above 0"));
    }
    for rate in [f64::NAN, -1e-3, f64::INFINITY] {
        let (module, gradients) = ones(3);
        let expected = format!("the learning rate is {rate}, but must be finite and not negative");
        assert_eq!(panic_of(|| AdamWConfig::new().init().step(rate, module, gradients)), expected);
    }
    let mut optimizer = AdamWConfig::new().init();
    let [four, three] = [4, 3].map(ones);
    optimizer.step(0.1, four.0, four.1);
    let expected = "the state of AdamW has shape [4], but the parameter has shape [3]; was the record saved with another \
                    model?";
    assert_eq!(panic_of(|| optimizer.step(0.1, three.0, three.1)), expected);
    let mut amsgrad = burn::optim::AdamWConfig::new().with_amsgrad(true).init();
    let module = train(Parameters::random(DType::F32), 0..2, &mut amsgrad);
    let refused = panic_of(|| {
        let mut ours = AdamWConfig::new().init().from_bytes(amsgrad.into_bytes().unwrap()).unwrap();
        train(module, 2..3, &mut ours)
    });
    assert!(refused.contains("AMSGrad"), "{refused}");
}

/// transformers' `get_decay_parameter_names` leaves out every name that has "bias" in it.
#[test]
fn mpnets_table_of_relative_positions_is_a_bias_and_not_decayed() {
    let model = small(BertModelConfig::mpnet_base(), 20, 8).init(&autodiff());
    let loss = model.forward(&BertEmbeddingsInput::from_rows(&[[2, 7, 9, 3]], &autodiff()).unwrap(), None);
    let gradients =
        GradientsParams::from_grads(loss.last_hidden_state.sum().mul_scalar(0.0).backward(), &model);
    let before = parameters(&model, None);
    let mut optimizer = adamw(&AdamWConfig::new().with_weight_decay(0.5)).unwrap();
    let mut schedule = ModuleLrScheduler::from(ConstantLr::new(0.1));
    let after = parameters(&optimizer.step(schedule.step(), model, gradients), None);
    let table = "encoder.relative_attention_bias.table.weight";
    assert!(before[table].iter().any(|&value| value != 0.0) && after[table] == before[table]);
    assert!(after["embeddings.word_embeddings.weight"] != before["embeddings.word_embeddings.weight"]);
}
