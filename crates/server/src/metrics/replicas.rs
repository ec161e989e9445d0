//! The part of the page about replication: the link to the primary, the replicas that follow.

use super::Page;
use crate::replication::{LinkState, LinkStatus, Progress};
use crate::shared::Shared;

pub(super) fn families(page: &mut Page, shared: &Shared) {
    page.family(
        "pando_replica_syncs_total",
        "counter",
        "How often a replica began to be fed with a full copy, where it stood, with a full copy \
         although it had stood here, and was sent what had changed since it was here; kinds as in \
         INFO.",
    );
    for (name, count) in shared.replication.syncs.named() {
        let kind = name.trim_start_matches("sync_");
        page.sample("", &[("kind", kind)], count);
    }
    followers(page, shared);
    link(page, shared);
}

fn followers(page: &mut Page, shared: &Shared) {
    let (offset, _) = shared.database.backlog();
    let followers = shared.replication.followers();
    let followers: Vec<_> = followers
        .iter()
        .map(|one| (format!("{}:{}", one.host, one.port), one.progress()))
        .collect();
    let help = "Replicas that follow this server.";
    page.single("pando_replicas", "gauge", help, followers.len());
    let mut each = |name, help, value: &dyn Fn(&Progress) -> String| {
        page.family(name, "gauge", help);
        for (address, progress) in &followers {
            page.sample("", &[("replica", address)], value(progress));
        }
    };
    each(
        "pando_replica_lag_bytes",
        "Bytes of changes that a replica has not confirmed yet.",
        &|progress| offset.saturating_sub(progress.offset).to_string(),
    );
    each(
        "pando_replica_silence_seconds",
        "Time since a replica was heard of; it says something at least once a second.",
        &|progress| format!("{:.3}", progress.heard.elapsed().as_secs_f64()),
    );
    each(
        "pando_replica_copying",
        "Whether a replica is being sent a full copy.",
        &|progress| u8::from(progress.copying).to_string(),
    );
}

/// Without a sample on a server that follows nobody.
fn link(page: &mut Page, shared: &Shared) {
    let link = shared.replication.link().map(|(_, link)| link);
    let of = |figure: fn(&LinkStatus) -> u64| link.as_ref().map(figure);
    for (name, kind, help, value) in [
        (
            "pando_link_up",
            "gauge",
            "Whether this replica follows its primary; 0 also while it takes a full copy.",
            of(|link| u64::from(link.state == LinkState::Connected)),
        ),
        (
            "pando_link_lag_bytes",
            "gauge",
            "Bytes of changes that the primary has announced and that are not applied yet.",
            of(|link| link.told.offset.saturating_sub(link.told.applied)),
        ),
        (
            "pando_link_full_copies_total",
            "counter",
            "Full copies that this replica has taken from its primary.",
            of(|link| link.copies),
        ),
    ] {
        page.family(name, kind, help);
        if let Some(value) = value {
            page.sample("", &[], value);
        }
    }
}
