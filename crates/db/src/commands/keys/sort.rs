//! SORT and `SORT_RO`: the elements of a list or set in another order, or what keys named after
//! them hold.
//!
//! A sort holds on to the collection as it was, and works in slices:
//!
//! 1. [`Sort::load`] reads a portion of the elements, with what they are compared by, and sorts it;
//! 2. [`Sort::emit`] merges the sorted portions, looks up what GET names, and writes it into the
//!    reply or the list to be stored. Without an order of its own (BY without `*`) it takes the
//!    elements from where they are.
//!
//! Equal elements keep the order that they have in the collection. Without BY, or with numbers,
//! none are equal: elements with equal numbers are compared themselves, as in Redis. The keys that
//! patterns name are read one after another, so a writer may come in between, as with MGET; in a
//! transaction none does.
//!
//! Deliberately absent: an order by the rules of a language. Redis' default locale has none either.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;
use std::vec;

use pando_engine::limits::KEY_BYTES_MAX;
use pando_engine::{
    Body, BodyRef, Decision, HashBody, ListDraft, ListRef, NewValue, RowTag, SortedRef, StringBody,
    StringRef,
};
use pando_protocol::{Reply, Request, RespVersion, number};

use super::again;
use crate::commands::detached::{Detached, reply_bulk};
use crate::error::CommandError;
use crate::keyspace::{Keyspace, hash_of, string_of};
use crate::limits::{SLICE_BYTES_MAX, SLICE_ENTRIES_MAX, SORTED_BYTES_MAX};
use crate::progress::{Handled, Progress, Slice};
use crate::view::View;

/// SORT, `SORT_RO` key [BY pattern] [LIMIT offset count] [GET pattern …] [ASC | DESC] [ALPHA]
/// [STORE destination]
pub(super) fn sort(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    only_reads: bool,
) -> Handled {
    let mut options = Options::parse(request, only_reads)?;
    if let Some(destination) = &options.store {
        keyspace.check_key(destination)?;
    }
    let source = Source::take(keyspace, request.arg(1))?;
    let is_set = source.as_ref().is_some_and(|it| it.tag == RowTag::Set);
    if options.in_place && is_set && options.store.is_some() {
        // A stored list must not depend on the order in which a set happens to be.
        options.in_place = false;
        options.order.alpha = true;
        options.by = None;
    }
    let len = source.as_ref().map_or(0, Source::len);
    let wanted = options.range(len);
    let mut work = Sort {
        view: keyspace.view,
        loaded: if options.in_place { len } else { 0 },
        passed: if options.in_place { wanted.start } else { 0 },
        wanted,
        options,
        source,
        portions: Vec::new(),
        heads: BinaryHeap::new(),
        out: Output::default(),
    };
    if work.advance(keyspace, reply)? {
        Ok(Progress::Done)
    } else {
        Ok(Progress::in_slices(work))
    }
}

/// What stands for an element in BY and GET.
#[derive(Clone, Debug)]
enum Pattern {
    /// `#`: the element itself.
    Element,
    /// A pattern without `*`, which names nothing.
    Nothing,
    /// The string at a key, or the value of a field of the hash there.
    Key {
        before: Box<[u8]>,
        after: Box<[u8]>,
        field: Option<Box<[u8]>>,
    },
}

impl Pattern {
    fn parse(text: &[u8]) -> Self {
        const ARROW: &[u8] = b"->";
        if text == b"#" {
            return Self::Element;
        }
        let Some(star) = text.iter().position(|byte| *byte == b'*') else {
            return Self::Nothing;
        };
        let (before, after) = (&text[..star], &text[star + 1..]);
        let arrow = after.windows(ARROW.len()).position(|it| it == ARROW);
        let arrow = arrow.filter(|at| at + ARROW.len() < after.len());
        let (after, field) = match arrow {
            Some(at) => (&after[..at], Some(after[at + ARROW.len()..].into())),
            None => (after, None),
        };
        Self::Key {
            before: before.into(),
            after: after.into(),
            field,
        }
    }

    /// What it names for this element.
    fn find(
        &self,
        keyspace: &mut Keyspace<'_>,
        element: &Detached<'_>,
    ) -> Option<Detached<'static>> {
        let (before, after, field) = match self {
            Self::Element => return Some(Detached::take(element.as_ref())),
            Self::Nothing => return None,
            Self::Key {
                before,
                after,
                field,
            } => (before, after, field),
        };
        let element = element.as_ref();
        if before.len() + element.len() + after.len() > KEY_BYTES_MAX {
            return None;
        }
        let key = [before, &*element.to_cow(), after].concat();
        let now = keyspace.now();
        keyspace.read(&key, |value| match field {
            None => string_of(value?).ok().map(Detached::take),
            Some(field) => hash_of(value?, now).ok()?.get(field).map(Detached::take),
        })
    }
}

/// How elements are compared.
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    /// As bytes, not as numbers.
    alpha: bool,
    falling: bool,
    /// For a stored list, bytes are compared to the end, else to the first 0, as Redis does.
    stored: bool,
}

impl Order {
    fn compare(self, one: &Item, other: &Item) -> Ordering {
        let whole = || bytes(&one.element).cmp(&bytes(&other.element));
        let order = match (&one.weight, &other.weight) {
            (Weight::Number(one), Weight::Number(other)) => {
                let order = one.partial_cmp(other).expect("a weight is a number");
                order.then_with(whole)
            }
            (Weight::Text(one), Weight::Text(other)) => match (one, other) {
                (Some(one), Some(other)) => self.compare_texts(one, other),
                _ => one.is_some().cmp(&other.is_some()),
            },
            _ => self.compare_texts(&one.element, &other.element),
        };
        if self.falling { order.reverse() } else { order }
    }

    fn compare_texts(self, one: &Detached<'_>, other: &Detached<'_>) -> Ordering {
        let (one, other) = (bytes(one), bytes(other));
        if self.stored {
            one.cmp(&other)
        } else {
            c_string(&one).cmp(c_string(&other))
        }
    }
}

fn bytes<'b>(string: &'b Detached<'_>) -> Cow<'b, [u8]> {
    string.as_ref().to_cow()
}

/// What C takes for the string in these bytes.
fn c_string(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The number in a string, as Redis reads it here: spaces may precede it, and nothing at all is 0.
fn number_in(text: &[u8]) -> Option<f64> {
    let text = c_string(text);
    if text.is_empty() {
        return Some(0.0);
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let spaces = text.iter().take_while(|byte| is_space(byte)).count();
    number::parse_f64(&text[spaces..])
}

/// What an element is compared by.
#[derive(Clone, Debug)]
enum Weight {
    Number(f64),
    /// What BY names, if there is such a thing.
    Text(Option<Detached<'static>>),
    /// The element.
    Itself,
}

#[derive(Clone, Debug)]
struct Item {
    weight: Weight,
    element: Detached<'static>,
}

#[derive(Clone, Debug)]
struct Options {
    order: Order,
    by: Option<Pattern>,
    /// The elements stay in their order.
    in_place: bool,
    get: Vec<Pattern>,
    offset: i64,
    count: i64,
    store: Option<Box<[u8]>>,
}

impl Options {
    fn parse(request: Request<'_>, only_reads: bool) -> Result<Self, CommandError> {
        let mut options = Self {
            order: Order::default(),
            by: None,
            in_place: false,
            get: Vec::new(),
            offset: 0,
            count: -1,
            store: None,
        };
        let integer = |index| {
            let argument = number::parse_i64(request.arg(index));
            argument.ok_or(CommandError::NotAnInteger)
        };
        let mut at = 2;
        while at < request.len() {
            let next = request.get(at + 1);
            match next {
                _ if request.is(at, "ASC") => options.order.falling = false,
                _ if request.is(at, "DESC") => options.order.falling = true,
                _ if request.is(at, "ALPHA") => options.order.alpha = true,
                Some(_) if request.is(at, "LIMIT") && at + 2 < request.len() => {
                    options.offset = integer(at + 1)?;
                    options.count = integer(at + 2)?;
                    at += 2;
                }
                Some(key) if request.is(at, "STORE") && !only_reads => {
                    options.store = Some(key.into());
                    at += 1;
                }
                Some(pattern) if request.is(at, "BY") => {
                    // Once there was one without a star, others change nothing.
                    options.in_place |= !pattern.contains(&b'*');
                    options.by = Some(Pattern::parse(pattern));
                    at += 1;
                }
                Some(pattern) if request.is(at, "GET") => {
                    options.get.push(Pattern::parse(pattern));
                    at += 1;
                }
                _ => return Err(CommandError::Syntax),
            }
            at += 1;
        }
        options.order.stored = options.store.is_some();
        Ok(options)
    }

    /// Which of `len` elements are wanted.
    fn range(&self, len: usize) -> Range<usize> {
        let most = len as i64;
        let start = self.offset.clamp(0, most) as usize;
        let end = match self.count {
            ..0 => len,
            count => (start + count.min(most) as usize).min(len),
        };
        start..end
    }
}

/// The collection.
#[derive(Debug)]
struct Source {
    tag: RowTag,
    body: HashBody,
}

impl Clone for Source {
    fn clone(&self) -> Self {
        let body = self.body.as_ref().hand_over();
        Self { body, ..*self }
    }
}

impl Source {
    fn take(keyspace: &mut Keyspace<'_>, key: &[u8]) -> Result<Option<Self>, CommandError> {
        keyspace.read(key, |value| match value.map(|value| value.body) {
            None => Ok(None),
            Some(BodyRef::Row(tag @ (RowTag::List | RowTag::Set | RowTag::SortedSet), row)) => {
                let body = row.hand_over();
                Ok(Some(Self { tag, body }))
            }
            Some(_) => Err(CommandError::WrongType),
        })
    }

    fn len(&self) -> usize {
        let row = self.body.as_ref();
        match self.tag {
            RowTag::List => ListRef::new(row).len(),
            RowTag::SortedSet => SortedRef::new(row).len(),
            _ => row.len(),
        }
    }

    /// Up to `count` elements from a position on, which may count from the end, except in a set.
    fn elements(&self, at: usize, count: usize, falling: bool) -> Vec<Detached<'static>> {
        let (row, len) = (self.body.as_ref(), self.len());
        let falling = falling && self.tag != RowTag::Set;
        let count = count.min(len - at);
        let at = if falling { len - at - count } else { at };
        let flat = |bytes| Detached::take(StringRef::Flat(bytes));
        let mut elements: Vec<_> = match self.tag {
            RowTag::List => {
                let list = ListRef::new(row).iter_from(at).take(count);
                list.map(Detached::take).collect()
            }
            RowTag::SortedSet => {
                let members = SortedRef::new(row).iter_from_rank(at).take(count);
                members.map(|(member, _)| flat(member)).collect()
            }
            _ => {
                let members = row.iter_from_rank(at).take(count);
                members.map(|(member, _)| flat(member)).collect()
            }
        };
        if falling {
            elements.reverse();
        }
        elements
    }
}

/// The first element that is left of a sorted portion. The greatest of a heap is the one that comes
/// first.
#[derive(Clone, Debug)]
struct Head {
    order: Order,
    item: Item,
    portion: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.order.compare(&other.item, &self.item);
        order.then(other.portion.cmp(&self.portion))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

/// What was found so far.
#[derive(Debug, Default)]
struct Output {
    count: usize,
    bytes: usize,
    /// Elements of the reply,
    reply: Vec<u8>,
    /// or the list to be stored.
    list: Option<HashBody>,
}

impl Clone for Output {
    fn clone(&self) -> Self {
        let list = self.list.as_ref().map(|list| list.as_ref().hand_over());
        let reply = self.reply.clone();
        Self {
            reply,
            list,
            ..*self
        }
    }
}

/// A sort in progress.
#[derive(Clone, Debug)]
struct Sort {
    view: View,
    options: Options,
    source: Option<Source>,
    /// Which positions of the result are wanted.
    wanted: Range<usize>,
    /// Elements that were read so far.
    loaded: usize,
    /// They, sorted: each portion less its first one once they are being merged.
    portions: Vec<vec::IntoIter<Item>>,
    heads: BinaryHeap<Head>,
    /// Positions of the result that are done.
    passed: usize,
    out: Output,
}

impl Sort {
    /// Does a slice of the work; returns whether that was the last one, and the reply is written.
    fn advance(
        &mut self,
        keyspace: &mut Keyspace<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<bool, CommandError> {
        keyspace.view = self.view;
        let len = self.source.as_ref().map_or(0, Source::len);
        if self.loaded < len {
            self.load(keyspace)?;
            if self.loaded < len || len > SLICE_ENTRIES_MAX {
                return Ok(false);
            }
        }
        if !self.emit(keyspace, reply)? {
            return Ok(false);
        }
        debug_assert_eq!(self.passed, self.wanted.end);
        if let Some(destination) = self.options.store.take() {
            self.store(keyspace, &destination, reply)?;
        } else {
            reply.array(self.out.count);
            reply.raw(&self.out.reply);
        }
        Ok(true)
    }

    /// Reads and sorts the next portion.
    fn load(&mut self, keyspace: &mut Keyspace<'_>) -> Result<(), CommandError> {
        let source = self.source.as_ref().expect("there is something to load");
        let elements = source.elements(self.loaded, SLICE_ENTRIES_MAX, false);
        let mut portion = Vec::with_capacity(elements.len());
        let mut bytes = 0;
        for element in elements {
            let weight = self.weigh(keyspace, &element)?;
            bytes += element.as_ref().len();
            if let Weight::Text(Some(text)) = &weight {
                bytes += text.as_ref().len();
            }
            portion.push(Item { weight, element });
            if bytes >= SLICE_BYTES_MAX {
                break;
            }
        }
        self.loaded += portion.len();
        let order = self.options.order;
        portion.sort_by(|one, other| order.compare(one, other));
        let mut portion = portion.into_iter();
        if let Some(item) = portion.next() {
            let portion = self.portions.len();
            self.heads.push(Head {
                order,
                item,
                portion,
            });
        }
        self.portions.push(portion);
        Ok(())
    }

    fn weigh(
        &self,
        keyspace: &mut Keyspace<'_>,
        element: &Detached<'static>,
    ) -> Result<Weight, CommandError> {
        let order = self.options.order;
        let named = match &self.options.by {
            None if order.alpha => return Ok(Weight::Itself),
            None => None,
            Some(pattern) => Some(pattern.find(keyspace, element)),
        };
        if order.alpha {
            return Ok(Weight::Text(named.flatten()));
        }
        let text = match &named {
            None => element,
            Some(Some(named)) => named,
            Some(None) => return Ok(Weight::Number(0.0)),
        };
        let number = number_in(&bytes(text)).ok_or(CommandError::SortNumber)?;
        Ok(Weight::Number(number))
    }

    /// The next element of the result.
    fn next_element(&mut self) -> Option<Detached<'static>> {
        let element = if self.options.in_place {
            let source = self.source.as_ref()?;
            let falling = self.options.order.falling;
            source.elements(self.passed, 1, falling).pop()?
        } else {
            let mut head = self.heads.peek_mut()?;
            match self.portions[head.portion].next() {
                Some(item) => std::mem::replace(&mut head.item, item).element,
                None => PeekMut::pop(head).item.element,
            }
        };
        self.passed += 1;
        Some(element)
    }

    /// Writes the next elements of the result; returns whether they were the last ones.
    fn emit(
        &mut self,
        keyspace: &mut Keyspace<'_>,
        reply: &Reply<'_>,
    ) -> Result<bool, CommandError> {
        let columns = self.options.get.len().max(1);
        let bytes_max = self.out.bytes + SLICE_BYTES_MAX;
        let list = self.out.list.take();
        let mut draft = ListDraft::new(list.as_ref().map(|list| ListRef::new(list.as_ref())));
        let mut looked = 0;
        while self.passed < self.wanted.end
            && looked < SLICE_ENTRIES_MAX
            && self.out.bytes < bytes_max
        {
            let element = self.next_element().expect("there are as many as wanted");
            if self.passed <= self.wanted.start {
                looked += 1;
                continue;
            }
            looked += columns;
            let mut write = |value: Option<&Detached<'_>>| match &self.options.store {
                Some(_) => self.out.push(&mut draft, value),
                None => self.out.write(reply.version(), value),
            };
            if self.options.get.is_empty() {
                write(Some(&element))?;
            }
            for pattern in &self.options.get {
                write(pattern.find(keyspace, &element).as_ref())?;
            }
        }
        if !draft.is_empty() {
            let Body::Row(_, list) = draft.finish() else {
                unreachable!("a list is a row");
            };
            self.out.list = Some(list);
        }
        Ok(self.passed == self.wanted.end)
    }

    /// Stores the list that was made; without an element, removes the key.
    fn store(
        &mut self,
        keyspace: &mut Keyspace<'_>,
        destination: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<(), CommandError> {
        match self.out.list.take() {
            Some(list) => {
                keyspace.check_fit(list.as_ref().heap_bytes())?;
                let value = NewValue::new(Body::Row(RowTag::List, list));
                keyspace.update(destination, |_| Decision::Write(again(&value)))?;
            }
            None => {
                keyspace.remove(destination);
            }
        }
        reply.count(self.out.count);
        Ok(())
    }
}

impl Output {
    /// Counts another element of so many bytes.
    fn count(&mut self, bytes: usize) -> Result<(), CommandError> {
        self.count += 1;
        self.bytes += bytes;
        if self.bytes <= SORTED_BYTES_MAX {
            return Ok(());
        }
        Err(CommandError::ReplyTooLong {
            reply_bytes_max: SORTED_BYTES_MAX,
        })
    }

    fn write(
        &mut self,
        version: RespVersion,
        value: Option<&Detached<'_>>,
    ) -> Result<(), CommandError> {
        self.count(value.map_or(0, |value| value.as_ref().len()))?;
        let mut reply = Reply::new(&mut self.reply, version);
        match value {
            Some(value) => reply_bulk(&mut reply, value.as_ref()),
            None => reply.null(),
        }
        Ok(())
    }

    fn push(
        &mut self,
        list: &mut ListDraft<'_>,
        value: Option<&Detached<'_>>,
    ) -> Result<(), CommandError> {
        self.count(value.map_or(0, |value| value.as_ref().len()))?;
        list.push_back(value.map_or(StringBody::borrowed(b""), Detached::body));
        Ok(())
    }
}

impl Slice for Sort {
    fn step(&mut self, keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool {
        self.advance(keyspace, reply).unwrap_or_else(|error| {
            reply.error(error.to_string());
            true
        })
    }

    fn again(&self) -> Box<dyn Slice> {
        Box::new(self.clone())
    }
}
