//! What a program can ask of the drive: the functions of docs/PROGRAMS.md, in safe Rust.
//! A program includes it by `mod nearside;`.

#![allow(dead_code, unused_imports, reason = "not every program needs all")]

mod drive {
    #[link(wasm_import_module = "nearside")]
    unsafe extern "C" {
        pub fn next(at: *mut u8, len: usize) -> usize;
        pub fn emit(at: *const u8, len: usize);
        pub fn parameters(at: *mut u8, len: usize) -> usize;
        pub safe fn size() -> u64;
        pub safe fn offset() -> u64;
        pub safe fn seek(offset: u64);
        pub safe fn restart(offset: u64);
        pub fn fail(at: *const u8, len: usize);
    }
}

pub use drive::{offset, restart, seek, size};

/// Reads the file's next bytes, as many as are at hand and as there is room for; 0 at its end.
pub fn next(buffer: &mut [u8]) -> usize {
    // SAFETY: the drive writes within the buffer.
    unsafe { drive::next(buffer.as_mut_ptr(), buffer.len()) }
}

/// Emits a record, of at most 64 KiB.
pub fn emit(record: &[u8]) {
    // SAFETY: the drive reads within the record.
    unsafe { drive::emit(record.as_ptr(), record.len()) }
}

/// What the user says to the program, as far as there is room.
pub fn parameters(buffer: &mut [u8]) -> &[u8] {
    // SAFETY: the drive writes within the buffer.
    let len = unsafe { drive::parameters(buffer.as_mut_ptr(), buffer.len()) };
    &buffer[..len.min(buffer.len())]
}

/// Gives up on the file, and says why.
pub fn fail(why: &str) -> ! {
    // SAFETY: the drive reads within the text.
    unsafe { drive::fail(why.as_ptr(), why.len()) };
    core::arch::wasm32::unreachable()
}

/// A number in decimal digits.
pub fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    fail("the program panicked")
}
