//! Transfers by EXEC: each moves an amount between two accounts and leaves a receipt, so what a
//! crash has left can be compared to the last cent with the receipts that are there.

use std::time::Instant;

use crate::server::{Connection, Promise};

/// Accounts, in database 0.
pub(crate) const ACCOUNTS: usize = 10;

/// One transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    from: usize,
    to: usize,
    amount: i64,
}

impl Transfer {
    pub(crate) fn random(random: &mut fastrand::Rng) -> Self {
        let from = random.usize(..ACCOUNTS);
        Self {
            from,
            to: (from + random.usize(1..ACCOUNTS)) % ACCOUNTS,
            amount: random.i64(1..1000),
        }
    }

    pub(crate) fn apply(self, balances: &mut [i64; ACCOUNTS]) {
        balances[self.from] -= self.amount;
        balances[self.to] += self.amount;
    }
}

/// What all clerks have sent since the first start, and what they were promised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    /// Balances at the start, with all receipts at 0.
    pub(crate) before: [i64; ACCOUNTS],
    /// By clerk, in order; a receipt is the number of its transfer, counted from 1.
    pub(crate) sent: Vec<Vec<Transfer>>,
    /// By clerk: how many must be there.
    pub(crate) promised: Vec<usize>,
}

impl Books {
    /// Whether these balances follow from these receipts, and nothing promised is missing.
    pub(crate) fn check(
        &self,
        balances: &[i64; ACCOUNTS],
        receipts: &[usize],
    ) -> Result<(), String> {
        let mut expected = self.before;
        for (clerk, &receipt) in receipts.iter().enumerate() {
            let (sent, promised) = (&self.sent[clerk], self.promised[clerk]);
            if receipt > sent.len() || receipt < promised {
                let sent = sent.len();
                return Err(format!(
                    "clerk {clerk}: receipt {receipt}, promised {promised}, sent {sent}"
                ));
            }
            for transfer in &sent[..receipt] {
                transfer.apply(&mut expected);
            }
        }
        if *balances == expected {
            Ok(())
        } else {
            Err(format!("balances {balances:?}, by receipts {expected:?}"))
        }
    }
}

/// What a clerk has done until its connection broke.
#[derive(Debug)]
pub(crate) struct Worked {
    pub(crate) sent: Vec<Transfer>,
    /// When each was acknowledged, as far as it was.
    pub(crate) acknowledged: Vec<Instant>,
}

/// Transfers until the connection breaks.
pub(crate) fn work(
    mut connection: Connection,
    clerk: usize,
    first_receipt: usize,
    seed: u64,
    promise: Promise,
) -> Worked {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut sent, mut acknowledged) = (Vec::new(), Vec::new());
    if connection.choose(promise).is_err() {
        return Worked { sent, acknowledged };
    }
    loop {
        let batch = random.usize(1..=8);
        let mut bytes = Vec::new();
        for _ in 0..batch {
            let transfer = Transfer::random(&mut random);
            sent.push(transfer);
            let receipt = (first_receipt + sent.len()).to_string();
            let amount = transfer.amount.to_string();
            let account = |number: usize| format!("account:{number}");
            for line in [
                vec!["MULTI".into()],
                vec!["DECRBY".into(), account(transfer.from), amount.clone()],
                vec!["SET".into(), format!("receipt:{clerk}"), receipt],
                vec!["INCRBY".into(), account(transfer.to), amount],
                vec!["EXEC".into()],
            ] {
                Connection::encode(&mut bytes, &line);
            }
        }
        if connection.send(&bytes).is_err() {
            return Worked { sent, acknowledged };
        }
        for _ in 0..batch {
            for _ in 0..5 {
                if connection.reply().is_err() {
                    return Worked { sent, acknowledged };
                }
            }
            acknowledged.push(Instant::now());
        }
    }
}

/// Balances and receipts as they stand.
pub(crate) fn read(connection: &mut Connection, clerks: usize) -> ([i64; ACCOUNTS], Vec<usize>) {
    let mut number = |key: String| {
        let found = connection.ask(&["GET", &key]);
        let text = found.as_bytes().map(String::from_utf8_lossy);
        text.map_or(0, |text| text.parse::<i64>().expect("a number"))
    };
    let balances = std::array::from_fn(|account| number(format!("account:{account}")));
    let receipts = (0..clerks).map(|clerk| number(format!("receipt:{clerk}")) as usize);
    (balances, receipts.collect())
}
