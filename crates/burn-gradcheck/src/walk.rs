//! Reading and replacing the parameters of any module.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::prelude::*;
use burn::tensor::{DType, Gradients};

/// A float parameter, with a copy of its values on the host.
pub(super) struct Slot {
    pub id: ParamId,
    /// Every path at which the parameter is found; more than one where it is shared.
    pub paths: Vec<String>,
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
    /// The gradient over all uses of the parameter; `None` where there is none.
    pub gradient: Option<Vec<f64>>,
    pub trained: bool,
    pub device: Device,
}

impl Slot {
    pub fn path(&self) -> &str {
        self.paths.first().map_or("", String::as_str)
    }

    /// The index, axis by axis, of an entry.
    pub fn index(&self, entry: usize) -> Vec<usize> {
        let mut index = vec![0; self.shape.len()];
        let mut rest = entry;
        // From the innermost axis, along which entries lie side by side.
        for (at, &size) in index.iter_mut().zip(&self.shape).rev() {
            *at = rest % size;
            rest /= size;
        }
        index
    }
}

/// The float parameters of a module and of an input, in this order; paths are those in the pair of the two.
pub(super) fn slots<P: Module>(pair: &P, gradients: Option<&Gradients>) -> Vec<Slot> {
    let mut collect = Collect { gradients, path: Vec::new(), slots: Vec::new() };
    pair.visit(&mut collect);
    collect.slots
}

struct Collect<'a> {
    gradients: Option<&'a Gradients>,
    path: Vec<String>,
    slots: Vec<Slot>,
}

impl ModuleVisitor for Collect<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        // A pair's fields are called 0, the module, and 1, the input.
        let path = match self.path.split_first() {
            Some((field, inner)) if field == "0" => inner.join("."),
            _ => "input".to_owned(),
        };
        let tensor = param.val();
        let gradient = self.gradients.and_then(|gradients| tensor.grad(gradients)).map(host);
        // One tensor under several paths is varied once.
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.id == param.id) {
            slot.paths.push(path);
            // Each field has a leaf of its own: their gradients add up.
            slot.gradient = match (slot.gradient.take(), gradient) {
                (Some(sum), Some(next)) => Some(sum.iter().zip(&next).map(|(a, b)| a + b).collect()),
                (sum, next) => sum.or(next),
            };
            return;
        }
        self.slots.push(Slot {
            id: param.id,
            paths: vec![path],
            shape: tensor.dims().to_vec(),
            trained: tensor.is_require_grad(),
            device: tensor.device(),
            values: host(tensor),
            gradient,
        });
    }
}

/// Puts other values into the parameter `id`, in `dtype`.
pub(super) struct Replace {
    pub id: ParamId,
    pub values: Vec<f64>,
    pub dtype: DType,
}

impl ModuleMapper for Replace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if param.id != self.id {
            return param;
        }
        param.map(|old| {
            // A mapper is called for every field that shares the parameter.
            let data = TensorData::new(self.values.clone(), old.shape());
            Tensor::from_data(data, (&old.device(), self.dtype)).set_require_grad(old.is_require_grad())
        })
    }
}

/// A tensor's values in f64, row by row.
pub(super) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}
