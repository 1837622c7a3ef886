//! `edgecut cluster init`: an authority, and certificates for the agents of a cluster file and for operators.

use edgecut_graph::check_name;
use edgecut_session::{cluster::read_cluster, input::read_document, located::Located, output};
use std::path::{Path, PathBuf};

use smol_str::SmolStr;

use super::certificates::{Certificates, failure};
use crate::{Failure, Outcome, stderr};
use edgecut_agent::{
    Endpoint, Server,
    authority::{Authority, Issue, Subject},
    protocol::peer::Peer,
};

/// Make certificates for the agents of a cluster file and for those who use them.
///
/// Makes an authority where there is none, issues what is missing, revoked, or ends within 30 days, and adds a [tls] table to
/// the cluster file if it has none. Agents take commands from the holders of an operator's certificate alone.
#[derive(clap::Args)]
pub struct Init {
    #[command(flatten)]
    certificates: Certificates,
    /// Who may use the cluster (repeatable)
    #[arg(long = "operator", value_name = "NAME", default_value = "operator", value_parser = name)]
    operators: Vec<SmolStr>,
    /// How long new certificates are valid
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Issue new certificates to all servers and the operators that are named; agents read new files without a restart
    #[arg(long)]
    renew: bool,
}

/// A name that files can have.
fn name(text: &str) -> Result<SmolStr, String> {
    check_name(text).map_err(|error| format!("an operator {error}"))
}

impl Init {
    pub fn run(self) -> Outcome {
        let path = &self.certificates.file;
        let cluster = read_cluster(path, &stderr::events())?;
        let servers: Vec<&Server> = cluster.servers.iter().collect();
        let agents: Vec<Subject> = servers.iter().filter_map(|server| Subject::of_server(server)).collect();
        if agents.is_empty() {
            let message = "no server has an address: a cluster of this process alone needs no certificates";
            return Err(Failure::bad_input(Located::new(path, std::io::Error::other(message))));
        }
        let subjects = agents.iter().cloned().chain(self.operators.iter().cloned().map(Subject::operator));
        let subjects: Vec<Subject> = subjects.collect();
        if let Some(taken) = subjects.iter().find(|subject| is_taken(subject, &subjects)) {
            let message =
                format!("`{}` would be the name of two certificates: call the operator differently", taken.name);
            return Err(Failure::bad_input(Located::new(path, std::io::Error::other(message))));
        }
        let folder = self.certificates.folder();
        let name = path.file_stem().map_or_else(|| "a cluster".into(), |stem| stem.to_string_lossy());
        let authority = Authority::open(&folder, &name).map_err(failure)?;
        println!("{}: the authority; its key, ca.key, stays here", authority.certificate_file().display());
        for subject in &subjects {
            let validity = time::Duration::days(i64::from(self.days));
            let issue = authority.issue(subject, validity, self.renew).map_err(failure)?;
            let (certificate, _) = authority.files(&subject.name);
            let how = match issue {
                Issue::New => format!("new, for {} days", self.days),
                Issue::Kept => "kept".to_string(),
            };
            println!("{}: {}, {how}", certificate.display(), subject.role);
        }
        let is_other = |name: &String| subjects.iter().all(|subject| subject.name != *name);
        for name in authority.names().map_err(failure)?.into_iter().filter(is_other) {
            println!("{}: not looked at; name an operator with --operator", authority.files(&name).0.display());
        }
        if cluster.tls.is_none() {
            let Some(operator) = self.operators.first() else { return Ok(()) };
            add_tls(path, &authority, operator)?;
            println!("{}: [tls] added, with the certificate of {operator}", path.display());
        }
        println!("\nCopy ca.pem, revoked.pem and an agent's own two files to its server, and start it there;");
        println!("--threads and --memory limit what it offers:");
        servers.iter().filter_map(|server| command(server)).for_each(|command| println!("  {command}"));
        Ok(())
    }
}

/// Whether another subject has the files of this one.
fn is_taken(subject: &Subject, all: &[Subject]) -> bool {
    let count = all.iter().filter(|other| other.name.eq_ignore_ascii_case(&subject.name)).count();
    count > 1
}

/// The command that starts the agent of a server.
fn command(server: &Server) -> Option<String> {
    let Endpoint::Remote { address, .. } = &server.endpoint else { return None };
    let port = address.rsplit_once(':').map_or("7600", |(_, port)| port);
    let is_local = Peer::of(server)
        .is_some_and(|_| ["127.", "localhost:", "[::1]:"].iter().any(|start| address.starts_with(start)));
    let listen = if is_local { address.clone() } else { format!("0.0.0.0:{port}") };
    let name = &server.name;
    Some(format!(
        "edgecut agent --name {name} --listen {listen} --tls-cert {name}.pem --tls-key {name}.key --client-ca ca.pem \
         --crl revoked.pem"
    ))
}

/// Appends a `[tls]` table to the cluster file.
fn add_tls(path: &Path, authority: &Authority, operator: &str) -> Outcome {
    let failed = |error: std::io::Error| Failure::failed(Located::new(path, error));
    let mut text = read_document(path).map_err(failed)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let (certificate, key) = authority.files(operator);
    text.push_str("\n[tls]\n");
    let entries =
        [("ca", authority.certificate_file()), ("cert", certificate), ("key", key), ("crl", authority.revoked_file())];
    for (name, file) in entries {
        let value = toml::Value::from(relative(&file, path)?.to_string_lossy().into_owned());
        text.push_str(&format!("{name} = {value}\n"));
    }
    output::write(path, text.as_bytes())
}

/// A path as the cluster file names it: relative to its folder if it is inside.
fn relative(file: &Path, cluster: &Path) -> Result<PathBuf, Failure> {
    let folder = cluster.parent().unwrap_or(Path::new(""));
    match file.strip_prefix(folder) {
        Ok(inside) if !inside.is_absolute() => Ok(inside.to_path_buf()),
        _ => std::path::absolute(file).map_err(Failure::failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_agent::protocol::role::Role;

    #[test]
    fn files_near_the_cluster_file_are_named_by_relative_paths() {
        for (file, cluster, want) in [
            ("certs/ca.pem", "lab.toml", "certs/ca.pem"),
            ("x/certs/ca.pem", "x/lab.toml", "certs/ca.pem"),
            ("/a/certs/ca.pem", "/a/lab.toml", "certs/ca.pem"),
            ("/b/ca.pem", "/a/lab.toml", "/b/ca.pem"),
            ("/b/ca.pem", "lab.toml", "/b/ca.pem"),
        ] {
            assert_eq!(relative(Path::new(file), Path::new(cluster)).unwrap(), Path::new(want), "{file} of {cluster}");
        }
    }

    #[test]
    fn names_are_those_of_different_files() {
        let subject = |name: &str| Subject { name: name.into(), role: Role::Operator, hosts: Vec::new() };
        let all = [subject("a"), subject("b"), subject("A"), subject("ca")];
        let taken: Vec<bool> = all.iter().map(|subject| is_taken(subject, &all)).collect();
        assert_eq!(taken, [true, false, true, false]);
    }
}
