//! The server whose slower link direction, to or from the cluster's source, copies fastest.

use edgecut_graph::{LinkCost, units::Bytes};

use crate::{Cluster, LinkTable};

/// The size of the copy by which servers are compared.
const COMPARED_SIZE: Bytes = Bytes(1 << 20);

/// The nearest other server with links in both directions, given or measured, and the cost of the slower direction;
/// `None` if there is no such server.
pub fn nearest(cluster: &Cluster, measured: &LinkTable) -> Option<(String, LinkCost)> {
    let here = cluster.source.as_str();
    let cost = |from: &str, to: &str| {
        let given = cluster.link(from, to).map(|link| link.cost);
        given.or_else(|| measured.find(cluster, from, to).map(|row| row.link().cost))
    };
    let slower = |there: &str| {
        let (to, from) = (cost(here, there)?, cost(there, here)?);
        Some(if to.time(COMPARED_SIZE).0 > from.time(COMPARED_SIZE).0 { to } else { from })
    };
    let others = cluster.servers.iter().map(|server| server.name.as_str()).filter(|name| *name != here);
    let linked = others.filter_map(|name| Some((name.to_string(), slower(name)?)));
    linked.min_by(|a, b| a.1.time(COMPARED_SIZE).0.total_cmp(&b.1.time(COMPARED_SIZE).0))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn cluster(links: &str) -> Cluster {
        let server = |name: &str| format!("[[server]]\nname = \"{name}\"\naddress = \"{name}:1\"\n");
        Cluster::parse(&(["a", "b", "c"].map(server).concat() + links), Path::new("")).unwrap()
    }

    fn link(from: &str, to: &str, rate: &str, more: &str) -> String {
        format!("[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nlatency = \"1us\"\nrate = \"{rate}\"\n{more}")
    }

    #[test]
    fn the_slower_direction_counts() {
        let both = "both_ways = true\n";
        let cases = [
            (String::new(), None),
            // One direction is not enough.
            (link("a", "b", "1GB/s", ""), None),
            (link("a", "b", "1GB/s", both), Some("b")),
            (link("a", "b", "1GB/s", both) + &link("a", "c", "2GB/s", both), Some("c")),
            (link("a", "b", "1GB/s", both) + &link("a", "c", "9GB/s", "") + &link("c", "a", "1MB/s", ""), Some("b")),
        ];
        for (links, expected) in cases {
            let found = nearest(&cluster(&links), &LinkTable::default());
            assert_eq!(found.map(|(name, _)| name).as_deref(), expected, "{links}");
        }
    }
}
