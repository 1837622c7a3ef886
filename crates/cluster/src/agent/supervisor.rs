//! An agent is two processes: the supervisor holds its sockets, and a worker, the same program, serves them. A kernel of an
//! engine that kills the worker costs what was under way, not the server: connections wait in the sockets' queues while
//! the supervisor starts another worker, which is told what the one before was doing. What a run takes is not changed, as
//! no message passes the supervisor.

use std::{
    fs::File,
    io,
    net::TcpListener,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::process::ExitStatusExt,
    },
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
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

/// What a worker inherits, in its environment: the supervisor's id, then descriptors.
const INHERITED: &str = "EDGECUT_AGENT_WORKER";

/// What the worker before computed when it was killed.
const CRASH: &str = "EDGECUT_AGENT_CRASH";

/// A worker that lived shorter than this is not replaced at once, so that one that cannot start does not take all of a
/// processor.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// How long to wait then.
const PAUSE: Duration = Duration::from_millis(500);

/// Why a supervisor ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    #[error("the process that serves cannot be started: {0}")]
    Start(#[source] io::Error),
    #[error("the process that serves was killed by {0} before it served")]
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
    /// If a worker cannot be started, or the first is killed before it serves.
    pub async fn run(self) -> Result<u8, SupervisorError> {
        let start = SupervisorError::Start;
        let mut terminate = signal(SignalKind::terminate()).map_err(start)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(start)?;
        let log = WorkLog::new(self.log.try_clone().map_err(start)?);
        let (mut crash, mut is_stopping, mut has_served) = (None, false, false);
        loop {
            log.clear().map_err(start)?;
            let worker = self.spawn(crash.as_deref()).map_err(start)?;
            let (begin, pid) = (Instant::now(), Pid::from_child(&worker));
            let mut ended = wait(worker);
            let status = loop {
                let request = tokio::select! {
                    status = &mut ended => break status.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())),
                    _ = terminate.recv() => DRAIN,
                    _ = interrupt.recv() => STOP,
                };
                is_stopping = true;
                // It may have ended just now.
                let _ = kill_process(pid, request);
            };
            let status = status.map_err(start)?;
            let Some(signal) = status.signal() else { return Ok(exit_code(status)) };
            has_served |= log.has_served().unwrap_or_default();
            if is_stopping {
                return Ok(128u8.saturating_add(signal as u8));
            }
            if !has_served {
                return Err(SupervisorError::KilledAtStart(name_of(signal)));
            }
            let doing = log.under_way().unwrap_or_default();
            let doing = if doing.is_empty() { "nothing was computed".to_string() } else { doing.join("; ") };
            let at = OffsetDateTime::now_utc().replace_nanosecond(0).ok().and_then(|now| now.format(&Rfc3339).ok());
            let what = format!("killed by {} at {}: {doing}", name_of(signal), at.unwrap_or_default());
            log_line(&format!("agent {}: its process was {what}; another one is started", self.name));
            crash = Some(what);
            if begin.elapsed() < SHORT_LIFE {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    fn spawn(&self, crash: Option<&str>) -> io::Result<Child> {
        let sockets = [Some(self.listener.as_fd()), Some(self.log.as_fd()), self.metrics.as_ref().map(AsFd::as_fd)];
        let mut inherited = std::process::id().to_string();
        for socket in sockets.into_iter().flatten() {
            // Kept open in the worker, which sets the flag again.
            fcntl_setfd(socket, FdFlags::empty())?;
            inherited += &format!(",{}", socket.as_raw_fd());
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).env(INHERITED, inherited);
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
        let mut numbers = text.split(',').map(str::parse::<RawFd>);
        let parent = getppid().map(|pid| pid.as_raw_nonzero().get());
        if numbers.next().and_then(Result::ok) != parent {
            // Of a supervisor that started some other program, which started this one.
            return Ok(None);
        }
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid().map(|pid| pid.as_raw_nonzero().get()) != parent {
            return Err(io::Error::other("the supervisor has ended"));
        }
        let descriptors = numbers.map(|number| own(number.map_err(io::Error::other)?));
        let mut descriptors = descriptors.collect::<io::Result<Vec<OwnedFd>>>()?.into_iter();
        let (Some(listener), Some(log), metrics) = (descriptors.next(), descriptors.next(), descriptors.next()) else {
            return Err(io::Error::other(format!("{INHERITED}={text}: expected a socket and a log")));
        };
        Ok(Some(Worker {
            listener: listener.into(),
            metrics: metrics.map(TcpListener::from),
            log: WorkLog::new(log.into()),
            crash: std::env::var(CRASH).ok(),
        }))
    }
}

/// The descriptor that this process inherited with `number`.
fn own(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the parent, whose id was checked, leaves it open for this process, and nothing else here knows its number:
    // this is called once for each, before there are other threads.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&descriptor, FdFlags::CLOEXEC)?;
    Ok(descriptor)
}

/// The signals by which a supervisor tells its worker to drain, and to stop. Not those that it gets itself: service managers
/// send these to all processes of a service.
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

/// The usual name of a signal.
fn name_of(signal: i32) -> String {
    let names = [
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::ILL, "SIGILL"),
        (Signal::KILL, "SIGKILL"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::TERM, "SIGTERM"),
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
