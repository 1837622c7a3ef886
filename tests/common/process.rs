//! The program in processes of its own: agents, clients, and the certificates they know each other by.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use edgecut::agent::{authority, protocol::role::Role};

/// Hides NVIDIA GPUs from a program: tests are of the same devices on every machine.
const WITHOUT_GPUS: (&str, &str) = ("CUDA_VISIBLE_DEVICES", "");

/// The program.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgecut"));
    command.envs([WITHOUT_GPUS]);
    command
}

/// The program, started in `folder`.
pub fn edgecut(folder: &Path) -> Command {
    let mut command = program();
    // Defaults of the person who tests are not those of the tests.
    command.current_dir(folder).env("EDGECUT_CONFIG", "").env_remove("EDGECUT_CLUSTER");
    command
}

/// The path of one of the repository's models.
pub fn model(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(format!("{name}.relay"));
    path.to_string_lossy().into_owned()
}

/// Runs a command to its end, which must come in time.
pub fn within(patience: Duration, mut command: Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    ending(patience, child)
}

/// Runs the program in `folder` with the arguments in `line`: its exit code, and what it prints to stdout and stderr.
pub fn run(folder: &Path, line: &str) -> (Option<i32>, String, String) {
    let mut command = edgecut(folder);
    command.args(line.split_whitespace());
    texts(within(Duration::from_secs(300), command))
}

/// The same, to success: what it prints to stdout and stderr.
#[track_caller]
pub fn done(folder: &Path, line: &str) -> (String, String) {
    let (code, printed, said) = run(folder, line);
    assert_eq!(code, Some(0), "{line}: {said}");
    (printed, said)
}

/// Whether Python has these modules. Where nothing may be lacking, it has.
pub fn has_python(modules: &str) -> bool {
    let output = Command::new("python3").args(["-c", &format!("import {modules}")]).output();
    let has = output.is_ok_and(|output| output.status.success());
    assert!(has || std::env::var_os("EDGECUT_REQUIRE_SHARED").is_none(), "python3 lacks one of {modules}");
    has
}

/// A folder with `plan.json`, a plan of one of the repository's models for this machine alone, made without pilot runs.
pub fn planned(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, said) = run(folder.path(), &format!("plan {} --profile-budget 20ms --rehearse 0", model(name)));
    assert_eq!(code, Some(0), "{said}");
    folder
}

/// Status and body of what an agent serves at `path` of the address of its metrics.
pub fn get(metrics: &str, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(metrics).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    (status, text.split_once("\r\n\r\n").unwrap().1.to_string())
}

/// The value of a metric with its labels.
pub fn metric(metrics: &str, name: &str) -> Option<f64> {
    let (_, text) = get(metrics, "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

/// The exit code of a process, and what it printed to stdout and stderr.
pub fn texts(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// What a process did, once it has ended; it must end in time.
pub fn ending(patience: Duration, child: Child) -> Output {
    let pid = child.id();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(patience) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            signal(pid, "KILL");
            panic!("the program did not end within {patience:?}");
        }
    }
}

/// Sends a signal, `KILL` or `INT`.
pub fn signal(pid: u32, name: &str) {
    Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
}

/// An agent in processes of its own, killed when dropped.
pub struct AgentProcess {
    pub name: String,
    /// Where it listens, as it said itself.
    pub address: String,
    child: Child,
}

impl AgentProcess {
    pub fn start(name: &str, listen: &str, flags: &[String]) -> AgentProcess {
        let mut command = program();
        command.args(["agent", "--name", name, "--listen", listen, "--threads", "1"]).args(flags);
        AgentProcess::spawn(name, command.stderr(Stdio::null()))
    }

    /// As [`AgentProcess::start`], and where it serves its metrics.
    pub fn start_watched(name: &str, listen: &str, flags: &[String]) -> (AgentProcess, String) {
        let mut command = program();
        command.args(["agent", "--name", name, "--listen", listen, "--threads", "1", "--metrics", "127.0.0.1:0"]);
        let mut agent = AgentProcess::spawn(name, command.args(flags).stderr(Stdio::piped()));
        let mut said = BufReader::new(agent.child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("http://") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it serves no metrics");
        }
        let address = line.split("http://").nth(1).and_then(|text| text.split('/').next()).unwrap().to_string();
        // What it logs is read, so that it never waits for that.
        thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        (agent, address)
    }

    /// Starts the agent that `command` starts.
    pub fn spawn(name: &str, command: &mut Command) -> AgentProcess {
        let mut child = command.envs([WITHOUT_GPUS]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("it said {line:?}"));
        AgentProcess { name: name.to_string(), address: address.to_string(), child }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The process that it supervises, which serves and computes.
    pub fn worker(&self) -> u32 {
        let id = self.child.id();
        if !cfg!(target_os = "linux") {
            return id;
        }
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        children.split_ascii_whitespace().next().expect("an agent has a worker").parse().unwrap()
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it as a machine that hangs would: connections stay, nothing is answered.
    pub fn freeze(&self) {
        let worker = self.worker();
        signal(self.child.id(), "STOP");
        signal(worker, "STOP");
    }

    /// Asks it to stop; gives its exit code.
    pub fn terminate(&mut self, patience: Duration) -> Option<i32> {
        signal(self.child.id(), "TERM");
        self.wait(patience)
    }

    /// Its exit code, if it ends in time.
    pub fn wait(&mut self, patience: Duration) -> Option<i32> {
        let begin = std::time::Instant::now();
        while begin.elapsed() < patience {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cluster file of `agents`, without TLS and links.
pub fn cluster_of(agents: &[AgentProcess]) -> String {
    let server =
        |agent: &AgentProcess| format!("[[server]]\nname = \"{}\"\naddress = \"{}\"\n", agent.name, agent.address);
    agents.iter().map(server).collect()
}

/// Signs certificates and writes them into a folder.
pub struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// A new one, its certificate in `ca.pem`.
    pub fn new(folder: &Path) -> Authority {
        let authority = Authority { folder: folder.to_path_buf() };
        authority.open();
        authority
    }

    /// The authority of the folder, which has a lock on it.
    fn open(&self) -> authority::Authority {
        authority::Authority::open(&self.folder, "lab").unwrap()
    }

    /// Writes `name.pem` and `name.key`, good for connections on loopback.
    pub fn issue(&self, name: &str, role: Role) {
        let hosts = vec!["127.0.0.1".to_string(), "localhost".to_string()];
        let subject = authority::Subject { name: name.into(), role, hosts };
        self.open().issue(&subject, time::Duration::days(365), true).unwrap();
    }

    /// An agent's flags for the certificate called `name`.
    pub fn flags(&self, name: &str) -> Vec<String> {
        let at = |file: String| self.folder.join(file).to_string_lossy().into_owned();
        let (cert, key, ca) = (at(format!("{name}.pem")), at(format!("{name}.key")), at("ca.pem".to_string()));
        let flags =
            ["--tls-cert", &cert, "--tls-key", &key, "--client-ca", &ca, "--crl", &at("revoked.pem".to_string())];
        flags.into_iter().map(ToString::to_string).collect()
    }
}
