//! The faults that tests plant; empty outside tests.

pando_chassis::canary! {
    /// A freed slot is reused without the inserting mark (M7 slot-reuse-marked).
    ReuseWithoutMark,
    /// A border node splits without the splitting mark.
    SplitWithoutMark,
    /// A replaced block is reclaimed at once (M1 reachable-lives).
    FreeEarly,
    /// An entry turns into a layer without the unstable mark (§4.6.3).
    DeepenWithoutMark,
    /// A layer is folded back without the inserting mark.
    FoldWithoutMark,
    /// An emptied border node leaves the tree without the deleted mark.
    RemoveWithoutMark,
    /// A layer leaves the tree without the deleted mark.
    LayerGoesWithoutMark,
    /// What a warming pass found is used without checking the node (MH2 spot-of-its-key).
    RecallUnchecked,
    /// A value is overwritten though others may be reading it (M8 changed-alone).
    OverwrittenBeside,
    /// A value's link is changed after its node was unlocked.
    RelocateUnlocked,
    /// A warmed update leaves a link at a root that its layer has outgrown (§4.6.4).
    OutgrownLinkKept,
}
