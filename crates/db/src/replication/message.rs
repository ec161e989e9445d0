//! What is sent from a source to a replica: a message is a kind and its fields.
//!
//! | kind | | fields |
//! |---|---|---|
//! | 1 | hello | format (4 bytes), history (16), a sum of flags (1), position, databases, how often their mapping has changed, the tree of each, former histories, each of them (16) |
//! | 2 | entries | tree, then of each entry: key (a string), version (8), value (see `durable::value`) |
//! | 3 | done | the position of the copy |
//! | 4 | epoch | history (16), epoch, the one before, wall clock in ms, offset of its end, groups (see `log::follow`) |
//! | 5 | beat | position, offset of its end, offset of all that is closed, wall clock in ms |
//! | 6 | take over | position |
//! | 7 | check | position |
//! | 8 | digests | number of keys, number of digests, each of them (8 bytes); none: the check is given up |
//! | 9 | listing | of each entry: database, key (a string), digest (8 bytes) |
//! | 10 | placement | the file of a placement (`pando-ring`); nothing: all keys are here |
//! | 11 | forest | what a checkpoint says of branches and lasting snapshots (`durable::catalog`) |
//! | 12 | section | node, the number of a tree in pages, then of each entry that differs from the node's parent: key (a string), version (8), 1 and the value, or 0: it is not there |
//! | 13 | part | its number, beginning with 0; groups, which belong to the difference that follows |
//! | 14 | difference | how many parts it has, then as an epoch: what has changed since the one before |
//!
//! The flags of a hello: 1: a full copy follows; 2: the database began empty; 4: the replica was
//! ahead; 8: the replica is to take these trees, since it knows others; 16: a placement follows,
//! without which all keys are here. Its history and position are those at which the stream begins.
//! The former histories are those of data that this database had since it was opened, and has
//! replaced, and last the one of another database that its data came from.
//!
//! Fields without a size are numbers of `durable::bytes`. The carrier's frames have the checksums.

use pando_durability::log::FollowedEpoch;
use pando_engine::limits::KEY_BYTES_MAX;
use pando_engine::{LogEpoch, TreeId};

use super::ReplicationError;
use crate::clock::Milliseconds;
use crate::durable::bytes::{Input, Malformed, Sink, malformed};
use crate::durable::catalog::Forest;
use crate::limits;

/// The format of messages; a replica refuses another one.
pub const REPLICATION_FORMAT: u32 = 5;

const HELLO: u8 = 1;
const ENTRIES: u8 = 2;
const DONE: u8 = 3;
const EPOCH: u8 = 4;
const BEAT: u8 = 5;
const TAKE_OVER: u8 = 6;
const CHECK: u8 = 7;
const DIGESTS: u8 = 8;
const LISTING: u8 = 9;
const PLACEMENT: u8 = 10;
const FOREST: u8 = 11;
const SECTION: u8 = 12;
const PART: u8 = 13;
const DIFFERENCE: u8 = 14;

/// What follows a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    /// What is behind the replica's position.
    Behind,
    /// The same, for a replica that knows other trees.
    BehindOther,
    /// A full copy.
    Copy,
    /// A full copy, for a replica that has what is not there.
    CopyForAhead,
}

impl Begins {
    /// Each, and its flags in a hello.
    const FLAGS: [(Self, u8); 4] = [
        (Self::Behind, 0),
        (Self::BehindOther, 8),
        (Self::Copy, 1),
        (Self::CopyForAhead, 1 | 4),
    ];

    pub(super) fn copies(self) -> bool {
        matches!(self, Self::Copy | Self::CopyForAhead)
    }
}

const BEGAN_EMPTY: u8 = 2;
const PLACED: u8 = 16;

/// How a stream begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) history: u128,
    pub(super) begins: Begins,
    pub(super) began_empty: bool,
    /// Not all keys are there: the placement follows.
    pub(super) placed: bool,
    pub(super) position: LogEpoch,
    pub(super) changes: u64,
    /// The tree of each database, as records name it.
    pub(super) trees: Vec<TreeId>,
    /// The histories of data that were there since the database was opened, and are no longer, and
    /// the one that the data came from.
    pub(super) former: Vec<u128>,
}

/// An epoch of the followed log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EpochSent<'a> {
    /// The history in which it was written.
    pub(super) history: u128,
    pub(super) epoch: LogEpoch,
    pub(super) previous: LogEpoch,
    pub(super) wall_ms: Milliseconds,
    pub(super) offset: u64,
    pub(super) groups: &'a [u8],
}

/// A sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beat {
    pub(super) position: LogEpoch,
    /// Bytes of epochs up to the position.
    pub(super) reached: u64,
    /// Bytes of all that are closed.
    pub(super) offset: u64,
    pub(super) wall_ms: Milliseconds,
}

/// A parsed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    Hello(Hello),
    Entries {
        tree: TreeId,
        entries: &'a [u8],
    },
    Done {
        position: LogEpoch,
    },
    Epoch(EpochSent<'a>),
    Beat(Beat),
    TakeOver {
        position: LogEpoch,
    },
    Check {
        position: LogEpoch,
    },
    Digests {
        keys: u64,
        digests: Vec<u64>,
    },
    Listing(Vec<Listed>),
    Placement(&'a [u8]),
    Forest(Box<Forest>),
    Section {
        node: usize,
        base: TreeId,
        entries: &'a [u8],
    },
    Part {
        number: u64,
        groups: &'a [u8],
    },
    Difference {
        parts: u64,
        sent: EpochSent<'a>,
    },
}

/// A key of one of the databases, and the digest of its value with it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listed {
    pub(super) database: u64,
    pub(super) key: Vec<u8>,
    pub(super) digest: u64,
}

impl Hello {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put(&[HELLO]);
        out.put(&REPLICATION_FORMAT.to_le_bytes());
        out.put(&self.history.to_le_bytes());
        let begins = Begins::FLAGS.iter().find(|(one, _)| *one == self.begins);
        let (_, flags) = begins.expect("each has its flags");
        let empty = if self.began_empty { BEGAN_EMPTY } else { 0 };
        let placed = if self.placed { PLACED } else { 0 };
        out.put(&[flags | empty | placed]);
        out.number(self.position.0);
        out.number(self.trees.len() as u64);
        out.number(self.changes);
        for tree in &self.trees {
            out.number(u64::from(tree.0));
        }
        out.number(self.former.len() as u64);
        for history in &self.former {
            out.put(&history.to_le_bytes());
        }
    }

    fn take(input: &mut Input<'_>) -> Result<Self, ReplicationError> {
        let format = u32::from_le_bytes(input.take(4)?.try_into().expect("four bytes"));
        if format != REPLICATION_FORMAT {
            return Err(ReplicationError::Format {
                got: format,
                expected: REPLICATION_FORMAT,
            });
        }
        let history = take_history(input)?;
        let flags = input.byte()?;
        let begins = Begins::FLAGS
            .iter()
            .find(|(_, one)| *one == flags & !(BEGAN_EMPTY | PLACED));
        let Some((begins, _)) = begins else {
            return Ok(malformed("a hello has unknown flags")?);
        };
        let position = LogEpoch(input.number()?);
        let databases = input.length(limits::DATABASES_MAX)?;
        let changes = input.number()?;
        let trees = (0..databases)
            .map(|_| take_tree(input))
            .collect::<Result<_, _>>()?;
        let former = input.length(limits::HISTORIES_MAX)?;
        let former = (0..former)
            .map(|_| take_history(input))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            history,
            begins: *begins,
            began_empty: flags & BEGAN_EMPTY != 0,
            placed: flags & PLACED != 0,
            position,
            changes,
            trees,
            former,
        })
    }
}

pub(super) fn put_placement(out: &mut Vec<u8>, file: &[u8]) {
    out.put(&[PLACEMENT]);
    out.put(file);
}

pub(super) fn put_forest(out: &mut Vec<u8>, forest: &Forest) {
    out.put(&[FOREST]);
    forest.put(out);
}

pub(super) fn put_section_head(out: &mut Vec<u8>, (node, base): (usize, TreeId)) {
    out.put(&[SECTION]);
    out.number(node as u64);
    out.number(u64::from(base.0));
}

pub(super) fn put_entries_head(out: &mut Vec<u8>, tree: TreeId) {
    out.put(&[ENTRIES]);
    out.number(u64::from(tree.0));
}

pub(super) fn put_done(out: &mut Vec<u8>, position: LogEpoch) {
    out.put(&[DONE]);
    out.number(position.0);
}

/// Writes an epoch but for its groups, which are the message's end.
pub(super) fn put_epoch_head(out: &mut Vec<u8>, history: u128, sent: &FollowedEpoch) {
    out.put(&[EPOCH]);
    put_epoch_fields(out, history, sent);
}

fn put_epoch_fields(out: &mut Vec<u8>, history: u128, sent: &FollowedEpoch) {
    out.put(&history.to_le_bytes());
    for number in [sent.epoch.0, sent.previous.0, sent.wall_ms.0, sent.offset] {
        out.number(number);
    }
}

/// Writes the beginning of a part; groups are the rest.
pub(super) fn put_part_head(out: &mut Vec<u8>, number: u64) {
    out.put(&[PART]);
    out.number(number);
}

/// Writes the end of a difference of so many parts.
pub(super) fn put_difference(out: &mut Vec<u8>, parts: u64, history: u128, sent: &FollowedEpoch) {
    out.put(&[DIFFERENCE]);
    out.number(parts);
    put_epoch_fields(out, history, sent);
    out.put(&sent.groups);
}

/// `reached` and `offset` are bytes of epochs: up to the position, and in all.
pub(super) fn put_beat(
    out: &mut Vec<u8>,
    position: LogEpoch,
    (reached, offset): (u64, u64),
    wall_ms: Milliseconds,
) {
    out.put(&[BEAT]);
    for number in [position.0, reached, offset, wall_ms.0] {
        out.number(number);
    }
}

pub(super) fn put_take_over(out: &mut Vec<u8>, position: LogEpoch) {
    out.put(&[TAKE_OVER]);
    out.number(position.0);
}

pub(super) fn put_check(out: &mut Vec<u8>, position: LogEpoch) {
    out.put(&[CHECK]);
    out.number(position.0);
}

pub(super) fn put_digests(out: &mut Vec<u8>, keys: u64, digests: &[u64]) {
    out.put(&[DIGESTS]);
    out.number(keys);
    out.number(digests.len() as u64);
    for digest in digests {
        out.put(&digest.to_le_bytes());
    }
}

pub(super) fn put_listing(out: &mut Vec<u8>, entries: &[Listed]) {
    out.put(&[LISTING]);
    for Listed {
        database,
        key,
        digest,
    } in entries
    {
        out.number(*database);
        out.string(key);
        out.put(&digest.to_le_bytes());
    }
}

fn take_digests(input: &mut Input<'_>) -> Result<Message<'static>, Malformed> {
    let keys = input.number()?;
    let count = input.length(limits::CHECK_BUCKETS)?;
    let digests = (0..count).map(|_| input.fixed());
    Ok(Message::Digests {
        keys,
        digests: digests.collect::<Result<_, _>>()?,
    })
}

fn take_listing(input: &mut Input<'_>) -> Result<Message<'static>, Malformed> {
    let mut entries = Vec::new();
    while !input.is_empty() {
        entries.push(Listed {
            database: input.number()?,
            key: input.string(KEY_BYTES_MAX)?.to_vec(),
            digest: input.fixed()?,
        });
    }
    Ok(Message::Listing(entries))
}

fn take_history(input: &mut Input<'_>) -> Result<u128, Malformed> {
    let bytes = input.take(16)?.try_into();
    Ok(u128::from_le_bytes(bytes.expect("sixteen bytes")))
}

fn take_epoch<'a>(input: &mut Input<'a>) -> Result<EpochSent<'a>, Malformed> {
    Ok(EpochSent {
        history: take_history(input)?,
        epoch: LogEpoch(input.number()?),
        previous: LogEpoch(input.number()?),
        wall_ms: Milliseconds(input.number()?),
        offset: input.number()?,
        groups: std::mem::take(&mut input.0),
    })
}

fn take_tree(input: &mut Input<'_>) -> Result<TreeId, Malformed> {
    Ok(TreeId(input.length(u32::MAX as usize - 1)? as u32))
}

/// Parses a message.
pub(super) fn take(bytes: &[u8]) -> Result<Message<'_>, ReplicationError> {
    let mut input = Input(bytes);
    let message = match input.byte()? {
        HELLO => Message::Hello(Hello::take(&mut input)?),
        ENTRIES => {
            let tree = take_tree(&mut input)?;
            let entries = std::mem::take(&mut input.0);
            Message::Entries { tree, entries }
        }
        DONE => Message::Done {
            position: LogEpoch(input.number()?),
        },
        EPOCH => Message::Epoch(take_epoch(&mut input)?),
        BEAT => Message::Beat(Beat {
            position: LogEpoch(input.number()?),
            reached: input.number()?,
            offset: input.number()?,
            wall_ms: Milliseconds(input.number()?),
        }),
        TAKE_OVER => Message::TakeOver {
            position: LogEpoch(input.number()?),
        },
        CHECK => Message::Check {
            position: LogEpoch(input.number()?),
        },
        DIGESTS => take_digests(&mut input)?,
        LISTING => take_listing(&mut input)?,
        PLACEMENT => Message::Placement(std::mem::take(&mut input.0)),
        FOREST => Message::Forest(Box::new(Forest::take(&mut input)?)),
        SECTION => Message::Section {
            node: input.length(u32::MAX as usize)?,
            base: take_tree(&mut input)?,
            entries: std::mem::take(&mut input.0),
        },
        PART => Message::Part {
            number: input.number()?,
            groups: std::mem::take(&mut input.0),
        },
        DIFFERENCE => Message::Difference {
            parts: input.number()?,
            sent: take_epoch(&mut input)?,
        },
        _ => return Ok(malformed("a message of an unknown kind")?),
    };
    if input.is_empty() {
        Ok(message)
    } else {
        Ok(malformed("a message is longer than its fields")?)
    }
}

/// Checks that any bytes cause nothing worse than an error.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Ok(
        Message::Epoch(EpochSent { groups, .. })
        | Message::Part { groups, .. }
        | Message::Difference {
            sent: EpochSent { groups, .. },
            ..
        },
    ) = take(bytes)
    {
        pando_durability::log::records(groups, |_| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed() -> FollowedEpoch {
        FollowedEpoch {
            epoch: LogEpoch(302),
            previous: LogEpoch(300),
            wall_ms: Milliseconds(1 << 40),
            offset: 99,
            groups: b"groups".to_vec(),
        }
    }

    fn sent(followed: &FollowedEpoch) -> EpochSent<'_> {
        EpochSent {
            history: 9,
            epoch: followed.epoch,
            previous: followed.previous,
            wall_ms: followed.wall_ms,
            offset: followed.offset,
            groups: &followed.groups,
        }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let hello = Hello {
            history: 7 << 100,
            begins: Begins::CopyForAhead,
            began_empty: true,
            placed: true,
            position: LogEpoch(300),
            changes: 5,
            trees: vec![TreeId(1), TreeId(900)],
            former: vec![8, 9 << 100],
        };
        let followed = followed();
        let epoch = sent(&followed);
        let mut written = [(); 11].map(|()| Vec::new());
        hello.put(&mut written[0]);
        put_entries_head(&mut written[1], TreeId(900));
        put_done(&mut written[2], LogEpoch(300));
        put_epoch_head(&mut written[3], 9, &followed);
        written[3].extend_from_slice(&followed.groups);
        put_beat(&mut written[4], LogEpoch(302), (98, 99), Milliseconds(1));
        assert_eq!(take(&written[0]).unwrap(), Message::Hello(hello));
        let tree = TreeId(900);
        let entries = &b""[..];
        assert_eq!(
            take(&written[1]).unwrap(),
            Message::Entries { tree, entries }
        );
        let position = LogEpoch(300);
        assert_eq!(take(&written[2]).unwrap(), Message::Done { position });
        assert_eq!(take(&written[3]).unwrap(), Message::Epoch(epoch));
        let beat = format!("{:?}", take(&written[4]).unwrap());
        assert!(beat.contains("reached: 98, offset: 99"), "{beat}");
        put_take_over(&mut written[5], position);
        assert_eq!(take(&written[5]).unwrap(), Message::TakeOver { position });
        put_check(&mut written[6], position);
        assert_eq!(take(&written[6]).unwrap(), Message::Check { position });
        put_digests(&mut written[7], 3, &[1, u64::MAX]);
        let digests = vec![1, u64::MAX];
        let keys = 3;
        assert_eq!(
            take(&written[7]).unwrap(),
            Message::Digests { keys, digests }
        );
        let listed = vec![Listed {
            database: 2,
            key: b"key".to_vec(),
            digest: 9,
        }];
        put_listing(&mut written[8], &listed);
        assert_eq!(take(&written[8]).unwrap(), Message::Listing(listed));
        put_placement(&mut written[9], b"file");
        assert_eq!(take(&written[9]).unwrap(), Message::Placement(b"file"));
        put_section_head(&mut written[10], (300, tree));
        let section = Message::Section {
            node: 300,
            base: tree,
            entries,
        };
        assert_eq!(take(&written[10]).unwrap(), section);
        for message in &written {
            for end in 0..message.len() {
                fuzz(&message[..end]);
            }
        }
    }

    #[test]
    fn differences_are_read_as_they_were_written() {
        let followed = followed();
        let mut written = [(); 2].map(|()| Vec::new());
        put_part_head(&mut written[0], 300);
        written[0].extend_from_slice(&followed.groups);
        let (number, groups) = (300, &followed.groups[..]);
        assert_eq!(take(&written[0]).unwrap(), Message::Part { number, groups });
        put_difference(&mut written[1], 301, 9, &followed);
        let (parts, sent) = (301, sent(&followed));
        assert_eq!(
            take(&written[1]).unwrap(),
            Message::Difference { parts, sent }
        );
        for message in &written {
            for end in 0..message.len() {
                fuzz(&message[..end]);
            }
        }
    }

    #[test]
    fn other_formats_are_refused() {
        let mut hello = vec![HELLO];
        hello.put(&(REPLICATION_FORMAT + 1).to_le_bytes());
        let wrong = take(&hello);
        let got = REPLICATION_FORMAT + 1;
        assert!(matches!(wrong, Err(ReplicationError::Format { got: it, .. }) if it == got));
    }

    #[test]
    fn any_bytes_are_an_error_at_worst() {
        let mut random = fastrand::Rng::with_seed(16);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..random.usize(0..40)).map(|_| random.u8(..)).collect();
            if let Some(kind) = bytes.first_mut() {
                *kind %= DIFFERENCE + 1;
            }
            fuzz(&bytes);
        }
    }
}
