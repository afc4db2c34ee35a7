//! The tensors of a state dict: which of a file's storages each is in, by the pickle.

use super::pickle::{Id, Pickle, Value};
use super::{StoredTensor, WeightFile};
use crate::error::{Error, Result, shown};
use ::safetensors::Dtype;
use std::collections::{BTreeMap, HashMap};

/// Deeper than the modules of any model, and shallow enough for every thread's stack.
const MAX_DEPTH: usize = 200;

/// PyTorch's own limit of a tensor's axes.
const MAX_AXES: usize = 64;

pub(super) struct Storage {
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) checksum: Option<u32>,
}

/// The tensors in a pickle, by the path of keys that leads to each.
pub(super) fn tensors(
    file: &WeightFile,
    pickle: &Pickle,
    storages: &HashMap<String, Storage>,
) -> Result<BTreeMap<String, StoredTensor>> {
    // The names of a state dict's tensors are part of its pickle; a trainer's file has them under short prefixes.
    let budget = 8 * pickle.length + 1024;
    let mut collector =
        Collector { file, pickle, storages, tensors: BTreeMap::new(), name: String::new(), budget };
    // Such as a whole module: what its class makes of its attributes is not in the file.
    if !matches!(pickle.get(pickle.root), Value::Dict(_)) {
        return Err(file.corrupt("its pickle holds no dictionary of tensors"));
    }
    collector.visit(pickle.root, 0)?;
    Ok(collector.tensors)
}

pub(super) struct StorageReference<'a> {
    pub(super) key: &'a str,
    pub(super) dtype: Dtype,
    pub(super) elements: u64,
    /// Early files have views of storages, which start at this value.
    offset: u64,
}

impl<'a> StorageReference<'a> {
    /// `("storage", class, key, location, elements)` and, in early files, `(key, offset, elements)` of a view.
    pub(super) fn read(pickle: &Pickle<'a>, id: Id) -> Result<Self, String> {
        let invalid = || "its pickle names a storage by what is none".to_string();
        let &[_, class, key, _, elements, ref view @ ..] = pickle.list(id) else { return Err(invalid()) };
        let ((_, name), Value::Text(key)) = (pickle.class(class), pickle.get(key)) else {
            return Err(invalid());
        };
        let offset = match view.first().map(|view| pickle.list(*view)) {
            Some(&[_, offset, _]) => pickle.whole(offset).ok_or_else(invalid)?,
            _ => 0,
        };
        let dtype = storage_dtype(name)
            .ok_or_else(|| format!("it has a torch.{}, which is not read", shown(name)))?;
        Ok(Self { key, dtype, elements: pickle.whole(elements).ok_or_else(invalid)?, offset })
    }
}

/// The dtype of a class of storages. One without a type is of bytes.
fn storage_dtype(name: &str) -> Option<Dtype> {
    Some(match name {
        "FloatStorage" => Dtype::F32,
        "DoubleStorage" => Dtype::F64,
        "HalfStorage" => Dtype::F16,
        "BFloat16Storage" => Dtype::BF16,
        "LongStorage" => Dtype::I64,
        "IntStorage" => Dtype::I32,
        "ShortStorage" => Dtype::I16,
        "CharStorage" => Dtype::I8,
        "ByteStorage" | "UntypedStorage" => Dtype::U8,
        "BoolStorage" => Dtype::BOOL,
        _ => return None,
    })
}

struct Collector<'a> {
    file: &'a WeightFile,
    pickle: &'a Pickle<'a>,
    storages: &'a HashMap<String, Storage>,
    tensors: BTreeMap<String, StoredTensor>,
    name: String,
    /// How much more may be visited and named: what lies in the memo can be reached by exponentially many paths.
    budget: usize,
}

impl Collector<'_> {
    fn corrupt(&self, problem: &str) -> Error {
        self.file.corrupt(format!("{}: {problem}", shown(&self.name)))
    }

    fn spend(&mut self, cost: usize) -> Result<()> {
        self.budget =
            self.budget.checked_sub(cost).ok_or_else(|| self.corrupt("its pickle has too many paths"))?;
        Ok(())
    }

    fn visit(&mut self, id: Id, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(self.corrupt("its pickle is nested too deeply"));
        }
        self.spend(1)?;
        let pickle = self.pickle;
        match pickle.get(id) {
            Value::Dict(items) => items.iter().try_for_each(|&(key, value)| match pickle.get(key) {
                Value::Text(key) => self.enter(key, value, depth),
                // Optimizers number their parameters.
                Value::Int(key) => self.enter(&key.to_string(), value, depth),
                _ => Ok(()),
            }),
            Value::List(items) => {
                let mut items = items.iter().enumerate();
                items.try_for_each(|(index, item)| self.enter(&index.to_string(), *item, depth))
            }
            Value::Call(callable, args) => self.visit_object(*callable, *args, depth),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, key: &str, value: Id, depth: usize) -> Result<()> {
        // Long keys at every level would make names longer than the pickle.
        self.spend(key.len())?;
        let length = self.name.len();
        if length > 0 {
            self.name.push('.');
        }
        self.name.push_str(key);
        self.visit(value, depth + 1)?;
        self.name.truncate(length);
        Ok(())
    }

    fn visit_object(&mut self, callable: Id, args: Id, depth: usize) -> Result<()> {
        let pickle = self.pickle;
        let (module, name) = pickle.class(callable);
        match (module, pickle.list(args)) {
            ("torch._utils", fields) if name.starts_with("_rebuild_tensor") => self.tensor(fields),
            ("torch._utils", [data, ..]) if name.starts_with("_rebuild_parameter") => {
                self.visit(*data, depth + 1)
            }
            // A subclass of tensors: a call, its class, the call's arguments, its state.
            ("torch._tensor", &[call, _, args, ..]) if name == "_rebuild_from_type_v2" => {
                self.visit_object(call, args, depth + 1)
            }
            // Quantised and sparse tensors: skipped, they would be reported as missing.
            ("torch._utils", _) => {
                Err(self.corrupt(&format!("it is made by {}, which is not read", shown(name))))
            }
            _ => Ok(()),
        }
    }

    /// `(storage, offset, shape, strides)` and, in newer versions, `requires_grad, hooks` and what is to be done with the values
    /// when they are read. The third version has, before the last, a dtype that no storage has and no weight: of these tensors
    /// the bytes count.
    fn tensor(&mut self, fields: &[Id]) -> Result<()> {
        let pickle = self.pickle;
        let invalid = || self.corrupt("its pickle describes no tensor");
        let &[storage, offset, shape, strides, ref rest @ ..] = fields else { return Err(invalid()) };
        let Value::Persistent(storage) = pickle.get(storage) else { return Err(invalid()) };
        let storage = StorageReference::read(pickle, *storage).map_err(|problem| self.corrupt(&problem))?;
        // torch._utils.get_tensor_metadata of 2.15: the stored values are to be negated, or conjugated.
        let is_set = |name| {
            let flag = rest.get(2).and_then(|lazy| pickle.item(*lazy, name));
            flag.is_some_and(|flag| matches!(pickle.get(flag), Value::Bool(true)))
        };
        if is_set("neg") || is_set("conj") {
            let problem = "it holds a lazily negated or conjugated view; save tensor.resolve_neg().resolve_conj() instead";
            return Err(self.file.invalid(problem));
        }
        let axes = |id: Id| -> Option<Vec<usize>> {
            let Value::List(axes) = pickle.get(id) else { return None };
            let axis = |axis: &Id| pickle.whole(*axis)?.try_into().ok();
            if axes.len() <= MAX_AXES { axes.iter().map(axis).collect() } else { None }
        };
        let (shape, strides) = axes(shape)
            .zip(axes(strides))
            .filter(|(shape, strides)| shape.len() == strides.len())
            .ok_or_else(invalid)?;
        let held =
            self.storages.get(storage.key).ok_or_else(|| self.corrupt("its storage is not in the file"))?;

        // Every sum is checked: the numbers are the file's word, and a read beyond the storage would be another tensor.
        let size = storage.dtype.bitsize() as u64 / 8;
        let offset = pickle.whole(offset).and_then(|offset| offset.checked_add(storage.offset));
        let first = offset.and_then(|offset| offset.checked_mul(size)).ok_or_else(invalid)?;
        let seen = extent(&shape, &strides).and_then(|seen| seen.checked_mul(size)).ok_or_else(invalid)?;
        if first.checked_add(seen).is_none_or(|end| end > held.length) {
            return Err(self.corrupt("it reaches beyond the end of its storage"));
        }
        let tensor = StoredTensor {
            dtype: storage.dtype,
            start: held.start + first,
            length: seen,
            checksum: held.checksum.filter(|_| seen == held.length),
            strides: (seen > 0 && !is_row_by_row(&shape, &strides)).then_some(strides),
            shape,
        };
        self.spend(self.name.len())?;
        self.tensors.insert(self.name.clone(), tensor);
        Ok(())
    }
}

/// How many values lie between the first and the end of the last; `None` if more than can be counted.
fn extent(shape: &[usize], strides: &[usize]) -> Option<u64> {
    // The product must not overflow either: it becomes an allocation.
    let elements = shape.iter().try_fold(1usize, |product, &axis| product.checked_mul(axis))?;
    if elements == 0 {
        return Some(0);
    }
    let last = shape
        .iter()
        .zip(strides)
        .try_fold(0usize, |last, (&axis, &stride)| last.checked_add((axis - 1).checked_mul(stride)?))?;
    Some(last.checked_add(1)? as u64)
}

/// Whether values lie in the order that they are read in. The stride of an axis of one value is never used.
fn is_row_by_row(shape: &[usize], strides: &[usize]) -> bool {
    let mut expected = 1;
    shape.iter().zip(strides).rev().all(|(&axis, &stride)| {
        let fits = axis == 1 || stride == expected;
        expected = axis.wrapping_mul(expected); // counted by extent, but for tensors without values
        fits
    })
}
