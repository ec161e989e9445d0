//! Errors of commands, in Redis' words.

use pando_engine::Refused;
use thiserror::Error;

/// A command's refusal; its text is the error reply, code included.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the error text says it")]
pub enum CommandError {
    // Dispatch.
    #[error("ERR no such command, or not with these arguments")]
    Unresolved,
    /// Nothing was done: the command's large row may be changed in place, which is another way of
    /// carrying it out. Nobody is told.
    #[error("ERR this row is changed in another way")]
    LargeRow,
    #[error("ERR wrong number of arguments for '{command}' command")]
    Arity { command: &'static str },
    #[error("NOAUTH Authentication required.")]
    Unauthenticated,
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    OutOfMemory,
    #[error(
        "OOM command not allowed when used memory > 'maxmemory'. No key is evicted while there are \
         branches, which share memory: drop some."
    )]
    BranchedMemory,
    #[error("OOM command not allowed while a stalled reader holds back replaced memory.")]
    RetiredMemory,
    #[error(
        "MISCONF the log cannot be written now, so that writes are refused; reads go on, DEL and \
         FLUSHALL too, and writes will when there is room on the disk"
    )]
    LogFull,
    #[error(
        "OOM the pool of persistent memory is full, so that writes are refused; reads and removals \
         go on, and writes will when there is room"
    )]
    PoolFull,
    #[error("ERR the value would be longer than any that the pool can hold; nothing has changed")]
    ValueTooLong,
    #[error("READONLY You can't write against a read only replica.")]
    ReadOnly,
    #[error("NOREPLICAS Not enough good replicas to write.")]
    TooFewReplicas,
    #[error("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.")]
    Stale,
    #[error("LOADING a full copy of the primary is on its way into this server, in place")]
    AwaitsCopy,
    #[error("MOVED {range} {address}")]
    Moved { range: usize, address: String },
    #[error("TRYAGAIN range {range} of the keys is on its way to another server")]
    OnItsWay { range: usize },
    #[error("ERR the key is served here, or waits here to be handed over")]
    NoStranger,
    #[error("ERR the value is in no form of this version: {0}")]
    ForeignValue(&'static str),
    #[error("ERR this command needs a server; the database is embedded")]
    NoHost,

    #[error("ERR engine {engine} keeps keys in no order, which this command needs; {ordered} do")]
    Unordered {
        engine: &'static str,
        ordered: String,
    },

    // Any command.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    #[error("ERR value is not a valid float")]
    NotAFloat,
    #[error("ERR value is out of range")]
    OutOfRange,
    #[error("ERR no such key")]
    NoSuchKey,
    #[error("ERR DB index is out of range")]
    DatabaseIndex,
    #[error("ERR invalid DB index")]
    DatabaseIndexSyntax,
    #[error("ERR invalid first DB index")]
    FirstDatabaseIndex,
    #[error("ERR invalid second DB index")]
    SecondDatabaseIndex,
    #[error("ERR key is longer than key_bytes_max ({key_bytes} bytes, at most {key_bytes_max})")]
    KeyTooLong {
        key_bytes: usize,
        key_bytes_max: usize,
    },
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    StringTooLong,

    // Transactions.
    #[error("ERR MULTI calls can not be nested")]
    NestedMulti,
    #[error("ERR EXEC without MULTI")]
    ExecWithoutMulti,
    #[error("ERR DISCARD without MULTI")]
    DiscardWithoutMulti,
    #[error("ERR WATCH inside MULTI is not allowed")]
    WatchInsideMulti,
    #[error("EXECABORT Transaction discarded because of previous errors.")]
    ExecAborted,
    #[error("EXECABORT Transaction discarded because of: {}", without_err(reason))]
    ExecRefused { reason: Box<CommandError> },
    #[error("ERR Command not allowed inside a transaction")]
    NotInTransaction,
    #[error("ERR too many commands or bytes queued in a transaction")]
    TransactionTooLarge,
    #[error("ERR too many watched keys")]
    TooManyWatched,

    // Snapshots.
    #[error("NOSNAPSHOT no snapshot has this name")]
    NoSnapshot,
    #[error("NOSNAPSHOT the snapshot has gone; SNAPSHOT USE NONE returns to the present")]
    SnapshotGone,
    #[error(
        "NOSNAPSHOT the lease of the snapshot has ended: nothing was read in it for longer than \
         snapshot-lease; SNAPSHOT USE NONE returns to the present"
    )]
    LeaseEnded,
    #[error(
        "READONLY You can't write against a snapshot; SNAPSHOT USE NONE returns to the present"
    )]
    SnapshotReadOnly,
    #[error("ERR SNAPSHOT READ runs no commands but those that only read")]
    NotARead,
    #[error("{}", text.escape_ascii())]
    InnerRequest { text: Box<[u8]> },
    #[error("ERR a snapshot of this name exists already")]
    SnapshotExists,
    #[error("ERR a snapshot must have a name, and not one of ALL, NONE and RECENT")]
    SnapshotNameTaken,
    #[error("ERR names of snapshots cannot contain spaces, newlines or special characters")]
    SnapshotNameBytes,
    #[error("ERR the name is too long ({name_bytes} bytes, at most {name_bytes_max})")]
    SnapshotNameTooLong {
        name_bytes: usize,
        name_bytes_max: usize,
    },
    #[error("ERR there are {snapshots_max} snapshots already, as many as are allowed; drop one")]
    TooManySnapshots { snapshots_max: usize },
    #[error(
        "ERR nothing outlasts this server: snapshots that last need the engine cdds with a file \
         for its pool (--pmem), or minuet with a directory (--data-dir)"
    )]
    SnapshotsEndHere,
    #[error("ERR this snapshot does not last: only one made with PERSIST can be gone back to")]
    SnapshotEndsHere,
    #[error("ERR {newer} newer snapshots would be lost; FORCE drops them")]
    NewerSnapshots { newer: usize },
    #[error(
        "ERR there were {then} databases when the snapshot was made, and there are {now}: start \
         with as many"
    )]
    SnapshotOfOtherDatabases { then: usize, now: usize },
    // Branches.
    #[error("ERR the engine {engine} has no branches: they need --engine minuet")]
    NoBranches { engine: &'static str },
    #[error("NOBRANCH no branch has this name")]
    NoBranch,
    #[error("NOBRANCH neither a branch nor a snapshot has this name")]
    NoBranchOrSnapshot,
    #[error("NOBRANCH the branch has gone; BRANCH USE MAIN returns to the first one")]
    BranchGone,
    #[error("ERR a branch or a snapshot of this name exists already")]
    BranchExists,
    #[error("ERR names of branches cannot be empty or contain spaces or special characters")]
    BranchName,
    #[error("ERR there are too many branches; drop one")]
    TooManyBranches,
    #[error("ERR descendant sets have {least} to {most} ids at most")]
    Descendants { least: u8, most: u8 },
    #[error("ERR the first branch stays: it is what other engines have of it")]
    FirstBranch,
    #[error("ERR new connections use this branch; BRANCH MAIN chooses another")]
    MainlineBranch,
    #[error(
        "ERR branches outlast this server, and the snapshot does not, since it was made on a \
             replica"
    )]
    BranchOfPassing,
    #[error("ERR BRANCH READ runs no commands but those that only read")]
    BranchReadWrites,
    #[error("ERR no branch is named ALL, NONE or RECENT, as no snapshot is")]
    BranchNameTaken,
    #[error("ERR a snapshot is not merged: make a branch from it")]
    MergeOfSnapshot,
    #[error("ERR a branch is not merged into itself")]
    MergeIntoItself,
    #[error(
        "ERR database {database} was emptied or swapped on one of the branches since they \
         parted, and a version of before that does not say what it was then"
    )]
    MergeApart { database: usize },
    #[error("ERR more than {keys_max} keys differ")]
    TooManyKeysDiffer { keys_max: usize },
    #[error("ERR more than {keys_max} keys with deadlines differ")]
    TooManyDeadlinesDiffer { keys_max: usize },
    #[error("ERR another large merge is under way; try again")]
    MergeUnderWay,
    #[error("ERR writes are paused: nothing was merged")]
    MergePaused,
    #[error(
        "ERR more than {keys_max} keys of the branch have changed at the end of the merge: \
         nothing was merged"
    )]
    MergeOvertaken { keys_max: usize },
    #[error("ERR the branch was emptied, or has gone, while it was compared")]
    BranchChanged,
    #[error("ERR the memory of very many dropped snapshots is not free yet; try again")]
    SnapshotsOnTheirWayOut,
    #[error(
        "OOM command not allowed: a held snapshot needs what it would change, and snapshots take \
         all the memory that they may"
    )]
    SnapshotsFull,

    // Strings, and hashes where they are alike.
    #[error("ERR increment or decrement would overflow")]
    IncrementOverflow,
    #[error("ERR decrement would overflow")]
    DecrementOverflow,
    #[error("ERR increment would produce NaN or Infinity")]
    IncrementNotFinite,
    #[error("ERR invalid expire time in '{command}' command")]
    InvalidExpireTime { command: &'static str },
    #[error("ERR offset is out of range")]
    OffsetOutOfRange,
    #[error("ERR The specified keys must contain string values")]
    LcsNotStrings,
    #[error("ERR If you want both the length and indexes, please just use IDX.")]
    LcsLenAndIdx,
    #[error("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")]
    LcsTooLarge,

    // Hashes.
    #[error("ERR hash value is not an integer")]
    HashValueNotAnInteger,
    #[error("ERR hash value is not a float")]
    HashValueNotAFloat,
    #[error("ERR value is NaN or Infinity")]
    NotFinite,
    #[error("ERR value is out of range, value must between {least} and {most}")]
    CountBetween { least: i64, most: i64 },
    #[error(
        "ERR field is longer than field_bytes_max ({field_bytes} bytes, at most {field_bytes_max})"
    )]
    FieldTooLong {
        field_bytes: usize,
        field_bytes_max: usize,
    },
    #[error("ERR Mandatory argument FIELDS is missing or not at the right position")]
    NoFieldsWord,
    #[error("ERR Parameter `numFields` should be greater than 0")]
    ExpiringFieldCount,
    #[error("ERR Number of fields must be a positive integer")]
    ReadFieldCount,
    #[error("ERR invalid number of fields")]
    SetFieldCount,
    #[error("ERR The `numfields` parameter must match the number of arguments")]
    FieldCountDiffers,
    #[error("ERR invalid expire time, must be >= 0")]
    NegativeExpireTime,
    #[error("ERR missing expire time")]
    NoFieldTime,
    #[error("ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified")]
    SeveralFieldTimes,
    #[error("ERR Only one of FXX or FNX arguments can be specified")]
    SeveralFieldConditions,
    #[error("ERR unknown argument: {}", argument.escape_ascii())]
    UnknownArgument { argument: Box<[u8]> },
    #[error("ERR member is longer than {member_bytes_max} bytes ({member_bytes} bytes)")]
    MemberTooLong {
        member_bytes: usize,
        member_bytes_max: usize,
    },
    #[error("ERR the reply would be longer than {reply_bytes_max} bytes")]
    ReplyTooLong { reply_bytes_max: usize },

    // Sets, sorted or not.
    #[error("ERR One or more scores can't be converted into double")]
    SortNumber,
    // Lists, and waiting for keys.
    #[error("ERR index out of range")]
    IndexOutOfRange,
    #[error(
        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
         negative to start from the end of the list"
    )]
    RankZero,
    #[error("ERR COUNT can't be negative")]
    NegativeCount,
    #[error("ERR MAXLEN can't be negative")]
    NegativeMaxlen,
    #[error("ERR timeout is not a float or out of range")]
    TimeoutNotAFloat,
    #[error("ERR timeout is negative")]
    TimeoutNegative,
    #[error("ERR NOVALUES option can only be used in HSCAN")]
    NoValuesOfHashes,
    #[error("UNBLOCKED client unblocked via CLIENT UNBLOCK")]
    Unblocked,
    #[error(
        "UNBLOCKED force unblock from blocking operation, instance state changed \
        (master -> replica?)"
    )]
    RoleChanged,
    #[error("ERR numkeys should be greater than 0")]
    KeyCountNotPositive,
    #[error("ERR Number of keys can't be greater than number of args")]
    KeyCountTooLarge,
    #[error("ERR LIMIT can't be negative")]
    NegativeLimit,
    #[error("ERR count should be greater than 0")]
    CountNotPositive,
    #[error("ERR XX and NX options at the same time are not compatible")]
    ZaddNxXx,
    #[error("ERR GT, LT, and/or NX options at the same time are not compatible")]
    ZaddGtLtNx,
    #[error("ERR INCR option supports a single increment-element pair")]
    ZaddIncrement,
    #[error("ERR resulting score is not a number (NaN)")]
    ScoreNotANumber,
    #[error("ERR min or max is not a float")]
    ScoreBound,
    #[error(
        "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
    )]
    LimitByRank,
    #[error("ERR syntax error, WITHSCORES not supported in combination with BYLEX")]
    ScoresByMember,
    #[error("ERR at least 1 input key is needed for '{command}' command")]
    NoInputKey { command: &'static str },
    #[error("ERR weight value is not a float")]
    WeightNotAFloat,

    // Streams.
    #[error("ERR Invalid stream ID specified as stream command argument")]
    InvalidStreamId,
    #[error("ERR The ID specified in XADD is equal or smaller than the target stream top item")]
    StreamIdTooSmall,
    #[error("ERR The ID specified in XADD must be greater than 0-0")]
    StreamIdZero,
    #[error("ERR The stream has exhausted the last possible ID, unable to add more items")]
    StreamExhausted,
    #[error("ERR Elements are too large to be stored")]
    StreamEntryTooLong,
    #[error("ERR invalid start ID for the interval")]
    IntervalStart,
    #[error("ERR invalid end ID for the interval")]
    IntervalEnd,
    #[error("ERR The MAXLEN argument must be >= 0.")]
    TrimLength,
    #[error("ERR The LIMIT argument must be >= 0.")]
    TrimLimit,
    #[error("ERR syntax error, MAXLEN and MINID options at the same time are not compatible")]
    TwoThresholds,
    #[error("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy")]
    LimitWithoutThreshold,
    #[error("ERR syntax error, XTRIM must be called with a trimming strategy")]
    NoThreshold,
    #[error("ERR syntax error, LIMIT cannot be used without the special ~ option")]
    LimitOfExact,
    #[error("ERR entries_added must be positive")]
    NegativeEntriesAdded,
    #[error("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id")]
    LastIdBelowRemoved,
    #[error("ERR The ID specified in XSETID is smaller than the target stream top item")]
    LastIdBelowEntry,
    #[error("ERR The entries_added specified in XSETID is smaller than the target stream length")]
    EntriesAddedBelowLength,
    #[error("NOGROUP {}", what.escape_ascii())]
    NoGroup { what: Box<[u8]> },
    #[error("BUSYGROUP Consumer Group name already exists")]
    GroupExists,
    #[error("ERR value for ENTRIESREAD must be positive or -1")]
    NegativeEntriesRead,
    #[error(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to \
         use the MKSTREAM option to create an empty stream automatically."
    )]
    NoStreamForGroup,
    #[error("ERR name of a group or consumer is longer than {name_bytes_max} bytes ({name_bytes})")]
    StreamNameTooLong {
        name_bytes: usize,
        name_bytes_max: usize,
    },
    #[error(
        "ERR unknown subcommand or wrong number of arguments for '{}'. Try {command} HELP.",
        subcommand.escape_ascii()
    )]
    SubcommandSyntax {
        command: &'static str,
        subcommand: Box<[u8]>,
    },
    #[error("ERR Invalid {what} argument for {command}")]
    ClaimArgument {
        what: &'static str,
        command: &'static str,
    },
    #[error("ERR Unrecognized XCLAIM option '{}'", option.escape_ascii())]
    ClaimOption { option: Box<[u8]> },
    #[error(
        "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."
    )]
    UnbalancedStreams,
    #[error("ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.")]
    GroupOfXread,
    #[error("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.")]
    NoackOfXread,
    #[error("ERR Missing GROUP option for XREADGROUP")]
    MissingGroup,
    #[error(
        "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
         <consumer> option."
    )]
    NewOfXread,
    #[error(
        "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of \
         this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID \
         would just return an empty result set."
    )]
    LastOfGroup,
    #[error("ERR timeout is not an integer or out of range")]
    TimeoutNotAnInteger,
    #[error("UNBLOCKED the stream key no longer exists")]
    StreamHasGone,
    #[error("NOGROUP the consumer group this client was blocked on no longer exists")]
    GroupHasGone,

    // Places.
    #[error("ERR invalid longitude,latitude pair {pair}")]
    InvalidPlace { pair: String },
    #[error("ERR unsupported unit provided. please use M, KM, FT, MI")]
    UnknownUnit,
    #[error("ERR could not decode requested zset member")]
    NoPlaceOfMember,
    #[error("ERR need numeric radius")]
    Radius,
    #[error("ERR radius cannot be negative")]
    NegativeRadius,
    #[error("ERR need numeric width")]
    Width,
    #[error("ERR need numeric height")]
    Height,
    #[error("ERR height or width cannot be negative")]
    NegativeBox,
    #[error("ERR COUNT must be > 0")]
    CountBelowOne,
    #[error("ERR the ANY argument requires COUNT argument")]
    AnyWithoutCount,
    #[error("ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options")]
    StoreWithMore,
    #[error(
        "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD \
         options"
    )]
    StoreOptionWithMore,
    #[error(
        "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {}",
        name.escape_ascii()
    )]
    NoCentre { name: Box<[u8]> },
    #[error(
        "ERR exactly one of BYRADIUS and BYBOX can be specified for {}",
        name.escape_ascii()
    )]
    NoShape { name: Box<[u8]> },

    // Sketches.
    #[error("WRONGTYPE Key is not a valid HyperLogLog string value.")]
    NotASketch,
    #[error("INVALIDOBJ Corrupted HLL object detected")]
    DamagedSketch,
    #[error("ERR HLL encoding is not sparse")]
    SketchNotSparse,
    #[error("ERR The specified key does not exist")]
    NoSketchThere,
    #[error("ERR Unknown PFDEBUG subcommand '{}'", subcommand.escape_ascii())]
    PfdebugSubcommand { subcommand: Box<[u8]> },

    // Bitmaps.
    #[error("ERR bit offset is not an integer or out of range")]
    BitOffset,
    #[error("ERR bit is not an integer or out of range")]
    BitValue,
    #[error("ERR The bit argument must be 1 or 0.")]
    BitArgument,
    #[error("ERR BITOP NOT must be called with a single source key.")]
    BitopNot,
    #[error(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but \
         i64 is."
    )]
    BitfieldType,
    #[error("ERR Invalid OVERFLOW type specified")]
    BitfieldOverflow,
    #[error("ERR BITFIELD_RO only supports the GET subcommand")]
    BitfieldReadOnly,

    // Keys.
    #[error("ERR source and destination objects are the same")]
    SameObject,
    #[error("ERR Unsupported option {}", option.escape_ascii())]
    UnsupportedOption { option: Box<[u8]> },
    #[error("ERR NX and XX, GT or LT options at the same time are not compatible")]
    IncompatibleNx,
    #[error("ERR GT and LT options at the same time are not compatible")]
    IncompatibleGtLt,
    #[error("ERR invalid cursor")]
    InvalidCursor,
    #[error("ERR unknown cursor: too old, or given out for another database; begin again with 0")]
    UnknownCursor,
    #[error(
        "ERR the cursor belongs to another snapshot, or to the present; go on with it there, or \
         begin again with 0"
    )]
    CursorOfAnotherView,
    #[error(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
         that when switching between policies at runtime LRU and LFU data will take some time to \
         adjust."
    )]
    NoLfuPolicy,
    #[error(
        "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
         switching between policies at runtime LRU and LFU data will take some time to adjust."
    )]
    LfuPolicy,

    // RESTORE.
    #[error("BUSYKEY Target key name already exists.")]
    BusyKey,
    #[error("ERR Invalid TTL value, must be >= 0")]
    InvalidTtl,
    #[error("ERR Invalid IDLETIME value, must be >= 0")]
    InvalidIdleTime,
    #[error("ERR Invalid FREQ value, must be >= 0 and <= 255")]
    InvalidFrequency,
    #[error("ERR DUMP payload version or checksum are wrong")]
    PayloadFooter,
    #[error("ERR Bad data format")]
    PayloadFormat,
    #[error("ERR Bad data format: the payload holds a {type_name}, which is not supported")]
    PayloadType { type_name: &'static str },
    #[error("ERR the payload holds {bytes} bytes where at most {bytes_max} are allowed")]
    PayloadTooLong { bytes: usize, bytes_max: usize },

    // Ranges of keys.
    #[error("ERR min or max not valid string range item")]
    RangeBound,
    #[error("ERR value is out of range, must be positive")]
    NotPositive,
    #[error("ERR numfields should be greater than 0")]
    FieldCount,
}

/// An error's text without the generic code.
fn without_err(error: &CommandError) -> String {
    let text = error.to_string();
    text.strip_prefix("ERR ").unwrap_or(&text).to_owned()
}

/// What an error shows of a client's word: as in Redis, up to a byte 0.
fn shown(word: &[u8]) -> &[u8] {
    let end = word.iter().position(|byte| *byte == 0);
    &word[..end.unwrap_or(word.len())]
}

impl From<Refused> for CommandError {
    fn from(refusal: Refused) -> Self {
        match refusal {
            Refused::Full => Self::PoolFull,
            Refused::TooLong => Self::ValueTooLong,
        }
    }
}

impl CommandError {
    /// The error of a group that is not there, in these words.
    pub(crate) fn no_group(words: &[&[u8]]) -> Self {
        let shown = words.iter().map(|word| shown(word));
        Self::NoGroup {
            what: shown.flatten().copied().collect(),
        }
    }

    /// The error's text, with this word of it as it came.
    fn repeating(&self, word: &[u8]) -> Vec<u8> {
        let (text, escaped) = (self.to_string(), word.escape_ascii().to_string());
        let (before, behind) = text.split_once(&*escaped).unwrap_or((&text, ""));
        [before.as_bytes(), shown(word), behind.as_bytes()].concat()
    }

    /// The error as a client reads it: parts of a request are repeated byte for byte.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        match self {
            Self::UnsupportedOption { option: word }
            | Self::UnknownArgument { argument: word }
            | Self::SubcommandSyntax {
                subcommand: word, ..
            }
            | Self::ClaimOption { option: word }
            | Self::NoCentre { name: word }
            | Self::NoShape { name: word }
            | Self::PfdebugSubcommand { subcommand: word } => self.repeating(word),
            Self::NoGroup { what } => [b"NOGROUP ", &**what].concat(),
            Self::InnerRequest { text } => text.to_vec(),
            other => other.to_string().into_bytes(),
        }
    }
}
