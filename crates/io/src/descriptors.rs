//! How many files, sockets included, the process may open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to `wanted`, as far as the hard limit allows (which is
/// raised too where the process may). Returns the limit that holds then; it may be higher or lower
/// than `wanted`.
pub fn raise_limit(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if hard < wanted {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: Some(wanted),
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return wanted;
        }
    }
    let possible = wanted.min(hard);
    let raised = Rlimit {
        current: Some(possible),
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => possible.max(current),
        Err(_) => current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_high_enough_stays() {
        let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert_eq!(raise_limit(1), current);
        assert!(raise_limit(current.min(1 << 40)) >= current.min(1 << 40));
    }
}
