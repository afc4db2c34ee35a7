//! AdamW as PyTorch computes it, all in f64 on the host.
//!
//! Burn's keeps betas, ε and decay as f32 and computes 1 − βᵗ in f32, which is off by up to 6e-8 of 1, or 3e-5 of
//! 1 − 0.999². That hides what ten f64 gradients are worth; this doesn't.

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::optim::GradientsParams;
use burn::prelude::*;
use std::collections::HashMap;

pub struct AdamW {
    pub lr: f64,
    pub betas: [f64; 2],
    pub eps: f64,
    pub weight_decay: f64,
    pub step: i32,
    pub moments: HashMap<ParamId, Vec<[f64; 2]>>,
}

impl AdamW {
    pub fn step<M: Module>(&mut self, module: M, gradients: GradientsParams) -> M {
        self.step += 1;
        module.map(&mut Update { adamw: self, gradients })
    }

    fn update(&self, value: f64, gradient: f64, moments: &mut [f64; 2]) -> f64 {
        for (i, power) in [gradient, gradient * gradient].into_iter().enumerate() {
            moments[i] = self.betas[i] * moments[i] + (1.0 - self.betas[i]) * power;
        }
        let unbiased = |i: usize| moments[i] / (1.0 - self.betas[i].powi(self.step));
        let decayed = value * (1.0 - self.lr * self.weight_decay);
        decayed - self.lr * unbiased(0) / (unbiased(1).sqrt() + self.eps)
    }
}

struct Update<'a> {
    adamw: &'a mut AdamW,
    gradients: GradientsParams,
}

impl ModuleMapper for Update<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return param };
        let (id, value) = (param.id, param.val());
        let values: Vec<f64> = value.to_data().iter().collect();
        let mut moments = self.adamw.moments.remove(&id).unwrap_or_else(|| vec![[0.0; 2]; values.len()]);
        let gradient = gradient.into_data();
        let updated: Vec<f64> = values
            .into_iter()
            .zip(gradient.iter::<f64>())
            .zip(&mut moments)
            .map(|((value, gradient), moments)| self.adamw.update(value, gradient, moments))
            .collect();
        self.adamw.moments.insert(id, moments);
        let updated = TensorData::new(updated, value.dims());
        let updated = Tensor::from_data(updated, (&value.device(), value.dtype())).require_grad();
        param.map(|_| updated)
    }
}
