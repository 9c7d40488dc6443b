//! A TPC-C-like run (section 3.5: the driver "has withstood many hours of TPC-C benchmark run"):
//! several threads, each with queue pairs of its own, do new-order, payment and delivery transactions
//! on blocks of the drive under locks of their own; then all is read and checked as TPC-C's
//! consistency conditions ask (clause 3.3.2).
//!
//! Like TPC-C are the transactions' mix and the conditions;
//! the tables are one block a row, and nothing is said about its metric.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nearside_clock::{Clock, TscClock};
use nearside_driver::{Command, DmaBuffer, Driver, Initiator, Policy, Service, Threaded};
use nearside_instrument::completion::Bench;
use nearside_media::dram::Prototype;

use super::machine::initiator;
use crate::{Bound, Claim, Failure, Finding, Run};

const DISTRICTS: usize = 10;
const STOCK: usize = 1_000;
const CUSTOMERS: usize = 300;
/// Orders that a district has room for.
const ORDERS: usize = 5_000;
const THREADS: usize = 4;

/// Where a table's rows lie: a block each.
const WAREHOUSE: usize = 0;
const DISTRICT: usize = 1;
const CUSTOMER: usize = DISTRICT + DISTRICTS;
const ITEM: usize = CUSTOMER + CUSTOMERS;
const ORDER: usize = ITEM + STOCK;

/// Columns. The last is a checksum of the others.
const YTD: usize = 0;
const NEXT_ORDER: usize = 1;
const NEXT_DELIVERY: usize = 2;
const BALANCE: usize = 0;
const SOLD: usize = 0;
const LINES: usize = 0;
const DELIVERED: usize = 1;
const CUSTOMER_OF: usize = 2;
const FIRST_LINE: usize = 4;
const SUM: usize = 63;

type Row = [u64; 64];

/// Both paths, and the hybrid.
pub fn study(run: &mut Run<'_>) -> Result<(), Failure> {
    let transactions = run.sized(300, 4_000);
    let claim = "multi-threaded applications run correctly over synchronous completion";
    let mut claim = Claim::new(claim, "3.5").because(format!(
        "{THREADS} threads, {transactions} transactions each, every row read back and checked"
    ));
    for policy in [Policy::Polled, Policy::Interrupt, Policy::Hybrid] {
        let path = match policy {
            Policy::Polled => "synchronous",
            Policy::Interrupt => "asynchronous",
            Policy::Hybrid => "hybrid",
        };
        run.say(&format!("TPC-C-like transactions, {path}"));
        let bench = Bench::new(Prototype::GEN2.medium())?;
        let (rate, verdict) = transact(bench.driver(), policy, transactions)?;
        run.finding(Finding::new(format!("TPC-C-like transactions, {path}"), "1/s").machine(&[rate]));
        let wrong = f64::from(u8::from(verdict.is_err()));
        let wrong = Finding::new(format!("runs whose tables do not agree, {path}"), "").machine(&[wrong]);
        claim = claim.machine(&run.finding(wrong), Bound::AtMost(0.0));
        if let Err(wrong) = verdict {
            run.note(format!("{path}: {wrong}"));
        }
    }
    run.claim(claim);
    Ok(())
}

/// A thread's tables: the drive.
struct Tables {
    io: Initiator<Threaded, TscClock>,
    buffer: Option<DmaBuffer>,
}

impl Tables {
    fn new(driver: &Driver, service: &Service, policy: Policy) -> Result<Tables, Failure> {
        let mut io = initiator(driver, service)?;
        io.set_policy(policy);
        let buffer = Some(io.buffer(512)?);
        Ok(Tables { io, buffer })
    }

    /// Nothing is ordered, sold or paid.
    fn fill(&mut self) -> Result<(), String> {
        for row in 0..ORDER {
            let mut words = [0; 64];
            if (DISTRICT..CUSTOMER).contains(&row) {
                (words[NEXT_ORDER], words[NEXT_DELIVERY]) = (1, 1);
            }
            self.write(row, words)?;
        }
        Ok(())
    }

    fn execute(&mut self, command: &Command) -> Result<(), String> {
        let buffer = self.buffer.take();
        let done = self.io.execute(command, buffer).map_err(|e| format!("refused: {:?}", e.reason))?;
        self.buffer = done.buffer;
        done.outcome.map(drop).map_err(|e| e.to_string())
    }

    fn read(&mut self, row: usize) -> Result<Row, String> {
        self.execute(&Command::read(1, row as u64, 1))?;
        let mut bytes = [0; 512];
        self.buffer.as_ref().ok_or("the buffer was lost")?.read(0, &mut bytes);
        let mut words = [0; 64];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
        }
        if words[SUM] == sum(&words, row) {
            Ok(words)
        } else {
            Err(format!("row {row} is torn or another's"))
        }
    }

    fn write(&mut self, row: usize, mut words: Row) -> Result<(), String> {
        words[SUM] = sum(&words, row);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.buffer.as_mut().ok_or("the buffer was lost")?.write(0, &bytes);
        self.execute(&Command::write(1, row as u64, 1))
    }
}

fn sum(words: &Row, row: usize) -> u64 {
    words[..SUM]
        .iter()
        .fold(row as u64 + 1, |sum, w| sum.rotate_left(7) ^ w.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The application's own locks, by row of warehouse, districts, customers and stock.
struct Locks(Vec<Mutex<()>>);

impl Locks {
    fn new() -> Locks {
        Locks((0..ORDER).map(|_| Mutex::new(())).collect())
    }

    fn of(&self, row: usize) -> MutexGuard<'_, ()> {
        self.0[row].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Transactions per second, and whether the tables agree.
fn transact(driver: &Driver, policy: Policy, count: usize) -> Result<(f64, Result<(), String>), Failure> {
    let clock = TscClock::new();
    let service = Service::start(driver, 32, clock, || ())?;
    let mut all = Tables::new(driver, &service, Policy::Polled)?;
    all.fill()?;
    let locks = Locks::new();
    let mut tables = Vec::new();
    for _ in 0..THREADS {
        tables.push(Tables::new(driver, &service, policy)?);
    }
    let from = clock.now();
    std::thread::scope(|scope| -> Result<(), Failure> {
        let thread = |(nth, mut tables): (usize, Tables)| {
            let locks = &locks;
            scope.spawn(move || -> Result<(), String> {
                let mut random = 0x1000 + nth as u64;
                for _ in 0..count {
                    // Near TPC-C's mix: 45 new orders and 43 payments of a hundred, deliveries for the rest.
                    match nearside_random::draw(&mut random) % 100 {
                        0..45 => new_order(&mut tables, locks, &mut random)?,
                        45..88 => payment(&mut tables, locks, &mut random)?,
                        _ => delivery(&mut tables, locks, &mut random)?,
                    }
                }
                tables.io.close().map_err(|e| e.to_string())
            })
        };
        let threads: Vec<_> = tables.into_iter().enumerate().map(thread).collect();
        for thread in threads {
            thread.join().map_err(|_| "a terminal panicked")??;
        }
        Ok(())
    })?;
    let rate = (THREADS * count) as f64 * 1e9 / clock.now().since(from) as f64;
    let verdict = check(&mut all);
    all.io.close()?;
    Ok((rate, verdict))
}

fn below(random: &mut u64, bound: usize) -> usize {
    (nearside_random::draw(random) % bound as u64) as usize
}

/// An order of some items: the district's next number, the stock of each item, the order itself.
fn new_order(tables: &mut Tables, locks: &Locks, random: &mut u64) -> Result<(), String> {
    let district = below(random, DISTRICTS);
    let customer = below(random, CUSTOMERS);
    let mut items: Vec<usize> = (0..5 + below(random, 11)).map(|_| below(random, STOCK)).collect();
    // In order and once each, so that locks are taken in one order.
    items.sort_unstable();
    items.dedup();
    let _district = locks.of(DISTRICT + district);
    let mut row = tables.read(DISTRICT + district)?;
    let number = row[NEXT_ORDER] as usize;
    if number >= ORDERS {
        return Ok(());
    }
    let mut order = [0; 64];
    (order[LINES], order[CUSTOMER_OF]) = (items.len() as u64, customer as u64);
    for (line, &item) in items.iter().enumerate() {
        let _stock = locks.of(ITEM + item);
        let mut stock = tables.read(ITEM + item)?;
        stock[SOLD] += 1;
        tables.write(ITEM + item, stock)?;
        order[FIRST_LINE + line] = item as u64;
    }
    tables.write(ORDER + district * ORDERS + number, order)?;
    row[NEXT_ORDER] += 1;
    tables.write(DISTRICT + district, row)
}

/// Money of a customer, to the district and the warehouse.
fn payment(tables: &mut Tables, locks: &Locks, random: &mut u64) -> Result<(), String> {
    let amount = 1 + below(random, 5_000) as u64;
    let rows = [
        (WAREHOUSE, YTD),
        (DISTRICT + below(random, DISTRICTS), YTD),
        (CUSTOMER + below(random, CUSTOMERS), BALANCE),
    ];
    for (row, column) in rows {
        let _row = locks.of(row);
        let mut words = tables.read(row)?;
        words[column] += amount;
        tables.write(row, words)?;
    }
    Ok(())
}

/// The district's oldest order that is not delivered.
fn delivery(tables: &mut Tables, locks: &Locks, random: &mut u64) -> Result<(), String> {
    let district = below(random, DISTRICTS);
    let _district = locks.of(DISTRICT + district);
    let mut row = tables.read(DISTRICT + district)?;
    if row[NEXT_DELIVERY] == row[NEXT_ORDER] {
        return Ok(());
    }
    let at = ORDER + district * ORDERS + row[NEXT_DELIVERY] as usize;
    let mut order = tables.read(at)?;
    order[DELIVERED] = 1;
    tables.write(at, order)?;
    row[NEXT_DELIVERY] += 1;
    tables.write(DISTRICT + district, row)
}

/// Every row, and what must agree: money (condition 1), order numbers (2 and 3), lines (4), stock.
fn check(tables: &mut Tables) -> Result<(), String> {
    let mut sold = vec![0; STOCK];
    let mut paid = 0;
    for district in 0..DISTRICTS {
        let row = tables.read(DISTRICT + district)?;
        paid += row[YTD];
        for number in 1..row[NEXT_ORDER] {
            let order = tables.read(ORDER + district * ORDERS + number as usize)?;
            if (order[DELIVERED] == 1) != (number < row[NEXT_DELIVERY]) {
                return Err(format!(
                    "order {number} of district {district} is delivered or not against the district's word"
                ));
            }
            for &item in &order[FIRST_LINE..FIRST_LINE + order[LINES] as usize] {
                sold[item as usize] += 1;
            }
        }
    }
    let whole = tables.read(WAREHOUSE)?[YTD];
    let mut balance = 0;
    for customer in 0..CUSTOMERS {
        balance += tables.read(CUSTOMER + customer)?[BALANCE];
    }
    if whole != paid || whole != balance {
        return Err(format!("the warehouse has {whole}, its districts {paid}, its customers paid {balance}"));
    }
    for (item, sold) in sold.into_iter().enumerate() {
        let stock = tables.read(ITEM + item)?[SOLD];
        if stock != sold {
            return Err(format!("item {item} was sold {stock} times, and ordered {sold} times"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_do_not_agree_are_found() {
        let bench = Bench::new(Prototype::GEN2.medium()).unwrap();
        let service = Service::start(bench.driver(), 32, TscClock::new(), || ()).unwrap();
        let mut tables = Tables::new(bench.driver(), &service, Policy::Polled).unwrap();
        let (locks, mut random) = (Locks::new(), 7);
        tables.fill().unwrap();
        for _ in 0..40 {
            new_order(&mut tables, &locks, &mut random).unwrap();
            payment(&mut tables, &locks, &mut random).unwrap();
            delivery(&mut tables, &locks, &mut random).unwrap();
        }
        assert_eq!(check(&mut tables), Ok(()));
        let ordered = (0..DISTRICTS).find(|d| tables.read(DISTRICT + d).unwrap()[NEXT_ORDER] > 1).unwrap();
        let order = ORDER + ordered * ORDERS + 1;
        for (row, column, says) in [
            (WAREHOUSE, YTD, "the warehouse has"),
            (DISTRICT, YTD, "its districts"),
            (CUSTOMER + 3, BALANCE, "its customers"),
            (ITEM + 5, SOLD, "item 5"),
            (order, LINES, "item"),
            (order, DELIVERED, "order 1 of district"),
            (DISTRICT + ordered, NEXT_DELIVERY, "order"),
        ] {
            let was = tables.read(row).unwrap();
            let mut other = was;
            other[column] ^= 1;
            tables.write(row, other).unwrap();
            let found = check(&mut tables).expect_err("a wrong row");
            assert!(found.contains(says), "{found}");
            tables.write(row, was).unwrap();
        }
        assert_eq!(check(&mut tables), Ok(()));
        // Bytes of one row in the place of another.
        tables.read(ITEM).unwrap();
        tables.execute(&Command::write(1, ITEM as u64 + 1, 1)).unwrap();
        assert!(check(&mut tables).is_err_and(|found| found.contains("torn or another's")));
        tables.io.close().unwrap();
    }
}
