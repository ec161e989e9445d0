//! Connections that wait for the end of a checkpoint (SAVE). The worker serves others meanwhile.
//!
//! A request is noted by the keeper before the connection is; the keeper wakes all workers after it
//! has answered a request, and a worker looks here after the turn in which it was woken. So no end
//! is missed.

use pando_protocol::Reply;

use super::connection::Phase;
use super::{Worker, queue_up, touch};
use crate::admin::AdminError;

impl Worker {
    /// Answers whoever waits for a checkpoint that has ended.
    pub(super) fn answer_saves(&mut self) {
        for slot in std::mem::take(&mut self.saving) {
            // Another connection may have taken the slot.
            let Some(connection) = self.connections.get_mut(slot) else {
                continue;
            };
            let Phase::Saving { request, silent } = connection.phase else {
                continue;
            };
            let Some(result) = self.shared.keeper.answer(request) else {
                self.saving.push(slot);
                continue;
            };
            let error = result.err().map(|reason| AdminError::save_failed(&reason));
            if let Some(error) = &error {
                let statistics = self.recorder.statistics();
                statistics.record_error(&error.to_string());
            }
            if !silent {
                let protocol = connection.client.protocol;
                let out = connection.output.buffer(&mut self.pool);
                let mut reply = Reply::new(out, protocol);
                match error {
                    None => reply.ok(),
                    Some(error) => reply.error(error.text()),
                }
                touch(slot, connection, &mut self.touched);
            }
            connection.enter(Phase::Ready);
            queue_up(slot, connection, &mut self.queue);
        }
    }
}
