//! Sites: the servers where models are profiled, planned and run. They are the agents of a cluster, or this machine.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use edgecut_agent::{Cluster, MAX_THREADS, MAX_TIME};
use edgecut_engine::{EngineChoice, EngineOptions};
use edgecut_graph::units::Micros;
use serde::Deserialize;
use tokio::runtime::Runtime;

use crate::{Error, Events, cluster::read_cluster, option_values, runtime::runtime};

/// Which servers are used, and how they compute.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SiteOptions {
    /// The cluster file (TOML). Without one, the cluster is this machine, with an agent in this process.
    pub cluster: Option<PathBuf>,
    /// How long to wait for devices that other clients use. By default, each agent decides.
    #[serde(deserialize_with = "option_values::optional_time")]
    pub wait: Option<Micros>,
    /// Number of compute threads on every server. By default, 1 on this machine alone; otherwise the number in the
    /// cluster file or of the agent.
    pub threads: Option<u32>,
    /// The engine of CPUs. By default, each server's own.
    pub engine: Option<EngineChoice>,
    /// The ONNX Runtime library for an engine in this process.
    pub onnxruntime: Option<PathBuf>,
    /// Execution providers of ONNX Runtime, in order of preference.
    #[cfg(feature = "onnxruntime")]
    #[serde(deserialize_with = "option_values::list")]
    pub providers: Vec<edgecut_engine::Provider>,
}

impl SiteOptions {
    /// Checks the ranges of values.
    ///
    /// # Errors
    /// If the number of threads or the time is out of range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(threads) = self.threads.filter(|threads| !(1..=MAX_THREADS).contains(threads)) {
            let what = format!("option `threads={threads}`: expected a number from 1 to {MAX_THREADS}");
            return Err(Error::BadInput(what.into()));
        }
        if let Some(wait) = self.wait.filter(|wait| *wait > Micros::from(MAX_TIME)) {
            return Err(Error::BadInput(format!("option `wait={wait}`: at most a day").into()));
        }
        Ok(())
    }

    /// Options for the CPU engine of this process.
    pub fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            engine: self.engine.unwrap_or_default(),
            library: self.onnxruntime.clone(),
            look_for_all: false,
            #[cfg(feature = "onnxruntime")]
            providers: self.providers.clone(),
        }
    }

    /// Reads the cluster file. Without one, the cluster is this machine with an embedded agent.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn cluster(&self, events: &Events) -> Result<Cluster, Error> {
        self.check()?;
        let cluster = match &self.cluster {
            Some(path) => read_cluster(path, events)?,
            None => Cluster::embedded(),
        };
        Ok(Cluster { wait: self.wait, ..cluster })
    }

    /// Like [`SiteOptions::cluster`], with the threads and engines of these options.
    ///
    /// # Errors
    /// As of [`SiteOptions::cluster`].
    pub(crate) fn configured_cluster(&self, events: &Events) -> Result<Cluster, Error> {
        let mut cluster = self.cluster(events)?;
        for server in &mut cluster.servers {
            server.engine = self.engine.or(server.engine);
            server.embedded = self.engine_options();
        }
        let asked = match self.cluster {
            None => Some(self.threads.unwrap_or(1)),
            Some(_) => self.threads,
        };
        if asked.is_some() {
            for server in &mut cluster.servers {
                server.threads = asked;
                server.devices.iter_mut().for_each(|device| device.threads = None);
            }
        }
        Ok(cluster)
    }
}

/// The servers where work is done. Each verb connects to their agents.
pub struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) options: SiteOptions,
    /// Shared with the plans that are deployed.
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) events: Events,
}

impl Site {
    /// Opens the site of `options`. Its verbs report to `events`.
    ///
    /// # Errors
    /// If the cluster file cannot be used.
    pub fn open(options: &SiteOptions, events: &Events) -> Result<Site, Error> {
        Site::of(options.configured_cluster(events)?, options, events)
    }

    /// The site of `cluster`. The cluster file in `options` is ignored.
    ///
    /// # Errors
    /// If no threads can be started.
    pub(crate) fn of(cluster: Cluster, options: &SiteOptions, events: &Events) -> Result<Site, Error> {
        Ok(Site { cluster, options: options.clone(), runtime: Arc::new(runtime()?), events: events.clone() })
    }

    /// The servers, by the cluster file and the options.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The cluster file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.options.cluster.as_deref()
    }
}
