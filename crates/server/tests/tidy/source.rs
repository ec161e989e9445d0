//! A Rust file taken apart into code, comments and strings.
//!
//! Each part keeps every line and column of the file and holds spaces where another part stands, so
//! that a rule looks only where it means to and still knows its line.
//!
//! Deliberately absent: the grammar. Strings (raw ones too), characters, lifetimes and nested
//! comments are told apart, nothing more.

/// One Rust file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path from the repository's root, with `/`.
    pub(crate) path: String,
    /// The file as it is.
    pub(crate) text: String,
    /// What the compiler runs; literals are blank, their quotes stay.
    pub(crate) code: String,
    /// Comments of every kind.
    pub(crate) comments: String,
    /// The insides of string literals.
    pub(crate) strings: String,
    /// The first line (from 0) of the module of tests at the file's end, or the number of lines.
    pub(crate) tests_from: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Comment,
    String,
}

impl Source {
    /// Takes `text` apart.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let parts = classify(text.as_bytes());
        let code = only(text, &parts, Part::Code);
        let tests_from = if is_test_path(path) {
            0
        } else {
            first_test_line(&code)
        };
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            comments: only(text, &parts, Part::Comment),
            strings: only(text, &parts, Part::String),
            code,
            tests_from,
        }
    }

    /// Whether the file is the root of a crate's library.
    pub(crate) fn is_library_root(&self) -> bool {
        self.path.ends_with("src/lib.rs")
    }

    /// Whether the file is the root of a library or of a program.
    pub(crate) fn is_crate_root(&self) -> bool {
        self.is_library_root() || self.path.ends_with("src/main.rs")
    }
}

/// Files that hold nothing but tests: integration tests, and test modules in files of their own.
fn is_test_path(path: &str) -> bool {
    let mut folders = path.split('/');
    let name = folders.next_back().unwrap_or_default();
    name == "tests.rs" || folders.any(|folder| folder == "tests")
}

/// The line of the attribute of the first inline module that only tests compile.
fn first_test_line(code: &str) -> usize {
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    let is_test_module = |index: usize| {
        let rest = &lines[index..];
        let item = rest
            .iter()
            .find(|line| !line.is_empty() && !line.starts_with("#["));
        lines[index].starts_with("#[cfg(")
            && lines[index].contains("test")
            && item.is_some_and(|item| item.starts_with("mod ") && item.ends_with('{'))
    };
    (0..lines.len())
        .find(|index| is_test_module(*index))
        .unwrap_or(lines.len())
}

fn only(text: &str, parts: &[Part], part: Part) -> String {
    let mut out = String::with_capacity(text.len());
    for (offset, character) in text.char_indices() {
        // One space for one character keeps columns.
        out.push(if character == '\n' || parts[offset] == part {
            character
        } else {
            ' '
        });
    }
    out
}

/// Says of each byte which part it belongs to.
fn classify(text: &[u8]) -> Vec<Part> {
    let mut parts = vec![Part::Code; text.len()];
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let (part, inside) = if rest.starts_with(b"//") {
            (Part::Comment, 0..line_end(rest))
        } else if rest.starts_with(b"/*") {
            (Part::Comment, 0..comment_end(rest))
        } else if let Some(quote) = raw_string_start(text, at) {
            (Part::String, quote..raw_string_end(rest, quote))
        } else if rest[0] == b'"' {
            (Part::String, 1..1 + escaped_end(&rest[1..], b'"'))
        } else if is_character(rest) {
            (Part::String, 1..1 + escaped_end(&rest[1..], b'\''))
        } else {
            at += 1;
            continue;
        };
        let end = inside.end.min(rest.len());
        parts[at + inside.start.min(end)..at + end].fill(part);
        // The closing quote is code.
        at += end + usize::from(part == Part::String);
    }
    parts
}

fn line_end(text: &[u8]) -> usize {
    text.iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(text.len())
}

/// The length of the block comment at the start of `text`; such comments nest.
fn comment_end(text: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let step = match &text[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                2
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of `r##"` when a raw string begins here.
fn raw_string_start(text: &[u8], at: usize) -> Option<usize> {
    let rest = text[at..].strip_prefix(b"r")?;
    let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    // An `r` that ends another word (`br` and `cr` aside) begins no string.
    let mut before = text[..at].iter().rev();
    let prefix = before.next().is_none_or(|byte| {
        !word(byte) || (matches!(byte, b'b' | b'c') && !before.next().is_some_and(word))
    });
    (prefix && rest.get(hashes) == Some(&b'"')).then_some(hashes + 2)
}

/// Where the raw string ends that begins with `quote` bytes of prefix.
fn raw_string_end(text: &[u8], quote: usize) -> usize {
    let mut closing = vec![b'#'; quote - 1];
    closing[0] = b'"';
    let found = text[quote..]
        .windows(closing.len())
        .position(|window| window == closing);
    found.map_or(text.len(), |inside| quote + inside)
}

/// The bytes before the first `quote` that no backslash escapes.
fn escaped_end(text: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while at < text.len() && text[at] != quote {
        at += 1 + usize::from(text[at] == b'\\');
    }
    at.min(text.len())
}

/// Whether a quote begins a character, not a lifetime.
fn is_character(text: &[u8]) -> bool {
    let [b'\'', inside @ ..] = text else {
        return false;
    };
    match inside {
        [b'\\', ..] => true,
        [first, ..] => {
            let width = match first {
                0..0x80 => 1,
                0x80..0xe0 => 2,
                0xe0..0xf0 => 3,
                0xf0.. => 4,
            };
            inside.get(width) == Some(&b'\'')
        }
        [] => false,
    }
}

#[test]
fn a_file_is_taken_apart() {
    let text = concat!(
        "fn f<'a>(x: &'a str) { // one\n",
        "    let quote = '\"'; let word = \"two // not\\\" a comment\";\n",
        "    /* three /* nested */ four */ let raw = br#\"five \"six\"#; let tick = '\\'';\n",
        "    let bar = \"\"; for_r\"seven\";\n",
        "}\n",
    );
    let source = Source::new("src/x.rs", text);
    let words = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        words(&source.comments),
        "// one /* three /* nested */ four */"
    );
    assert_eq!(
        words(&source.strings),
        "\" two // not\\\" a comment five \"six \\' seven"
    );
    assert!(source.code.contains("fn f<'a>(x: &'a str) {"));
    assert!(source.code.contains("let bar = \"\"; for_r\""));
    for part in [&source.code, &source.comments, &source.strings] {
        let shape = |text: &str| {
            text.lines()
                .map(|line| line.chars().count())
                .collect::<Vec<_>>()
        };
        assert_eq!(shape(part), shape(text));
    }
}

#[test]
fn tests_begin_at_their_module() {
    let declared = "//! x\n#[cfg(test)]\nmod tests;\nfn f() {}\n";
    assert_eq!(Source::new("src/x.rs", declared).tests_from, 4);
    let inline = "//! x\nfn f() {}\n\n#[cfg(all(test, not(loom)))]\n#[allow(x)]\nmod tests {\n}\n";
    assert_eq!(Source::new("src/x.rs", inline).tests_from, 3);
    assert_eq!(Source::new("tests/x/main.rs", declared).tests_from, 0);
    assert_eq!(Source::new("src/x/tests.rs", declared).tests_from, 0);
}
