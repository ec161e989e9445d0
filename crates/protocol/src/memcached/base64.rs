//! Base 64 as the meta commands use it for keys (RFC 4648, with padding).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn sextet(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

/// Decodes `text` into `out`, which must be long enough; returns the number of bytes. Bits beyond
/// the last byte are ignored.
pub(super) fn decode(text: &[u8], out: &mut [u8]) -> Option<usize> {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    if padding > 2 {
        return None;
    }
    let digits = &text[..text.len() - padding];
    let mut count = 0;
    for group in digits.chunks(4) {
        let mut bits = 0;
        for byte in group {
            bits = bits << 6 | sextet(*byte)?;
        }
        bits <<= 6 * (4 - group.len());
        for byte in &bits.to_be_bytes()[1..group.len()] {
            *out.get_mut(count)? = *byte;
            count += 1;
        }
    }
    Some(count)
}

/// Appends `bytes` in base 64.
pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for place in 0..4 {
            out.push(if place > group.len() {
                b'='
            } else {
                ALPHABET[(bits >> (18 - 6 * place) & 63) as usize]
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &[u8]) -> Option<Vec<u8>> {
        let mut out = [0; 190];
        let count = decode(text, &mut out)?;
        Some(out[..count].to_vec())
    }

    #[test]
    fn what_is_encoded_is_decoded_alike() {
        for len in 0..60_u8 {
            let bytes: Vec<u8> = (0..len).map(|byte| byte.wrapping_mul(151)).collect();
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            assert_eq!(decoded(&text), (len > 0).then_some(bytes));
        }
        assert_eq!(decoded(b"YR==").as_deref(), Some(&b"a"[..]));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            &b"Y"[..],
            b"YQ",
            b"YQ=",
            b"Y===",
            b"====",
            b"Y$==",
            b"Y=Q=",
            b"YQ==YQ==",
            b"YWFh-_==",
        ] {
            assert_eq!(decoded(text), None, "{text:?}");
        }
    }
}
