//! PyTorch's files (`torch.save`): which container holds the pickle, and where its storages are.

use super::pickle::{MAX_PICKLE_BYTES, Pickle, Value};
use super::state_dict::{self, Storage, StorageReference};
use super::{StoredTensor, WeightFile};
use crate::error::{Error, Result, shown};
use std::collections::{BTreeMap, HashMap};
use std::io::BufReader;
use zip::{CompressionMethod, ZipArchive};

/// The first bytes of a zip archive: PyTorch since 1.6.
const ZIP_MAGIC: [u8; 4] = *b"PK\x03\x04";

/// After a pickle's two bytes of protocol, PyTorch's magic number as a pickled integer: PyTorch up to 1.5.
const LEGACY_MAGIC: [u8; 12] = *b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

/// The tensors of a file that begins with `start`; `None` if it is not one of PyTorch's.
pub(super) fn tensors(file: &WeightFile, start: &[u8]) -> Result<Option<BTreeMap<String, StoredTensor>>> {
    if start.starts_with(&ZIP_MAGIC) {
        let (bytes, storages) = read_archive(file)?;
        return state_dict::tensors(file, &read_pickle(file, &bytes)?, &storages).map(Some);
    }
    match start {
        [0x80, _protocol, rest @ ..] if rest.starts_with(&LEGACY_MAGIC) => read_legacy(file).map(Some),
        _ => Ok(None),
    }
}

fn read_pickle<'a>(file: &WeightFile, bytes: &'a [u8]) -> Result<Pickle<'a>> {
    Pickle::read(bytes).map_err(|problem| file.corrupt(format!("its pickle {problem}")))
}

/// The pickle of an archive, and its storages by key. `torch.save` compresses nothing, so what it unpacks to is no more than
/// itself.
fn read_archive(file: &WeightFile) -> Result<(Vec<u8>, HashMap<String, Storage>)> {
    let length = file.length;
    let mut archive = ZipArchive::new(BufReader::new(&file.file)).map_err(|error| file.corrupt(error))?;
    let mut total = 0u64;
    let mut entries = Vec::new();
    for index in 0..archive.len() {
        // Raw: nothing is unpacked before all sizes are known.
        let entry = archive.by_index_raw(index).map_err(|error| file.corrupt(error))?;
        let name = entry.name().map_err(|error| file.corrupt(error))?.into_owned();
        // Saturating: the sizes are the file's word.
        total = total.saturating_add(entry.size());
        if name.ends_with("data.pkl") && entry.size() > MAX_PICKLE_BYTES as u64 {
            let size = entry.size();
            let problem =
                format!("its data.pkl has {size} bytes, more than the {MAX_PICKLE_BYTES} that are read");
            return Err(file.invalid(problem));
        }
        let is_plain = entry.compression() == CompressionMethod::Stored
            && entry.compressed_size() == entry.size()
            && !entry.encrypted();
        // A file may state no checksum, which is then written as 0.
        let checksum = Some(entry.crc32()).filter(|&checksum| checksum != 0);
        let storage = |start| Storage { start, length: entry.size(), checksum };
        entries.push((name, entry.data_start().filter(|_| is_plain).map(storage)));
    }
    if total > length {
        let problem =
            format!("it has {length} bytes and would unpack to {total}; torch.save compresses nothing");
        return Err(file.invalid(problem));
    }
    // Folders are named after the file; that of the pickle is the root of all.
    let roots = entries.iter().filter_map(|(name, _)| name.strip_suffix("data.pkl"));
    let root = roots.filter(|root| root.is_empty() || root.ends_with('/')).min_by_key(|root| root.len());
    let root = root.ok_or_else(|| file.invalid("the archive has no data.pkl"))?.to_string();
    let mut storages = HashMap::new();
    for (name, storage) in entries {
        let Some(name) = name.strip_prefix(&root) else { continue };
        let Some(storage) = storage else {
            return Err(file.invalid(format!("{} is compressed; torch.save compresses nothing", shown(name))));
        };
        if storage.start.checked_add(storage.length).is_none_or(|end| end > length) {
            return Err(file.corrupt(format!("{} reaches beyond the end of the file", shown(name))));
        }
        // What lies beside the folder of storages keeps its name, such as byteorder.
        storages.insert(name.strip_prefix("data/").unwrap_or(name).to_string(), storage);
    }
    let read = |name: &str| -> Result<Option<Vec<u8>>> {
        let Some(entry) = storages.get(name) else { return Ok(None) };
        let bytes = file.bytes(entry.start, entry.length.min(MAX_PICKLE_BYTES as u64))?;
        if entry.checksum.is_some_and(|checksum| checksum != crc32fast::hash(&bytes)) {
            return Err(file.corrupt(format!("{name} does not have the checksum that the archive states")));
        }
        Ok(Some(bytes))
    };
    if read("byteorder")?.is_some_and(|order| order.trim_ascii() != b"little") {
        return Err(file.invalid("its numbers are big-endian; save it on a little-endian machine"));
    }
    let pickle = read("data.pkl")?.unwrap_or_default();
    Ok((pickle, storages))
}

/// Five pickles, magic number, version, system, object and the keys of the storages, and then the storages in that order,
/// each after the number of its values.
fn read_legacy(file: &WeightFile) -> Result<BTreeMap<String, StoredTensor>> {
    // Where its five pickles end is not known before they are read.
    let bytes = file.bytes(0, file.length.min(MAX_PICKLE_BYTES as u64))?;
    let mut at = 0;
    let mut next = || {
        let pickle = read_pickle(file, &bytes[at..])?;
        at += pickle.length;
        Ok::<_, Error>(pickle)
    };
    let (_magic, version, system, object, keys) = (next()?, next()?, next()?, next()?, next()?);
    // The only version that torch.save has written.
    if !matches!(version.get(version.root), Value::Int(1001)) {
        return Err(file.corrupt("its version is not 1001"));
    }
    let order = system.item(system.root, "little_endian");
    if order.is_some_and(|order| matches!(system.get(order), Value::Bool(false))) {
        return Err(file.corrupt("its numbers are big-endian"));
    }
    // Nothing but the pickle says how long a storage is.
    let references = object.values.iter().filter_map(|value| match value {
        Value::Persistent(id) => Some(StorageReference::read(&object, *id).map(|found| (found.key, found))),
        _ => None,
    });
    let references: HashMap<&str, StorageReference> =
        references.collect::<Result<_, _>>().map_err(|problem| file.corrupt(problem))?;
    let Value::List(order) = keys.get(keys.root) else {
        return Err(file.corrupt("its list of storages is not a list"));
    };
    let invalid = |key: &str, problem| Err(file.corrupt(format!("its storage {} {problem}", shown(key))));
    let mut storages = HashMap::new();
    let mut start = at as u64;
    for key in order {
        let Value::Text(key) = *keys.get(*key) else {
            return Err(file.corrupt("its list of storages has a key that is not text"));
        };
        let Some(&StorageReference { elements, dtype, .. }) = references.get(key) else {
            return invalid(key, "is of no tensor");
        };
        let bytes = elements.saturating_mul(dtype.bitsize() as u64 / 8);
        let end = start.saturating_add(8).saturating_add(bytes);
        if end > file.length {
            return invalid(key, "reaches beyond the end of the file");
        }
        if file.bytes(start, 8)? != elements.to_le_bytes() {
            return invalid(key, "has another length than its tensors say");
        }
        storages.insert(key.to_string(), Storage { start: start + 8, length: bytes, checksum: None });
        start = end;
    }
    state_dict::tensors(file, &object, &storages)
}
