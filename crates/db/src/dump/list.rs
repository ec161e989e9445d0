//! Lists: kind 1 is a count and that many elements. Kinds 10 and 14 hold ziplists, one or a count
//! of them. Kind 18 is a count of nodes: for each a container, 1 for one element as it is, 2 for a
//! listpack of elements, and a string with it.
//!
//! We write kind 18.

use pando_engine::{Body, ListDraft, ListRef, StringBody};

use super::rdb::{self, Reader};
use super::{Bounds, PayloadError, check_length, kind, listpack, ziplist};

const PLAIN: u64 = 1;
const PACKED: u64 = 2;

/// Elements of a node that is written, in bytes, as Redis cuts lists by default.
const NODE_BYTES_MAX: usize = 8 * 1024;

/// Upper bound of what an element takes in a node besides its own bytes.
const ELEMENT_ROOM_BYTES: usize = 10;

/// Appends a list, without its kind.
pub(super) fn write(out: &mut Vec<u8>, list: ListRef<'_>) {
    let mut nodes = Vec::new();
    let mut count = 0;
    let mut node = listpack::Writer::new();
    let mut room = NODE_BYTES_MAX;
    let mut end_node = |node: listpack::Writer, nodes: &mut Vec<u8>| {
        count += 1;
        rdb::write_length(nodes, PACKED);
        rdb::write_string(nodes, &node.finish());
    };
    let mut plain = 0;
    for element in list.iter_from(0) {
        let bytes = element.len() + ELEMENT_ROOM_BYTES;
        if bytes > room && !node.is_empty() {
            end_node(
                std::mem::replace(&mut node, listpack::Writer::new()),
                &mut nodes,
            );
            room = NODE_BYTES_MAX;
        }
        if bytes > room {
            plain += 1;
            rdb::write_length(&mut nodes, PLAIN);
            rdb::write_string(&mut nodes, &element.to_cow());
        } else {
            node.push(&element.to_cow());
            room -= bytes;
        }
    }
    if !node.is_empty() {
        end_node(node, &mut nodes);
    }
    rdb::write_length(out, count + plain);
    out.extend_from_slice(&nodes);
}

/// Reads a list of this kind.
pub(super) fn read(
    reader: &mut Reader<'_>,
    bounds: Bounds,
    kind: u8,
) -> Result<Body<'static>, PayloadError> {
    let mut list = ListBuilder {
        draft: ListDraft::new(None),
        bounds,
    };
    let nodes = if kind == kind::LIST_ZIPLIST {
        1
    } else {
        reader.length()?
    };
    for _ in 0..nodes {
        let container = match kind {
            kind::LIST => PLAIN,
            kind::LIST_NODES => reader.length()?,
            _ => PACKED,
        };
        let offset = reader.offset();
        let string = reader.string()?;
        match container {
            PLAIN => list.push(&string)?,
            PACKED if kind == kind::LIST_NODES => {
                listpack::elements(&string, &mut |element| list.push(element))?;
            }
            PACKED => ziplist::elements(&string, &mut |element| list.push(element))?,
            _ => return Err(PayloadError::Malformed { offset }),
        }
    }
    if list.draft.is_empty() {
        let offset = reader.offset();
        return Err(PayloadError::Malformed { offset });
    }
    Ok(list.draft.finish())
}

/// A list being read.
struct ListBuilder {
    draft: ListDraft<'static>,
    bounds: Bounds,
}

impl ListBuilder {
    fn push(&mut self, element: &[u8]) -> Result<(), PayloadError> {
        check_length(element, self.bounds.value_bytes_max)?;
        self.draft.push_back(StringBody::borrowed(element));
        Ok(())
    }
}
