//! Which engine computes on CPUs: flags that several verbs share.

use std::path::PathBuf;

use super::caller::notice;
use edgecut_engine::{EngineChoice, EngineOptions, Fallback};

/// The engine of CPUs.
#[derive(Debug, Clone, clap::Args)]
pub struct EngineFlags {
    /// Engine of CPUs: tract (embedded), onnxruntime, or auto (the faster)
    ///
    /// tract needs nothing to be installed. onnxruntime is found at run time: `pip install onnxruntime` is enough. auto
    /// compares both on every part of the model. On a cluster without this flag, each server's own engine.
    #[arg(long, help_heading = "Cluster", value_name = "NAME")]
    pub engine: Option<EngineChoice>,

    /// The library of ONNX Runtime; if not given, ORT_DYLIB_PATH, the Python package's, the system's
    #[arg(long, help_heading = "Cluster", value_name = "PATH", hide_short_help = true)]
    pub onnxruntime: Option<PathBuf>,

    /// ONNX Runtime's execution providers in order of preference, such as cuda,cpu
    #[cfg(feature = "onnxruntime")]
    #[arg(long, help_heading = "Cluster", value_name = "NAMES", value_delimiter = ',', hide_short_help = true)]
    pub providers: Vec<edgecut_engine::Provider>,
}

impl EngineFlags {
    /// How this process starts the engine of its CPU.
    pub fn options(&self) -> EngineOptions {
        EngineOptions {
            engine: self.engine.unwrap_or_default(),
            library: self.onnxruntime.clone(),
            look_for_all: false,
            #[cfg(feature = "onnxruntime")]
            providers: self.providers.clone(),
        }
    }
}

/// Says on stderr how many operators another engine than `engine` computes, and the first of them.
pub fn tell_fallbacks(engine: &str, operators: usize, fallbacks: &[Fallback]) {
    const SHOWN: usize = 5;
    if fallbacks.is_empty() {
        return;
    }
    notice!("{} of {operators} operators are computed by tract, not by {engine}:", fallbacks.len());
    for fallback in fallbacks.iter().take(SHOWN) {
        notice!("  {}: {}", fallback.operator, fallback.reason);
    }
    if fallbacks.len() > SHOWN {
        notice!("  and {} more", fallbacks.len() - SHOWN);
    }
}
