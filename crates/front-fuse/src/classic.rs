//! Requests by read(2), replies by write(2) on `/dev/fuse`: the way that every kernel has.
//!
//! The first bytes of a request, which tell what it is, come to the stack; a file's bytes come straight to a
//! buffer of the drive's driver, and go back to the kernel from there. Where requests come by io_uring, those
//! that it does not carry still come here (FORGET, INTERRUPT).

use std::os::fd::AsFd;

use nearside_dma::fuse::FuseDevice;
use nearside_dma::wait_any_readable;
use nearside_driver::DmaBuffer;

use crate::engine::{Answer, Answered, Engine};
use crate::session::End;
use crate::wire::{HEAD, OUT_HEADER, Request, out_header};

/// A place for a request.
struct Place {
    unique: u64,
    /// Where no request has it.
    buffer: Option<DmaBuffer>,
}

/// Serves until the connection ends, with so many requests at a time and buffers of so many bytes.
pub(crate) fn serve(device: &FuseDevice, mut engine: Engine<'_>, count: usize, payload: usize) -> End {
    let mut places = Vec::with_capacity(count);
    for _ in 0..count {
        match engine.buffer(payload) {
            Ok(buffer) => places.push(Place { unique: 0, buffer: Some(buffer) }),
            Err(e) => return End::Failed(format!("memory for the kernel's requests: {e}")),
        }
    }
    let mut free: Vec<usize> = (0..count).collect();
    let mut ended = None;
    loop {
        let mut worked = false;
        while ended.is_none()
            && let Some(&at) = free.last()
        {
            match receive(device, &mut engine, at, &mut places[at]) {
                Received::Request => _ = free.pop(),
                Received::Nothing => break,
                Received::Again => {}
                Received::End(end) => ended = Some(end),
            }
            worked = true;
        }
        engine.look();
        while let Some(answered) = engine.next() {
            worked = true;
            let at = answered.slot;
            reply(device, &mut places[at], answered);
            // Where a drive that has gone may still write to the buffer, the place is given up with it.
            if places[at].buffer.is_some() {
                free.push(at);
            }
        }
        if let Some(end) = ended.take_if(|_| engine.is_idle()) {
            engine.close();
            return end;
        }
        if worked {
            continue;
        }
        if engine.spins() {
            std::hint::spin_loop();
            continue;
        }
        sleep(device, &mut engine, ended.is_none() && !free.is_empty());
    }
}

enum Received {
    Request,
    Nothing,
    Again,
    End(End),
}

fn receive(device: &FuseDevice, engine: &mut Engine<'_>, at: usize, place: &mut Place) -> Received {
    let Some(buffer) = &place.buffer else { return Received::Nothing };
    let (region, offset) = buffer.region();
    let mut head = [0; HEAD];
    let len = match device.receive(&mut head, (region, offset, buffer.capacity())) {
        Ok(0) => return Received::End(End::Failed("/dev/fuse: an empty request".into())),
        Ok(len) => len,
        Err(e) => {
            return match e.raw_os_error() {
                Some(libc::EAGAIN) => Received::Nothing,
                // A request that was taken back before it was copied.
                Some(libc::EINTR | libc::ENOENT) => Received::Again,
                Some(libc::ENODEV) => Received::End(End::Unmounted),
                Some(libc::ECONNABORTED) => Received::End(End::Aborted),
                _ => Received::End(End::Failed(format!("/dev/fuse: {e}"))),
            };
        }
    };
    // Nobody can be answered whose number is not known.
    let Some(request) = Request::of_message(&head, len) else { return Received::Again };
    place.unique = request.header.unique;
    engine.begin(at, &request, place.buffer.take());
    Received::Request
}

fn reply(device: &FuseDevice, place: &mut Place, answered: Answered) {
    let Answered { answer, buffer, .. } = answered;
    place.buffer = buffer;
    let unique = place.unique;
    // Refused: the request was taken back, or the connection is over, as the next request will tell.
    let _ = match (answer, &place.buffer) {
        (Answer::Nothing, _) => Ok(()),
        (Answer::Data(len), Some(buffer)) => {
            let (region, offset) = buffer.region();
            device.reply(&out_header(len as u32, 0, unique), Some((region, offset, len)))
        }
        (Answer::Body(body), _) => {
            let mut bytes = [0; OUT_HEADER + crate::wire::Body::MOST];
            let (head, rest) = bytes.split_at_mut(OUT_HEADER);
            head.copy_from_slice(&out_header(body.len() as u32, 0, unique));
            rest[..body.len()].copy_from_slice(body.bytes());
            device.reply(&bytes[..OUT_HEADER + body.len()], None)
        }
        (Answer::Error(errno), _) => device.reply(&out_header(0, errno, unique), None),
        (Answer::Data(_), None) => device.reply(&out_header(0, libc::EIO, unique), None),
    };
}

fn sleep(device: &FuseDevice, engine: &mut Engine<'_>, receives: bool) {
    let most = engine.arm();
    if most.is_none_or(|most| !most.is_zero()) {
        let [drive, helper] = engine.events();
        // What is not waited for stands for another that is.
        let helper = helper.or(drive);
        let Some(helper) = helper else { return };
        let drive = drive.unwrap_or(helper);
        let device = if receives { device.as_fd() } else { helper.as_fd() };
        let [_, by_drive, by_helper] = wait_any_readable([device, drive.as_fd(), helper.as_fd()], most);
        if by_drive {
            drive.take();
        }
        if by_helper {
            helper.take();
        }
    }
    engine.disarm();
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    use nearside_driver::Policy;

    use super::*;
    use crate::engine::tests::files;

    /// A request's bytes; its header says `len`.
    fn request(len: usize, opcode: u32, unique: u64, node: u64, args: &[u8]) -> Vec<u8> {
        let mut bytes = [(len as u32).to_ne_bytes(), opcode.to_ne_bytes()].concat();
        bytes.extend(unique.to_ne_bytes());
        bytes.extend(node.to_ne_bytes());
        bytes.extend([0; 16]);
        bytes.extend(args);
        bytes
    }

    #[test]
    fn messages_that_are_none_end_nothing() {
        let (_drive, files) = files();
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let device = FuseDevice::of(OwnedFd::from(theirs));
        device.never_wait().unwrap();
        std::thread::scope(|scope| {
            let queue = files.host.take_served().unwrap();
            let files = &files;
            let served = scope.spawn(move || {
                let engine = Engine::new(files, queue, Policy::Interrupt, 4).unwrap();
                serve(&device, engine, 4, 64 << 10)
            });
            let mut reply = [0; 4096];
            let mut ask = |bytes: &[u8]| {
                ours.send(bytes).unwrap();
                let len = ours.recv(&mut reply).unwrap();
                assert_eq!(reply[..4], (len as u32).to_ne_bytes());
                let errno = -i32::from_ne_bytes([reply[4], reply[5], reply[6], reply[7]]);
                (reply[8], errno, len)
            };
            // Too short to be answered; what comes next is.
            for len in [1, 39] {
                ours.send(&request(40, 3, 9, 1, &[])[..len]).unwrap();
            }
            assert_eq!(ask(&request(40, 3, 1, 1, &[])), (1, 0, 120));
            assert_eq!(ask(&request(41, 3, 2, 1, &[])), (2, libc::ENOSYS, 16));
            assert_eq!(ask(&request(40, 15, 3, 2, &[])), (3, libc::EINVAL, 16));
            assert_eq!(ask(&request(60, 15, 4, 7, &[0; 20])), (4, libc::ENOENT, 16));
            assert_eq!(ask(&request(50, 1, 5, 1, b"namespace\0")), (5, 0, 144));
            assert_eq!(ask(&request(49, 1, 6, 1, b"namespace")), (6, 0, 144));
            assert_eq!(ask(&request(140, 1, 7, 1, &[b'n'; 100])), (7, libc::ENOENT, 16));
            assert_eq!(ask(&request(40, 9999, 8, 1, &[])), (8, libc::ENOSYS, 16));
            // A write that says more than it has.
            let mut args = [0; 40 + 512];
            args[16..20].copy_from_slice(&1024u32.to_ne_bytes());
            assert_eq!(ask(&request(592, 16, 9, 2, &args)), (9, libc::EINVAL, 16));
            args[16..20].copy_from_slice(&512u32.to_ne_bytes());
            assert_eq!(ask(&request(592, 16, 10, 2, &args)), (10, 0, 24));
            // The end of what is read.
            ours.send(&[]).unwrap();
            assert!(matches!(served.join().unwrap(), End::Failed(_)));
        });
    }
}
