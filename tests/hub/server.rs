//! A server on 127.0.0.1 that speaks the routes of the Hub which the client uses.

use crate::user::tree;
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

pub const NAME: &str = "owner/tiny";
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the server does wrong.
#[derive(Clone, Default)]
pub struct Faults {
    /// An answer to all requests: status and error code.
    pub refusal: Option<(u16, &'static str)>,
    /// The token without which files are refused as those of a gated model are.
    pub token: Option<&'static str>,
    /// How many transfers of weights break in the middle.
    pub breaks: usize,
    /// Files are sent from the start, whatever range is asked for.
    pub ignores_ranges: bool,
    /// A file whose last byte is another one.
    pub wrong: Option<&'static str>,
    /// A file, or the answer about a `revision` or a `tree`, that never ends.
    pub endless: Option<&'static str>,
    /// Large files redirect to themselves.
    pub circular: bool,
    pub commit: Option<&'static str>,
    /// What is listed in place of, or beside, the files that there are.
    pub listed: Vec<Value>,
}

/// Of a request, by their names in lower case.
type Headers = BTreeMap<String, String>;

struct Shared {
    address: String,
    files: BTreeMap<String, Vec<u8>>,
    faults: Mutex<Faults>,
    requests: Mutex<Vec<String>>,
}

pub struct Hub(Arc<Shared>);

impl Hub {
    /// Serves the files of a directory as those of one model.
    pub fn serve(dir: &Path, faults: Faults) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let files = tree(dir);
        let address = listener.local_addr().unwrap().to_string();
        let shared = Shared { address, files, faults: Mutex::new(faults), requests: Mutex::default() };
        let shared = Arc::new(shared);
        let hub = Self(shared.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = shared.clone();
                // A client that hangs up is no matter.
                thread::spawn(move || shared.answer(stream.unwrap()).ok());
            }
        });
        hub
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.0.address)
    }

    /// Sets what the server does wrong from now on.
    pub fn set(&self, faults: Faults) {
        *self.0.faults.lock().unwrap() = faults;
    }

    /// The requests since the last call: method, path and range.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.0.requests.lock().unwrap())
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The checksum of git for a file.
pub fn git_oid(content: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", content.len()));
    hash.update(content);
    hex(&hash.finalize())
}

pub fn is_lfs(name: &str) -> bool {
    [".safetensors", ".bin", ".onnx", ".h5"].iter().any(|end| name.ends_with(end))
}

/// The name of a file's blob in Python's cache.
pub fn etag(name: &str, content: &[u8]) -> String {
    if is_lfs(name) { hex(&Sha256::digest(content)) } else { git_oid(content) }
}

impl Shared {
    fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let first = lines.next().unwrap_or(Ok(String::new()))?;
        let mut words = first.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut headers = Headers::new();
        for line in lines {
            let line = line?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.insert(name.to_lowercase(), value.to_string());
        }
        let path = target.split('?').next().unwrap();
        let range = headers.get("range").map_or(String::new(), |range| format!(" {range}"));
        self.requests.lock().unwrap().push(format!("{method} {path}{range}"));
        let mut faults = self.faults.lock().unwrap();
        let is_broken = method == "GET" && path.starts_with("/cdn/") && faults.breaks > 0;
        faults.breaks -= usize::from(is_broken);
        let faults = faults.clone();
        let response = self.response(path, &headers, &faults, is_broken);
        response.send(stream, method == "HEAD")
    }

    fn response(&self, path: &str, headers: &Headers, faults: &Faults, is_broken: bool) -> Response {
        let commit = faults.commit.unwrap_or(COMMIT);
        if let Some((status, code)) = faults.refusal {
            return Response::refusal(status, code);
        }
        if let Some(revision) = path.strip_prefix(&format!("/api/models/{NAME}/revision/")) {
            if !["main", "v1", "refs%2Fpr%2F1", commit].contains(&revision) {
                return Response::refusal(404, "RevisionNotFound");
            }
            let siblings: Vec<_> = self.files.keys().map(|name| json!({ "rfilename": name })).collect();
            let info = json!({ "id": NAME, "sha": commit, "siblings": siblings });
            return Response { is_endless: faults.endless == Some("revision"), ..Response::json(&info) };
        }
        if path == format!("/api/models/{NAME}/tree/{commit}") {
            let mut entries: Vec<_> =
                self.files.iter().map(|(name, content)| listed(name, content)).collect();
            entries.retain(|entry| faults.listed.iter().all(|other| other["path"] != entry["path"]));
            entries.extend(faults.listed.clone());
            let entries = Value::from(entries);
            return Response { is_endless: faults.endless == Some("tree"), ..Response::json(&entries) };
        }
        if let Some(name) = path.strip_prefix(&format!("/{NAME}/resolve/{commit}/")) {
            let Some(content) = self.files.get(name) else { return Response::refusal(404, "EntryNotFound") };
            let is_allowed = |token| headers.get("authorization") == Some(&format!("Bearer {token}"));
            if faults.token.is_some_and(|token| !is_allowed(token)) {
                return Response::refusal(401, "GatedRepo");
            }
            let own = format!("X-Repo-Commit: {commit}\r\n");
            if is_lfs(name) {
                // Another host, as the Hub's store of large files is.
                let cdn = format!("http://{}/cdn/{name}", self.address.replace("127.0.0.1", "localhost"));
                let target = if faults.circular { path } else { &cdn };
                let location = format!("Location: {target}\r\n");
                let (size, tag) = (content.len(), etag(name, content));
                let linked = format!("X-Linked-Size: {size}\r\nX-Linked-Etag: \"{tag}\"\r\n");
                return Response::new(302, own + &location + &linked, Vec::new());
            }
            let tag = format!("ETag: \"{}\"\r\n", git_oid(content));
            return self.ranged(name, own + &tag, headers, faults);
        }
        let Some(name) = path.strip_prefix("/cdn/") else { return Response::refusal(404, "RepoNotFound") };
        // The token is not for that host.
        if headers.contains_key("authorization") {
            return Response::refusal(400, "Token");
        }
        let response = self.ranged(name, "ETag: \"of-the-cdn\"\r\n".into(), headers, faults);
        Response { sent: if is_broken { response.body.len() / 2 } else { response.body.len() }, ..response }
    }

    fn ranged(&self, name: &str, own: String, headers: &Headers, faults: &Faults) -> Response {
        let range = headers.get("range").filter(|_| !faults.ignores_ranges);
        let start =
            range.map(|range| range["bytes=".len()..].split('-').next().unwrap().parse::<usize>().unwrap());
        let status = if start.is_some() { 206 } else { 200 };
        let mut content = self.files[name].clone();
        if faults.wrong == Some(name) {
            *content.last_mut().unwrap() ^= 1;
        }
        let rest = content.split_off(start.unwrap_or(0));
        Response { is_endless: faults.endless == Some(name), ..Response::new(status, own, rest) }
    }
}

/// What git has in the place of a file of LFS.
pub fn pointer(sha256: &str, size: usize) -> String {
    format!("version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n")
}

fn listed(name: &str, content: &[u8]) -> Value {
    let size = content.len();
    if !is_lfs(name) {
        return json!({ "type": "file", "path": name, "oid": git_oid(content), "size": size });
    }
    let sha256 = etag(name, content);
    let pointer = pointer(&sha256, size);
    let lfs = json!({ "oid": sha256, "size": size, "pointerSize": pointer.len() });
    json!({ "type": "file", "path": name, "oid": git_oid(pointer.as_bytes()), "size": size, "lfs": lfs })
}

struct Response {
    status: u16,
    headers: String,
    body: Vec<u8>,
    sent: usize,
    is_endless: bool,
}

impl Response {
    fn new(status: u16, headers: String, body: Vec<u8>) -> Self {
        Self { status, headers, sent: body.len(), body, is_endless: false }
    }

    fn json(value: &Value) -> Self {
        Self::new(200, "Content-Type: application/json\r\n".into(), value.to_string().into())
    }

    fn refusal(status: u16, code: &str) -> Self {
        let headers = format!("X-Error-Code: {code}\r\nX-Error-Message: refused\r\n");
        Self::new(status, headers, br#"{"error": "refused"}"#.to_vec())
    }

    fn send(self, mut stream: TcpStream, is_head: bool) -> std::io::Result<()> {
        let length = match self.is_endless {
            true => String::new(), // until the connection closes
            false => format!("Content-Length: {}\r\n", self.body.len()),
        };
        write!(stream, "HTTP/1.1 {} X\r\n{}{length}Connection: close\r\n\r\n", self.status, self.headers)?;
        if is_head {
            return Ok(());
        }
        stream.write_all(&self.body[..self.sent])?;
        if self.is_endless {
            // Until the client hangs up.
            loop {
                stream.write_all(&[0; 4096])?;
            }
        }
        Ok(())
    }
}
