//! Connections that are open and ask for nothing: they keep no client out.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};

use edgecut::agent::protocol::run::RunEvent;
use tokio::sync::mpsc::error::TryRecvError;

use crate::hostile_clients::{Lab, SOON, agent, setup};

/// A connection that speaks HTTP/2 and asks for nothing.
fn idle_connection(lab: &Lab) -> TcpStream {
    /// A frame of settings without any, which acknowledges none.
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let mut socket = lab.connect();
    // Fails if it is refused.
    let _ = socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").and_then(|()| socket.write_all(&SETTINGS));
    socket
}

/// The same, with its place: those of clients that have gone may still be taken for a moment.
fn accepted_connection(lab: &Lab) -> TcpStream {
    let begin = Instant::now();
    while begin.elapsed() < SOON {
        let mut socket = idle_connection(lab);
        socket.set_read_timeout(Some(SOON)).unwrap();
        // It has its place when it is answered.
        if socket.read(&mut [0; 64]).is_ok_and(|count| count > 0) {
            return socket;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no connection is accepted");
}

/// Whether what an agent sends to such a connection ends, in time.
fn ends(socket: &mut TcpStream) -> bool {
    socket.set_read_timeout(Some(SOON)).unwrap();
    let begin = Instant::now();
    while begin.elapsed() < SOON {
        match socket.read(&mut [0; 256]) {
            Ok(count) if count > 0 => {}
            Ok(_) => return true,
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_keep_no_one_out() {
    for limit in ["connections=8", "client-connections=8"] {
        let lab = Lab::plain(&["--limit", limit, "--limit", "connection-idle-time=100ms"]);
        let mut run = agent(&lab, "client").await.run(Arc::new(setup("kept")));
        assert_eq!(run.events.recv().await.unwrap().unwrap(), RunEvent::Admitted);
        let mut idle: Vec<TcpStream> = (0..7).map(|_| accepted_connection(&lab)).collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        lab.serves("devices");
        assert!(ends(&mut idle[0]), "{limit}: the connection that was idle longest is closed");
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(1) {
            idle.push(idle_connection(&lab));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        lab.serves("devices");
        assert!(matches!(run.events.try_recv(), Err(TryRecvError::Empty)), "{limit}: the run goes on");
    }
}
