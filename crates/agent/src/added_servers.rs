//! Servers added to the text of a cluster file, which otherwise stays as it was written.

use std::{collections::BTreeSet, path::Path};

use crate::{Cluster, ClusterError, Endpoint, mdns::AnnouncedAgent};

/// A cluster file with more servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedServers {
    pub text: String,
    /// How many were added.
    pub count: usize,
    /// Those that were not, because another one has their name or address: one line each.
    pub skipped: Vec<String>,
}

impl AddedServers {
    /// `text` with a server for each of `agents` that it does not have; those that it has, by their names, stay as they are.
    ///
    /// # Errors
    /// If the text is no cluster file; one without servers, or an empty one, is.
    pub fn new(text: &str, folder: &Path, agents: &[AnnouncedAgent]) -> Result<AddedServers, ClusterError> {
        let known = match text.contains("[[server]]") {
            true => Cluster::parse(text, folder)?.servers,
            false => Vec::new(),
        };
        let address = |endpoint: &Endpoint| match endpoint {
            Endpoint::Remote { address, .. } => Some(address.clone()),
            Endpoint::Embedded => None,
        };
        let mut names: BTreeSet<_> = known.iter().map(|server| server.name.clone()).collect();
        let mut addresses: BTreeSet<String> = known.iter().filter_map(|server| address(&server.endpoint)).collect();
        let mut added = AddedServers { text: text.to_string(), count: 0, skipped: Vec::new() };
        for AnnouncedAgent { name, address, .. } in agents {
            let is_known = known.iter().any(|server| server.name == *name);
            let is_free = !names.contains(name) && !addresses.contains(&address.to_string());
            if !is_free {
                // Found once more, what is known already needs no word.
                if !is_known {
                    added.skipped.push(format!("{name} at {address}: another server has this name or address"));
                }
                continue;
            }
            names.insert(name.clone());
            addresses.insert(address.to_string());
            if !added.text.is_empty() {
                added.text.push_str(if added.text.ends_with('\n') { "\n" } else { "\n\n" });
            }
            let name = toml::Value::from(name.as_str());
            added.text.push_str(&format!("[[server]]\nname = {name}\naddress = \"{address}\"\n"));
            added.count += 1;
        }
        if added.count > 0 {
            Cluster::parse(&added.text, folder)?;
        }
        Ok(added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str, address: &str) -> AnnouncedAgent {
        AnnouncedAgent { name: name.into(), address: address.parse().unwrap(), has_tls: true }
    }

    fn add(text: &str, agents: &[AnnouncedAgent]) -> Result<AddedServers, ClusterError> {
        AddedServers::new(text, Path::new(""), agents)
    }

    const ONE: &str = "[[server]]\nname = \"one\"\naddress = \"10.0.0.1:7600\"\n";
    const TWO: &str = "[[server]]\nname = \"two\"\naddress = \"[fd00::2]:7601\"\n";

    #[test]
    fn what_a_file_has_stays_and_new_servers_come_after_it() {
        let agents = [agent("one", "10.0.0.1:7600"), agent("two", "[fd00::2]:7601")];
        let made = add("", &agents).unwrap();
        assert_eq!((made.text, made.count, made.skipped.len()), (format!("{ONE}\n{TWO}"), 2, 0));
        // A server is known by its name; an address that was written by hand stays.
        let seeds = "# by hand\n[[server]]\nname = \"one\"\naddress = \"one.lab:7600\"\nmemory = \"1GiB\"";
        let made = add(seeds, &agents).unwrap();
        assert_eq!((made.text, made.count), (format!("{seeds}\n\n{TWO}"), 1));
        let comment = "# servers come here\n";
        assert_eq!(add(comment, &agents[..1]).unwrap().text, format!("{comment}\n{ONE}"));
        assert!(add("[[server]]\nname = 7\n", &agents).is_err());
    }

    #[test]
    fn of_two_with_one_name_or_address_the_first_is_added() {
        let agents = [agent("one", "10.0.0.1:7600"), agent("one", "10.0.0.2:7600"), agent("three", "10.0.0.1:7600")];
        let made = add("", &agents).unwrap();
        assert_eq!((made.text.as_str(), made.count, made.skipped.len()), (ONE, 1, 2), "{made:?}");
        let again = add(ONE, &agents).unwrap();
        assert_eq!((again.text.as_str(), again.count, again.skipped.len()), (ONE, 0, 1), "{again:?}");
    }
}
