//! Parameters, and the tensors of a checkpoint that hold their values.

use super::formats::safetensors::{Tensors, WriteTensor, write_values};
use super::formats::{FLOATS, transposed};
use super::keys::ModelKeys;
use super::{Checkpoint, EMBEDDINGS_PREFIX};
use crate::error::{Error, Result};
use crate::family::{Keys, Renamed, WORD_EMBEDDINGS, renamed};
use crate::layers::is_quantized;
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::prelude::*;
use burn::tensor::{DType, TensorData};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::rc::Rc;

/// A parameter of a module.
#[derive(Clone)]
pub(super) struct Visited {
    path: String,
    /// The kind of the module that has it as a field, such as `Struct:Linear`.
    kind: String,
    /// `None` of a bias that the module does not have, stored as zeros and never read.
    pub(super) id: Option<ParamId>,
    pub(super) shape: Vec<usize>,
    pub(super) is_quantized: bool,
    pub(super) has_adapter: bool,
    values: Rc<dyn Fn() -> LazyValues>,
}

/// The dtype of values, and what copies them to the host: one tensor at a time, while a model is written.
type LazyValues = (DType, Box<dyn FnOnce() -> TensorData>);

impl Visited {
    /// A linear layer's weight: [in, out] in Burn, [out, in] in PyTorch.
    pub(super) fn is_transposed(&self) -> bool {
        self.kind == "Struct:Linear" && self.shape.len() == 2
    }

    /// The path of the bias beside it, if modules of its kind have one.
    fn bias(&self) -> Option<String> {
        let (module, name) = self.path.rsplit_once('.')?;
        match (self.kind.as_str(), name) {
            ("Struct:Linear", "weight") => Some(format!("{module}.bias")),
            ("Struct:LayerNorm", "gamma") => Some(format!("{module}.beta")),
            _ => None,
        }
    }

    /// The bias at `path` that the module of this weight lacks.
    fn zeros(&self, path: String) -> Self {
        let (width, weight) = (self.shape[self.shape.len() - 1], self.values.clone());
        let values = move || -> LazyValues {
            let (dtype, _) = weight();
            // Zero has the same bits in all dtypes.
            let zeros = move || TensorData::from_bytes_vec(vec![0; width * dtype.size()], [width], dtype);
            (dtype, Box::new(zeros))
        };
        Self {
            path,
            id: None,
            shape: vec![width],
            has_adapter: false,
            values: Rc::new(values),
            ..self.clone()
        }
    }
}

/// Lists the parameters of a module with their paths.
#[derive(Default)]
struct Visitor {
    /// The fields that enclose a parameter, each with the kind of the module whose field it is.
    fields: Vec<(String, String)>,
    params: Vec<Visited>,
}

/// What Burn calls the module of an adapter, which it visits after the parameter.
const ADAPTER: &str = "Reparameterization";

impl ModuleVisitor for Visitor {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        if let Some(last) = self.params.last_mut().filter(|_| container_type == ADAPTER) {
            last.has_adapter = true;
        }
        self.fields.push((name.into(), container_type.into()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.fields.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.fields.iter().any(|(_, kind)| kind == ADAPTER) {
            return;
        }
        let names: Vec<&str> = self.fields.iter().map(|(name, _)| name.as_str()).collect();
        let values = param.clone();
        self.params.push(Visited {
            path: names.join("."),
            kind: self.fields.last().map(|(_, kind)| kind.clone()).unwrap_or_default(),
            id: Some(param.id),
            shape: param.lazy_shape().to_vec(),
            is_quantized: is_quantized(param),
            has_adapter: false,
            values: Rc::new(move || {
                let values = values.val();
                (values.dtype(), Box::new(move || values.into_data()))
            }),
        });
    }
}

/// A tensor of a checkpoint, and what it holds of a module.
#[derive(Clone)]
pub struct StoredParam {
    pub(crate) key: String,
    /// The folder of its file, if it is not in that of the model.
    pub(crate) folder: Option<String>,
    /// The part of a model that a checkpoint has as a whole or not at all; `None` for embeddings and encoder, which it must
    /// have.
    pub(crate) part: Option<String>,
    /// The start of the keys that a save replaces in an older file.
    pub(crate) namespace: String,
    pub(crate) shape: Vec<usize>,
    /// The parameters that the tensor stacks, from its top; `None` for one that the module lacks.
    params: Vec<Option<Visited>>,
}

/// The tensors that hold the parameters of a module. Its [`BertModel`](crate::model::BertModel) or embedding layer is that
/// whose word embeddings have the id `words`; other modules have the keys that `head` says, or their path for a key.
pub(crate) fn stored_params(
    module: &impl Module,
    words: ParamId,
    keys: &ModelKeys,
    head: Keys,
) -> Vec<StoredParam> {
    let mut visitor = Visitor::default();
    module.visit(&mut visitor);
    let mut visited = visitor.params;
    let path = visited.iter().find(|param| param.id == Some(words)).map(|param| param.path.clone());
    // An embedding layer alone has no path of its own.
    let (model, layer) = match path.as_deref().and_then(|path| path.strip_suffix(WORD_EMBEDDINGS)) {
        Some(model) => (model.to_string(), ""),
        None => (String::new(), EMBEDDINGS_PREFIX),
    };
    // The classes in Python have a bias everywhere; a head of a user's own is as it is.
    for i in (0..visited.len()).rev().filter(|_| keys.family.zero_biases) {
        if let Some(bias) = visited[i].bias()
            && visited.get(i + 1).is_none_or(|next| next.path != bias)
            && (!head.is_empty() || bias.starts_with(&model))
        {
            visited.insert(i + 1, visited[i].zeros(bias));
        }
    }
    let mut stored: Vec<StoredParam> = Vec::new();
    for param in visited {
        let below = param.path.strip_prefix(&model).map(|path| format!("{layer}{path}"));
        let path = below.as_ref().unwrap_or(&param.path);
        let own = match below {
            Some(_) => renamed(path, keys.family.lines()),
            None => renamed(path, head.iter()),
        };
        // Modules of a head can have names that start alike, such as `vocab_`.
        let ends: &[char] = if own.is_some() { &['.', '_'] } else { &['.'] };
        let is_required = below.is_some() && !path.starts_with("pooler.");
        let Renamed { key, module, index, count } = own.unwrap_or_else(|| Renamed {
            key: path.clone(),
            module: path.split_inclusive('.').next().unwrap_or_default().into(),
            index: 0,
            count: 1,
        });
        let part = (!is_required).then(|| key.split(ends).next().unwrap_or_default().to_string());
        let [key, namespace] = [keys.with_norm_names(key), module].map(|name| match below {
            Some(_) => keys.named(&name),
            None => name,
        });
        let mut shape = param.shape.clone();
        if param.is_transposed() {
            shape.reverse();
        }
        // Stacks are of one layer.
        let stack = stored.iter_mut().rev().take(16).find(|stack| count > 1 && stack.key == key);
        if let Some(stack) = stack {
            stack.params[index] = Some(param);
            continue;
        }
        shape[0] *= count;
        let mut params = vec![None; count];
        params[index] = Some(param);
        stored.push(StoredParam { key, folder: None, part, namespace, shape, params });
    }
    // A tensor has no part without values.
    stored.retain(|param| param.params.iter().all(Option::is_some));
    stored
}

impl StoredParam {
    pub(super) fn visited(&self) -> impl Iterator<Item = &Visited> {
        self.params.iter().flatten()
    }

    /// Whether both are one tensor of a directory.
    fn is_at(&self, other: &Self) -> bool {
        (&self.folder, &self.key) == (&other.folder, &other.key)
    }

    pub(crate) fn holds(&self, id: ParamId) -> bool {
        self.visited().any(|param| param.id == Some(id))
    }

    /// The dtype in a file, and what writes it; [`Error::CheckpointDType`] if a file cannot have the parameter's.
    pub(crate) fn writer(&self, path: &Path) -> Result<(safetensors::Dtype, WriteTensor<'static>)> {
        let values = self.visited().map(|own| (own.is_transposed(), (own.values)()));
        let values: Vec<_> = values.collect();
        let mut dtypes = values.iter().map(|(_, (dtype, _))| *dtype);
        // One that cannot be stored, such as a quantised one, is what the error names.
        let dtype = dtypes.find(|&dtype| stored_dtype(dtype).is_none()).unwrap_or(values[0].1.0);
        let Some((stored, _)) = stored_dtype(dtype) else {
            let (path, key, found) = (path.to_path_buf(), self.key.clone(), format!("{dtype:?}"));
            return Err(Error::CheckpointDType { path, key, found });
        };
        let write = move |out: &mut dyn Write| {
            values.into_iter().try_for_each(|(is_transposed, (_, read))| {
                let part = read().convert_dtype(dtype);
                let part = match part.shape()[..] {
                    [rows, columns] if is_transposed => {
                        let bytes = transposed(part.as_bytes(), [rows, columns], dtype.size());
                        TensorData::from_bytes_vec(bytes, [columns, rows], dtype)
                    }
                    _ => part,
                };
                write_values(part, out)
            })
        };
        Ok((stored, Box::new(write)))
    }

    /// Whether the checkpoint has the key, but not with the parameter's shape.
    pub(crate) fn is_of_other_shape(&self, checkpoint: &Checkpoint) -> bool {
        checkpoint.tensor(&self.key).is_ok_and(|(stored, _)| stored.shape != self.shape)
    }
}

/// Refuses to store parameters that a model built from the stored config would not read back as they are. Only of a part that
/// the module has the built model's must be there.
pub(crate) fn check_stored(own: &[StoredParam], built: &[StoredParam]) -> Result<()> {
    for param in own {
        let invalid = |problem: String| Err(Error::data(&param.key, problem));
        // By key, as optional parameters shift the others in the list.
        let Some(expected) = built.iter().find(|built| built.is_at(param)) else {
            return invalid("is not a parameter of the model that the module's config builds".into());
        };
        if param.shape != expected.shape {
            let (found, expected) = (&param.shape, &expected.shape);
            return invalid(format!(
                "has shape {found:?}, but the model that the module's config builds has {expected:?}"
            ));
        }
    }
    // What a model lacks as a whole is reported as missing when it is loaded.
    let mut expected = built.iter().filter(|built| own.iter().any(|param| param.part == built.part));
    let missing = expected.find(|built| own.iter().all(|param| !param.is_at(built)));
    let problem = "is missing, but the model that the module's config builds has it";
    missing.map_or(Ok(()), |missing| Err(Error::data(&missing.key, problem)))
}

pub(super) fn tensors(params: Vec<StoredParam>, path: &Path) -> Result<Tensors<'static>> {
    let tensors = params.into_iter().map(|param| {
        let (stored, write) = param.writer(path)?;
        Ok((param.key, stored, param.shape, write))
    });
    Ok(Tensors { tensors: tensors.collect::<Result<_>>()?, metadata: BTreeMap::new() })
}

/// The dtype in files, and PyTorch's name, of one that weights can have.
pub(crate) fn stored_dtype(dtype: DType) -> Option<(safetensors::Dtype, &'static str)> {
    // Flex32 is f32 in memory.
    let dtype = if dtype == DType::Flex32 { DType::F32 } else { dtype };
    FLOATS.into_iter().find(|(_, own, _)| *own == dtype).map(|(stored, _, name)| (stored, name))
}
