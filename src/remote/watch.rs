//! The watch over the workers of a training.

use super::workers::{Host, Workers};
use crate::error::Error;
use burn::prelude::*;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Between two beats of a worker's process.
const BEAT: Duration = Duration::from_secs(1);

/// Between two questions to a session.
const PING: Duration = Duration::from_secs(5);

/// How long a training whose worker is lost has to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// What happens during a training.
enum Event<T> {
    /// It ended, or panicked.
    End(thread::Result<T>),
    /// A session, by its number, has done all that it was told before.
    Answer(usize),
    /// A worker's process is lost.
    Process(Error),
    /// A session is lost, which can be a consequence of the loss of another worker.
    Session(Error),
}

impl Workers {
    /// Runs a training in a thread of its own, and watches the workers meanwhile.
    ///
    /// Burn 0.22.1 reports the loss of a worker as a failed read of whatever tensor is read next, and waits forever for
    /// one that hangs. This asks every worker's process each second and every session every five, and returns when
    /// one is lost. The training then has five seconds to end by itself; its thread is abandoned after that, so the
    /// caller should end the process soon. What threads of the process print when they panic is held back for as long:
    /// after the loss of a worker it would hide the cause.
    ///
    /// # Errors
    ///
    /// [`Error::Worker`] for the worker that was lost; otherwise what `training` returns.
    ///
    /// # Panics
    ///
    /// If `training` panics while no worker is lost.
    pub fn watch<T, E>(self, training: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let longest_step = self.longest_step;
        let mut panics = HeldPanics::new();
        let (events, news) = channel();
        let mut sessions = Vec::new();
        // Dropped at the end of the watch, which ends the threads that wait for it.
        let mut ends = Vec::new();
        let mut goes_on = || {
            let (end, watch) = channel::<()>();
            ends.push(end);
            move |time| watch.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
        };
        for Host { address, mut heartbeat, devices } in self.hosts {
            for device in devices {
                let (events, address, number) = (events.clone(), address.clone(), sessions.len());
                sessions.push((address.clone(), Instant::now()));
                let goes_on_for = goes_on();
                thread::spawn(
                    move || {
                        while goes_on_for(PING) && question(&device, number, &address, &events) {}
                    },
                );
            }
            let (events, goes_on_for) = (events.clone(), goes_on());
            thread::spawn(move || {
                let source = loop {
                    if !goes_on_for(BEAT) {
                        return;
                    }
                    if let Err(error) = heartbeat.beat() {
                        break error;
                    }
                };
                let problem = "was lost during the training".into();
                let _ = events.send(Event::Process(Error::Worker {
                    address,
                    problem,
                    source: Some(source.into()),
                }));
            });
        }
        let trainer = events.clone();
        thread::spawn(move || trainer.send(Event::End(catch_unwind(AssertUnwindSafe(training)))));

        let (mut end, mut process, mut session) = (None, None, None);
        let mut deadline: Option<Instant> = None;
        while deadline.is_none_or(|deadline| Instant::now() < deadline)
            && (end.is_none() || process.is_none())
        {
            match news.recv_timeout(BEAT) {
                Ok(Event::End(Ok(Ok(value)))) => return Ok(value),
                Ok(Event::End(failed)) => end = Some(failed),
                Ok(Event::Answer(number)) => sessions[number].1 = Instant::now(),
                Ok(Event::Process(error)) => _ = process.get_or_insert(error),
                Ok(Event::Session(error)) => _ = session.get_or_insert(error),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("this function holds a sender"),
            }
            if let Some((address, _)) = sessions.iter().find(|(_, answer)| answer.elapsed() > longest_step) {
                let problem = format!("has not come to the end of a step for {} s", longest_step.as_secs());
                session.get_or_insert(Error::Worker { address: address.clone(), problem, source: None });
            }
            if end.is_some() || process.is_some() || session.is_some() {
                deadline = deadline.or(Some(Instant::now() + GRACE));
            } else {
                HeldPanics::print(GRACE);
            }
        }
        panics.is_caused_by_loss = process.is_some() || session.is_some();
        drop(panics);
        match (process.or(session), end) {
            (Some(error), _) => Err(error.into()),
            (None, Some(Ok(result))) => result,
            (None, Some(Err(panic))) => resume_unwind(panic),
            (None, None) => unreachable!("one of them sets the deadline"),
        }
    }
}

/// Asks a session for a number, which comes when all before it is done; whether to ask again.
fn question<T>(device: &Device, number: usize, address: &str, events: &Sender<Event<T>>) -> bool {
    let read = || Tensor::<1>::zeros([1], device).try_into_data();
    let event = match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(_)) => Event::Answer(number),
        failed => {
            let source = failed.ok().and_then(Result::err).map(Into::into);
            let problem = "closed its session; its own log says why".into();
            Event::Session(Error::Worker { address: address.into(), problem, source })
        }
    };
    let goes_on = matches!(event, Event::Answer(_));
    events.send(event).is_ok() && goes_on
}

/// The messages of panics during watches.
static HELD: Mutex<Held> = Mutex::new(Held { watches: 0, messages: Vec::new() });

struct Held {
    watches: usize,
    messages: Vec<(Instant, String)>,
}

impl Held {
    fn lock() -> MutexGuard<'static, Self> {
        HELD.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds the messages of panics back while it lives, and prints them when it is dropped.
struct HeldPanics {
    /// Then nothing is printed.
    is_caused_by_loss: bool,
}

impl HeldPanics {
    fn new() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let print = take_hook();
            set_hook(Box::new(move |panic| {
                let mut held = Held::lock();
                if held.watches == 0 {
                    drop(held);
                    return print(panic);
                }
                let (thread, trace) = (thread::current(), Backtrace::capture());
                let name = thread.name().unwrap_or("<unnamed>");
                let trace = Some(trace).filter(|trace| trace.status() == BacktraceStatus::Captured);
                let trace = trace.map_or(String::new(), |trace| format!("\n{trace}"));
                held.messages.push((Instant::now(), format!("thread '{name}' {panic}{trace}")));
            }));
        });
        Held::lock().watches += 1;
        Self { is_caused_by_loss: false }
    }

    /// Prints the messages that are at least so old.
    fn print(age: Duration) {
        let (old, new) = std::mem::take(&mut Held::lock().messages)
            .into_iter()
            .partition(|(time, _): &(Instant, String)| time.elapsed() >= age);
        Held::lock().messages = new;
        old.iter().for_each(|(_, message)| eprintln!("\n{message}"));
    }
}

impl Drop for HeldPanics {
    fn drop(&mut self) {
        Held::lock().watches -= 1;
        if self.is_caused_by_loss {
            Held::lock().messages.clear();
        } else {
            Self::print(Duration::ZERO);
        }
    }
}
