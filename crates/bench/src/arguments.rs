//! Numbers on the command line; impossible ones are refused at once.

/// A count of at least one.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("not a whole number of at least 1".into()),
        Ok(count) => Ok(count),
    }
}

/// Seconds above 0, a day at most.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|seconds: &f64| *seconds > 0.0 && *seconds <= 86_400.0);
    seconds.ok_or_else(|| "not a number of seconds above 0, a day at most".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_refused() {
        assert_eq!(count("3"), Ok(3));
        assert!(
            ["0", "-1", "", "many"]
                .iter()
                .all(|text| count(text).is_err())
        );
        assert_eq!(seconds("0.5"), Ok(0.5));
        let wrong = ["0", "-1", "NaN", "inf", "86401", "soon"];
        assert!(wrong.iter().all(|text| seconds(text).is_err()));
    }
}
