//! What an agent serves at the same time, a number of all clients together and of each: runs, profiles and measurements of
//! links; connections too.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{connection_info::Holder, error::HostError};

/// All that are served.
#[derive(Debug)]
pub(super) struct Jobs {
    limit: usize,
    limit_of_one: usize,
    held: Mutex<HashMap<Holder, usize>>,
}

/// One that is served, until dropped.
#[derive(Debug)]
pub(super) struct Job {
    jobs: Arc<Jobs>,
    holder: Holder,
}

impl Jobs {
    /// At most `limit`, and `limit_of_one` of each client.
    pub fn new(limit: usize, limit_of_one: usize) -> Arc<Jobs> {
        Arc::new(Jobs { limit, limit_of_one, held: Mutex::default() })
    }

    /// Another one of `holder`.
    ///
    /// # Errors
    /// If it has as many as it may, or all have.
    pub fn begin(self: &Arc<Jobs>, holder: Holder) -> Result<Job, HostError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.values().sum::<usize>() >= self.limit {
            return Err(HostError::Jobs { limit: self.limit, who: "all clients" });
        }
        let own = held.entry(holder).or_default();
        if *own >= self.limit_of_one {
            return Err(HostError::Jobs { limit: self.limit_of_one, who: "this client" });
        }
        *own += 1;
        Ok(Job { jobs: self.clone(), holder })
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let mut held = self.jobs.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = held.get_mut(&self.holder) {
            *own -= 1;
            if *own == 0 {
                held.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_takes_the_places_of_all() {
        let jobs = Jobs::new(3, 2);
        let [one, two] = [1, 2].map(|number| Holder::Certificate([number; 32]));
        let first = jobs.begin(one).unwrap();
        let _second = jobs.begin(one).unwrap();
        assert!(jobs.begin(one).unwrap_err().to_string().contains("2 requests of this client"));
        let _third = jobs.begin(two).unwrap();
        assert!(jobs.begin(two).unwrap_err().to_string().contains("3 requests of all clients"));
        drop(first);
        assert!(jobs.begin(two).is_ok());
    }
}
