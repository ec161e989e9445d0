//! BRANCH MERGE, as clients see it: what is merged, what conflicts, and where a merge begins.

use super::{on_branch, shell};
use crate::commands::testing::START_MS;

#[test]
fn merges_do_all_or_nothing() {
    let mut main = shell();
    main.check(&[
        ("MSET a 1 b 1 c 1 d 1", "+OK"),
        ("HSET h same 1 ours 1 theirs 1 gone 1", ":4"),
        ("SELECT 5", "+OK"),
        ("SET five 1", "+OK"),
        ("SELECT 0", "+OK"),
    ]);
    let mut trial = on_branch(&mut main, "trial");
    trial.check(&[
        ("SET a 2", "+OK"),
        ("DEL b", ":1"),
        ("HSET h theirs 2 new 3", ":1"),
        ("HDEL h gone", ":1"),
        ("PEXPIRE d 5000", ":1"),
        ("SELECT 5", "+OK"),
        ("SET five 2", "+OK"),
        ("SELECT 0", "+OK"),
    ]);
    main.check(&[("SET c ours", "+OK"), ("HSET h ours 2", ":0")]);
    let merged = "*6 $6 merged :5 $9 conflicts :0 $4 keys *0";
    main.line("SNAPSHOT CREATE before");
    main.check(&[
        ("BRANCH MERGE trial INTO MAIN DRY RUN", merged),
        ("GET a", "$1 1"),
        ("WATCH a", "+OK"),
        ("BRANCH MERGE trial INTO MAIN", merged),
        ("MULTI", "+OK"),
        ("EXEC", "*-1"),
        ("MGET a b c", "*3 $1 2 $-1 $4 ours"),
        ("PTTL d", ":5000"),
        (
            "HGETALL h",
            "*8 $3 new $1 3 $4 ours $1 2 $4 same $1 1 $6 theirs $1 2",
        ),
        (
            "BRANCH MERGE trial INTO MAIN",
            "*6 $6 merged :0 $9 conflicts :0 $4 keys *0",
        ),
        (
            "BRANCH MERGE MAIN INTO trial",
            "*6 $6 merged :2 $9 conflicts :0 $4 keys *0",
        ),
        ("BRANCH DIFF MAIN trial COUNT", ":0"),
        ("SELECT 5", "+OK"),
        ("GET five", "$1 2"),
        (
            "BRANCH MERGE trial INTO trial",
            "-ERR a branch is not merged into itself",
        ),
        ("BRANCH MERGE trial ONTO MAIN", "-ERR syntax error"),
        (
            "BRANCH MERGE trial INTO before",
            "-ERR a snapshot is not merged: make a branch from it",
        ),
        (
            "BRANCH MERGE nothing INTO trial",
            "-NOBRANCH no branch has this name",
        ),
        (
            "BRANCH MERGE trial INTO MAIN ON CONFLICT",
            "-ERR syntax error",
        ),
    ]);
}

#[test]
fn conflicts_are_named_or_decided() {
    let mut main = shell();
    main.check(&[("MSET k 1 t 1 n 1", "+OK"), ("HSET h f 1 g 1", ":2")]);
    let mut trial = on_branch(&mut main, "trial");
    trial.check(&[
        ("SET k theirs", "+OK"),
        ("DEL t", ":1"),
        ("SET n 2", "+OK"),
        ("HSET h f theirs g 2", ":0"),
        ("SET type string", "+OK"),
    ]);
    main.check(&[
        ("SET k ours", "+OK"),
        ("SET t ours", "+OK"),
        ("HSET h f ours", ":0"),
        ("RPUSH type list", ":1"),
    ]);
    let conflicts = "$9 conflicts :4 $4 keys *4 *3 :0 $1 h *1 $1 f *3 :0 $1 k *0 *3 :0 $1 t *0 \
                     *3 :0 $4 type *0";
    let merged = |count: usize| format!("*6 $6 merged :{count} {conflicts}");
    let merged_none = "*6 $6 merged :0 $9 conflicts :0 $4 keys *0";
    main.line("SNAPSHOT CREATE before");
    main.check(&[
        ("BRANCH MERGE trial INTO MAIN", &merged(0)),
        ("GET n", "$1 1"),
        (
            "BRANCH MERGE trial INTO MAIN ON CONFLICT OURS DRY RUN",
            &merged(2),
        ),
        ("BRANCH MERGE trial INTO MAIN ON CONFLICT OURS", &merged(2)),
        ("MGET k t n", "*3 $4 ours $4 ours $1 2"),
        ("HGETALL h", "*4 $1 f $4 ours $1 g $1 2"),
        ("LLEN type", ":1"),
        // They were merged: what is in conflict was decided.
        ("BRANCH MERGE trial INTO MAIN", merged_none),
        ("SNAPSHOT ROLLBACK before", "+OK"),
        (
            "BRANCH MERGE trial INTO MAIN ON CONFLICT THEIRS",
            &merged(5),
        ),
        ("BRANCH DIFF MAIN trial COUNT", ":0"),
    ]);
    main.check(&[
        ("SET k ours", "+OK"),
        ("SET n ours", "+OK"),
        ("HSET h new ours", ":1"),
    ]);
    trial.check(&[("FLUSHDB", "+OK")]);
    let conflicts = "$9 conflicts :3 $4 keys *3 *3 :0 $1 h *0 *3 :0 $1 k *0 *3 :0 $1 n *0";
    main.check(&[(
        "BRANCH MERGE trial INTO MAIN",
        &format!("*6 $6 merged :0 {conflicts}"),
    )]);
}

#[test]
fn all_conflicts_are_named_in_pieces() {
    let mut main = shell();
    let trial = &mut on_branch(&mut main, "trial");
    for (shell, value) in [(&mut main, "ours"), (trial, "theirs")] {
        for select in ["SELECT 0", "SELECT 3"] {
            shell.check(&[(select, "+OK")]);
            for key in 0..130 {
                shell.line(&format!("SET k{key:03} {value}"));
            }
        }
        shell.check(&[("SELECT 0", "+OK")]);
    }
    let conflict = |index: usize| {
        let (database, key) = (3 * (index / 130), index % 130);
        format!(" *3 :{database} $4 k{key:03} *0")
    };
    let named = |range: std::ops::Range<usize>| {
        let count = range.len();
        let keys: String = range.map(conflict).collect();
        format!("*6 $6 merged :0 $9 conflicts :260 $4 keys *{count}{keys}")
    };
    main.check(&[
        ("BRANCH MERGE trial INTO MAIN", &named(0..100)),
        ("BRANCH MERGE trial INTO MAIN LIMIT 0", &named(0..0)),
        ("BRANCH MERGE trial INTO MAIN LIMIT 1000", &named(0..260)),
        (
            "BRANCH MERGE trial INTO MAIN AFTER 0 k099 DRY RUN LIMIT 70",
            &named(100..170),
        ),
        (
            "BRANCH MERGE trial INTO MAIN LIMIT 100 AFTER 3 k039",
            &named(170..260),
        ),
        ("BRANCH MERGE trial INTO MAIN AFTER 9 a", &named(0..0)),
        (
            "BRANCH MERGE trial INTO MAIN LIMIT -1",
            "-ERR value is out of range, must be positive",
        ),
        ("BRANCH MERGE trial INTO MAIN AFTER 0", "-ERR syntax error"),
        (
            "BRANCH MERGE trial INTO MAIN AFTER x k",
            "-ERR value is not an integer or out of range",
        ),
    ]);
}

/// As with git: a merge begins behind the one before, in whichever direction, and chains count.
#[test]
fn a_merge_begins_behind_the_last_one() {
    let mut main = shell();
    main.check(&[("MSET a 1 b 1", "+OK")]);
    let mut trial = on_branch(&mut main, "trial");
    let merged = |count: usize| format!("*6 $6 merged :{count} $9 conflicts :0 $4 keys *0");
    trial.check(&[("SET k trial", "+OK"), ("SET a trial", "+OK")]);
    main.check(&[
        ("BRANCH MERGE trial INTO MAIN", &merged(2)),
        // What was deleted stays so, and what was changed is in no conflict.
        ("DEL k", ":1"),
        ("SET a main", "+OK"),
        ("BRANCH MERGE trial INTO MAIN ON CONFLICT OURS", &merged(0)),
        ("EXISTS k", ":0"),
        // The other way round, only what was done since.
        ("BRANCH MERGE MAIN INTO trial", &merged(2)),
        ("BRANCH READ trial GET a", "$4 main"),
        ("BRANCH READ trial EXISTS k", ":0"),
    ]);
    // A branch that has merged another one brings that, too.
    let mut deeper = on_branch(&mut main, "deeper");
    deeper.check(&[("SET d deeper", "+OK")]);
    main.check(&[
        ("BRANCH MERGE deeper INTO trial", &merged(1)),
        ("BRANCH MERGE trial INTO MAIN", &merged(1)),
        ("DEL d", ":1"),
        ("BRANCH MERGE deeper INTO MAIN", &merged(0)),
        ("EXISTS d", ":0"),
        ("BRANCH LIST", &format!(
            "*3 *3 $4 main :{START_MS} :0 *3 $5 trial :{START_MS} :0 *3 $6 deeper :{START_MS} :0"
        )),
    ]);
    assert_eq!(main.database.branches(), Some(3));
    // What a reset undoes can be merged again.
    main.line("SNAPSHOT CREATE before");
    deeper.check(&[("SET e deeper", "+OK")]);
    main.check(&[
        ("BRANCH MERGE deeper INTO MAIN", &merged(1)),
        ("BRANCH RESET MAIN TO before", ":1"),
        ("EXISTS e", ":0"),
        ("BRANCH MERGE deeper INTO MAIN", &merged(1)),
        ("GET e", "$6 deeper"),
        ("EXISTS d", ":0"),
    ]);
    // Marks go with their branches.
    main.check(&[("BRANCH DROP deeper", "+OK"), ("BRANCH DROP trial", "+OK")]);
    main.turn().drop_unfinished();
    assert!(main.database.branches.marks().is_empty());
    assert_eq!(main.database.branches.len(), 1);
}

/// Two branches that have both merged a third one begin where they part: what one of them has
/// removed since stays removed, though the third never had it.
#[test]
fn a_third_branch_is_no_place_to_begin() {
    let mut main = shell();
    let merged = |count: usize| format!("*6 $6 merged :{count} $9 conflicts :0 $4 keys *0");
    main.line("BRANCH CREATE c");
    main.check(&[("SET k 1", "+OK")]);
    main.line("BRANCH CREATE a");
    main.check(&[
        ("BRANCH USE c", "+OK"),
        ("SET f 1", "+OK"),
        ("BRANCH USE main", "+OK"),
        ("BRANCH MERGE c INTO main", &merged(1)),
        ("BRANCH MERGE c INTO a", &merged(1)),
        ("DEL k", ":1"),
        ("BRANCH MERGE a INTO main", &merged(0)),
        ("EXISTS k", ":0"),
        ("BRANCH MERGE main INTO a", &merged(1)),
        ("BRANCH USE a", "+OK"),
        ("EXISTS k f", ":1"),
    ]);
}

#[test]
fn hashes_are_merged_field_by_field_with_their_deadlines() {
    let mut main = shell();
    main.check(&[("HSET h a 1 b 1 c 1 d 1 e 1", ":5"), ("HSET g a 1", ":1")]);
    main.check(&[("HPEXPIRE h 90000 FIELDS 2 a e", "*2 :1 :1")]);
    let mut trial = on_branch(&mut main, "trial");
    trial.check(&[
        ("HSET h f theirs", ":1"),
        ("HPEXPIRE h 50000 FIELDS 2 a b", "*2 :1 :1"),
        ("HPERSIST h FIELDS 1 e", "*1 :1"),
        ("HPEXPIRE g 50000 FIELDS 1 a", "*1 :1"),
    ]);
    main.check(&[
        ("HSET h c ours g ours", ":1"),
        ("HDEL h d", ":1"),
        ("HSET g b ours", ":1"),
        (
            "BRANCH MERGE trial INTO MAIN",
            "*6 $6 merged :2 $9 conflicts :0 $4 keys *0",
        ),
        (
            "HMGET h a b c d e f g",
            "*7 $1 1 $1 1 $4 ours $-1 $1 1 $6 theirs $4 ours",
        ),
        ("HPTTL h FIELDS 4 a b e c", "*4 :50000 :50000 :-1 :-1"),
        ("HPTTL g FIELDS 2 a b", "*2 :50000 :-1"),
    ]);
    // Both give one field deadlines of their own, and change two more.
    let mut other = on_branch(&mut main, "other");
    other.check(&[
        ("HPEXPIRE h 10000 FIELDS 1 a", "*1 :1"),
        ("HSET h c theirs f new g theirs", ":0"),
    ]);
    main.check(&[
        ("HPEXPIRE h 20000 FIELDS 1 a", "*1 :1"),
        ("HSET h c other g other", ":0"),
    ]);
    let merged = |count: usize, fields: &str| {
        format!("*6 $6 merged :{count} $9 conflicts :1 $4 keys *1 *3 :0 $1 h {fields}")
    };
    let fields = "*3 $1 a $1 c $1 g";
    main.line("SNAPSHOT CREATE before");
    main.check(&[
        ("BRANCH MERGE other INTO MAIN", &merged(0, fields)),
        (
            "BRANCH MERGE other INTO MAIN LIMIT 2",
            &merged(0, "*2 $1 a $1 c"),
        ),
        (
            "BRANCH MERGE other INTO MAIN ON CONFLICT OURS",
            &merged(1, fields),
        ),
        ("HMGET h c f g", "*3 $5 other $3 new $5 other"),
        ("HPTTL h FIELDS 1 a", "*1 :20000"),
        ("SNAPSHOT ROLLBACK before", "+OK"),
        (
            "BRANCH MERGE other INTO MAIN ON CONFLICT THEIRS",
            &merged(1, fields),
        ),
        ("HMGET h c f g", "*3 $6 theirs $3 new $6 theirs"),
        ("HPTTL h FIELDS 1 a", "*1 :10000"),
    ]);
}
