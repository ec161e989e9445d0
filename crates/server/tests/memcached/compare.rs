//! How two answers are compared: line by line, and what differs by design by its kind.

/// Whether two answers agree, but for the listed differences.
pub(super) fn agree(ours: &[u8], theirs: &[u8]) -> bool {
    if ours == theirs {
        return true;
    }
    let lines = |answer: &[u8]| -> Vec<Vec<u8>> {
        answer
            .split(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect()
    };
    let (ours, theirs) = (lines(ours), lines(theirs));
    ours.len() == theirs.len()
        && ours
            .iter()
            .zip(&theirs)
            .all(|(ours, theirs)| ours == theirs || lines_agree(ours, theirs))
}

fn lines_agree(ours: &[u8], theirs: &[u8]) -> bool {
    let words = |line: &[u8]| -> Vec<String> {
        let line = String::from_utf8_lossy(line).trim_end().to_owned();
        line.split(' ').map(str::to_owned).collect()
    };
    let (ours, theirs) = (words(ours), words(theirs));
    if ours.len() != theirs.len() || ours[0] != theirs[0] {
        return false;
    }
    let pairs = ours.iter().zip(&theirs).skip(1);
    match ours[0].as_str() {
        // The token is the fifth word.
        "VALUE" if ours.len() == 5 => ours[1..4] == theirs[1..4],
        "VA" | "HD" | "EN" | "NF" | "NS" | "EX" => pairs
            .into_iter()
            .all(|(ours, theirs)| flags_agree(ours, theirs)),
        _ => false,
    }
}

fn flags_agree(ours: &str, theirs: &str) -> bool {
    if ours == theirs {
        return true;
    }
    let number = |word: &str| word.get(1..).and_then(|digits| digits.parse::<i128>().ok());
    let (Some(letter), Some(a), Some(b)) = (ours.chars().next(), number(ours), number(theirs))
    else {
        return false;
    };
    if !theirs.starts_with(letter) {
        return false;
    }
    match letter {
        // No token is 0.
        'c' => a != 0 && b != 0,
        // Never stays never; both round, and a second may pass between them.
        't' => a >= 0 && b >= 0 && (a - b).abs() <= 2,
        'h' | 'l' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The canary: what must not pass for the same.
    #[test]
    fn differences_are_caught() {
        let theirs = b"VA 2 c5 t30 f7 W\r\nab\r\nVALUE k 0 1 9\r\nx\r\nEND\r\n";
        assert!(agree(
            b"VA 2 c987 t29 f7 W\r\nab\r\nVALUE k 0 1 1234\r\nx\r\nEND\r\n",
            theirs
        ));
        for planted in [
            &b"VA 2 c5 t30 f7 Z\r\nab\r\nVALUE k 0 1 9\r\nx\r\nEND\r\n"[..],
            b"VA 2 c5 t30 f7\r\nab\r\nVALUE k 0 1 9\r\nx\r\nEND\r\n",
            b"VA 2 c0 t30 f7 W\r\nab\r\nVALUE k 0 1 9\r\nx\r\nEND\r\n",
            b"VA 2 c5 t-1 f7 W\r\nab\r\nVALUE k 0 1 9\r\nx\r\nEND\r\n",
            b"VA 2 c5 t35 f7 W\r\nab\r\nVALUE k 0 1 9\r\nx\r\nEND\r\n",
            b"VA 2 c5 t30 f8 W\r\nab\r\nVALUE k 0 1 9\r\nx\r\nEND\r\n",
            b"VA 2 c5 t30 f7 W\r\naB\r\nVALUE k 0 1 9\r\nx\r\nEND\r\n",
            b"VA 2 c5 t30 f7 W\r\nab\r\nVALUE k 1 1 9\r\nx\r\nEND\r\n",
            b"VA 2 c5 t30 f7 W\r\nab\r\nVALUE k 0 1\r\nx\r\nEND\r\n",
            b"VA 2 t30 c5 f7 W\r\nab\r\nVALUE k 0 1 9\r\nx\r\nEND\r\n",
            b"VA 2 c5 t30 f7 W\r\nab\r\nVALUE k 0 1 9\r\nx\r\n",
            b"HD c5 t30 f7 W\r\nab\r\nVALUE k 0 1 9\r\nx\r\nEND\r\n",
        ] {
            assert!(!agree(planted, theirs), "{}", planted.escape_ascii());
        }
    }
}
