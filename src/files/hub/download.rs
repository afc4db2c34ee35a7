//! A model from the Hub into the cache.
//!
//! hf-hub's `download_file` lets the server name the files, stores an error page as the file and checks no checksum. So only
//! its requests are used: names are ours, and a file enters the cache if it is the one that the commit lists.

use super::snapshot::{Snapshot, is_hex};
use super::{Error, ModelId, Path, PathBuf, Result, Wanted};
use crate::files::replace::directory_of;
use futures_util::TryStreamExt;
use hf_hub::repository::{HFRepository, RepoTreeEntry, RepoTypeModel};
use hf_hub::{HFClient, HFError, HFResult, resolve_cache_dir, split_id};
use indicatif::{ProgressBar, ProgressStyle};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::time::Duration;
use std::{env, panic, thread};

/// A server that sends nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(60);

/// How often a file is asked for, each time from where its transfer broke.
const ATTEMPTS: u32 = 5;

/// More than a reader takes of a file that is not weights, and more files than a model has: the server is not trusted.
const MAX_BYTES: u64 = 64 << 20;
const MAX_FILES: usize = 100_000;

impl ModelId {
    /// The model's directory in the cache; without a request if all that is read is there.
    pub(super) fn directory(self, wanted: Wanted) -> Result<PathBuf> {
        let root = resolve_cache_dir();
        let model = root.join(format!("models--{}", self.name.replace('/', "--")));
        let cached = Snapshot::cached(&model, &self.revision);
        if let Some(cached) = cached.as_ref().filter(|cached| cached.unknown(wanted).is_empty()) {
            return Ok(cached.dir());
        }
        let usable = cached.filter(|cached| cached.is_usable(wanted));
        if ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].into_iter().any(is_set) {
            let problem = "is not a local path and not complete in the Hub cache, and HF_HUB_OFFLINE=1 forbids downloading it";
            return usable.map(|cached| cached.dir()).ok_or_else(|| self.error(problem.into(), None));
        }
        let downloaded = || {
            let client = HFClient::builder().retry_max_attempts(3).build()?;
            // Files come one after the other, which needs no more threads.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(download(&client, &self, &model, wanted, usable))
        };
        // A thread, because a runtime panics inside another one, which the caller's thread may have.
        let downloaded = thread::scope(|scope| scope.spawn(downloaded).join());
        let downloaded = downloaded.unwrap_or_else(|payload| panic::resume_unwind(payload));
        downloaded.map(|snapshot| snapshot.dir()).map_err(|error| self.explained(error, &root))
    }

    fn explained(&self, error: HFError, cache: &Path) -> Error {
        let Self { name, revision } = self;
        let context = match &error {
            HFError::AuthRequired { context }
            | HFError::Forbidden { context }
            | HFError::Http { context } => Some(context),
            HFError::RevisionNotFound { context, .. } => context.as_ref(),
            _ => None,
        };
        let status = context.map_or(0, |context| context.status.as_u16());
        let code = context.and_then(|context| context.error_code.as_deref()).unwrap_or_default();
        let problem = match (status, code) {
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
        self.error(problem, Some(error.into()))
    }

    fn error(&self, problem: String, source: Option<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Hub { name: self.name.clone(), problem, source }
    }
}

fn is_set(variable: &str) -> bool {
    env::var(variable).is_ok_and(|value| ["1", "ON", "YES", "TRUE"].contains(&&*value.to_uppercase()))
}

async fn download(
    client: &HFClient,
    id: &ModelId,
    model: &Path,
    wanted: Wanted,
    usable: Option<Snapshot>,
) -> HFResult<Snapshot> {
    let (owner, name) = split_id(&id.name);
    let repo = client.model(owner, name);
    let info = match (within(repo.info().revision(&id.revision).send()).await, usable) {
        // Without a network, what is there is used.
        (Err(error), Some(usable)) if is_unreachable(&error) => return Ok(usable),
        (info, _) => info?,
    };
    let commit = info.sha.filter(|commit| is_hex(commit, 40));
    let commit = commit.ok_or_else(|| HFError::malformed_response("the commit of the revision"))?;
    let files = repo.list_tree().revision(&commit).recursive(true).limit(MAX_FILES).send()?;
    let mut files = Box::pin(files);
    let mut listed = BTreeMap::new();
    while let Some(entry) = within(files.try_next()).await? {
        if let RepoTreeEntry::File { path, oid, size, lfs, .. } = entry {
            listed.insert(path.clone(), Listed { name: path, oid, size, is_lfs: lfs.is_some() });
        }
    }
    drop(files);

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

async fn within<T>(request: impl Future<Output = HFResult<T>>) -> HFResult<T> {
    let silent = |_| Err(HFError::Io(ErrorKind::TimedOut.into()));
    tokio::time::timeout(SILENCE, request).await.unwrap_or_else(silent)
}

fn is_unreachable(error: &HFError) -> bool {
    match error {
        HFError::Request { .. } => true,
        HFError::Io(error) => error.kind() == ErrorKind::TimedOut,
        HFError::Http { context } => context.status.is_server_error(),
        _ => false,
    }
}
