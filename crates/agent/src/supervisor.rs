//! An agent is two processes of one program: the supervisor holds the sockets, and a worker serves them. If native code of an
//! engine kills the worker, work under way is lost, but connections wait in the sockets' queues while the supervisor starts
//! another worker, which reports what the previous one was doing. Runs take no longer: no message passes through the
//! supervisor.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    net::TcpListener,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Command, ExitStatus},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::{FdFlags, fcntl_setfd},
    process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal},
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use super::work_log::WorkLog;

mod memory_limit;

pub use memory_limit::limit_memory;

/// Environment variable of a worker: the supervisor's process id, then the numbers of inherited descriptors.
const INHERITED: &str = "EDGECUT_AGENT_WORKER";

/// Environment variable of a worker: how the previous one was killed, and what it was computing.
const CRASH: &str = "EDGECUT_AGENT_CRASH";

/// Delay before the next worker if the last one ended before it served.
const PAUSE: Duration = Duration::from_millis(500);

/// Once a worker has served, how many in a row may end before they serve: certificates may be half renewed, or memory short.
const MAX_FAILED_STARTS: u32 = 10;

/// Why a supervisor ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    #[error("the worker process cannot be started: {0}")]
    Start(#[source] io::Error),
    #[error("the worker process was killed by {0} before it could serve")]
    KilledAtStart(String),
}

/// The sockets of an agent, and how it ends.
pub struct Supervisor {
    name: String,
    listener: TcpListener,
    metrics: Option<TcpListener>,
    log: File,
}

/// What a worker has from its supervisor.
pub struct Worker {
    pub listener: TcpListener,
    pub metrics: Option<TcpListener>,
    pub log: WorkLog,
    /// What the worker before computed when it was killed, and how; `None` for the first one.
    pub crash: Option<String>,
}

/// What a supervisor is asked for.
struct Requests {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    is_stopping: bool,
}

impl Requests {
    fn new() -> io::Result<Requests> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Requests { terminate, interrupt, is_stopping: false })
    }

    /// What to pass on: the second request to drain is one to stop.
    async fn next(&mut self) -> Signal {
        let drain = if self.is_stopping { STOP } else { DRAIN };
        let request = tokio::select! {
            _ = self.terminate.recv() => drain,
            _ = self.interrupt.recv() => STOP,
        };
        self.is_stopping = true;
        request
    }
}

impl Supervisor {
    /// A supervisor of agent `name`.
    ///
    /// # Errors
    /// If the system has no memory for its log.
    pub fn new(name: &str, listener: TcpListener, metrics: Option<TcpListener>) -> io::Result<Supervisor> {
        let log = File::from(memfd_create("edgecut-agent", MemfdFlags::empty())?);
        Ok(Supervisor { name: name.to_string(), listener, metrics, log })
    }

    /// Keeps a worker running until one ends by itself; returns its exit code. SIGTERM and SIGINT are passed on as what the
    /// worker takes for them. Must be called on the main thread, within a tokio runtime: workers die with the thread.
    ///
    /// # Errors
    /// If no worker can be started, or the first is killed before it serves.
    pub async fn run(self) -> Result<u8, SupervisorError> {
        let start = SupervisorError::Start;
        let mut requests = Requests::new().map_err(start)?;
        let log = WorkLog::new(self.log.try_clone().map_err(start)?);
        let (mut crash, mut failed_starts, mut has_served) = (None, 0, false);
        loop {
            log.clear().map_err(start)?;
            let ended = match self.spawn(crash.as_deref()) {
                Ok(worker) => Ok(Supervisor::ending(worker, &mut requests).await.map_err(start)?),
                Err(error) if has_served => Err(error),
                Err(error) => return Err(start(error)),
            };
            let is_serving = log.has_served().unwrap_or_default();
            has_served |= is_serving;
            failed_starts = if is_serving { 0 } else { failed_starts + 1 };
            let may_start = has_served && failed_starts <= MAX_FAILED_STARTS && !requests.is_stopping;
            match ended {
                Ok(status) => match status.signal() {
                    None if is_serving || !may_start => return Ok(exit_code(status)),
                    None => {}
                    // A service manager signals all processes of a service: this one had no handlers yet.
                    Some(signal) if is_request(signal) => return Ok(0),
                    Some(signal) => {
                        if is_serving {
                            crash = Some(Supervisor::crash(signal, &log));
                        }
                        if !may_start {
                            // Otherwise the next worker reports it.
                            log_line(&format!("agent {}: its process was {}", self.name, crash.unwrap_or_default()));
                            return match has_served {
                                true => Ok(128u8.saturating_add(signal as u8)),
                                false => Err(SupervisorError::KilledAtStart(name_of(signal))),
                            };
                        }
                    }
                },
                Err(error) if !may_start => return Err(start(error)),
                Err(_) => {}
            }
            if !is_serving {
                tokio::select! {
                    _ = requests.next() => return Ok(0),
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        }
    }

    /// Waits for `worker` to end, and forwards requests to it meanwhile.
    async fn ending(worker: Child, requests: &mut Requests) -> io::Result<ExitStatus> {
        let pid = Pid::from_child(&worker);
        let mut ended = wait(worker);
        loop {
            // A request that caused the end is seen first.
            let request = tokio::select! {
                biased;
                request = requests.next() => request,
                status = &mut ended => return status.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())),
            };
            // It may have ended just now.
            let _ = kill_process(pid, request);
        }
    }

    /// What a worker that `signal` killed was doing.
    fn crash(signal: i32, log: &WorkLog) -> String {
        let doing = log.under_way().unwrap_or_default();
        let doing = if doing.is_empty() { "nothing was computed".to_string() } else { doing.join("; ") };
        let at = OffsetDateTime::now_utc().replace_nanosecond(0).ok().and_then(|now| now.format(&Rfc3339).ok());
        format!("killed by {} at {}: {doing}", name_of(signal), at.unwrap_or_default())
    }

    fn spawn(&self, crash: Option<&str>) -> io::Result<Child> {
        let sockets = [Some(self.listener.as_fd()), Some(self.log.as_fd()), self.metrics.as_ref().map(AsFd::as_fd)];
        let mut inherited = std::process::id().to_string();
        for socket in sockets.into_iter().flatten() {
            // Kept open in the worker, which sets the flag again.
            fcntl_setfd(socket, FdFlags::empty())?;
            inherited += &format!(",{}", socket.as_raw_fd());
        }
        // The running binary, even if its file was replaced. Python locates its environment by argv[0].
        let mut arguments = std::env::args_os();
        let mut command = Command::new("/proc/self/exe");
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        command.args(arguments).env(INHERITED, inherited);
        match crash {
            Some(crash) => command.env(CRASH, crash),
            None => command.env_remove(CRASH),
        };
        command.spawn()
    }
}

impl Worker {
    /// What this process has from a supervisor; `None` if none started it.
    ///
    /// # Errors
    /// If it is not what a supervisor of this version gives.
    pub fn inherited() -> io::Result<Option<Worker>> {
        let Ok(text) = std::env::var(INHERITED) else { return Ok(None) };
        let wrong = |what: &str| io::Error::other(format!("{INHERITED}={text}: {what}"));
        let mut numbers = Vec::new();
        for number in text.split(',') {
            numbers.push(number.parse::<RawFd>().map_err(|_| wrong("expected numbers"))?);
        }
        let (&[parent, listener, log], metrics) =
            numbers.split_first_chunk::<3>().ok_or_else(|| wrong("expected three numbers"))?;
        let is_child = || getppid().map(|pid| pid.as_raw_nonzero().get()) == Some(parent);
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Else the supervisor has ended, or it is the variable of another program.
        if !is_child() {
            return Err(wrong("the process that set it is not the parent of this one"));
        }
        let mut descriptors = Inherited::take([listener, log].into_iter().chain(metrics.first().copied()))
            .ok_or_else(|| wrong("expected descriptors that are open, each once"))?;
        let [listener, log] = [descriptors.own()?, descriptors.own()?];
        let metrics = if metrics.is_empty() { None } else { Some(descriptors.own()?) };
        Ok(Some(Worker {
            listener: listener.into(),
            metrics: metrics.map(TcpListener::from),
            log: WorkLog::new(log.into()),
            crash: std::env::var(CRASH).ok(),
        }))
    }
}

/// Descriptors that the parent left open for this process, and that nothing here owns yet.
struct Inherited(std::vec::IntoIter<RawFd>);

impl Inherited {
    /// `None` the second time, or if one is not open or comes twice.
    fn take(numbers: impl Iterator<Item = RawFd>) -> Option<Inherited> {
        static IS_TAKEN: AtomicBool = AtomicBool::new(false);
        let numbers: Vec<RawFd> = numbers.collect();
        let is_open = |number: &RawFd| *number > 2 && fs::exists(format!("/proc/self/fd/{number}")).unwrap_or_default();
        let are_distinct = numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len();
        let may_take = numbers.iter().all(is_open) && are_distinct && !IS_TAKEN.swap(true, Ordering::Relaxed);
        may_take.then(|| Inherited(numbers.into_iter()))
    }

    fn own(&mut self) -> io::Result<OwnedFd> {
        let number = self.0.next().ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: it is open, and owned by nothing else: the parent opened it for this process, and `take` gives each number
        // once in the life of the process.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        fcntl_setfd(&descriptor, FdFlags::CLOEXEC)?;
        Ok(descriptor)
    }
}

/// The signals by which a supervisor makes its worker drain, and stop. Not SIGTERM and SIGINT: service managers send these to
/// all processes of a service.
const DRAIN: Signal = Signal::USR1;
const STOP: Signal = Signal::USR2;

/// The kinds of the signals on which a worker drains, and stops; those that a service manager or a terminal sends are left
/// to the supervisor.
///
/// # Errors
/// If the handlers cannot be installed.
pub(super) fn worker_signals() -> io::Result<(SignalKind, SignalKind)> {
    // Once there is a handler, a signal does nothing else.
    drop((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?));
    Ok((SignalKind::from_raw(DRAIN.as_raw()), SignalKind::from_raw(STOP.as_raw())))
}

/// How `worker` ends, which another thread waits for.
fn wait(mut worker: Child) -> oneshot::Receiver<io::Result<ExitStatus>> {
    let (sender, receiver) = oneshot::channel();
    thread::spawn(move || sender.send(worker.wait()));
    receiver
}

fn exit_code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Whether a signal asks to end, instead of being the consequence of what was computed.
fn is_request(signal: i32) -> bool {
    [Signal::TERM, Signal::INT, DRAIN, STOP].iter().any(|request| request.as_raw() == signal)
}

/// The usual name of a signal.
fn name_of(signal: i32) -> String {
    let names = [
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::ILL, "SIGILL"),
        (Signal::KILL, "SIGKILL"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::TRAP, "SIGTRAP"),
    ];
    let name = names.iter().find(|(known, _)| known.as_raw() == signal);
    name.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_string())
}

/// Writes to stderr, which may be closed.
fn log_line(line: &str) {
    use io::Write;
    let _ = writeln!(io::stderr(), "{line}");
}
