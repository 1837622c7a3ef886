//! Where models are profiled, planned and run: the agents of a cluster, or this machine.

use std::path::{Path, PathBuf};

use edgecut_cluster::Cluster;
use edgecut_engine::{EngineChoice, EngineOptions};
use edgecut_graph::units::Micros;
use serde::Deserialize;
use tokio::runtime::Runtime;

use crate::{Error, Events, cluster::read_cluster, option_values, runtime::runtime};

/// Which devices are used, and how they compute.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SiteOptions {
    /// The cluster's servers, a TOML file; without it this machine alone, with an agent in this process.
    pub cluster: Option<PathBuf>,
    /// How long to wait for devices that others use; as their agents say if not given.
    #[serde(deserialize_with = "option_values::optional_time")]
    pub wait: Option<Micros>,
    /// Number of compute threads on every server. If not given, 1 on this machine alone, else that of the cluster file or
    /// of the agent.
    pub threads: Option<u32>,
    /// The engine of CPUs; if not given, each server's own.
    pub engine: Option<EngineChoice>,
    /// The library of ONNX Runtime for an engine in this process.
    pub onnxruntime: Option<PathBuf>,
    /// ONNX Runtime's execution providers in order of preference.
    #[cfg(feature = "onnxruntime")]
    #[serde(deserialize_with = "option_values::list")]
    pub providers: Vec<edgecut_engine::Provider>,
}

impl SiteOptions {
    /// How this process starts the engine of its CPU.
    pub fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            engine: self.engine.unwrap_or_default(),
            library: self.onnxruntime.clone(),
            look_for_all: false,
            #[cfg(feature = "onnxruntime")]
            providers: self.providers.clone(),
        }
    }

    /// Reads the cluster file; without one, the cluster is this machine with an embedded agent.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn cluster(&self, events: &Events) -> Result<Cluster, Error> {
        let cluster = match &self.cluster {
            Some(path) => read_cluster(path, events)?,
            None => Cluster::embedded(),
        };
        Ok(Cluster { wait: self.wait, ..cluster })
    }

    /// As [`SiteOptions::cluster`], with the threads and engines of these options.
    ///
    /// # Errors
    /// As [`SiteOptions::cluster`].
    pub fn cluster_to_measure(&self, events: &Events) -> Result<Cluster, Error> {
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

/// The servers that work is done on. Agents are reached by each verb.
pub struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) options: SiteOptions,
    pub(crate) runtime: Runtime,
    pub(crate) events: Events,
}

impl Site {
    /// The site of `options`; what is done there is heard by `events`.
    ///
    /// # Errors
    /// If the cluster file cannot be used.
    pub fn open(options: &SiteOptions, events: &Events) -> Result<Site, Error> {
        Site::of(options.cluster_to_measure(events)?, options, events)
    }

    /// The servers of `cluster`, whatever cluster file `options` have.
    ///
    /// # Errors
    /// If no threads can be started.
    pub(crate) fn of(cluster: Cluster, options: &SiteOptions, events: &Events) -> Result<Site, Error> {
        Ok(Site { cluster, options: options.clone(), runtime: runtime()?, events: events.clone() })
    }

    /// The servers, as the cluster file and the options say.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The cluster file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.options.cluster.as_deref()
    }
}
