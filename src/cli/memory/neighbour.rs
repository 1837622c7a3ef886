//! `edgecut memory MODEL --cluster`: where else than on the device a tensor may lie meanwhile.

use std::path::Path;

use miette::Report;

use crate::{
    agent::fleet::read_links,
    cli::{Failure, cluster::read_cluster},
    cluster::{Cluster, LinkCost, LinkTable},
    memory::program::HostLink,
    units::Bytes,
};

/// Where measured links are kept.
const LINKS: &str = "profiles/links.csv";
/// The size of the copy by which neighbours are compared.
const COPY: Bytes = Bytes(1 << 20);

/// The server that the source of the cluster can copy to and back from in the least time, and what a copy costs.
pub fn nearest(path: &Path) -> Result<(String, HostLink), Failure> {
    let cluster = read_cluster(path)?;
    let measured = read_links(Path::new(LINKS)).map_err(Failure::bad_input)?;
    let here = cluster.source.as_str();
    let others = cluster.servers.iter().map(|server| server.name.as_str()).filter(|name| *name != here);
    let there_and_back = |there: &str| {
        let (to, from) = (cost(&cluster, &measured, here, there)?, cost(&cluster, &measured, there, here)?);
        // One figure for both directions: that of the slower one.
        Some(if to.time(COPY).0 > from.time(COPY).0 { to } else { from })
    };
    let known = others.filter_map(|name| Some((name, there_and_back(name)?)));
    let nearest = known.min_by(|a, b| a.1.time(COPY).0.total_cmp(&b.1.time(COPY).0));
    let Some((name, cost)) = nearest else {
        let text = format!(
            "{}: no link from `{here}` to another server and back is known; `edgecut devices --cluster {}` measures them, \
             or a [[link]] of the file tells",
            path.display(),
            path.display()
        );
        return Err(Failure::BadInput(Report::msg(text)));
    };
    Ok((name.to_string(), HostLink { fixed: cost.latency.0, per_byte: 1.0 / cost.rate.0 }))
}

fn cost(cluster: &Cluster, measured: &LinkTable, from: &str, to: &str) -> Option<LinkCost> {
    let told = cluster.link(from, to).map(|link| link.cost);
    told.or_else(|| measured.find(cluster, from, to).map(|row| row.link().cost))
}
