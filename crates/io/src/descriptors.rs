//! How many files, sockets included, the process may open.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to `wanted`, as far as the hard limit allows (which is
/// raised too if the process may). Returns the resulting limit, which may be higher or lower than
/// `wanted`.
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

/// Whether a file could not be opened because too many are open, in the process or on the machine.
#[must_use]
pub fn have_run_out(error: &std::io::Error) -> bool {
    let errors = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
    errors.contains(&error.raw_os_error())
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

    #[test]
    fn one_file_too_many_is_told_apart() {
        let error = |errno: Errno| std::io::Error::from_raw_os_error(errno.raw_os_error());
        assert!(have_run_out(&error(Errno::MFILE)) && have_run_out(&error(Errno::NFILE)));
        assert!(!have_run_out(&error(Errno::IO)) && !have_run_out(&error(Errno::NOSPC)));
        assert!(!have_run_out(&std::io::ErrorKind::Other.into()));
    }
}
