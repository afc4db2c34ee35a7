//! Requests to the Hub, and its answers in JSON: the commit of a revision, and the files of a commit.
//!
//! hf-hub reads an answer whole, whatever its length; here it is limited, as the server is not trusted.

use hf_hub::repository::RepoTreeEntry;
use hf_hub::{HFError, HFResult, hf_home};
use reqwest::{Client, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

/// A server that sends nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(60);

/// How often a file is asked for, each time from where its transfer broke.
pub(super) const ATTEMPTS: u32 = 5;

/// Bytes of all answers: more than those about a model of a hundred thousand files have.
const MAX_BYTES: usize = 32 << 20;

/// The most pages of a list of files, each with a thousand files.
const MAX_PAGES: usize = 100;

/// How long the cache waits for the commit of a branch: Python's `HF_HUB_ETAG_TIMEOUT`.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Api<'a> {
    endpoint: &'a str,
    /// `owner/name`, or `name`.
    name: &'a str,
    token: Option<String>,
    client: Client,
    received: Cell<usize>,
}

impl<'a> Api<'a> {
    pub(super) fn new(endpoint: &'a str, name: &'a str) -> Self {
        Self { endpoint, name, token: token(), client: Client::new(), received: Cell::new(0) }
    }

    /// The commit of a revision; asked for once and not for long if it `is_cached`.
    pub(super) async fn commit(&self, revision: &str, is_cached: bool) -> Result<String, Failure> {
        #[derive(Deserialize)]
        struct Info {
            sha: String,
        }
        let url = self.url("revision", revision);
        let info: Info = match is_cached {
            true => {
                let answer = tokio::time::timeout(PATIENCE, self.json(&url)).await;
                answer.map_err(|_| HFError::Other(format!("{url} did not answer")))??.0
            }
            false => self.answer(&url).await?.0,
        };
        Ok(info.sha)
    }

    pub(super) async fn files(&self, commit: &str) -> Result<Vec<RepoTreeEntry>, Failure> {
        let mut url = Some(self.url("tree", commit) + "?recursive=true");
        let mut files = Vec::new();
        for _ in 0..MAX_PAGES {
            let Some(page) = url.take() else { break };
            let (found, next): (Vec<RepoTreeEntry>, _) = self.answer(&page).await?;
            files.extend(found);
            url = next;
        }
        Ok(files)
    }

    fn url(&self, what: &str, revision: &str) -> String {
        // No other character of a revision needs it.
        let revision = revision.replace('/', "%2F");
        format!("{}/api/models/{}/{what}/{revision}", self.endpoint, self.name)
    }

    /// The answer, and the address of its next page. It is asked for again while the server is unreachable.
    async fn answer<T: DeserializeOwned>(&self, url: &str) -> Result<(T, Option<String>), Failure> {
        for attempt in 0..ATTEMPTS - 1 {
            match self.json(url).await {
                Err(failure) if failure.is_unreachable() => {
                    tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
                }
                answer => return answer,
            }
        }
        self.json(url).await
    }

    async fn json<T: DeserializeOwned>(&self, url: &str) -> Result<(T, Option<String>), Failure> {
        let failed = |source| HFError::Request { source, url: Some(url.into()) };
        let mut request = self.client.get(url);
        // A page may be at any address.
        let is_ours = url.strip_prefix(self.endpoint).is_some_and(|path| path.starts_with('/'));
        if let Some(token) = self.token.as_ref().filter(|_| is_ours) {
            request = request.bearer_auth(token);
        }
        let mut response = within(async { request.send().await.map_err(failed) }).await?;
        if !response.status().is_success() {
            return Err(Failure::Refused {
                url: url.into(),
                status: response.status().as_u16(),
                code: header(&response, "x-error-code").unwrap_or_default(),
            });
        }
        let next = header(&response, "link").and_then(|link| next_page(&link));
        let mut body = Vec::new();
        while let Some(chunk) = within(async { response.chunk().await.map_err(failed) }).await? {
            body.extend_from_slice(&chunk);
            self.received.update(|received| received + chunk.len());
            if self.received.get() > MAX_BYTES {
                let what = format!("answers of at most {} MiB", MAX_BYTES >> 20);
                return Err(HFError::malformed_response_at(what, url).into());
            }
        }
        let answer = serde_json::from_slice(&body);
        Ok((answer.map_err(HFError::from)?, next))
    }
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name)?.to_str().ok().map(String::from)
}

/// The address in `<https://…>; rel="next"`.
fn next_page(link: &str) -> Option<String> {
    let next = link.split(',').find(|link| link.contains("rel=\"next\""))?;
    Some(next.split_once('<')?.1.split_once('>')?.0.to_string())
}

pub(super) async fn within<T>(request: impl Future<Output = HFResult<T>>) -> HFResult<T> {
    let silent = |_| Err(HFError::Io(ErrorKind::TimedOut.into()));
    tokio::time::timeout(SILENCE, request).await.unwrap_or_else(silent)
}

pub(super) fn is_unreachable(error: &HFError) -> bool {
    match error {
        HFError::Request { .. } => true,
        HFError::Io(error) => error.kind() == ErrorKind::TimedOut,
        HFError::Http { context } => context.status.is_server_error(),
        _ => false,
    }
}

/// Why a model is not in the cache.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Client(#[from] HFError),
    /// An answer with another status than success.
    #[error("{url} answered {status} {code}")]
    Refused { url: String, status: u16, code: String },
    /// What the commit does not have.
    #[error("{0}")]
    Lacks(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Client(error.into())
    }
}

impl Failure {
    pub(super) fn is_unreachable(&self) -> bool {
        match self {
            Self::Client(error) => is_unreachable(error),
            Self::Refused { status, .. } => *status >= 500,
            Self::Lacks(_) => false,
        }
    }

    /// The status of an answer, or 0, and the Hub's code.
    pub(super) fn refusal(&self) -> (u16, &str) {
        let context = match self {
            Self::Refused { status, code, .. } => return (*status, code),
            Self::Client(
                HFError::AuthRequired { context }
                | HFError::Forbidden { context }
                | HFError::Http { context },
            ) => context,
            _ => return (0, ""),
        };
        (context.status.as_u16(), context.error_code.as_deref().unwrap_or_default())
    }
}

pub(super) fn is_set(variable: &str) -> bool {
    env::var(variable).is_ok_and(|value| ["1", "ON", "YES", "TRUE"].contains(&&*value.to_uppercase()))
}

/// The token of the user, as huggingface_hub finds it.
pub(super) fn token() -> Option<String> {
    if is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
        return None;
    }
    let stated = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"].into_iter().filter_map(|name| env::var(name).ok());
    let path = env::var("HF_TOKEN_PATH").map_or_else(|_| hf_home().join("token"), PathBuf::from);
    let stored = fs::read_to_string(expanded(&path)).ok();
    let mut tokens = stated.chain(stored).map(|token| token.trim().to_string());
    tokens.find(|token| !token.is_empty())
}

/// A path of the environment, whose `~` no shell has expanded.
pub(super) fn expanded(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.into(),
    }
}
