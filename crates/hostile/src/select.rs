//! Selections: a condition and aggregates as text, a file, and how it is cut. Whatever the bytes, the answer
//! in pieces, in small batches and gone on with from each of its ends is the answer to the whole file; a
//! batch fits in its room and reads as what it is; slices end. And any bytes are a stream of Arrow's, or
//! are refused.
//!
//! An input: how (a byte), the length of pieces, the room; then, by bytes of 0xff, condition, groups,
//! aggregates, and the file. With an odd `how` the rest is a stream.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use nearside_ndp::select::{Fault, Place, Plan, Selection, Selector, Step, Table};
use nearside_ndp::{SLICE, STEP};
use nearside_near_data::{RowFormat, SelectOptions};

fn at_once<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
}

/// What was answered: rows as text, how many were passed over, and why no more.
#[derive(Debug, Default, PartialEq)]
struct Said {
    rows: Vec<String>,
    bad: u64,
    fault: Option<Fault>,
}

/// How a file is handed on.
#[derive(Clone, Copy)]
struct Cut {
    piece: usize,
    room: usize,
    /// Each batch but the first of a selector is left to the next one.
    again: bool,
}

fn take(selector: &mut Selector, said: &mut Said, room: usize) {
    let (rows, bad, stream) = selector.batch();
    let table = Table::read(stream).unwrap_or_else(|error| panic!("a batch of its own: {error}"));
    assert_eq!(table.rows() as u64, rows);
    assert!(stream.len() <= room || rows <= 1, "{} bytes of {rows} rows in {room}", stream.len());
    for row in 0..table.rows() {
        let values = (0..table.columns().len()).map(|column| format!("{:?}", table.value(row, column)));
        said.rows.push(values.collect::<Vec<_>>().join(" "));
    }
    said.bad += bad;
    selector.taken();
}

/// Goes on until the file is answered, or the second batch of this selector.
fn go(selector: &mut Selector, file: &[u8], cut: Cut, said: &mut Said) -> Result<bool, Fault> {
    let mut batches = 0;
    let mut step = |selector: &mut Selector, step: Step, said: &mut Said| -> Result<bool, Fault> {
        match step {
            Step::Long => {
                if let Some(long) = selector.long() {
                    selector.take_long(long.read())?;
                }
            }
            Step::Batch if cut.again && batches == 1 => return Ok(false),
            Step::Batch => {
                batches += 1;
                take(selector, said, cut.room);
            }
            Step::More | Step::Done => {}
        }
        Ok(true)
    };
    let from = usize::try_from(selector.offset()).unwrap_or(usize::MAX).min(file.len());
    'file: for mut piece in file[from..].chunks(cut.piece.max(1)) {
        loop {
            match at_once(selector.feed(&mut piece, cut.room))? {
                Step::More => break,
                Step::Done => break 'file,
                other if !step(selector, other, said)? => return Ok(false),
                _ => {}
            }
        }
    }
    loop {
        match at_once(selector.end(cut.room))? {
            Step::More | Step::Done => break,
            other if !step(selector, other, said)? => return Ok(false),
            _ => {}
        }
    }
    if selector.has_batch() {
        if cut.again && batches == 1 {
            return Ok(false);
        }
        take(selector, said, cut.room);
    }
    Ok(true)
}

fn answer(selection: &Arc<Selection>, plan: &Arc<Plan>, file: &[u8], cut: Cut) -> Said {
    let (mut said, mut at) = (Said::default(), Place::default());
    loop {
        let mut selector = Selector::new(selection);
        selector.begin(Arc::clone(plan), at);
        let ended = go(&mut selector, file, cut, &mut said);
        let most = selector.spent().0;
        assert!(most <= SLICE + 2 * STEP, "{most} units in a slice");
        match ended {
            Ok(true) => return said,
            Ok(false) => {
                let next = selector.stopped();
                assert!(next.found > at.found, "no progress: {next:?}");
                at = next;
            }
            Err(fault) => {
                if selector.has_batch() && said.fault.is_none() {
                    take(&mut selector, &mut said, usize::MAX);
                }
                said.fault = Some(fault);
                return said;
            }
        }
    }
}

/// Runs an input.
pub fn run(input: &[u8]) {
    let Some((&[how, piece, room], rest)) = input.split_first_chunk::<3>() else { return };
    if how & 1 == 1 {
        if let Ok(table) = Table::read(rest) {
            let first = table.first(2);
            assert!(Table::read(&first).is_ok_and(|again| again.rows() == table.rows().min(2)));
        }
        return;
    }
    let mut parts = rest.splitn(4, |byte| *byte == 0xff);
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (condition, groups, aggregates) = (text(), text(), text());
    let file = parts.next().unwrap_or_default();
    let options = SelectOptions {
        format: match how >> 1 & 3 {
            0 => RowFormat::JsonLines,
            1 => RowFormat::default(),
            2 => RowFormat::Csv { delimiter: b';', quote: None, header: true },
            _ => RowFormat::Csv { delimiter: b',', quote: Some(b'\''), header: false },
        },
        filter: SelectOptions::condition(&condition).unwrap_or_default(),
        group_by: SelectOptions::names(&groups).unwrap_or_default(),
        aggregates: SelectOptions::aggregates(&aggregates).unwrap_or_default(),
        limit: (how & 0x10 != 0).then_some(3),
        skip_bad: how & 0x20 != 0,
        ..SelectOptions::default()
    };
    let Ok(selection) = Selection::compile(options.clone()) else { return };
    let selection = Arc::new(selection);
    let Ok(plan) = selection.plan(file, true) else { return };
    let plan = Arc::new(plan);
    let whole = answer(&selection, &plan, file, Cut { piece: usize::MAX, room: 1 << 20, again: false });
    let cut = Cut { piece: 1 + usize::from(piece), room: usize::from(room) * 32, again: how & 0x40 != 0 };
    let in_pieces = answer(&selection, &plan, file, cut);
    assert_eq!(in_pieces, whole);
}

/// Files of each format, conditions of each kind, and a stream.
pub fn seeds() -> Vec<Vec<u8>> {
    let csv = b"id,city,day,ok,x\n1,Bern,2020-02-29,true,1.5\n2,,,,\n3,\"a, \"\"b\"\"\n c\",2021-01-01,FALSE,-2e3\nbad\n4,z,x,y,z\n";
    let semicolons = b"a;b\n1;x\r\n2;y\r\n\r\n3;\n";
    let json =
        b"{\"a\": 1, \"b\": \"x\"}\n\n{\"b\": null, \"a\": 2.5, \"c\": [1, {}]}\n{\"a\"\n{\"\\u0061\": 3}\n";
    let conditions: [&[u8]; 5] = [
        b"",
        b"id > 1 and not city like 'B%'",
        b"a in (1, 2, null) or b is not null",
        b"column_1 ~ '[a-z]+' or column_2 between '1' and '3'",
        b"day >= '2020-06-01' or x < 0 or ok",
    ];
    let groups: [(&[u8], &[u8]); 3] =
        [(b"", b""), (b"", b"count(*), sum(a), avg(a), min(b)"), (b"city", b"count(*), max(x)")];
    let mut seeds = Vec::new();
    for (format, file) in [(0u8, &json[..]), (1, csv), (2, semicolons), (3, csv)] {
        for (nth, condition) in (0u8..).zip(conditions) {
            for (groups, aggregates) in groups {
                let head = [format << 1 | (nth & 1) << 5 | (nth & 2) << 5, 5 * nth, 40];
                let parts = [condition, groups, aggregates, file].join(&[0xff][..]);
                seeds.push([&head[..], &parts].concat());
            }
        }
    }
    let selection = Selection::compile(SelectOptions::default()).map(Arc::new);
    if let Ok(selection) = selection
        && let Ok(plan) = selection.plan(csv, true)
    {
        let mut selector = Selector::new(&selection);
        selector.begin(Arc::new(plan), Place::default());
        let mut rows = &csv[selector.offset() as usize..];
        let _bad_row = at_once(selector.feed(&mut rows, 1 << 20));
        let (_, _, stream) = selector.batch();
        seeds.extend([stream, &Table::nothing()].map(|stream| [&[1, 0, 0], stream].concat()));
    }
    seeds
}
