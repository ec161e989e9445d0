//! Elements that are added at an end: LPUSH RPUSH LPUSHX RPUSHX.

use pando_engine::limits::COLUMN_FLAT_BYTES_MAX;
use pando_engine::{Chunked, Decision, ListDraft, StringBody};
use pando_protocol::{Reply, Request};

use super::{End, check_element, list_of, replace};
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// LPUSH, RPUSH, LPUSHX, RPUSHX key element [element …]
pub(super) fn push(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    end: End,
    only_if_there: bool,
) -> Handled {
    let elements = || request.args_from(2);
    elements().try_for_each(|element| check_element(keyspace, element))?;
    let is_large = |element: &&[u8]| element.len() > COLUMN_FLAT_BYTES_MAX;
    let large: Vec<_> = elements()
        .filter(is_large)
        .map(Chunked::from_bytes)
        .collect();
    let len = keyspace.try_update(request.arg(1), |old| {
        let list = old.map(list_of).transpose()?;
        if list.is_none() && only_if_there {
            return Ok((Decision::Keep, 0));
        }
        let mut draft = ListDraft::new(list);
        let mut large = large.iter();
        for element in elements() {
            let body = if is_large(&element) {
                let chunked = large.next().expect("one for each large element");
                StringBody::Chunked(chunked.hand_over())
            } else {
                StringBody::borrowed(element)
            };
            match end {
                End::Left => draft.push_front(body),
                End::Right => draft.push_back(body),
            }
        }
        let len = draft.len();
        Ok((replace(old, draft), len))
    })?;
    reply.count(len);
    Ok(Progress::Done)
}
