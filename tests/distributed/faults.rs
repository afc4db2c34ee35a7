//! What one rank of three does wrong, in the third of its steps.

use crate::prelude::*;
use burn::nn::LinearConfig;

/// A fault of rank 1, and what is said about it.
pub const FAULTS: [(&str, &str); 8] = [
    ("nan", "has a gradient that is infinite or NaN"),
    ("error", "the disk is full"),
    ("leaves", "has left the run"),
    ("panics", "panicked"),
    ("other model", "holds other parameters than rank 0"),
    ("other trained", "trains other parameters than rank 0"),
    ("other settings", "has another seed than rank 0"),
    ("other place", "is at another place of the program than rank 0"),
];

pub fn run(ranks: &Ranks, fault: &str) -> Result<()> {
    let device = ranks.device().autodiff();
    let is = |name: &str| fault == name && ranks.rank() == 1;
    ranks.same("seed", &if is("other settings") { 2 } else { 1 })?;
    let mut model = LinearConfig::new(if is("other model") { 4 } else { 3 }, 2).init(&device);
    if is("other trained") {
        model.bias = model.bias.map(|bias| bias.set_require_grad(false));
    }
    let model = ranks.broadcast(model)?;
    for step in 0..6 {
        if step == 3 {
            match fault {
                "error" if is(fault) => {
                    return Err(Error::Data { what: "the disk".into(), problem: "is full".into() });
                }
                "leaves" if is(fault) => return Ok(()),
                "panics" if is(fault) => panic!("on purpose"),
                "dies" if is(fault) => std::process::abort(),
                "other place" if is(fault) => drop(ranks.sum(&[1.0])?),
                _ => {}
            }
        }
        let value = if is("nan") && step == 3 { f32::NAN } else { 1.0 };
        let [inputs, _] = model.weight.dims();
        let loss = model.forward(Tensor::<2>::full([1, inputs], value, &device)).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        ranks.mean_gradients(&model, gradients, 1.0)?;
    }
    Ok(())
}
