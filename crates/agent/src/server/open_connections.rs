//! The open connections of an agent, and which of them is closed when a new one needs a place: the one that has been
//! idle longest.
//!
//! A connection is idle while no request to the agent's service is in progress, other than those whose replies the client
//! does not receive. Pings and health checks do not count.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use tracing::info;

use super::client_id::ClientId;
use crate::limits::Limits;

/// The connections that have passed the handshake.
#[derive(Debug)]
pub(super) struct OpenConnections {
    limit_of_one: usize,
    idle_time: Duration,
    open: Mutex<Vec<Arc<OpenConnection>>>,
}

/// One of them, and its use.
#[derive(Debug)]
pub(super) struct OpenConnection {
    client_id: ClientId,
    address: SocketAddr,
    close: CancellationToken,
    requests: Mutex<Requests>,
}

#[derive(Debug)]
struct Requests {
    under_way: usize,
    /// How many of these wait for the client to receive their replies.
    waiting: usize,
    /// When the last one ended, or began to wait.
    idle_since: Instant,
}

/// A place among the connections of a client, free again when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    of: Arc<OpenConnections>,
    connection: Arc<OpenConnection>,
}

/// A request that is in progress until this is dropped.
#[derive(Debug)]
pub(super) struct RequestUnderWay {
    connection: Arc<OpenConnection>,
    waits: AtomicBool,
}

/// Why a client gets no further connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoPlace {
    /// All of its connections are in use.
    InUse,
    /// One can be closed after this time, unless it is used before.
    Idle(Duration),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpenConnections {
    pub fn within(limits: &Limits) -> Arc<OpenConnections> {
        let (limit_of_one, idle_time) = (limits.client_connections, limits.connection_idle_time);
        Arc::new(OpenConnections { limit_of_one, idle_time, open: Mutex::default() })
    }

    /// Opens another connection of `client_id`. At the client's limit, its longest idle connection is closed once it
    /// has been idle for long enough; `None` if all of them are in use.
    pub async fn open(
        self: &Arc<OpenConnections>,
        client_id: ClientId,
        address: SocketAddr,
    ) -> Option<ConnectionPlace> {
        loop {
            match self.try_open(client_id, address, Instant::now()) {
                Ok(place) => return Some(place),
                Err(NoPlace::InUse) => return None,
                Err(NoPlace::Idle(left)) => tokio::time::sleep(left).await,
            }
        }
    }

    fn try_open(
        self: &Arc<OpenConnections>,
        client_id: ClientId,
        address: SocketAddr,
        now: Instant,
    ) -> Result<ConnectionPlace, NoPlace> {
        let mut open = lock(&self.open);
        if open.iter().filter(|other| other.client_id == client_id).count() >= self.limit_of_one {
            self.close_longest_idle(&mut open, now, |other| other.client_id == client_id)?;
        }
        let connection = Arc::new(OpenConnection::new(client_id, address, now));
        open.push(connection.clone());
        Ok(ConnectionPlace { of: self.clone(), connection })
    }

    /// Closes the longest idle connection of all clients; `false` if none has been idle for long enough.
    pub fn close_idle(&self) -> bool {
        self.close_longest_idle(&mut lock(&self.open), Instant::now(), |_| true).is_ok()
    }

    fn close_longest_idle(
        &self,
        open: &mut Vec<Arc<OpenConnection>>,
        now: Instant,
        among: impl Fn(&OpenConnection) -> bool,
    ) -> Result<(), NoPlace> {
        let idle = open.iter().enumerate().filter(|(_, connection)| among(connection));
        let idle = idle.filter_map(|(index, connection)| Some((connection.idle_since()?, index)));
        let (since, index) = idle.min().ok_or(NoPlace::InUse)?;
        let time = now.saturating_duration_since(since);
        if time < self.idle_time {
            return Err(NoPlace::Idle(self.idle_time - time));
        }
        let closed = open.swap_remove(index);
        info!(
            "connection from {} closed: idle for {:.1} s, and a new one needs its place",
            closed.address,
            time.as_secs_f64()
        );
        closed.close.cancel();
        Ok(())
    }
}

impl OpenConnection {
    pub fn new(client_id: ClientId, address: SocketAddr, now: Instant) -> OpenConnection {
        let requests = Mutex::new(Requests { under_way: 0, waiting: 0, idle_since: now });
        OpenConnection { client_id, address, close: CancellationToken::new(), requests }
    }

    /// Another request of it.
    pub fn begin_request(self: &Arc<OpenConnection>) -> RequestUnderWay {
        lock(&self.requests).under_way += 1;
        RequestUnderWay { connection: self.clone(), waits: AtomicBool::new(false) }
    }

    /// Since when it has been idle; `None` if it is in use.
    fn idle_since(&self) -> Option<Instant> {
        let requests = lock(&self.requests);
        (requests.under_way == requests.waiting).then_some(requests.idle_since)
    }
}

impl ConnectionPlace {
    pub fn connection(&self) -> &Arc<OpenConnection> {
        &self.connection
    }

    /// Ends when the connection must be closed.
    pub fn closing(&self) -> impl Future<Output = ()> + Send + use<> {
        self.connection.close.clone().cancelled_owned()
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        lock(&self.of.open).retain(|other| !Arc::ptr_eq(other, &self.connection));
    }
}

impl RequestUnderWay {
    /// Says whether the request waits for the client: it keeps the connection as long as it does not.
    pub fn wait_for_client(&self, waits: bool) {
        let mut requests = lock(&self.connection.requests);
        if self.waits.swap(waits, Ordering::Relaxed) == waits {
            return;
        }
        if waits {
            requests.waiting += 1;
            requests.idle_since = Instant::now();
        } else {
            requests.waiting -= 1;
        }
    }
}

impl Drop for RequestUnderWay {
    fn drop(&mut self) {
        self.wait_for_client(false);
        let mut requests = lock(&self.connection.requests);
        requests.under_way -= 1;
        requests.idle_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn opened(limit_of_one: usize) -> (Arc<OpenConnections>, [ClientId; 2], SocketAddr) {
        let limits =
            Limits { client_connections: limit_of_one, connection_idle_time: 10 * SECOND, ..Limits::default() };
        let clients = [1, 2].map(|number| ClientId::Certificate([number; 32]));
        (OpenConnections::within(&limits), clients, "127.0.0.1:1".parse().unwrap())
    }

    fn is_closed(place: &ConnectionPlace) -> bool {
        place.connection.close.is_cancelled()
    }

    #[test]
    fn the_longest_idle_connection_of_a_client_is_closed_for_its_next_one() {
        let (all, [one, two], address) = opened(2);
        let begin = Instant::now();
        let first = all.try_open(one, address, begin).unwrap();
        let second = all.try_open(one, address, begin + SECOND).unwrap();
        let other = all.try_open(two, address, begin).unwrap();
        let early = all.try_open(one, address, begin + 4 * SECOND).unwrap_err();
        assert_eq!(early, NoPlace::Idle(6 * SECOND));
        let third = all.try_open(one, address, begin + 10 * SECOND).unwrap();
        assert_eq!([&first, &second, &other, &third].map(is_closed), [true, false, false, false]);
        drop(first);
        drop(third);
        assert!(all.try_open(one, address, begin).is_ok(), "a place is free");
    }

    #[test]
    fn a_connection_in_use_stays() {
        let (all, [one, _], address) = opened(2);
        let begin = Instant::now();
        let used = all.try_open(one, address, begin).unwrap();
        let request = used.connection().begin_request();
        let idle = all.try_open(one, address, begin).unwrap();
        let late = begin + 100 * SECOND;
        let newest = all.try_open(one, address, late).unwrap();
        assert_eq!([&used, &idle, &newest].map(is_closed), [false, true, false]);
        let _second = newest.connection().begin_request();
        assert_eq!(all.try_open(one, address, late + 100 * SECOND).unwrap_err(), NoPlace::InUse);
        request.wait_for_client(true);
        assert!(used.connection().idle_since().is_some(), "no reply is received");
        request.wait_for_client(false);
        assert!(used.connection().idle_since().is_none());
        drop(request);
        assert!(all.try_open(one, address, late + 100 * SECOND).is_ok() && is_closed(&used));
    }
}
