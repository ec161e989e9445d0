//! Settings of the engine `minuet`.

use super::field::{integer, memory, print, set};
use super::setting::Setting;

/// See [`super::Config`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinuetConfig {
    /// `minuet-memnodes`: memnodes, all in this process. Default 1.
    pub memnodes: u16,
    /// `minuet-page-size`: bytes of a page. Default 4 KiB.
    pub page_bytes: usize,
}

impl Default for MinuetConfig {
    fn default() -> Self {
        Self {
            memnodes: 1,
            page_bytes: pando_db::limits::MINUET_PAGE_BYTES_MIN,
        }
    }
}

/// In the order of `--help`.
pub(super) static SETTINGS: &[Setting] = &[
    Setting::new(
        "minuet-memnodes",
        "Memnodes of the engine minuet, all in this process, over which its pages are spread",
        |config| print(config.minuet.memnodes),
        |config, value| {
            let memnodes_max = i64::from(pando_db::limits::MINUET_MEMNODES_MAX);
            set(&mut config.minuet.memnodes, integer(value, 1, memnodes_max))
        },
    ),
    Setting::new(
        "minuet-page-size",
        "Bytes of the pages of the engine minuet. On disk are keys and values, so another start \
         may have another size",
        |config| print(config.minuet.page_bytes),
        |config, value| {
            let (least, most) = (
                pando_db::limits::MINUET_PAGE_BYTES_MIN as u64,
                pando_db::limits::MINUET_PAGE_BYTES_MAX as u64,
            );
            set(&mut config.minuet.page_bytes, memory(value, least, most))
        },
    ),
];
