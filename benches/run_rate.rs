//! Runs of a small plan on three agents, and as many bare tonic calls that carry the same bytes one after the other: what
//! agents, steps and traces cost beyond the sockets.

use std::{
    convert::Infallible,
    env,
    error::Error,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    task::{Context, Poll},
    time::Instant,
};

use edgecut::{engine::statistics::percentile, units::Micros};
use serde_json::Value;
use tonic::{
    Request, Response, Status,
    body::Body,
    client::Grpc,
    codegen::{BoxFuture, Service, http, http::uri::PathAndQuery},
    server::{Grpc as ServerGrpc, NamedService, UnaryService},
    transport::{Channel, Server, server::TcpIncoming},
};
use tonic_prost::ProstCodec;

/// Runs, and rounds of calls, of a turn.
const RUNS: usize = 3000;
const TURNS: usize = 3;
const WARM_UP: usize = 500;

/// With it, this program is the server of the calls.
const SERVER: &str = "EDGECUT_ECHO_SERVER";
const METHOD: &str = "/edgecut.Echo/Call";

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if env::var_os(SERVER).is_some() {
        return runtime.block_on(serve());
    }
    let folder = tempfile::tempdir()?;
    let names = ["s0", "s1", "s2"];
    let agents = names.map(|name| {
        let mut agent = edgecut(folder.path());
        agent.args(["agent", "--name", name, "--listen", "127.0.0.1:0", "--threads", "1"]);
        agent.stderr(Stdio::null());
        Peer::start(agent)
    });
    let mut cluster = String::new();
    let mut peers = Vec::new();
    for (name, agent) in names.iter().zip(agents) {
        let agent = agent?;
        cluster += &format!("[[server]]\nname = \"{name}\"\naddress = \"{}\"\n", agent.address);
        peers.push(agent);
    }
    std::fs::write(folder.path().join("cluster.toml"), cluster)?;
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/lstm.relay");
    let flags = "--cluster cluster.toml --profile-budget 500ms --rehearse 0 --budget 200 --no-split --output small.json \
                 --pin nn.dense*=s1/cpu --pin sigmoid*=s2/cpu";
    let mut plan = edgecut(folder.path());
    let made = plan.arg("plan").arg(model).args(flags.split_ascii_whitespace()).output()?;
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&made.stderr).into());
    }
    let mut server = Command::new(env::current_exe()?);
    server.env(SERVER, "1");
    let server = Peer::start(server)?;
    let bytes: Vec<usize> = sent(&run(folder.path(), WARM_UP)?);
    println!("{} transfers a run, {} bytes", bytes.len(), bytes.iter().sum::<usize>());
    runtime.block_on(call(&server.address, &bytes, WARM_UP))?;
    for _ in 0..TURNS {
        let begin = Instant::now();
        let outcome = run(folder.path(), RUNS)?;
        let rate = RUNS as f64 / begin.elapsed().as_secs_f64();
        let of = |name: &str| outcome["latency"][name].as_f64().unwrap_or_default();
        println!("runs:  {rate:.0} a second, median {:.0} us, p99 {:.0} us", of("median_us"), of("p99_us"));
        let begin = Instant::now();
        let times = runtime.block_on(call(&server.address, &bytes, RUNS))?;
        let rate = RUNS as f64 / begin.elapsed().as_secs_f64();
        let at = |q: f64| percentile(&times, q).0;
        println!("calls: {rate:.0} a second, median {:.0} us, p99 {:.0} us", at(0.5), at(0.99));
    }
    Ok(())
}

/// The program, in `folder`.
fn edgecut(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgecut"));
    command.current_dir(folder);
    command
}

/// The outcome of a run with `repeat` inferences.
fn run(folder: &Path, repeat: usize) -> Outcome<Value> {
    let flags = format!("run small.json --repeat {repeat} --no-check --no-replan --format json");
    let ended = edgecut(folder).args(flags.split_ascii_whitespace()).output()?;
    if !ended.status.success() {
        return Err(String::from_utf8_lossy(&ended.stderr).into());
    }
    Ok(serde_json::from_slice(&ended.stdout)?)
}

/// The sizes of what goes from server to server in a run.
fn sent(outcome: &Value) -> Vec<usize> {
    let transfers = outcome["transfers"].as_array().into_iter().flatten();
    transfers.filter_map(|transfer| Some(transfer["sent_bytes"].as_u64()? as usize)).collect()
}

/// A process that prints where it listens.
struct Peer {
    process: Child,
    address: String,
}

impl Peer {
    fn start(mut command: Command) -> Outcome<Peer> {
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let stdout = process.stdout.take().ok_or("stdout is a pipe")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on ").ok_or("it does not listen")?.to_string();
        Ok(Peer { process, address })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Takes bytes and answers nothing.
#[derive(Clone)]
struct Sink;

impl NamedService for Sink {
    const NAME: &'static str = "edgecut.Echo";
}

impl UnaryService<Vec<u8>> for Sink {
    type Response = Vec<u8>;
    type Future = BoxFuture<Response<Vec<u8>>, Status>;

    fn call(&mut self, _: Request<Vec<u8>>) -> Self::Future {
        Box::pin(async { Ok(Response::new(Vec::new())) })
    }
}

impl Service<http::Request<Body>> for Sink {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async { Ok(ServerGrpc::new(ProstCodec::<Vec<u8>, Vec<u8>>::default()).unary(Sink, request).await) })
    }
}

async fn serve() -> Outcome {
    let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?.with_nodelay(Some(true));
    println!("listening on {}", incoming.local_addr()?);
    Ok(Server::builder().add_service(Sink).serve_with_incoming(incoming).await?)
}

/// Calls the server once for each of `sizes`, and all of that `times` times; the time of each round.
async fn call(address: &str, sizes: &[usize], times: usize) -> Outcome<Vec<Micros>> {
    let channel = Channel::from_shared(format!("http://{address}"))?.tcp_nodelay(true).connect().await?;
    let mut client = Grpc::new(channel);
    let mut taken = Vec::with_capacity(times);
    for _ in 0..times {
        let begin = Instant::now();
        for size in sizes {
            client.ready().await?;
            let codec = ProstCodec::<Vec<u8>, Vec<u8>>::default();
            client.unary(Request::new(vec![0; *size]), PathAndQuery::from_static(METHOD), codec).await?;
        }
        taken.push(Micros::from(begin.elapsed()));
    }
    Ok(taken)
}
