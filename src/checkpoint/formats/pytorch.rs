//! The header of a PyTorch file (`torch.save`): where its storages are, and the tensors that its pickle makes of them.

use super::header::{Header, StoredTensor, corrupt};
use super::pickle::{Id, MAX_PICKLE_BYTES, Pickle, Value};
use crate::error::{Error, Result, shown};
use ::safetensors::Dtype;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use zip::{CompressionMethod, ZipArchive};

/// The first bytes of a zip archive: PyTorch since 1.6.
const ZIP_MAGIC: [u8; 4] = *b"PK\x03\x04";

/// After a pickle's two bytes of protocol, PyTorch's magic number as a pickled integer: PyTorch up to 1.5.
const LEGACY_MAGIC: [u8; 12] = *b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

/// Deeper than the modules of any model, and shallow enough for every thread's stack.
const MAX_DEPTH: usize = 200;

/// PyTorch's own limit of a tensor's axes.
const MAX_AXES: usize = 64;

/// How `torch.save` wrapped the pickle.
pub(super) enum Container {
    Zip,
    Legacy,
}

impl Container {
    /// The container that a file's first 14 bytes begin.
    pub(super) fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0x80, _protocol, rest @ ..] if rest.starts_with(&LEGACY_MAGIC) => Some(Self::Legacy),
            start if start.starts_with(&ZIP_MAGIC) => Some(Self::Zip),
            _ => None,
        }
    }
}

/// Where a storage's values are in the file.
struct Storage {
    start: u64,
    length: u64,
    checksum: Option<u32>,
}

/// Reads where the tensors of a file are.
pub(super) fn read_header(path: &Path, file: &File, length: u64, container: Container) -> Result<Header> {
    let tensors = match container {
        Container::Zip => {
            let (bytes, storages) = read_archive(path, file, length)?;
            let pickle = Pickle::read(&bytes).map_err(|problem| corrupt(path, in_pickle(&problem)))?;
            Collector::new(path, &pickle, storages.iter().map(|(key, at)| (key.as_str(), at)).collect())
                .collect()
        }
        Container::Legacy => {
            let mut bytes = Vec::new();
            file.take(MAX_PICKLE_BYTES as u64)
                .read_to_end(&mut bytes)
                .map_err(|source| Error::reading(path, source))?;
            read_legacy(path, file, length, &bytes)
        }
    }?;
    Ok(Header { tensors, metadata: None })
}

fn in_pickle(problem: &str) -> String {
    format!("its pickle {problem}")
}

/// The pickle of an archive, and its storages by key. `torch.save` compresses nothing, so what it unpacks to is no more than
/// itself.
fn read_archive(path: &Path, file: &File, length: u64) -> Result<(Vec<u8>, HashMap<String, Storage>)> {
    let invalid = |problem: String| Error::NotACheckpoint { path: path.to_path_buf(), problem };
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(|error| corrupt(path, error))?;
    let mut total = 0u64;
    let mut entries = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(|error| corrupt(path, error))?;
        let name = entry.name().map_err(|error| corrupt(path, error))?.into_owned();
        total = total.saturating_add(entry.size());
        if name.ends_with("data.pkl") && entry.size() > MAX_PICKLE_BYTES as u64 {
            let size = entry.size();
            return Err(invalid(format!(
                "its data.pkl has {size} bytes, more than the {MAX_PICKLE_BYTES} that are read"
            )));
        }
        let is_plain = entry.compression() == CompressionMethod::Stored
            && entry.compressed_size() == entry.size()
            && !entry.encrypted();
        let start = entry.data_start().filter(|_| is_plain);
        // A file may state no checksum, which is then written as 0.
        let checksum = Some(entry.crc32()).filter(|&checksum| checksum != 0);
        entries.push((name, start, entry.size(), checksum));
    }
    if total > length {
        return Err(invalid(format!(
            "it has {length} bytes and would unpack to {total}; torch.save compresses nothing"
        )));
    }
    // Folders are named after the file; that of the pickle is the root of all.
    let roots = entries.iter().filter_map(|(name, ..)| name.strip_suffix("data.pkl"));
    let root = roots.filter(|root| root.is_empty() || root.ends_with('/')).min_by_key(|root| root.len());
    let root = root.ok_or_else(|| invalid("the archive has no data.pkl".into()))?.to_string();
    let mut storages = HashMap::new();
    for (name, start, size, checksum) in entries {
        let Some(name) = name.strip_prefix(&root) else { continue };
        let Some(start) = start else {
            return Err(invalid(format!("{} is compressed; torch.save compresses nothing", shown(name))));
        };
        if start.checked_add(size).is_none_or(|end| end > length) {
            return Err(corrupt(path, format!("{} reaches beyond the end of the file", shown(name))));
        }
        storages.insert(
            name.strip_prefix("data/").unwrap_or(name).to_string(),
            Storage { start, length: size, checksum },
        );
    }
    let read = |name: &str| -> Result<Option<Vec<u8>>> {
        let Some(entry) = storages.get(name) else { return Ok(None) };
        let mut file = file;
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(entry.start))
            .and_then(|_| file.take(entry.length.min(MAX_PICKLE_BYTES as u64)).read_to_end(&mut bytes))
            .map_err(|source| Error::reading(path, source))?;
        if entry.checksum.is_some_and(|checksum| checksum != crc32fast::hash(&bytes)) {
            return Err(corrupt(path, format!("{name} does not have the checksum that the archive states")));
        }
        Ok(Some(bytes))
    };
    if read("byteorder")?.is_some_and(|order| order.trim_ascii() != b"little") {
        return Err(invalid("its numbers are big-endian; save it on a little-endian machine".into()));
    }
    let pickle = read("data.pkl")?.unwrap_or_default();
    Ok((pickle, storages))
}

/// Five pickles, magic number, version, system, object and the keys of the storages, and then the storages in that order,
/// each after the number of its values.
fn read_legacy(
    path: &Path,
    file: &File,
    length: u64,
    bytes: &[u8],
) -> Result<BTreeMap<String, StoredTensor>> {
    let mut at = 0;
    let mut pickles = Vec::new();
    for _ in 0..5 {
        let pickle = Pickle::read(&bytes[at..]).map_err(|problem| corrupt(path, in_pickle(&problem)))?;
        at += pickle.length;
        pickles.push(pickle);
    }
    let [_, version, system, object, keys] = &pickles[..] else { unreachable!("five were read") };
    if !matches!(version.get(version.root), Value::Int(1001)) {
        return Err(corrupt(path, "its version is not 1001"));
    }
    if let Value::Dict(items) = system.get(system.root)
        && let Some(order) = system.item(items, "little_endian")
        && matches!(system.get(order), Value::Bool(false))
    {
        return Err(corrupt(path, "its numbers are big-endian"));
    }
    // Nothing but the pickle says how long a storage is.
    let mut sizes = HashMap::new();
    for value in object.values() {
        if let Value::Persistent(id) = value {
            let reference = StorageReference::read(object, *id).map_err(|problem| corrupt(path, problem))?;
            sizes.insert(reference.key, (reference.elements, reference.dtype.bitsize() as u64 / 8));
        }
    }
    let Value::List(order) = keys.get(keys.root) else {
        return Err(corrupt(path, "its list of storages is none"));
    };
    let mut storages = HashMap::new();
    let mut start = at as u64;
    for key in order {
        let key = match keys.get(*key) {
            Value::Text(key) => *key,
            _ => return Err(corrupt(path, "its list of storages has a key that is not text")),
        };
        let Some(&(elements, size)) = sizes.get(key) else {
            return Err(corrupt(path, format!("its storage {} is of no tensor", shown(key))));
        };
        let bytes = elements.saturating_mul(size);
        let end = start.saturating_add(8).saturating_add(bytes);
        if end > length {
            return Err(corrupt(
                path,
                format!("its storage {} reaches beyond the end of the file", shown(key)),
            ));
        }
        let mut count = [0; 8];
        let mut file = file;
        file.seek(SeekFrom::Start(start))
            .and_then(|_| file.read_exact(&mut count))
            .map_err(|source| Error::reading(path, source))?;
        if u64::from_le_bytes(count) != elements {
            return Err(corrupt(
                path,
                format!("its storage {} has another length than its tensors say", shown(key)),
            ));
        }
        storages.insert(key, Storage { start: start + 8, length: bytes, checksum: None });
        start = end;
    }
    Collector::new(path, object, storages.iter().map(|(key, at)| (*key, at)).collect()).collect()
}

/// What a tensor says of the storage that it is in.
struct StorageReference<'a> {
    key: &'a str,
    dtype: Dtype,
    elements: u64,
    /// Early files have views of storages, which start at this value.
    offset: u64,
}

impl<'a> StorageReference<'a> {
    /// `("storage", class, key, location, elements)` and, in early files, `(key, offset, elements)` of a view.
    fn read(pickle: &Pickle<'a>, id: Id) -> Result<Self, String> {
        let invalid = || "its pickle names a storage by what is none".to_string();
        let Value::Tuple(fields) = pickle.get(id) else { return Err(invalid()) };
        let &[_, class, key, _, elements, ref view @ ..] = &fields[..] else { return Err(invalid()) };
        let (Value::Class { name, .. }, Value::Text(key)) = (pickle.get(class), pickle.get(key)) else {
            return Err(invalid());
        };
        let offset = match view.first().map(|view| pickle.get(*view)) {
            Some(Value::Tuple(view)) if view.len() == 3 => whole(pickle, view[1]).ok_or_else(invalid)?,
            _ => 0,
        };
        let dtype = storage_dtype(name)
            .ok_or_else(|| format!("it has a torch.{}, which is not read", shown(name)))?;
        Ok(Self { key, dtype, elements: whole(pickle, elements).ok_or_else(invalid)?, offset })
    }
}

fn whole(pickle: &Pickle, id: Id) -> Option<u64> {
    match pickle.get(id) {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// The dtype of a class of storages. One without a type is of bytes.
fn storage_dtype(class: &str) -> Option<Dtype> {
    Some(match class {
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

/// The dtypes that have no class of storages.
fn tensor_dtype(name: &str) -> Option<Dtype> {
    Some(match name {
        "uint16" => Dtype::U16,
        "uint32" => Dtype::U32,
        "uint64" => Dtype::U64,
        _ => return None,
    })
}

/// Finds the tensors in a pickle, under the path of keys that leads to each.
struct Collector<'a> {
    path: &'a Path,
    pickle: &'a Pickle<'a>,
    storages: HashMap<&'a str, &'a Storage>,
    tensors: BTreeMap<String, StoredTensor>,
    name: String,
    /// How much more may be visited and named: what lies in the memo can be reached by exponentially many paths.
    budget: usize,
}

impl<'a> Collector<'a> {
    fn new(path: &'a Path, pickle: &'a Pickle<'a>, storages: HashMap<&'a str, &'a Storage>) -> Self {
        // The names of a state dict's tensors are part of its pickle; a trainer's file has them under short prefixes.
        let budget = 8 * pickle.length + 1024;
        Self { path, pickle, storages, tensors: BTreeMap::new(), name: String::new(), budget }
    }

    fn collect(mut self) -> Result<BTreeMap<String, StoredTensor>> {
        let is_dict = match self.pickle.get(self.pickle.root) {
            Value::Dict(_) => true,
            Value::Call { state: Some(state), .. } => self.tables(*state).is_some(),
            _ => false,
        };
        if !is_dict {
            return Err(corrupt(self.path, "its pickle holds no dictionary of tensors"));
        }
        self.visit(self.pickle.root, 0)?;
        Ok(self.tensors)
    }

    fn corrupt(&self, problem: &str) -> Error {
        corrupt(self.path, format!("{}: {problem}", shown(&self.name)))
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
                Value::Int(key) => self.enter(&key.to_string(), value, depth),
                _ => Ok(()),
            }),
            Value::List(items) | Value::Tuple(items) => {
                let mut items = items.iter().enumerate();
                items.try_for_each(|(index, item)| self.enter(&index.to_string(), *item, depth))
            }
            Value::Call { callable, args, state } => self.visit_object(*callable, *args, *state, depth),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, key: &str, value: Id, depth: usize) -> Result<()> {
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

    fn visit_object(&mut self, callable: Id, args: Id, state: Option<Id>, depth: usize) -> Result<()> {
        let pickle = self.pickle;
        let fields = match pickle.get(args) {
            Value::Tuple(fields) => &fields[..],
            _ => &[],
        };
        match (pickle.get(callable), fields) {
            (Value::Class { module: "torch._utils", name }, fields)
                if name.starts_with("_rebuild_tensor") =>
            {
                self.tensor(name, fields)
            }
            (Value::Class { module: "torch._utils", name }, [data, ..])
                if name.starts_with("_rebuild_parameter") =>
            {
                self.visit(*data, depth + 1)
            }
            // A subclass of tensors: a call, its class, the call's arguments, its state.
            (
                Value::Class { module: "torch._tensor", name: "_rebuild_from_type_v2" },
                &[call, _, args, ..],
            ) => self.visit_object(call, args, None, depth + 1),
            (Value::Class { module: "torch._utils", name }, _) => {
                Err(self.corrupt(&format!("it is made by {}, which is not read", shown(name))))
            }
            // A whole module in place of its state dict.
            _ => match state.and_then(|state| self.tables(state)) {
                Some(tables) => tables.into_iter().try_for_each(|table| self.visit(table, depth + 1)),
                None => Ok(()),
            },
        }
    }

    /// The tables that a `torch.nn.Module` keeps its state in.
    fn tables(&self, state: Id) -> Option<[Id; 3]> {
        let Value::Dict(items) = self.pickle.get(state) else { return None };
        let table = |name| {
            let table = self.pickle.item(items, name)?;
            matches!(self.pickle.get(table), Value::Dict(_)).then_some(table)
        };
        Some([table("_parameters")?, table("_buffers")?, table("_modules")?])
    }

    /// `(storage, offset, shape, strides)` and, in newer versions, `requires_grad, hooks`, then in the third the dtype, then
    /// what is to be done with the values when they are read.
    fn tensor(&mut self, version: &str, fields: &[Id]) -> Result<()> {
        let pickle = self.pickle;
        let invalid = || self.corrupt("its pickle describes no tensor");
        let &[storage, offset, shape, strides, ref rest @ ..] = fields else { return Err(invalid()) };
        let Value::Persistent(storage) = pickle.get(storage) else { return Err(invalid()) };
        let storage = StorageReference::read(pickle, *storage).map_err(|problem| self.corrupt(&problem))?;
        let has_dtype = version.ends_with("_v3");
        let dtype = match rest.get(2).map(|dtype| pickle.get(*dtype)) {
            Some(Value::Class { name, .. }) if has_dtype => tensor_dtype(name)
                .ok_or_else(|| self.corrupt(&format!("it is of torch.{}, which is not read", shown(name))))?,
            _ => storage.dtype,
        };
        if let Some(Value::Dict(lazy)) = rest.get(if has_dtype { 3 } else { 2 }).map(|lazy| pickle.get(*lazy))
        {
            // torch._utils.get_tensor_metadata of 2.15: the stored values are to be negated, or conjugated.
            let is_set = |name| {
                pickle.item(lazy, name).is_some_and(|flag| matches!(pickle.get(flag), Value::Bool(true)))
            };
            if is_set("neg") || is_set("conj") {
                let path = self.path.to_path_buf();
                let problem = "it holds a lazily negated or conjugated view; save tensor.resolve_neg().resolve_conj() instead";
                return Err(Error::NotACheckpoint { path, problem: problem.into() });
            }
        }
        let axes = |id: Id| match pickle.get(id) {
            Value::Tuple(axes) | Value::List(axes) if axes.len() <= MAX_AXES => {
                axes.iter().map(|axis| whole(pickle, *axis).and_then(|axis| axis.try_into().ok())).collect()
            }
            _ => None,
        };
        let shape: Vec<usize> = axes(shape).ok_or_else(invalid)?;
        let strides: Vec<usize> =
            axes(strides).filter(|strides: &Vec<_>| strides.len() == shape.len()).ok_or_else(invalid)?;
        let offset = whole(pickle, offset)
            .and_then(|offset| offset.checked_add(storage.offset))
            .ok_or_else(invalid)?;
        let held =
            *self.storages.get(storage.key).ok_or_else(|| self.corrupt("its storage is not in the file"))?;

        let size = dtype.bitsize() as u64 / 8;
        let seen = extent(&shape, &strides).and_then(|seen| seen.checked_mul(size)).ok_or_else(invalid)?;
        let first = offset.checked_mul(size).ok_or_else(invalid)?;
        if first.checked_add(seen).is_none_or(|end| end > held.length) {
            return Err(self.corrupt("it reaches beyond the end of its storage"));
        }
        let tensor = StoredTensor {
            dtype,
            start: held.start + first,
            length: seen,
            checksum: held.checksum.filter(|_| seen == held.length),
            strides: (!is_row_by_row(&shape, &strides)).then_some(strides),
            shape,
        };
        self.spend(self.name.len())?;
        self.tensors.insert(self.name.clone(), tensor);
        Ok(())
    }
}

/// How many values lie between the first and the end of the last; `None` if more than can be counted.
fn extent(shape: &[usize], strides: &[usize]) -> Option<u64> {
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
