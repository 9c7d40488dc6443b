//! What a vfio-user connection carries, before either end looks at its state.
//!
//! `vfio_user_message`: messages after one another, as a socket brings them.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nearside_vfio_user::*;

/// What a message of the fuzzer may have.
const LIMITS: Limits = Limits { message: 4096, descriptors: 1 };

/// Most bytes of an input: what a socket takes at once.
const MOST: usize = 64 << 10;

/// Runs an input: every message is received as it was sent, what decodes says the same when it is encoded
/// again, and the end is told.
pub fn run(input: &[u8]) {
    let input = &input[..input.len().min(MOST)];
    let Ok((mut peer, socket)) = UnixStream::pair() else { return };
    if peer.write_all(input).and_then(|()| peer.shutdown(Shutdown::Write)).is_err() {
        return;
    }
    let mut connection = Connection::new(socket, LIMITS);
    let mut seen = 0;
    let end = loop {
        match connection.receive(|| Duration::ZERO) {
            Ok(Some(message)) => {
                let size = HEADER + message.payload.len();
                assert_eq!(message.header.size as usize, size);
                assert_eq!(input[seen + HEADER..seen + size], message.payload);
                seen += size;
                check(&message);
            }
            Ok(None) => panic!("the peer has ended: there is nothing to wait for"),
            Err(end) => break end,
        }
    };
    match end {
        ReceiveError::Closed => assert_eq!(seen, input.len()),
        ReceiveError::Torn | ReceiveError::Wire(_) => assert!(seen < input.len()),
        other => panic!("{other}"),
    }
}

fn check(message: &Message) {
    let Message { header, payload, .. } = message;
    let again = header.encode();
    assert_eq!(Header::decode(&again, LIMITS.message), Ok(*header));
    if let Ok(request) = Request::decode(header.command, payload) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        assert_eq!(Request::decode(header.command, &bytes), Ok(request));
        if let Request::RegionWriteMulti(writes) = request {
            assert_eq!(writes.iter().count() as u64, writes.count());
            assert!(writes.iter().all(|write| write.bytes().len() == write.access.count as usize));
        }
    }
    if let Ok(reply) = Reply::decode(header.command, payload) {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        assert_eq!(Reply::decode(header.command, &bytes).as_ref(), Ok(&reply));
        if let Reply::RegionInfo(info) = reply {
            // Areas lie in the region, and take no more memory than the message had.
            assert!(info.areas.iter().all(|area| area.offset + area.size <= info.size));
            assert!(info.areas.len() * size_of::<Area>() <= payload.len());
        }
    }
}

/// Every message of both ends, alone and after one another.
pub fn seeds() -> Vec<Vec<u8>> {
    let access = RegionAccess { offset: 0x1008, region: region::BAR0, count: 4 };
    let memory = DmaAccess { address: 1 << 32, count: 4 };
    let version = Version {
        major: 0,
        minor: 1,
        capabilities: Capabilities { max_msg_fds: Some(8), ..Capabilities::default() },
    };
    let unmap = DmaUnmap { flags: 0, address: 1 << 32, size: 4096 };
    let small = [
        &2u64.to_le_bytes()[..],
        &[7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0].repeat(2),
    ]
    .concat();
    let set = SetIrqs {
        action: IrqAction::Mask,
        data: IrqData::Some(&[1, 0]),
        index: irq::MSIX,
        start: 0,
        count: 2,
    };
    let mut requests = vec![
        Request::Version(version),
        Request::DmaMap(DmaMap { flags: 3, offset: 0, address: 1 << 32, size: 4096 }),
        Request::DmaUnmap(unmap),
        Request::DeviceInfo { argsz: 16 },
        Request::RegionInfo { argsz: 4096, index: region::BAR0 },
        Request::IrqInfo { argsz: 16, index: irq::INTX },
        Request::SetIrqs(set),
        Request::SetIrqs(SetIrqs { data: IrqData::EventFds, action: IrqAction::Trigger, ..set }),
        Request::RegionRead(access),
        Request::RegionWrite(access, &[1, 2, 3, 4]),
        Request::DmaRead(memory),
        Request::DmaWrite(memory, &[1, 2, 3, 4]),
        Request::DeviceReset,
    ];
    requests.extend(Request::decode(command::REGION_WRITE_MULTI, &small));
    let info = RegionInfo {
        flags: region_flags::MMAP,
        size: 0x4000,
        areas: vec![Area { offset: 0x1000, size: 0x1000 }; 2],
        ..RegionInfo::default()
    };
    let replies = [
        Reply::Version(version),
        Reply::DmaMap,
        Reply::DmaUnmap(unmap),
        Reply::DeviceInfo(DeviceInfo { flags: device_flags::PCI, regions: 9, irqs: 5 }),
        Reply::RegionInfo(info.for_room(4096)),
        Reply::IrqInfo(IrqInfo { flags: irq_flags::EVENTFD, index: irq::MSIX, count: 65 }),
        Reply::RegionRead(access, &[1, 2, 3, 4]),
        Reply::RegionWrite(access),
        Reply::RegionWriteMulti(2),
        Reply::DmaRead(memory, &[1, 2, 3, 4]),
        Reply::DmaWrite(memory),
    ];
    let command = Kind::Command { no_reply: false };
    let mut seeds: Vec<_> = requests.iter().map(|request| message(command, request)).collect();
    seeds.extend(replies.iter().map(|reply| message(Kind::Reply { error: None }, reply)));
    seeds.push(message(Kind::Reply { error: Some(22) }, &command::DMA_MAP));
    seeds.push(seeds.concat());
    seeds
}

fn message(kind: Kind, body: &impl Body) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    body.append(&mut bytes);
    let header = Header { id: 1, command: body.number(), size: bytes.len() as u32, kind };
    bytes[..HEADER].copy_from_slice(&header.encode());
    bytes
}
