use crate::optim::{MEAN, SQUARE, TIME};
use burn::module::{Module, ModuleVisitor, Param};
use burn::prelude::*;
use burn::tensor::Bytes;
use burn_pack::Reader;
use std::collections::{BTreeSet, HashMap};

/// Refuses a record that is not of [`AdamW`](crate::optim::AdamW) for parameters of `model`: Burn would leave out the state of some, or
/// panic at it in the first step. Parameters without a gradient so far have none.
pub(super) fn check_adamw<M: Module>(record: Bytes, model: &M) -> Result<(), String> {
    struct Shapes(HashMap<u64, Vec<usize>>);
    impl ModuleVisitor for Shapes {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.insert(param.id.val(), param.lazy_shape().to_vec());
        }
    }
    let mut shapes = Shapes(HashMap::new());
    model.visit(&mut shapes);
    let damaged = |error: burn_pack::Error| error.to_string();
    let reader = Reader::from_bytes(record).map_err(damaged)?;
    let scalars = reader.scalars().clone();
    let mut names = BTreeSet::new();
    for tensor in reader.into_tensors().map_err(damaged)? {
        let (name, dtype, shape, id, _) = tensor.into_parts().map_err(damaged)?;
        let shape = shape.to_vec();
        let expected = id.and_then(|id| Some((id, shapes.0.get(&id)?)));
        let Some((id, _)) = expected.filter(|(_, expected)| **expected == shape && dtype.is_float()) else {
            return Err(format!("{name} has shape {shape:?} and dtype {dtype:?}, which no parameter has"));
        };
        let number = |name: &str| scalars.get(&format!("{id}.{name}")).and_then(|&n| u32::try_from(n).ok());
        if number("__rank") != Some(shape.len() as u32) || number(TIME).is_none_or(|time| time == 0) {
            return Err(format!("{name} has no number of steps or another rank than its parameter"));
        }
        names.insert(name);
    }
    if names.is_empty() {
        return Err("has no state".into());
    }
    let ids = scalars.keys().filter_map(|name| Some(name.split_once('.')?.0));
    let expected: BTreeSet<String> =
        ids.flat_map(|id| [MEAN, SQUARE].map(|moment| format!("{id}.{moment}"))).collect();
    let other = names.symmetric_difference(&expected).next();
    other.map_or(Ok(()), |name| Err(format!("{name} is missing, or no state of AdamW")))
}
