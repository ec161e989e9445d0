//! Redis' serialization protocol: decoding of requests.

mod decode;
mod error;
mod inline;

pub use decode::{Decoded, Decoder, DecoderLimits};
pub use error::ProtocolError;
