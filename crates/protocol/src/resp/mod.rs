//! Redis' serialization protocol: requests decoded by the server, replies decoded by its clients.
//! The encoder of replies is [`crate::Reply`].

mod decode;
mod error;
mod inline;
mod value;
mod value_decoder;

pub use decode::{Decoded, Decoder, DecoderLimits};
pub use error::ProtocolError;
pub use value::Value;
pub use value_decoder::{ReplyError, ValueDecoder};
