//! The workloads by name.

use clap::ValueEnum;

use super::{KeyNaming, Mix, Workload};
use crate::distribution::{Distribution, YCSB_THETA};

/// A named workload; the header of the parent module says what each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum WorkloadName {
    DecimalGet,
    DecimalPut,
    MycsbA,
    MycsbB,
    MycsbC,
    MycsbE,
    YcsbA,
    YcsbB,
    YcsbC,
    YcsbD,
    YcsbE,
    YcsbF,
}

impl WorkloadName {
    /// The name as an option takes it.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .expect("no variant is hidden")
            .get_name()
            .to_owned()
    }

    /// What it consists of.
    pub(crate) fn workload(self) -> Workload {
        use WorkloadName::{
            DecimalGet, DecimalPut, MycsbA, MycsbB, MycsbC, MycsbE, YcsbA, YcsbB, YcsbC, YcsbD,
            YcsbE, YcsbF,
        };
        let mix = match self {
            DecimalGet | MycsbC | YcsbC => shares(100, 0, 0, 0, 0),
            DecimalPut => shares(0, 100, 0, 0, 0),
            MycsbA | YcsbA => shares(50, 50, 0, 0, 0),
            MycsbB | YcsbB => shares(95, 5, 0, 0, 0),
            MycsbE => shares(0, 5, 0, 95, 0),
            YcsbD => shares(95, 0, 5, 0, 0),
            YcsbE => shares(0, 0, 5, 95, 0),
            YcsbF => shares(50, 0, 0, 0, 50),
        };
        let (naming, columns, column_bytes) = match self {
            DecimalGet | DecimalPut => (KeyNaming::Decimal, None, 8),
            MycsbA | MycsbB | MycsbC | MycsbE => (KeyNaming::User, Some(10), 4),
            _ => (KeyNaming::User, Some(10), 100),
        };
        let distribution = match self {
            DecimalGet | DecimalPut => Distribution::Uniform,
            YcsbD => Distribution::Latest,
            _ => Distribution::Scrambled,
        };
        Workload {
            naming,
            mix,
            distribution,
            theta: YCSB_THETA,
            columns,
            column_bytes,
            scan_keys_max: 100,
            scan_one_column: self == MycsbE,
        }
    }
}

fn shares(read: u8, update: u8, insert: u8, scan: u8, read_modify_write: u8) -> Mix {
    Mix {
        read,
        update,
        insert,
        scan,
        read_modify_write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_every_workload_add_up() {
        for name in WorkloadName::value_variants() {
            let mix = name.workload().mix;
            let sum = mix.read + mix.update + mix.insert + mix.scan + mix.read_modify_write;
            assert_eq!(sum, 100, "{}", name.name());
        }
    }
}
