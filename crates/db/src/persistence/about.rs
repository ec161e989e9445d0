//! A checkpoint manifest's data besides its chunks.
//!
//! | bytes | field |
//! |---|---|
//! | 16 | the identity of the database |
//! | number | the newest durable epoch that had anything in the log when the checkpoint ended |
//! | number | how often the mapping of database numbers had changed |
//! | numbers | how many databases, then the tree of each |
//! | … | where it stands (`durable::standing`), if it has ever followed another database or anything follows |
//! | … | branches and lasting snapshots (`durable::catalog`), if there were ever any |

use pando_engine::{LogEpoch, TreeId};

use crate::durable::bytes::{Input, Malformed, Sink, malformed};
use crate::durable::catalog::Forest;
use crate::durable::standing::Standing;
use crate::limits;

/// See the module's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) identity: u128,
    pub(crate) written: LogEpoch,
    pub(crate) changes: u64,
    pub(crate) trees: Vec<TreeId>,
    pub(crate) standing: Standing,
    pub(crate) forest: Option<Forest>,
}

impl About {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.identity.to_le_bytes().to_vec();
        out.number(self.written.0);
        out.number(self.changes);
        out.number(self.trees.len() as u64);
        self.trees
            .iter()
            .for_each(|tree| out.number(u64::from(tree.0)));
        if self.standing.changes > 0 || self.forest.is_some() {
            self.standing.put(&mut out);
        }
        if let Some(forest) = &self.forest {
            forest.put(&mut out);
        }
        debug_assert_eq!(Self::decode(&out).as_ref(), Ok(self));
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut input = Input(bytes);
        let identity = input.take(16)?.try_into().expect("sixteen bytes");
        let (written, changes) = (LogEpoch(input.number()?), input.number()?);
        let count = input.length(limits::DATABASES_MAX)?;
        let mut trees = Vec::new();
        for _ in 0..count {
            trees.push(TreeId(input.length(u32::MAX as usize - 1)? as u32));
        }
        let standing = if input.is_empty() {
            Standing::default()
        } else {
            Standing::take(&mut input)?
        };
        let forest = if input.is_empty() {
            None
        } else {
            Some(Forest::take(&mut input)?)
        };
        if !input.is_empty() {
            return malformed("a manifest says more than this version knows");
        }
        Ok(Self {
            identity: u128::from_le_bytes(identity),
            written,
            changes,
            trees,
            standing,
            forest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let about = About {
            identity: 0x0102,
            written: LogEpoch(300),
            changes: 4,
            trees: vec![TreeId(9), TreeId(1)],
            standing: Standing::default(),
            forest: None,
        };
        let bytes = about.encode();
        assert_eq!(
            bytes.escape_ascii().to_string(),
            [r"\x02\x01", &r"\x00".repeat(14), r"\xac\x02\x04\x02\t\x01"].concat()
        );
        assert_eq!(About::decode(&bytes), Ok(about.clone()));
        for cut in 0..bytes.len() {
            assert!(About::decode(&bytes[..cut]).is_err());
        }
        let standing = Standing {
            changes: 5,
            history: 3,
            epoch: LogEpoch(200),
            trees: vec![TreeId(7)],
        };
        let about = About { standing, ..about };
        let longer = about.encode();
        let more = longer
            .strip_prefix(&bytes[..])
            .expect("the rest is the same");
        let golden = [r"\x05\x03", &r"\x00".repeat(15), r"\xc8\x01\x01\x07"].concat();
        assert_eq!(more.escape_ascii().to_string(), golden);
        assert_eq!(About::decode(&longer), Ok(about));
        for cut in bytes.len() + 1..longer.len() {
            assert!(About::decode(&longer[..cut]).is_err());
        }
    }
}
