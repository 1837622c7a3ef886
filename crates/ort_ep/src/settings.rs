//! The options of the provider.

use std::{collections::BTreeMap, ffi::CStr, path::PathBuf};

use edgecut_ops::passes::bindings::BindSizes;
use edgecut_session::{ModelOptions, PlanOptions, SiteOptions, option_values::read, profile::DEFAULT_FOLDER};

use crate::{api::OrtSessionOptions, error::Error, runtime::Runtime};

/// How a session plans, and where.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The plan file. If it does not exist, it is made for `cluster`.
    pub plan: Option<PathBuf>,
    /// The cluster file, if not that of the plan.
    pub cluster: Option<PathBuf>,
    /// The model file, for a session created from memory.
    pub model: Option<PathBuf>,
    /// Sizes of unknown dimensions.
    pub bind_dim: Vec<BindSizes>,
    /// Further options of a plan that is made.
    pub plan_options: PlanOptions,
    /// The folder of profiles.
    pub profile: PathBuf,
}

/// The name of the provider. Sessions keep its options under it.
pub const NAME: &CStr = c"EdgecutExecutionProvider";

const OPTIONS: [&str; 6] = ["plan", "cluster", "model", "bind_dim", "plan_options", "profile"];

/// The cluster file where no option names one.
const CLUSTER: &str = "EDGECUT_CLUSTER";

impl Settings {
    /// The options of a session.
    ///
    /// # Errors
    /// If one cannot be read, or neither a plan nor a cluster is named.
    ///
    /// # Safety
    /// `options` are those of a session that is being made.
    pub unsafe fn of(runtime: Runtime, options: *const OrtSessionOptions) -> Result<Settings, Error> {
        let prefix = format!("ep.{}.", NAME.to_string_lossy().to_lowercase());
        // SAFETY: by the caller.
        let config = unsafe { runtime.config(options)? };
        let mut given: BTreeMap<&str, &str> =
            config.iter().filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?, value.as_str()))).collect();
        let mut text = |name: &str| given.remove(name);
        let named = std::env::var_os(CLUSTER).filter(|path| !path.is_empty()).map(PathBuf::from);
        let settings = Settings {
            plan: text("plan").map(PathBuf::from),
            cluster: text("cluster").map(PathBuf::from).or(named),
            model: text("model").map(PathBuf::from),
            bind_dim: text("bind_dim")
                .iter()
                .flat_map(|sizes| sizes.split_whitespace())
                .map(size)
                .collect::<Result<_, _>>()?,
            plan_options: read(text("plan_options").unwrap_or("{}"))?,
            profile: text("profile").unwrap_or(DEFAULT_FOLDER).into(),
        };
        if let Some(other) = given.keys().next() {
            let known = OPTIONS.join(", ");
            return Err(Error::Refused(format!("`{other}` is not an option of the provider: expected {known}")));
        }
        if settings.plan.is_none() && settings.cluster.is_none() {
            return Err(Error::Refused("give option `plan`, a plan file, or `cluster`, a cluster file".to_string()));
        }
        Ok(settings)
    }

    /// Options for reading the model.
    pub fn model_options(&self) -> ModelOptions {
        ModelOptions { bind_dim: self.bind_dim.clone(), ..ModelOptions::default() }
    }

    /// Whether the options are for one model: then a model that cannot be planned is an error, and is not left to other providers.
    pub fn is_of_one_model(&self) -> bool {
        self.plan.is_some() || self.model.is_some() || !self.bind_dim.is_empty()
    }

    pub fn site_options(&self) -> SiteOptions {
        SiteOptions { cluster: self.cluster.clone(), ..SiteOptions::default() }
    }
}

fn size(text: &str) -> Result<BindSizes, Error> {
    text.parse().map_err(|error| Error::Refused(format!("option `bind_dim`: {error}")))
}
