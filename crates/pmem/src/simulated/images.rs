//! The contents that a crash may leave: all of them where they are few, else a choice.
//!
//! The choice: nothing arrived, everything did, what a crash between two stores leaves when
//! everything before it arrived (what a killed process leaves in memory that outlives it), each
//! unit's every content beside units that are old, and beside units that are new, and samples.

use fastrand::Rng;

use super::Simulated;
use super::trace::Crash;

/// How many images of one crash are tried.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// All images are tried where there are no more than this many.
    pub exhaustive_max: usize,
    /// Random images where there are more, beside the regular choice.
    pub samples: usize,
    /// The seed of these.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            exhaustive_max: 512,
            samples: 32,
            seed: 0,
        }
    }
}

/// A piece of memory that arrives by itself, with what it may hold: what is durable first,
/// everything last.
#[derive(Debug)]
pub(super) struct Unit {
    at: usize,
    contents: Vec<Vec<u64>>,
}

impl Unit {
    pub(super) fn new(at: usize, durable: Vec<u64>) -> Self {
        Self {
            at,
            contents: vec![durable],
        }
    }

    pub(super) fn add(&mut self, content: Vec<u64>) {
        if !self.contents.contains(&content) {
            self.contents.push(content);
        }
    }

    /// Puts what is there when everything has arrived to the end.
    pub(super) fn end_with(&mut self, content: Vec<u64>) {
        if content != self.contents[0] {
            self.contents.retain(|other| *other != content);
            self.contents.push(content);
        }
    }

    /// Whether it may hold more than one content.
    pub(super) fn is_open(&self) -> bool {
        self.contents.len() > 1
    }

    pub(super) fn options(&self) -> usize {
        self.contents.len()
    }
}

/// How an image was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One of all, by number.
    Every(usize),
    /// Everything arrived that was stored before this pending store, and nothing after it.
    Until(usize),
    /// One unit holds this content, the others nothing new.
    Early {
        /// The unit, by number.
        unit: usize,
        /// Its content, by number.
        content: usize,
    },
    /// One unit holds this content, the others everything.
    Late {
        /// The unit, by number.
        unit: usize,
        /// Its content, by number.
        content: usize,
    },
    /// A random one, by number.
    Sample(usize),
}

/// A content that a crash may leave.
#[derive(Clone, Debug)]
pub struct Image {
    /// Which it is: named by a test that fails.
    pub choice: Choice,
    words: Vec<u64>,
}

impl Image {
    /// Memory that holds it.
    #[must_use]
    pub fn memory(&self) -> Simulated {
        Simulated::from(self.words.clone())
    }

    /// Memory that holds it and records, to crash again.
    #[must_use]
    pub fn recording(&self) -> Simulated {
        Simulated::recording(self.words.clone())
    }

    /// Its words.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

pub(super) fn images(crash: &Crash<'_>, sampling: Sampling) -> impl Iterator<Item = Image> {
    choices(crash, sampling).map(move |choice| Image {
        choice,
        words: content(crash, choice, sampling.seed),
    })
}

fn choices(crash: &Crash<'_>, sampling: Sampling) -> Box<dyn Iterator<Item = Choice>> {
    let count = crash.image_count();
    if count <= sampling.exhaustive_max as u128 {
        return Box::new((0..count as usize).map(Choice::Every));
    }
    let options: Vec<_> = crash
        .units
        .iter()
        .map(super::images::Unit::options)
        .collect();
    let each = move || {
        let units = options.clone().into_iter().enumerate();
        units.flat_map(|(unit, options)| (0..options).map(move |content| (unit, content, options)))
    };
    let early = each().filter(|(_, content, _)| *content > 0);
    let late = each().filter(|(_, content, options)| content + 1 < *options);
    let untils = (0..=crash.order.len()).map(Choice::Until);
    let early = early.map(|(unit, content, _)| Choice::Early { unit, content });
    let late = late.map(|(unit, content, _)| Choice::Late { unit, content });
    let samples = (0..sampling.samples).map(Choice::Sample);
    Box::new(untils.chain(early).chain(late).chain(samples))
}

fn content(crash: &Crash<'_>, choice: Choice, seed: u64) -> Vec<u64> {
    let mut words = crash.durable.to_vec();
    if let Choice::Until(stores) = choice {
        for (place, word) in crash.order[..stores].iter().copied().flatten() {
            words[*place] = *word;
        }
        return words;
    }
    let mut number = 0;
    let mut rng = Rng::with_seed(seed);
    match choice {
        Choice::Every(every) => number = every,
        Choice::Sample(sample) => {
            let salted = (crash.number as u64) << 32 | sample as u64;
            rng = Rng::with_seed(seed ^ salted.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        }
        _ => {}
    }
    for (index, unit) in crash.units.iter().enumerate() {
        let options = unit.options();
        let option = match choice {
            Choice::Every(_) => {
                let option = number % options;
                number /= options;
                option
            }
            Choice::Early { unit, content } | Choice::Late { unit, content } if unit == index => {
                content
            }
            Choice::Late { .. } => options - 1,
            // Old and new are as likely as everything between.
            Choice::Sample(_) => match rng.u8(..3) {
                0 => 0,
                1 => options - 1,
                _ => rng.usize(..options),
            },
            _ => 0,
        };
        let content = &unit.contents[option];
        words[unit.at..unit.at + content.len()].copy_from_slice(content);
    }
    words
}
