//! What an agent serves at the same time, a number of all clients together and of each: runs, profiles and measurements of
//! links.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{client_id::ClientId, error::HostError};

/// A limit on all clients together, and one on each.
#[derive(Debug)]
pub(super) struct ConcurrencyLimit {
    limit: usize,
    limit_of_one: usize,
    held: Mutex<HashMap<ClientId, usize>>,
}

/// Counts towards the limits until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    of: Arc<ConcurrencyLimit>,
    client_id: ClientId,
}

impl ConcurrencyLimit {
    /// At most `limit`, and `limit_of_one` of each client.
    pub fn new(limit: usize, limit_of_one: usize) -> Arc<ConcurrencyLimit> {
        Arc::new(ConcurrencyLimit { limit, limit_of_one, held: Mutex::default() })
    }

    /// Another one of `client_id`.
    ///
    /// # Errors
    /// If it has as many as it may, or all have.
    pub fn begin(self: &Arc<ConcurrencyLimit>, client_id: ClientId) -> Result<Permit, HostError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.values().sum::<usize>() >= self.limit {
            return Err(HostError::Jobs { limit: self.limit, who: "all clients" });
        }
        let own = held.entry(client_id).or_default();
        if *own >= self.limit_of_one {
            return Err(HostError::Jobs { limit: self.limit_of_one, who: "this client" });
        }
        *own += 1;
        Ok(Permit { of: self.clone(), client_id })
    }

    /// How many there are at the moment.
    pub fn held(&self) -> usize {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = self.of.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = held.get_mut(&self.client_id) {
            *own -= 1;
            if *own == 0 {
                held.remove(&self.client_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_takes_the_places_of_all() {
        let limit = ConcurrencyLimit::new(3, 2);
        let [one, two] = [1, 2].map(|number| ClientId::Certificate([number; 32]));
        let first = limit.begin(one).unwrap();
        let _second = limit.begin(one).unwrap();
        assert!(limit.begin(one).unwrap_err().to_string().contains("2 requests of this client"));
        let _third = limit.begin(two).unwrap();
        assert!(limit.begin(two).unwrap_err().to_string().contains("3 requests of all clients"));
        drop(first);
        assert!(limit.begin(two).is_ok());
    }
}
