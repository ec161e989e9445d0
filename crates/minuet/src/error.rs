//! Why a transaction stops.

/// Why a run of a transaction stopped before its end. Programs hand it on, with `?`.
#[derive(Debug)]
pub enum Stop {
    /// Something is not here yet. It is fetched, and the program runs again.
    Away,
    /// What was read does not fit together. The program runs again on fresher data.
    Conflict,
    /// The transaction fails, without effect.
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Why a transaction failed. It had no effect, [`Error::Retired`] aside.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no tree yet.
    #[error("nothing was founded here")]
    Unfounded,
    /// A key exceeds [`crate::Config::key_bytes_max`].
    #[error("a key of {bytes} bytes; at most {max} are allowed")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// A value exceeds [`crate::Config::value_bytes_max`].
    #[error("a value of {bytes} bytes; at most {max} are allowed")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// A transaction touches more than [`crate::limits::TOUCHED_MAX`] slots.
    #[error("the transaction touches too much")]
    TooLarge,
    /// Others were faster, very often.
    #[error("the transaction met too many others")]
    Contended,
    /// A memnode has no free slot.
    #[error("a memnode has no free slot")]
    Full,
    /// The view was one of a tip; since then a snapshot was made, or the branch was reset.
    #[error("the view is not the tip's any more")]
    Outdated,
    /// The snapshot is not kept any more, or never was one.
    #[error("there is no such snapshot")]
    NoSnapshot,
    /// The lease has ended.
    #[error("the lease has ended")]
    NoLease,
    /// There is no such branch.
    #[error("there is no such branch")]
    NoBranch,
    /// [`crate::limits::BRANCHES_MAX`] branches are there, or the catalog is full of long names.
    #[error("there are too many branches")]
    TooManyBranches,
    /// New connections use the branch.
    #[error("the mainline cannot be dropped")]
    Mainline,
    /// Descendant sets are to have fewer or more ids than they may.
    #[error(
        "descendant sets of {descendants_max} ids; {} to {} are allowed",
        crate::limits::DESCENDANTS_MIN,
        crate::limits::DESCENDANTS_MAX
    )]
    BadDescendants {
        /// What was asked for.
        descendants_max: u8,
    },
    /// All ids of snapshots of a branch, or of branches, are used up.
    #[error("there are no more ids of versions")]
    Exhausted,
    /// The name is another snapshot's, or another branch's.
    #[error("the name is taken")]
    NameTaken,
    /// The name is empty, or exceeds [`crate::limits::NAME_BYTES_MAX`].
    #[error(
        "a name of {bytes} bytes; 1 to {} are allowed",
        crate::limits::NAME_BYTES_MAX
    )]
    BadName {
        /// Its length.
        bytes: usize,
    },
    /// [`crate::limits::SNAPSHOTS_MAX`] snapshots are kept.
    #[error("too many snapshots are kept")]
    TooManySnapshots,
    /// [`crate::limits::LEASES_MAX`] leases are held at a memnode.
    #[error("too many leases are held")]
    TooManyLeases,
    /// Another took this proxy's place. A commit that was under way may have succeeded.
    #[error("the proxy was replaced, and the outcome is unknown")]
    Retired,
    /// What is written belongs to a snapshot, which never changes.
    #[error("a snapshot cannot be written")]
    ReadOnly,
    /// A memnode refused a minitransaction as malformed.
    #[error("a memnode refused a minitransaction")]
    Refused,
}
