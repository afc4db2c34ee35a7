//! A model from the Hub into the cache.
//!
//! hf-hub's `download_file` lets the server name the files, stores an error page as the file and checks no checksum. So only
//! its requests are used: names are ours, and a file enters the cache if it is the one that the commit lists.

use super::api::{ATTEMPTS, Api, Failure, expanded, is_set, is_unreachable, token, within};
use super::snapshot::{Snapshot, is_hex};
use super::{Error, HubFiles, ModelId, Path, PathBuf, Result};
use crate::files::replace::directory_of;
use crate::files::{
    ADAPTER_CONFIG_NAME, ADAPTER_NAMES, CONFIG_NAME, TOKENIZER_NAMES, VOCABULARY_NAMES, WEIGHT_NAMES,
};
use futures_util::TryStreamExt;
use hf_hub::repository::{HFRepository, RepoTreeEntry, RepoTypeModel};
use hf_hub::{HFClient, HFClientBuilder, HFError, HFResult, resolve_cache_dir, split_id};
use indicatif::{ProgressBar, ProgressStyle};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::Duration;
use std::{panic, thread};

/// The most bytes of a file that is not weights, more than a reader takes: the server is not trusted.
const MAX_BYTES: u64 = 64 << 20;

impl ModelId {
    /// The model's directory in the cache, with all that is read. Of a branch or tag the Hub is asked for its commit, as Python
    /// does each time; a commit that is complete needs no request.
    pub(super) fn directory(self, wanted: HubFiles) -> Result<PathBuf> {
        let root = expanded(&resolve_cache_dir());
        let model = root.join(format!("models--{}", self.name.replace('/', "--")));
        let cached = Snapshot::cached(&model, &self.revision);
        let is_offline = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].into_iter().any(is_set);
        let is_settled = is_offline || is_hex(&self.revision, 40);
        if let Some(cached) = cached.as_ref().filter(|cached| is_settled && cached.is_complete(wanted)) {
            return Ok(cached.dir());
        }
        let usable = cached.filter(|cached| cached.is_usable(wanted));
        if is_offline {
            let problem = "is not a local path and not complete in the Hub cache, and HF_HUB_OFFLINE=1 forbids downloading it";
            return usable.map(|cached| cached.dir()).ok_or_else(|| self.error(problem.into(), None));
        }
        let downloaded = || {
            let client = HFClient::builder().retry_max_attempts(3);
            let client = token().into_iter().fold(client, HFClientBuilder::token).build()?;
            // Files come one after the other, which needs no more threads.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(download(&client, &self, &model, wanted, usable))
        };
        // A thread, because a runtime panics inside another one, which the caller's thread may have.
        let downloaded = thread::scope(|scope| scope.spawn(downloaded).join());
        let downloaded = downloaded.unwrap_or_else(|payload| panic::resume_unwind(payload));
        downloaded.map(|snapshot| snapshot.dir()).map_err(|error| self.explained(error, &root))
    }

    fn explained(&self, failure: Failure, cache: &Path) -> Error {
        let Self { name, revision } = self;
        if let Failure::Lacks(problem) = failure {
            return self.error(problem, None);
        }
        let problem = match failure.refusal() {
            (404, "RevisionNotFound") => format!("is not a local path, and has no revision {revision} on the Hub"),
            (_, "GatedRepo") | (403, _) => format!(
                "is gated; accept the conditions on https://huggingface.co/{name}, and set HF_TOKEN to a token that may read it"
            ),
            // The Hub does not say whether a model is missing or private.
            (401 | 404, _) => {
                "is not a local path, and the Hub shows no model of this name; check the name or, if the model is private, set \
                 HF_TOKEN to a token that may read it"
                    .into()
            }
            _ => format!("is not a local path, and cannot be downloaded from the Hub to {}", cache.display()),
        };
        self.error(problem, Some(failure.into()))
    }

    fn error(&self, problem: String, source: Option<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Hub { name: self.name.clone(), problem, source }
    }
}

async fn download(
    client: &HFClient,
    id: &ModelId,
    model: &Path,
    wanted: HubFiles,
    usable: Option<Snapshot>,
) -> Result<Snapshot, Failure> {
    let (owner, name) = split_id(&id.name);
    let repo = client.model(owner, name);
    let api = Api::new(client.endpoint(), &id.name);
    let commit = match (api.commit(&id.revision, usable.is_some()).await, usable) {
        // As in Python: where the Hub does not tell, what is there is used.
        (Err(_), Some(usable)) => return Ok(usable),
        (Ok(commit), Some(usable)) if commit == usable.commit && usable.is_complete(wanted) => {
            return Ok(usable);
        }
        (commit, _) => commit?,
    };
    if !is_hex(&commit, 40) {
        return Err(HFError::malformed_response("the commit of the revision").into());
    }
    let mut listed = BTreeMap::new();
    for entry in api.files(&commit).await? {
        if let RepoTreeEntry::File { path, oid, size, lfs, .. } = entry {
            listed.insert(path.clone(), Listed { name: path, oid, size, is_lfs: lfs.is_some() });
        }
    }
    check_listed(&listed, wanted)?;

    let snapshot = Snapshot { model: model.into(), commit };
    let hidden = is_set("HF_HUB_DISABLE_PROGRESS_BARS");
    // It is drawn on a terminal only.
    let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(0) };
    let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {eta}").ok();
    let bar = bar.with_style(style.unwrap_or_else(ProgressStyle::default_bar));
    let transfer = Transfer { repo, snapshot: &snapshot, bar };
    let mut unknown = snapshot.unknown(wanted);
    while !unknown.is_empty() {
        let sizes = unknown.iter().filter_map(|name| Some(listed.get(name)?.size));
        transfer.bar.inc_length(sizes.fold(0, u64::saturating_add));
        for name in &unknown {
            match listed.get(name) {
                Some(file) => snapshot.link(name, &transfer.blob(file).await?)?,
                None => snapshot.note_missing(name)?,
            }
        }
        unknown = snapshot.unknown(wanted);
    }
    transfer.bar.finish_and_clear();
    // Last: a download that breaks leaves the revision with the commit that is complete.
    snapshot.set_as(&id.revision)?;
    Ok(snapshot)
}

/// Refuses a commit that has no model, or neither config nor tokenizer, such as one of GGUF files alone: before a note of what
/// it lacks is in the cache.
fn check_listed(listed: &BTreeMap<String, Listed>, wanted: HubFiles) -> Result<(), Failure> {
    let has = |names: &[&str]| names.iter().any(|name| listed.contains_key(*name));
    let missing = match wanted {
        HubFiles::Settings
            if has(&[CONFIG_NAME, ADAPTER_CONFIG_NAME])
                || has(&TOKENIZER_NAMES)
                || has(&VOCABULARY_NAMES) =>
        {
            return Ok(());
        }
        HubFiles::Weights if has(&[CONFIG_NAME]) && has(&WEIGHT_NAMES) => return Ok(()),
        HubFiles::Weights if has(&[ADAPTER_CONFIG_NAME]) && has(&ADAPTER_NAMES) => return Ok(()),
        HubFiles::Weights if has(&[CONFIG_NAME]) => format!("none of {}", WEIGHT_NAMES.join(", ")),
        _ => format!("no {CONFIG_NAME}"),
    };
    const SHOWN: usize = 10;
    let names: Vec<&str> = listed.keys().take(SHOWN).map(String::as_str).collect();
    let more = listed.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Err(Failure::Lacks(format!("has {missing}; it has {}{more}", names.join(", "))))
}

struct Listed {
    name: String,
    /// Git's checksum of the file or, with LFS, of the pointer that git has in its place.
    oid: String,
    size: u64,
    is_lfs: bool,
}

impl Listed {
    /// Whether a blob of this size has this file: its name is the SHA-256 with LFS, and otherwise git's checksum.
    fn is_in(&self, blob: &str) -> bool {
        // The form of a pointer is fixed by the specification of LFS, which is in its first line.
        let pointer =
            format!("version https://git-lfs.github.com/spec/v1\noid sha256:{blob}\nsize {}\n", self.size);
        let of_pointer =
            || hex(&Sha1::new_with_prefix(format!("blob {}\0{pointer}", pointer.len())).finalize());
        if self.is_lfs { is_hex(blob, 64) && of_pointer() == self.oid } else { blob == self.oid }
    }

    /// The blob that has it, downloaded for another commit, by Python or by another process.
    fn existing(&self, blobs: &Path) -> Option<String> {
        let mut names =
            fs::read_dir(blobs).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let is_whole = |blob: &str| fs::metadata(blobs.join(blob)).is_ok_and(|blob| blob.len() == self.size);
        names.find(|blob| self.is_in(blob) && is_whole(blob))
    }

    /// The name of the blob that `file` should be.
    fn blob_of(&self, file: &mut File) -> io::Result<String> {
        match self.is_lfs {
            true => digest(Sha256::new(), file),
            false => digest(Sha1::new_with_prefix(format!("blob {}\0", self.size)), file),
        }
    }
}

fn digest(mut hash: impl Digest, file: &mut File) -> io::Result<String> {
    let mut buffer = vec![0; 1 << 16];
    file.seek(SeekFrom::Start(0))?;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Transfer<'a> {
    repo: HFRepository<RepoTypeModel>,
    snapshot: &'a Snapshot,
    bar: ProgressBar,
}

impl Transfer<'_> {
    /// The name of a file's blob, which is downloaded if it is not there.
    async fn blob(&self, file: &Listed) -> HFResult<String> {
        let Listed { name, oid, size, .. } = file;
        let is_weights = name.ends_with(".safetensors") || name.ends_with(".bin");
        if !is_hex(oid, 40) || !is_weights && *size > MAX_BYTES {
            return Err(HFError::malformed_response(format!(
                "{name} has {size} bytes and the checksum {oid:?}"
            )));
        }
        // Processes that start together download once.
        let model = &self.snapshot.model;
        let folder = model.file_name().unwrap_or_default();
        let lock = model.with_file_name(".locks").join(folder).join(format!("{oid}.lock"));
        fs::create_dir_all(directory_of(&lock))?;
        let lock = File::create(lock)?;
        // Some network file systems have no locks; the checksum finds what two writers would make of a file.
        let _ = lock.lock();
        let blobs = model.join("blobs");
        let before = self.bar.position();
        if let Some(blob) = file.existing(&blobs) {
            self.bar.set_position(before + size);
            return Ok(blob);
        }
        let path = blobs.join(format!("{oid}.incomplete"));
        fs::create_dir_all(directory_of(&path))?;
        let mut part = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        self.bar.set_message(name.clone());
        for attempt in 0..ATTEMPTS {
            let is_resumed = part.metadata()?.len() > 0;
            match self.complete(file, &mut part, before).await {
                Err(error) if is_unreachable(&error) && attempt + 1 < ATTEMPTS => {
                    // 0.1 to 0.8 s: long enough for a server that restarts.
                    tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
                    continue;
                }
                result => result?,
            }
            let blob = file.blob_of(&mut part)?;
            if file.is_in(&blob) {
                fs::rename(&path, blobs.join(&blob))?;
                return Ok(blob);
            }
            part.set_len(0)?;
            // Otherwise what it was resumed from may have been wrong.
            if !is_resumed {
                break;
            }
        }
        let problem =
            "has another size or checksum than the commit says; load it again, or from another HF_ENDPOINT";
        Err(HFError::Other(format!("{name} {problem}")))
    }

    /// Appends what the file lacks. The bar was at `before` for the files before it.
    async fn complete(&self, file: &Listed, part: &mut File, before: u64) -> HFResult<()> {
        let mut have = part.seek(SeekFrom::End(0))?;
        if have >= file.size {
            return Ok(());
        }
        let request = self.repo.download_file_stream().filename(&file.name).revision(&self.snapshot.commit);
        let range = (have > 0).then_some(have..file.size);
        let (length, mut bytes) = within(request.maybe_range(range).send()).await?;
        // A server without ranges sends it from the start.
        if have > 0 && length != Some(file.size - have) {
            part.set_len(0)?;
            have = part.seek(SeekFrom::Start(0))?;
        }
        // No more than the file has and a little: the rest is wrong, and may be endless.
        while have <= file.size
            && let Some(chunk) = within(bytes.try_next()).await?
        {
            part.write_all(&chunk)?;
            have += chunk.len() as u64;
            self.bar.set_position(before + have);
        }
        Ok(())
    }
}
