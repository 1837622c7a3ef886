//! Flags that choose engines, shared by several verbs.

use std::path::PathBuf;

use edgecut_session::{SiteOptions, engine::EngineChoice};

/// The engine of CPUs, and the providers of ONNX Runtime.
#[derive(Debug, Clone, clap::Args)]
pub struct EngineFlags {
    /// Engine of CPUs: tract (embedded), onnxruntime, or auto (the faster)
    ///
    /// tract needs nothing to be installed. onnxruntime is found at run time: `pip install onnxruntime` is enough. auto
    /// compares both on every part of the model. On a cluster without this flag, each server's own engine.
    #[arg(long, help_heading = "Cluster", value_name = "NAME")]
    pub engine: Option<EngineChoice>,

    /// ONNX Runtime's library; else ORT_DYLIB_PATH, the Python package's, the system's
    #[arg(long, help_heading = "Cluster", value_name = "PATH", hide_short_help = true)]
    pub onnxruntime: Option<PathBuf>,

    /// ONNX Runtime's execution providers in order of preference, such as cuda,cpu
    #[cfg(feature = "onnxruntime")]
    #[arg(long, help_heading = "Cluster", value_name = "NAMES", value_delimiter = ',', hide_short_help = true)]
    pub providers: Vec<edgecut_session::engine::Provider>,
}

impl EngineFlags {
    /// The options of these flags alone.
    pub fn options(&self) -> SiteOptions {
        SiteOptions {
            engine: self.engine,
            onnxruntime: self.onnxruntime.clone(),
            #[cfg(feature = "onnxruntime")]
            providers: self.providers.clone(),
            ..SiteOptions::default()
        }
    }
}
