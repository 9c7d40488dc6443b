//! One step of k-means over rows of single-precision numbers: it is told the centres, as numbers in the file's
//! own form (little-endian), behind two 32-bit numbers that say how many numbers a row has and how many centres
//! there are. It emits for each centre the sums of the rows that are nearest to it, and how many these are
//! (64-bit numbers: each sum in double precision, then the count). Who asks divides, and asks again.
#![no_std]
#![no_main]

mod nearside;

const MOST: usize = 4096;

static mut CENTRES: [f32; MOST] = [0.0; MOST];
static mut SUMS: [f64; MOST] = [0.0; MOST];
static mut COUNTS: [u64; MOST] = [0; MOST];
static mut TOLD: [u8; 8 + 4 * MOST] = [0; 8 + 4 * MOST];

#[unsafe(no_mangle)]
extern "C" fn run() {
    // SAFETY: there is one thread, and no other reference to these.
    let (centres, sums, counts, told) = unsafe {
        (&mut *(&raw mut CENTRES), &mut *(&raw mut SUMS), &mut *(&raw mut COUNTS), &mut *(&raw mut TOLD))
    };
    let told = nearside::parameters(told);
    let (heads, numbers) = told.split_at(told.len().min(8));
    let mut heads = heads.chunks_exact(4).map(|n| u32::from_le_bytes([n[0], n[1], n[2], n[3]]) as usize);
    let (columns, count) = (heads.next().unwrap_or(0), heads.next().unwrap_or(0));
    let all = columns.saturating_mul(count);
    if all == 0 || all > MOST || numbers.len() != all * 4 {
        nearside::fail("what it is told is not so many centres of so many numbers");
    }
    for (centre, number) in centres.iter_mut().zip(numbers.chunks_exact(4)) {
        *centre = f32::from_le_bytes([number[0], number[1], number[2], number[3]]);
    }
    let centres = &centres[..all];
    let mut buffer = [0; 64 << 10];
    let row = columns * 4;
    let mut have = 0;
    loop {
        let n = nearside::next(&mut buffer[have..]);
        if n == 0 {
            break;
        }
        have += n;
        let whole = have / row * row;
        for bytes in buffer[..whole].chunks_exact(row) {
            let mut best = (f32::INFINITY, 0);
            for (nth, centre) in centres.chunks_exact(columns).enumerate() {
                let far = centre.iter().zip(values(bytes)).fold(0.0, |far, (c, v)| far + (v - c) * (v - c));
                if far < best.0 {
                    best = (far, nth);
                }
            }
            let sums = &mut sums[best.1 * columns..][..columns];
            sums.iter_mut().zip(values(bytes)).for_each(|(sum, value)| *sum += f64::from(value));
            counts[best.1] += 1;
        }
        buffer.copy_within(whole..have, 0);
        have -= whole;
    }
    if have > 0 {
        nearside::fail("the file ends within a row");
    }
    for (nth, sums) in sums[..all].chunks_exact(columns).enumerate() {
        let mut record = [0; 4096];
        let mut len = 0;
        for number in sums.iter().map(|sum| sum.to_bits()).chain([counts[nth]]) {
            if len + 8 > record.len() {
                nearside::emit(&record[..len]);
                len = 0;
            }
            record[len..len + 8].copy_from_slice(&number.to_le_bytes());
            len += 8;
        }
        nearside::emit(&record[..len]);
    }
}

fn values(row: &[u8]) -> impl Iterator<Item = f32> {
    row.chunks_exact(4).map(|number| f32::from_le_bytes([number[0], number[1], number[2], number[3]]))
}
