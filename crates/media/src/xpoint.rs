//! 3D XPoint behind a hardware-only path: Intel Optane SSD DC P4800X (PIEEE'17, Sections II-A, III-B, IV,
//! V-B).
//!
//! ```text
//! write: front -> link -> channels -> path          read: front -> channels -> link -> path
//! ```
//!
//! - **Front.** The controller takes one command after the other, `command_ns` each, whatever its size: what
//!   limits requests of one block where the channels would do more, and no long ones.
//! - **Channels.** A block of 4 KiB is spread over `spread` channels, which it holds at the same time (II-A:
//!   "spreads single 4-kB IOs across multiple 3D XPoint memory channels"); longer requests go round the
//!   channels. Writes are in place: no erase, no collection, so that a request's time depends on what is in
//!   front of it and on nothing that was written before. A channel that goes from reads to writes or back
//!   turns around first (`turn_ns`), so that a mix is slower than its parts.
//! - **Parts of blocks.** What is less than a block holds the channels as a block does, since a block is
//!   spread and corrected as a whole: a small read costs what 4 KiB cost, less the link's time. A write of a
//!   part reads the block first.
//! - **Link.** PCIe Gen3 x4, each direction for itself.
//! - **Path.** Everything that does not stand in anyone's way: doorbell, fetch, decoding, the cells' own
//!   access time, correction, completion, interrupt. It varies evenly by `vary_ns`; one request in
//!   `retry_every` is read once more (`retry_ns`).
//!
//! A flush has nothing to do, a deallocation changes a table: both take the path alone.

use nearside_random::draw;
use serde::Deserialize;

use crate::file::{Parameters, bounds};
use crate::preset::Preset;
use crate::words::{WordError, count, time_ns};
use crate::{Medium, Request, RequestKind, moving_ns};

const BLOCK: u64 = 4096;

/// A device's numbers. The presets' are in `models/`, each with where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Channels to the memory.
    #[serde(deserialize_with = "bounds::things")]
    pub channels: u32,
    /// How many channels one block is spread over; at most `channels`.
    #[serde(deserialize_with = "bounds::things")]
    pub spread: u32,
    /// How long a command occupies the controller, in nanoseconds.
    #[serde(deserialize_with = "bounds::time")]
    pub command_ns: u64,
    /// How long a block that is read holds its channels, in nanoseconds.
    #[serde(deserialize_with = "bounds::time")]
    pub read_ns: u64,
    /// How long a block that is written holds its channels, in nanoseconds.
    #[serde(deserialize_with = "bounds::time")]
    pub write_ns: u64,
    /// What a channel takes to go from reads to writes or back, in nanoseconds.
    #[serde(deserialize_with = "bounds::time")]
    pub turn_ns: u64,
    /// What a request that is not whole blocks holds the channels longer, in nanoseconds.
    #[serde(deserialize_with = "bounds::time")]
    pub partial_ns: u64,
    /// A byte on the link, in picoseconds.
    #[serde(deserialize_with = "bounds::byte")]
    pub byte_ps: u64,
    /// The rest of the way, in nanoseconds.
    #[serde(deserialize_with = "bounds::time")]
    pub path_ns: u64,
    /// Up to so much more, evenly drawn, in nanoseconds.
    #[serde(deserialize_with = "bounds::time")]
    pub vary_ns: u64,
    /// One request in so many takes `retry_ns` more; 0: none.
    #[serde(deserialize_with = "bounds::between::<_, u64, 0, { 1 << 32 }>")]
    pub retry_every: u64,
    /// In nanoseconds.
    #[serde(deserialize_with = "bounds::time")]
    pub retry_ns: u64,
    /// Of the draws.
    pub seed: u64,
}

impl Device {
    /// Optane P4800X: `models/optane-p4800x.toml`.
    pub fn p4800x() -> Device {
        preset("optane-p4800x")
    }

    /// Its precursor, on which ACT was run: `models/optane-prototype.toml`.
    pub fn prototype() -> Device {
        preset("optane-prototype")
    }

    /// The medium with these numbers.
    pub fn medium(self) -> XPoint {
        let channels = self.channels.max(1);
        let spread = self.spread.clamp(1, channels);
        // Channels that serve every block together are one: of 8 and 4 two are left and 1, of 7 and 7 one and
        // 1.
        let together = (1..=spread)
            .rev()
            .find(|n| spread.is_multiple_of(*n) && channels.is_multiple_of(*n))
            .unwrap_or(1);
        let (channels, spread) = (channels / together, spread / together);
        XPoint {
            device: Device { channels, spread, ..self },
            front_free: 0,
            free_at: vec![0; channels as usize],
            turned: vec![None; channels as usize],
            link_free: [0; 2],
            retry_below: (1u64 << 32).checked_div(self.retry_every).unwrap_or(0),
            random: self.seed,
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), WordError> {
        let bad = || WordError::option("an XPoint device", &format!("{name}={value}"));
        let time = || time_ns(value).ok_or_else(bad);
        let number = || value.parse().map_err(|_| bad());
        match name {
            "channels" => self.channels = count(value, 1).ok_or_else(bad)?,
            "spread" => self.spread = count(value, 1).ok_or_else(bad)?,
            "command" => self.command_ns = time()?,
            "read" => self.read_ns = time()?,
            "write" => self.write_ns = time()?,
            "turn" => self.turn_ns = time()?,
            "partial" => self.partial_ns = time()?,
            "byte-ps" => self.byte_ps = number()?,
            "path" => self.path_ns = time()?,
            "vary" => self.vary_ns = time()?,
            "retry-every" => self.retry_every = number()?,
            "retry" => self.retry_ns = time()?,
            "seed" => self.seed = number()?,
            _ => return Err(bad()),
        }
        Ok(())
    }
}

fn preset(name: &str) -> Device {
    match Preset::named(name).map(|preset| preset.file.parameters) {
        Some(Parameters::XPoint(device)) => device,
        other => panic!("{name} is no XPoint device but {other:?}"),
    }
}

/// The medium of a [`Device`].
#[derive(Clone, Debug)]
pub struct XPoint {
    device: Device,
    /// When the controller takes the next command.
    front_free: u64,
    /// When each channel is free.
    free_at: Vec<u64>,
    /// What each channel did last.
    turned: Vec<Option<RequestKind>>,
    /// When the link is free towards the host, and towards the device.
    link_free: [u64; 2],
    /// Of 2^32 draws, so many are retried.
    retry_below: u64,
    random: u64,
}

impl XPoint {
    /// Bytes over the link in one direction, ready at `from_ns`; when the last has passed.
    #[inline]
    fn link(&mut self, direction: usize, bytes: u64, from_ns: u64) -> u64 {
        let end =
            from_ns.max(self.link_free[direction]).saturating_add(moving_ns(bytes, self.device.byte_ps));
        self.link_free[direction] = end;
        end
    }

    /// Blocks `first` to `last` through their channels, which `kind` may turn around, each block's parts
    /// `part_ns` long and `extra_ns` on top for the whole: when the first block is through, and the last.
    #[inline]
    fn through_channels(
        &mut self,
        kind: RequestKind,
        (first, last): (u64, u64),
        part_ns: u64,
        extra_ns: u64,
        from_ns: u64,
    ) -> (u64, u64) {
        let (channels, spread) = (u64::from(self.device.channels), u64::from(self.device.spread));
        let turn_ns = self.device.turn_ns;
        let turn = |turned: &mut Option<RequestKind>| match turned.replace(kind) {
            Some(before) if before != kind => extra_ns.saturating_add(turn_ns),
            _ => extra_ns,
        };
        if let ([free_at], [turned]) = (&mut self.free_at[..], &mut self.turned[..]) {
            let start = from_ns.max(*free_at).saturating_add(turn(turned));
            *free_at = start.saturating_add((last - first + 1).saturating_mul(part_ns));
            return (start.saturating_add(part_ns), *free_at);
        }
        let parts = (last - first + 1).saturating_mul(spread);
        // Of `parts` dealt out in turn from channel `at` on, every channel gets this many, and the first ones
        // one more.
        let (each, more) = (parts / channels, parts % channels);
        let mut at = (first % channels * spread % channels) as usize;
        let (mut first_out, mut last_out) = (from_ns, from_ns);
        for nth in 0..channels.min(parts) {
            let free_at = &mut self.free_at[at];
            let start = from_ns.max(*free_at).saturating_add(turn(&mut self.turned[at]));
            let own = each + u64::from(nth < more);
            *free_at = start.saturating_add(own.saturating_mul(part_ns));
            if nth < spread {
                first_out = first_out.max(start.saturating_add(part_ns));
            }
            last_out = last_out.max(*free_at);
            at += 1;
            if at == self.free_at.len() {
                at = 0;
            }
        }
        (first_out, last_out)
    }
}

impl Medium for XPoint {
    #[inline]
    fn finish(&mut self, request: Request, now_ns: u64) -> u64 {
        let Request { kind, offset, len } = request;
        let device = self.device;
        let taken_ns = now_ns.max(self.front_free).saturating_add(device.command_ns);
        self.front_free = taken_ns;
        let mut ready = taken_ns;
        if len > 0 && matches!(kind, RequestKind::Read | RequestKind::Write) {
            let end = offset.saturating_add(len);
            let (first, last) = (offset / BLOCK, (end - 1) / BLOCK);
            let whole = offset.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK);
            let extra_ns = if whole { 0 } else { device.partial_ns };
            if kind == RequestKind::Read {
                let (first_out, last_out) =
                    self.through_channels(kind, (first, last), device.read_ns, extra_ns, taken_ns);
                // The link follows the channels block by block: it ends its bytes, but not before the last
                // block's have come.
                let tail = moving_ns(len.min(BLOCK), device.byte_ps);
                ready = self.link(0, len, first_out).max(last_out.saturating_add(tail));
            } else {
                // The channels follow the link; the first block has to be there.
                let before = taken_ns.max(self.link_free[1]);
                let there = self.link(1, len, taken_ns);
                let begin = before.saturating_add(moving_ns(len.min(BLOCK), device.byte_ps));
                let part_ns = device.write_ns;
                let first_read = if whole { 0 } else { device.read_ns };
                let extra_ns = extra_ns.saturating_add(first_read);
                let (_, last_out) = self.through_channels(kind, (first, last), part_ns, extra_ns, begin);
                ready = last_out.max(there);
            }
        }
        let number = draw(&mut self.random);
        let vary = ((u128::from(number & 0xffff_ffff) * u128::from(device.vary_ns)) >> 32) as u64;
        let retried = number >> 32 < self.retry_below;
        let retry_ns = if retried { device.retry_ns } else { 0 };
        ready.saturating_add(device.path_ns).saturating_add(vary).saturating_add(retry_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> impl Iterator<Item = (Request, u64)> {
        let (mut random, mut now) = (5, 0);
        (0..20_000).map(move |_| {
            let number = draw(&mut random);
            now += number % 20_000;
            let (offset, len) = ((number >> 16) % 4096 * 512, ((number >> 40) % 100 + 1) * 512);
            let kind = if number >> 63 == 0 { RequestKind::Read } else { RequestKind::Write };
            (Request { kind, offset, len }, now)
        })
    }

    #[test]
    fn channels_that_serve_every_block_together_are_one() {
        for (channels, spread, left) in [(7, 7, 1), (8, 4, 2), (12, 8, 3), (7, 3, 7)] {
            let device = Device { channels, spread, turn_ns: 333, command_ns: 77, ..Device::prototype() };
            let mut reduced = device.medium();
            assert_eq!(reduced.free_at.len(), left);
            let count = channels as usize;
            let mut whole =
                XPoint { device, free_at: vec![0; count], turned: vec![None; count], ..device.medium() };
            for (request, now) in requests() {
                assert_eq!(
                    reduced.finish(request, now),
                    whole.finish(request, now),
                    "{channels} {request:?}"
                );
            }
        }
    }

    #[test]
    fn blocks_go_round_the_channels() {
        let device = Device { channels: 8, spread: 3, ..Device::p4800x() };
        let (mut medium, mut free_at) = (device.medium(), [0; 8]);
        for (request, now) in requests() {
            let (first, last) = (request.offset / BLOCK, (request.offset + request.len - 1) / BLOCK);
            let (mut first_out, mut last_out) = (now, now);
            let started = free_at;
            for block in first..=last {
                for part in block * 3..block * 3 + 3 {
                    let at = &mut free_at[(part % 8) as usize];
                    *at = now.max(*at) + 100;
                    last_out = last_out.max(*at);
                    if block == first {
                        first_out = first_out.max(now.max(started[(part % 8) as usize]) + 100);
                    }
                }
            }
            assert_eq!(
                medium.through_channels(RequestKind::Read, (first, last), 100, 0, now),
                (first_out, last_out),
                "{request:?}"
            );
        }
        assert_eq!(medium.free_at, free_at);
    }
}
