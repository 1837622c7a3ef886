//! Limits on what clients can make an agent do, with names and defaults.
//!
//! An agent is reached by anything that can open a socket to it, and shared by clients that know nothing of each other. A limit is
//! reached by mistakes and by hostile clients; an honest one is served all the same.

use std::time::Duration;

use edgecut_graph::units::{Bytes, Micros};

/// The limits of one agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Open connections.
    pub connections: usize,
    /// The same of one client: the holder of a certificate, or an address without TLS.
    pub client_connections: usize,
    /// How long a connection must have been idle before it may be closed for a new one, when all places are taken.
    pub connection_idle_time: Duration,
    /// Connections that have not said yet that they speak HTTP/2; the oldest is closed for a new one.
    pub handshakes: usize,
    /// Time for TLS and the first bytes of HTTP/2.
    pub handshake_time: Duration,
    /// Simultaneous requests of one connection.
    pub streams: u32,
    /// Simultaneous runs, profiles and measurements of links, those that wait for a device among them.
    pub jobs: usize,
    /// The same of one client: the holder of a certificate, or an address without TLS.
    pub client_jobs: usize,
    /// Time between two messages of a client that has announced more.
    pub message_time: Duration,
    /// Time that a run keeps its devices while nothing is heard of its client, which says every 10 s that it is there.
    pub idle_time: Duration,
    /// Time that a client waits for devices, unless it asks for another.
    pub lease_wait: Duration,
    /// Time that what is under way has to end once the agent is to stop.
    pub drain_time: Duration,
    /// Size of a setup or a profile task.
    pub document: Bytes,
    /// Size of the cache of clients' weights. Those on the heap or on tmpfs take at most a quarter of the agent's memory.
    pub weights: Bytes,
    /// How long they are held while they are not used.
    pub weights_time: Duration,
    /// Inputs in flight of a run.
    pub in_flight: u32,
    /// Servers that a run sends values to, and as many that it receives values from: each is a connection.
    pub peers: usize,
    /// Values that the stages of a run exchange; also values that are sent, and parameters that the client sends.
    pub values: usize,
    /// Stages of a run on the agent.
    pub stages: usize,
    /// Open connections to where metrics are served; the oldest is closed for a new one.
    pub monitors: usize,
    /// How long such a connection may be open: a monitor that keeps it between its requests opens another one then.
    pub monitor_time: Duration,
    /// Time for all transfers of a peer that measures its link to the agent, which hold the lease of the processor.
    pub probe_time: Duration,
}

/// A limit that cannot be set so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error("`{0}` is not a valid limit: expected NAME=VALUE, such as connections=512")]
    Syntax(String),
    #[error("unknown limit `{name}`: expected one of {known}")]
    Name { name: String, known: String },
    #[error("`{value}` is not a valid value of the limit {name}: expected {expected}")]
    Value { name: &'static str, value: String, expected: &'static str },
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 512,
            client_connections: 128,
            connection_idle_time: Duration::from_secs(1),
            handshakes: 64,
            handshake_time: Duration::from_secs(5),
            streams: 64,
            jobs: 64,
            client_jobs: 16,
            message_time: Duration::from_secs(30),
            idle_time: Duration::from_secs(120),
            lease_wait: Duration::from_secs(5),
            drain_time: Duration::from_secs(30),
            document: Bytes(256 << 20),
            weights: Bytes(1 << 30),
            weights_time: Duration::from_secs(600),
            in_flight: 1024,
            peers: 256,
            values: 1 << 18,
            stages: 1 << 14,
            monitors: 16,
            monitor_time: Duration::from_secs(300),
            probe_time: Duration::from_secs(300),
        }
    }
}

/// A limit by name.
struct Named {
    name: &'static str,
    expected: &'static str,
    /// Sets it; `None` if the value is none.
    set: fn(&mut Limits, &str) -> Option<()>,
}

const COUNT: &str = "a number from 1 to 1000000";
const TIME: &str = "a time such as 500ms, 30s or 5m, at most a day";
const SIZE: &str = "a size such as 64MiB";

const NAMED: [Named; 22] = [
    Named { name: "connections", expected: COUNT, set: |l, v| count(v).map(|n| l.connections = n as usize) },
    Named {
        name: "client-connections",
        expected: COUNT,
        set: |l, v| count(v).map(|n| l.client_connections = n as usize),
    },
    Named { name: "connection-idle-time", expected: TIME, set: |l, v| time(v).map(|t| l.connection_idle_time = t) },
    Named { name: "handshakes", expected: COUNT, set: |l, v| count(v).map(|n| l.handshakes = n as usize) },
    Named { name: "handshake-time", expected: TIME, set: |l, v| time(v).map(|t| l.handshake_time = t) },
    Named { name: "streams", expected: COUNT, set: |l, v| count(v).map(|n| l.streams = n) },
    Named { name: "jobs", expected: COUNT, set: |l, v| count(v).map(|n| l.jobs = n as usize) },
    Named { name: "client-jobs", expected: COUNT, set: |l, v| count(v).map(|n| l.client_jobs = n as usize) },
    Named { name: "message-time", expected: TIME, set: |l, v| time(v).map(|t| l.message_time = t) },
    Named { name: "idle-time", expected: TIME, set: |l, v| time(v).map(|t| l.idle_time = t) },
    Named { name: "lease-wait", expected: TIME, set: |l, v| time(v).map(|t| l.lease_wait = t) },
    Named { name: "drain-time", expected: TIME, set: |l, v| time(v).map(|t| l.drain_time = t) },
    Named { name: "document", expected: SIZE, set: |l, v| Bytes::with_unit(v).ok().map(|b| l.document = b) },
    Named { name: "weights", expected: SIZE, set: |l, v| Bytes::with_unit(v).ok().map(|b| l.weights = b) },
    Named { name: "weights-time", expected: TIME, set: |l, v| time(v).map(|t| l.weights_time = t) },
    Named { name: "in-flight", expected: COUNT, set: |l, v| count(v).map(|n| l.in_flight = n) },
    Named { name: "peers", expected: COUNT, set: |l, v| count(v).map(|n| l.peers = n as usize) },
    Named { name: "values", expected: COUNT, set: |l, v| count(v).map(|n| l.values = n as usize) },
    Named { name: "stages", expected: COUNT, set: |l, v| count(v).map(|n| l.stages = n as usize) },
    Named { name: "monitors", expected: COUNT, set: |l, v| count(v).map(|n| l.monitors = n as usize) },
    Named { name: "monitor-time", expected: TIME, set: |l, v| time(v).map(|t| l.monitor_time = t) },
    Named { name: "probe-time", expected: TIME, set: |l, v| time(v).map(|t| l.probe_time = t) },
];

/// Longest time of a limit, and longest wait for devices.
pub const MAX_TIME: Duration = Duration::from_secs(86_400);

fn count(text: &str) -> Option<u32> {
    text.parse().ok().filter(|count| (1..=1_000_000).contains(count))
}

fn time(text: &str) -> Option<Duration> {
    let time: Micros = text.parse().ok()?;
    time.to_duration().filter(|time| !time.is_zero() && *time <= MAX_TIME)
}

impl Limits {
    /// The defaults, with each `NAME=VALUE` of `settings` instead.
    ///
    /// # Errors
    /// If there is no such limit, or it cannot have that value.
    pub fn with(settings: &[String]) -> Result<Limits, LimitError> {
        let mut limits = Limits::default();
        for setting in settings {
            let (name, value) = setting.split_once('=').ok_or_else(|| LimitError::Syntax(setting.clone()))?;
            let named = NAMED.iter().find(|named| named.name == name).ok_or_else(|| LimitError::Name {
                name: name.to_string(),
                known: NAMED.map(|named| named.name).join(", "),
            })?;
            let wrong = || LimitError::Value { name: named.name, value: value.to_string(), expected: named.expected };
            (named.set)(&mut limits, value).ok_or_else(wrong)?;
        }
        Ok(limits)
    }

    /// The same with no more connections than the system lets this process open, some files apart.
    #[must_use]
    pub fn within_descriptors(self, descriptors: Option<u64>) -> Limits {
        /// Those of the runtime, libraries, models, a few monitors, and one connection that is told to go.
        const RESERVED: u64 = 32;
        let most = descriptors.map_or(usize::MAX, |all| all.saturating_sub(RESERVED).max(RESERVED / 4) as usize);
        let connections = self.connections.min(most);
        Limits { connections, handshakes: self.handshakes.min(connections.div_ceil(2)), ..self }
    }
}

/// How many files and connections the system lets this process open; `None` if it does not say.
#[cfg(unix)]
pub fn descriptors() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Other systems have no such number.
#[cfg(not(unix))]
pub fn descriptors() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(settings: &[&str]) -> Result<Limits, String> {
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        Limits::with(&settings).map_err(|error| error.to_string())
    }

    #[test]
    fn limits_are_set_by_name() {
        let set = with(&["connections=7", "idle-time=5m", "document=1MiB"]).unwrap();
        let wanted = Limits {
            connections: 7,
            idle_time: Duration::from_secs(300),
            document: Bytes(1 << 20),
            ..Limits::default()
        };
        assert_eq!(set, wanted);
        for named in &NAMED {
            let value = if named.expected == COUNT {
                "9"
            } else if named.expected == TIME {
                "9s"
            } else {
                "9MiB"
            };
            assert_ne!(with(&[&format!("{}={value}", named.name)]), Ok(Limits::default()), "{}", named.name);
            assert!(with(&[&format!("{}=x", named.name)]).unwrap_err().contains(named.expected));
        }
        assert!(with(&["streams"]).unwrap_err().contains("NAME=VALUE"));
        assert!(with(&["stream=1"]).unwrap_err().contains("expected one of connections, client-connections"));
        for wrong in ["streams=0", "streams=-1", "idle-time=0s", "idle-time=2d", "idle-time=NaNs"] {
            assert!(with(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn connections_leave_descriptors_for_other_files() {
        let limits = Limits::default();
        for (descriptors, connections, handshakes) in
            [(None, 512, 64), (Some(1 << 20), 512, 64), (Some(64), 32, 16), (Some(8), 8, 4)]
        {
            let found = limits.clone().within_descriptors(descriptors);
            assert_eq!((found.connections, found.handshakes), (connections, handshakes), "{descriptors:?}");
        }
    }
}
