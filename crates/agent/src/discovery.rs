//! Where to look for servers that a cluster file does not name: each address of a name in the DNS has an agent.

use std::{fmt, str::FromStr};

/// Where to look for servers: `dns:HOST:PORT`. Certificates are issued to the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovery {
    host: String,
    port: u16,
}

impl FromStr for Discovery {
    type Err = String;

    fn from_str(text: &str) -> Result<Discovery, String> {
        let wrong = || format!("`{text}` is no place to look for servers: expected dns:HOST:PORT");
        let (host, port) = text.strip_prefix("dns:").and_then(|rest| rest.rsplit_once(':')).ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        match host.is_empty() || host.contains([':', '/', ' ', '[']) {
            true => Err(wrong()),
            false => Ok(Discovery { host: host.to_string(), port }),
        }
    }
}

impl fmt::Display for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dns:{}:{}", self.host, self.port)
    }
}

impl Discovery {
    pub fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_name_and_a_port() {
        for text in ["dns:agents.lab:7600", "dns:localhost:1"] {
            assert_eq!(text.parse::<Discovery>().unwrap().to_string(), text);
        }
        for text in ["agents.lab:7600", "dns:agents.lab", "dns::7600", "dns:a:99999", "dns:[::1]:7600", "dns:a b:1", ""]
        {
            let error = text.parse::<Discovery>().unwrap_err();
            assert!(error.contains("expected dns:HOST:PORT"), "{error}");
        }
    }
}
