//! What can be wrong with the files of a server, each by itself, through a start and `pando check`:
//! a clear refusal that names the file and says what to do, or a start from what else there is.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{BINARY, Folder, TestServer, run_to_end};

const FLAGS: [&str; 4] = ["--threads", "1", "--log-segment-size", "1mb"];

/// What a start made of the files: nothing if the server listened, and what it said.
#[derive(Debug)]
struct Started {
    listened: bool,
    said: String,
}

/// Starts a server, and ends it once it listens or has refused.
fn start(folder: &Folder, flags: &[&str]) -> Started {
    let errors = folder.path("stderr");
    let mut child = Command::new(BINARY)
        .args([
            "--bind",
            "127.0.0.1",
            "--port",
            "0",
            "--loglevel",
            "warning",
        ])
        .args(FLAGS)
        .args(flags)
        .stdout(Stdio::piped())
        .stderr(fs::File::create(&errors).expect("a file"))
        .spawn()
        .expect("the server starts");
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut lines = out.lines().map(|line| line.expect("text"));
    let listened = lines.any(|line| line.starts_with("listening"));
    if listened {
        child.kill().expect("it runs");
    }
    let status = child.wait().expect("a status");
    assert!(listened || status.code() == Some(1), "{status}");
    let said = fs::read_to_string(&errors).expect("text");
    Started { listened, said }
}

/// A data directory as a killed server left it: two checkpoints, segments of two starts.
struct Sample {
    folder: Folder,
    data: PathBuf,
    copies: usize,
}

impl Sample {
    fn new() -> Self {
        let folder = Folder::new();
        let data = folder.path("data");
        let sample = Self {
            data,
            folder,
            copies: 0,
        };
        for round in 0..3 {
            let server = sample.serve();
            let mut wire = server.connect();
            let (key, value) = (format!("k{round}"), "v".repeat(1000));
            // Several epochs, so that later ones prove the first of a segment durable: what is torn
            // at the very end may never have been on disk.
            for _ in 0..4 {
                wire.ask(&["SET", &key, &value], "+OK\r\n");
            }
            if round < 2 {
                wire.ask(&["SAVE"], "+OK\r\n");
            }
        }
        sample
    }

    fn serve(&self) -> TestServer {
        let data = self.data.display().to_string();
        let flags = ["--durability", "sync", "--data-dir", &data];
        TestServer::start(&[&FLAGS[..], &flags].concat())
    }

    /// The files whose names have this beginning and end, in order.
    fn files(directory: &Path, start: &str, end: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).expect("a directory");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let mut files: Vec<_> = paths
            .filter(|path| {
                let name = path.file_name().expect("a name").to_string_lossy();
                name.starts_with(start) && name.ends_with(end)
            })
            .collect();
        files.sort();
        files
    }

    /// A copy of everything, damaged, then looked at and started from.
    fn case(&mut self, damage: impl FnOnce(&Path)) -> Case {
        self.copies += 1;
        let data = self.folder.path(&format!("copy-{}", self.copies));
        fs::create_dir(&data).expect("a folder");
        for path in Self::files(&self.data, "", "") {
            let name = path.file_name().expect("a name");
            fs::copy(&path, data.join(name)).expect("a copy");
        }
        damage(&data);
        let flag = data.display().to_string();
        let (status, checked) = run_to_end(&["check", "--data-dir", &flag]);
        let started = start(&self.folder, &["--data-dir", &flag]);
        fs::remove_dir_all(&data).expect("a folder");
        Case {
            sound: status.success(),
            checked,
            started,
        }
    }
}

/// What came of one kind of damage.
#[derive(Debug)]
struct Case {
    sound: bool,
    checked: String,
    started: Started,
}

impl Case {
    /// Both refused, with all of these words.
    #[track_caller]
    fn is_refused(&self, words: &[&str]) {
        assert!(!self.started.listened, "a start: {self:#?}");
        assert!(!self.sound, "found sound: {self:#?}");
        for said in [&self.started.said, &self.checked] {
            for word in words {
                assert!(said.contains(word), "no {word:?}: {said}");
            }
        }
    }

    /// A start got round it, and `check` named it.
    #[track_caller]
    fn is_got_round(&self, words: &[&str]) {
        assert!(self.started.listened, "no start: {self:#?}");
        assert!(!self.sound, "found sound: {self:#?}");
        for said in [&self.started.said, &self.checked] {
            for word in words {
                assert!(said.contains(word), "no {word:?}: {said}");
            }
        }
    }

    /// It is no damage.
    #[track_caller]
    fn is_harmless(&self) {
        assert!(self.started.listened && self.sound, "{self:#?}");
    }
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("a file");
    change(&mut bytes);
    fs::write(path, bytes).expect("a file");
}

fn become_a_directory(path: &Path) {
    fs::remove_file(path).expect("a file");
    fs::create_dir(path).expect("a folder");
}

fn name(path: &Path) -> String {
    path.file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned()
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

/// Makes a segment one of another format.
fn reformat_segment(bytes: &mut [u8], format: u32) {
    bytes[8..12].copy_from_slice(&format.to_le_bytes());
    bytes[12..16].fill(0);
    let crc = crc32c(&bytes[..128]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn damaged_segments_are_refused() {
    let mut sample = Sample::new();
    let logs = Sample::files(&sample.data, "log-0", "");
    assert!(logs.len() > 1, "{logs:?}");
    let last = name(logs.last().expect("one"));
    let last = &last;
    sample.case(|_| {}).is_harmless();
    for (offset, what) in [(20, "offset 0:"), (4096 + 30, "offset 4096:")] {
        let case = sample.case(|data| change(&data.join(last), |bytes| bytes[offset] ^= 8));
        case.is_refused(&[
            last,
            what,
            "from a copy",
            "go on from the newest checkpoint",
        ]);
    }
    for (format, which) in [(3, "a newer one"), (1, "an older one")] {
        let case = sample.case(|data| {
            change(&data.join(last), |bytes| reformat_segment(bytes, format));
        });
        case.is_refused(&[last, &format!("log format {format}"), which]);
    }
    for length in [0, 100, 4096] {
        let case = sample.case(|data| change(&data.join(last), |bytes| bytes.truncate(length)));
        let offset = if length < 4096 {
            "offset 0:"
        } else {
            "offset 4096:"
        };
        case.is_refused(&[last, offset]);
    }
    let case =
        sample.case(|data| fs::write(data.join(last), "a text".repeat(2000)).expect("a file"));
    case.is_refused(&[last, "offset 0:"]);
    let case = sample.case(|data| {
        let [one, other] = [&logs[0], logs.last().expect("one")].map(|path| data.join(name(path)));
        let bytes = fs::read(&one).expect("a file");
        fs::copy(&other, &one).expect("a copy");
        fs::write(&other, bytes).expect("a file");
    });
    case.is_refused(&["log-0", "renamed"]);
    // What the refusals say can be done.
    let case = sample.case(|data| {
        for path in Sample::files(data, "log-0", "") {
            fs::remove_file(path).expect("a file");
        }
    });
    case.is_got_round(&["no log"]);
}

#[test]
fn damaged_checkpoints_are_got_round_or_refused() {
    let mut sample = Sample::new();
    for (start, end, formats) in [
        ("checkpoint-", ".manifest", true),
        ("checkpoint-", ".part", false),
    ] {
        let two: Vec<_> = Sample::files(&sample.data, start, end)
            .iter()
            .map(|it| name(it))
            .collect();
        assert_eq!(two.len(), 2, "{two:?}");
        let newest = &two[1];
        for damage in [
            (|bytes| *bytes.last_mut().expect("bytes") ^= 1) as fn(&mut Vec<u8>),
            |bytes| bytes.truncate(bytes.len() - 1),
            |bytes| bytes.truncate(3),
            Vec::clear,
            |bytes| *bytes = b"a text".repeat(100),
        ] {
            let case = sample.case(|data| change(&data.join(newest), damage));
            case.is_got_round(&[newest, "damaged at offset"]);
            let case = sample.case(|data| {
                for one in &two {
                    change(&data.join(one), damage);
                }
            });
            case.is_refused(&[newest, "damaged at offset", "from a copy"]);
        }
        for (format, which) in [(3_u32, "a newer one"), (1, "an older one")] {
            let other = |bytes: &mut Vec<u8>| bytes[8..12].copy_from_slice(&format.to_le_bytes());
            let case = sample.case(|data| change(&data.join(newest), other));
            let words = [newest, &format!("checkpoint format {format}"), which];
            if formats {
                case.is_refused(&words);
            } else {
                case.is_got_round(&words);
            }
        }
        // The older one is not even read in full by a start.
        let case = sample.case(|data| {
            let bytes = fs::read(data.join(newest)).expect("a file");
            change(&data.join(&two[0]), |older| *older = bytes);
        });
        case.is_got_round(&[]);
        assert!(case.checked.contains(&two[0]), "{case:?}");
    }
}

#[test]
fn files_beside_log_and_checkpoints_are_named_too() {
    let mut sample = Sample::new();
    for damage in [
        (|path| fs::write(path, "PANDO-ID12").expect("a file")) as fn(&Path),
        |path| fs::write(path, "").expect("a file"),
        become_a_directory,
    ] {
        let case = sample.case(|data| damage(&data.join("identity.pando")));
        case.is_refused(&["identity.pando"]);
    }
    let case = sample.case(|data| {
        // Another digit.
        let other = |bytes: &mut Vec<u8>| bytes[12] = if bytes[12] == b'0' { b'1' } else { b'0' };
        change(&data.join("identity.pando"), other);
    });
    case.is_refused(&["another database"]);
    for damage in [
        (|path| fs::write(path, [b'/', 0xff, b'\n']).expect("a file")) as fn(&Path),
        |path| fs::create_dir(path).expect("a folder"),
        |path| fs::write(path, "/nowhere/at/all\n").expect("a file"),
    ] {
        let case = sample.case(|data| damage(&data.join("log-directories.pando")));
        case.is_refused(&["log-directories.pando"]);
    }
    let case = sample.case(|data| become_a_directory(&data.join("pando.lock")));
    assert!(
        !case.started.listened && case.started.said.contains("pando.lock"),
        "{case:?}"
    );
    assert!(case.sound, "it can be looked at: {case:?}");
    let case = sample.case(|data| {
        for stranger in [
            "notes.txt",
            "log-.pando",
            "checkpoint-1.manifest",
            "identity.new",
        ] {
            fs::write(data.join(stranger), "anything").expect("a file");
        }
        for stranger in ["lost+found", "free-00000001-00000001.pando"] {
            let path = data.join(stranger);
            let _ = fs::remove_file(&path);
            fs::create_dir(path).expect("a folder");
        }
    });
    case.is_harmless();
    // Files where directories should be.
    let file = sample.folder.path("file");
    fs::write(&file, "anything").expect("a file");
    let (file, data) = (
        file.display().to_string(),
        sample.data.display().to_string(),
    );
    for flags in [
        &["--data-dir", &*file][..],
        &["--data-dir", &data, "--log-dir", &file],
    ] {
        let started = start(&sample.folder, flags);
        assert!(
            !started.listened && started.said.contains(&file),
            "{started:?}"
        );
    }
}

#[test]
fn a_directory_belongs_to_one_server() {
    let folder = Folder::new();
    let path = |name: &str| folder.path(name).display().to_string();
    let [data, log, other, third] = ["data", "log", "other", "third"].map(path);
    let flags = [
        "--durability",
        "sync",
        "--data-dir",
        &data,
        "--log-dir",
        &log,
    ];
    let server = TestServer::start(&[&FLAGS[..], &flags, &["--log-dir", &third]].concat());
    for (taken, flags) in [
        (&data, &["--data-dir", &*data][..]),
        (&log, &["--data-dir", &other, "--log-dir", &log]),
        (&third, &["--data-dir", &other, "--log-dir", &third]),
        (&data, &["--data-dir", &other, "--log-dir", &data]),
        (&log, &["--data-dir", &log]),
    ] {
        let started = start(&folder, flags);
        assert!(!started.listened, "{flags:?}");
        let words = format!(
            "{taken}: in use by another server (process {})",
            server.pid()
        );
        assert!(started.said.contains(&words), "{started:?}");
        let (status, said) = run_to_end(&[&["check"], flags].concat());
        assert!(!status.success() && said.contains(&words), "{said}");
    }
    // The first one is not disturbed, and lets go of them however it ends.
    server.connect().ask(&["SET", "k", "v"], "+OK\r\n");
    drop(server);
    let server = TestServer::start(&[&FLAGS[..], &flags].concat());
    server.connect().ask(&["GET", "k"], "$1\r\nv\r\n");
}

/// The disk of a log, or of checkpoints, is not mounted: its directory is there, and empty.
#[test]
fn a_directory_that_was_emptied_is_refused() {
    for (setting, noted) in [
        ("--log-dir", "log-directories.pando"),
        ("--checkpoint-dir", "checkpoint-directories.pando"),
    ] {
        let folder = Folder::new();
        let [data, one, other] =
            ["data", "one", "other"].map(|name| folder.path(name).display().to_string());
        let durability = ["--durability", "sync", "--data-dir", &data];
        let flags = [&durability[..], &[setting, &one, setting, &other]].concat();
        let server = TestServer::start(&[&FLAGS[..], &flags].concat());
        let mut wire = server.connect();
        wire.ask(&["SAVE"], "+OK\r\n");
        wire.ask(&["SET", "k", "v"], "+OK\r\n");
        drop(server);
        let (away, here) = (folder.path("away"), folder.path("one"));
        fs::rename(&here, &away).expect("a folder");
        for exists in [false, true] {
            if exists {
                fs::create_dir(&here).expect("a folder");
            }
            for flags in [&flags[..], &durability] {
                let started = start(&folder, flags);
                assert!(!started.listened, "{flags:?}");
                for word in [&*one, "mounted", noted] {
                    assert!(started.said.contains(word), "{started:?}");
                }
                let (status, said) = run_to_end(&[&["check"], flags].concat());
                assert!(!status.success() && said.contains("mounted"), "{said}");
            }
        }
        fs::remove_dir_all(&here).expect("a folder");
        fs::rename(&away, &here).expect("a folder");
        // The rest is found where it was, whatever the setting.
        for flags in [&durability, &flags[..]] {
            let (status, said) = run_to_end(&[&["check"], flags].concat());
            assert!(status.success(), "{said}");
            let server = TestServer::start(&[&FLAGS[..], flags].concat());
            let mut wire = server.connect();
            wire.ask(&["GET", "k"], "$1\r\nv\r\n");
            wire.ask(&["SAVE"], "+OK\r\n");
        }
    }
}

/// The refusal goes where a person or a supervisor looks: the standard error, and the exit code.
#[test]
fn a_refusal_is_said_once_and_ends_the_process() {
    let folder = Folder::new();
    let data = folder.path("data");
    fs::create_dir(&data).expect("a folder");
    fs::write(data.join("identity.pando"), "?").expect("a file");
    let mut child = Command::new(BINARY)
        .args(["--port", "0", "--data-dir"])
        .arg(&data)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = String::new();
    let mut errors = child.stderr.take().expect("a pipe");
    errors.read_to_string(&mut said).expect("text");
    assert_eq!(child.wait().expect("a status").code(), Some(1));
    assert_eq!(said.matches("identity.pando").count(), 1, "{said}");
}
