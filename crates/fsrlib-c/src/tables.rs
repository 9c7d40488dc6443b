//! Tables: rows by their numbers, and those that are nearest to a query.

use std::ffi::c_char;

use nearside_fsrlib::{
    Ask, Element, GatherOptions, Measure, NearestOptions, Operation, Pooling, Record, Session, Table,
    Transport,
};

use crate::calls::{Stop, bytes, call, nearside, records};
use crate::types::*;

/// How the caller says a file is a table.
///
/// # Safety
/// `table` is null or valid.
unsafe fn table_of(table: *const nearside_table) -> Result<Table, Stop> {
    // SAFETY: as this function demands.
    let Some(table) = (unsafe { table.as_ref() }) else { return Ok(Table::default()) };
    let element = match table.element {
        NEARSIDE_NPY => return Ok(Table { raw: None, scale: table.scale }),
        NEARSIDE_F32 => Element::F32,
        NEARSIDE_F16 => Element::F16,
        NEARSIDE_BF16 => Element::Bf16,
        NEARSIDE_INT8 => Element::I8,
        _ => return Err(Stop::Invalid("no such kind of number")),
    };
    Ok(Table { raw: Some((element, table.columns)), scale: table.scale })
}

/// The caller's numbers.
///
/// # Safety
/// `numbers` is null, or valid for reading `count` of them.
unsafe fn given<T: Clone>(numbers: *const T, count: usize) -> Result<Vec<T>, Stop> {
    match numbers.is_null() {
        true if count > 0 => Err(Stop::Invalid("a null pointer where numbers are due")),
        true => Ok(Vec::new()),
        // SAFETY: as this function demands; it is not null.
        false => Ok(unsafe { std::slice::from_raw_parts(numbers, count) }.to_vec()),
    }
}

/// Reads `count` rows of a table by their numbers, from 0, and writes to `values` the numbers of each, one
/// row after the other, or those of one row that is made of them (`pooling`: NEARSIDE_POOL_SUM and so on).
/// `table` may be null: as the file's .npy header says. `weights` is for NEARSIDE_POOL_WEIGHTED alone, one
/// for each row. Returns how many numbers were written.
///
/// # Safety
/// `drive` is an open session, `path` a terminated string, `table` null or valid, `rows` and, where it is
/// used, `weights` valid for `count` numbers, `values` valid for writing `room` numbers.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "a table, a request and an answer, each with its length")]
pub unsafe extern "C" fn nearside_gather(
    drive: *mut nearside,
    path: *const c_char,
    table: *const nearside_table,
    pooling: u32,
    rows: *const u64,
    weights: *const f32,
    count: usize,
    values: *mut f32,
    room: usize,
) -> i64 {
    let body = |session: &mut Session<Box<dyn Transport>>| {
        let pooling = match pooling {
            NEARSIDE_POOL_NONE => Pooling::None,
            NEARSIDE_POOL_SUM => Pooling::Sum,
            NEARSIDE_POOL_MEAN => Pooling::Mean,
            NEARSIDE_POOL_WEIGHTED => Pooling::Weighted,
            _ => return Err(Stop::Invalid("no such pooling")),
        };
        let weighted = if pooling == Pooling::Weighted { count } else { 0 };
        // SAFETY: the caller's duty.
        let (path, table) = unsafe { (bytes(path)?, table_of(table)?) };
        // SAFETY: the caller's duty.
        let (indices, weights) = unsafe { (given(rows, count)?, given(weights, weighted)?) };
        let options = GatherOptions { table, pooling, indices, weights, ..GatherOptions::default() };
        let mut found: Vec<f32> = Vec::new();
        records(session, &Ask::path(path, Operation::Gather(options)), |record| {
            if let Record::Row { values, .. } = record {
                found.extend(values.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)));
            }
        })?;
        if found.len() > room || values.is_null() && !found.is_empty() {
            return Err(Stop::Invalid("too little room for the numbers"));
        }
        if !found.is_empty() {
            // SAFETY: valid for `room` numbers by the caller's duty, not null, and `found` is ours.
            unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), values, found.len()) };
        }
        Ok(found.len() as i64)
    };
    // SAFETY: the caller's duty.
    unsafe { call(drive, body) }
}

/// Finds the `count` rows of a table that are nearest to a query, by `measure` (NEARSIDE_INNER_PRODUCT,
/// NEARSIDE_L2): their numbers, from 0, the nearest first, go to `rows`, and inner products or squares of
/// distances to `scores`. `table` may be null: as the file's .npy header says. Returns how many there are.
///
/// # Safety
/// `drive` is an open session, `path` a terminated string, `table` null or valid, `query` valid for `columns`
/// numbers, `rows` and `scores` valid for writing `count` numbers.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "a table, a request and an answer, each with its length")]
pub unsafe extern "C" fn nearside_nearest(
    drive: *mut nearside,
    path: *const c_char,
    table: *const nearside_table,
    measure: u32,
    query: *const f32,
    columns: usize,
    rows: *mut u64,
    scores: *mut f32,
    count: u32,
) -> i64 {
    let body = |session: &mut Session<Box<dyn Transport>>| {
        let measure = match measure {
            NEARSIDE_INNER_PRODUCT => Measure::InnerProduct,
            NEARSIDE_L2 => Measure::L2,
            _ => return Err(Stop::Invalid("no such measure")),
        };
        // SAFETY: the caller's duty.
        let (path, table, query) = unsafe { (bytes(path)?, table_of(table)?, given(query, columns)?) };
        if count > 0 && (rows.is_null() || scores.is_null()) {
            return Err(Stop::Invalid("no place for what is found"));
        }
        let options = NearestOptions { table, measure, count, query };
        let mut found = 0;
        records(session, &Ask::path(path, Operation::Nearest(options)), |record| {
            // No more than were asked for, whatever a drive says.
            if let Record::Near { row, score } = record
                && found < count as usize
            {
                // SAFETY: valid for `count` numbers by the caller's duty, and not null.
                unsafe {
                    rows.add(found).write(row);
                    scores.add(found).write(score);
                }
                found += 1;
            }
        })?;
        Ok(found as i64)
    };
    // SAFETY: the caller's duty.
    unsafe { call(drive, body) }
}
