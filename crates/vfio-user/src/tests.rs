//! Golden bytes, both ways of every message, and a connection's whole and torn messages.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn encoded(encode: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

fn request(golden: &str, request: Request) {
    let golden = bytes_of(golden);
    assert_eq!(encoded(|into| request.encode(into)), golden, "{request:?}");
    assert_eq!(Request::decode(request.command(), &golden), Ok(request));
}

fn reply(golden: &str, reply: Reply) {
    let golden = bytes_of(golden);
    assert_eq!(encoded(|into| reply.encode(into)), golden, "{reply:?}");
    assert_eq!(Reply::decode(reply.command(), &golden), Ok(reply));
}

#[test]
fn golden_headers() {
    let header = |id, command, size, kind| Header { id, command, size, kind };
    let all = [
        ("3412 0900 20000000 00000000 00000000", header(0x1234, 9, 32, Kind::Command { no_reply: false })),
        ("0100 0a00 24000000 10000000 00000000", header(1, 10, 36, Kind::Command { no_reply: true })),
        ("0100 0d00 10000000 01000000 00000000", header(1, 13, 16, Kind::Reply { error: None })),
        ("ffff 0200 10000000 21000000 11000000", header(0xffff, 2, 16, Kind::Reply { error: Some(17) })),
    ];
    for (golden, header) in all {
        let golden = bytes_of(golden);
        assert_eq!(header.encode()[..], golden);
        assert_eq!(Header::decode(golden.first_chunk().unwrap(), 64), Ok(header));
    }
}

#[test]
fn headers_that_are_none() {
    let decode = |hex| Header::decode(bytes_of(hex).first_chunk().unwrap(), 64);
    assert_eq!(decode("0100 0d00 0f000000 01000000 00000000"), Err(WireError::Size { size: 15, limit: 64 }));
    assert_eq!(decode("0100 0d00 41000000 01000000 00000000"), Err(WireError::Size { size: 65, limit: 64 }));
    assert_eq!(
        decode("0100 0d00 ffffffff 01000000 00000000"),
        Err(WireError::Size { size: u32::MAX, limit: 64 })
    );
    assert_eq!(decode("0100 0d00 10000000 02000000 00000000"), Err(WireError::Type(2)));
}

#[test]
fn golden_requests() {
    request(
        "20000000 03000000 0010000000000000 0000000100000000 0000200000000000",
        Request::DmaMap(DmaMap {
            flags: dma_flags::READ | dma_flags::WRITE,
            offset: 0x1000,
            address: 0x100_0000,
            size: 0x20_0000,
        }),
    );
    request(
        "18000000 00000000 0000000100000000 0000200000000000",
        Request::DmaUnmap(DmaUnmap { flags: 0, address: 0x100_0000, size: 0x20_0000 }),
    );
    request("10000000 00000000 00000000 00000000", Request::DeviceInfo { argsz: 16 });
    request(
        "00100000 00000000 07000000 00000000 0000000000000000 0000000000000000",
        Request::RegionInfo { argsz: 4096, index: region::CONFIG },
    );
    request("10000000 00000000 02000000 00000000", Request::IrqInfo { argsz: 16, index: irq::MSIX });
    let set = |action, data, count| Request::SetIrqs(SetIrqs { action, data, index: 2, start: 1, count });
    request("14000000 24000000 02000000 01000000 03000000", set(IrqAction::Trigger, IrqData::EventFds, 3));
    request("14000000 09000000 02000000 01000000 02000000", set(IrqAction::Mask, IrqData::All, 2));
    request(
        "16000000 12000000 02000000 01000000 02000000 0001",
        set(IrqAction::Unmask, IrqData::Some(&[0, 1]), 2),
    );
    let at = RegionAccess { offset: 0x1008, region: region::BAR0, count: 4 };
    request("0810000000000000 00000000 04000000", Request::RegionRead(at));
    request("0810000000000000 00000000 04000000 05000000", Request::RegionWrite(at, &[5, 0, 0, 0]));
    let memory = DmaAccess { address: 0x1_0000_0000, count: 2 };
    request("0000000001000000 0200000000000000", Request::DmaRead(memory));
    request("0000000001000000 0200000000000000 abcd", Request::DmaWrite(memory, &[0xab, 0xcd]));
    request("", Request::DeviceReset);
}

#[test]
fn golden_replies() {
    reply("", Reply::DmaMap);
    reply("", Reply::SetIrqs);
    reply("", Reply::DeviceReset);
    reply(
        "10000000 03000000 09000000 05000000",
        Reply::DeviceInfo(DeviceInfo {
            flags: device_flags::RESET | device_flags::PCI,
            regions: region::COUNT,
            irqs: irq::COUNT,
        }),
    );
    let flags = irq_flags::EVENTFD | irq_flags::NORESIZE;
    reply(
        "10000000 09000000 02000000 41000000",
        Reply::IrqInfo(IrqInfo { flags, index: irq::MSIX, count: 65 }),
    );
    let at = RegionAccess { offset: 0x1c, region: region::BAR0, count: 4 };
    reply("1c00000000000000 00000000 04000000 01000000", Reply::RegionRead(at, &[1, 0, 0, 0]));
    reply("1c00000000000000 00000000 04000000", Reply::RegionWrite(at));
    reply("0300000000000000", Reply::RegionWriteMulti(3));
    let memory = DmaAccess { address: 0x1_0000_0000, count: 2 };
    reply("0000000001000000 0200000000000000 abcd", Reply::DmaRead(memory, &[0xab, 0xcd]));
    reply("0000000001000000 0200000000000000", Reply::DmaWrite(memory));
}

#[test]
fn golden_regions() {
    let doorbells = Area { offset: 0x1000, size: 0x1000 };
    let info = RegionInfo {
        argsz: 64,
        flags: region_flags::READ | region_flags::WRITE | region_flags::MMAP,
        index: region::BAR0,
        size: 0x4000,
        offset: 0x2000,
        areas: vec![doorbells],
    };
    reply(
        "40000000 0f000000 00000000 20000000 0040000000000000 0020000000000000
         0100 0100 00000000 01000000 00000000 0010000000000000 0010000000000000",
        Reply::RegionInfo(info.clone()),
    );
    let short = info.clone().for_room(32);
    assert_eq!((short.argsz, short.areas.len()), (64, 0));
    assert_eq!(info.clone().for_room(64), info);

    // Another capability before it; then one that leads back, and areas beyond the region or the message.
    let chain = "60000000 0f000000 00000000 20000000 0040000000000000 0020000000000000
                 0300 0100 30000000 0000000000000000
                 0100 0100 00000000 01000000 00000000 0010000000000000 0010000000000000";
    let bytes = bytes_of(chain);
    let Ok(Reply::RegionInfo(found)) = Reply::decode(command::DEVICE_GET_REGION_INFO, &bytes) else {
        panic!()
    };
    assert_eq!(found.areas, [doorbells]);
    for (at, value) in [(36, 0x20), (36, 0x1f), (36, 0xffff_fff0), (56, 2), (56, u32::MAX), (72, 0x3001)] {
        let mut lie = bytes.clone();
        lie[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
        let decoded = Reply::decode(command::DEVICE_GET_REGION_INFO, &lie);
        assert!(decoded.is_err(), "{value:#x} at {at}");
    }
}

#[test]
fn golden_versions() {
    let version = Version {
        major: 0,
        minor: 1,
        capabilities: Capabilities {
            max_msg_fds: Some(8),
            max_data_xfer_size: Some(1 << 20),
            write_multiple: true,
            ..Capabilities::default()
        },
    };
    let mut golden = vec![0, 0, 1, 0];
    golden.extend_from_slice(
        br#"{"capabilities":{"max_data_xfer_size":1048576,"max_msg_fds":8,"write_multiple":true}}"#,
    );
    golden.push(0);
    assert_eq!(encoded(|into| Request::Version(version).encode(into)), golden);
    assert_eq!(Reply::decode(command::VERSION, &golden), Ok(Reply::Version(version)));
    let defaults = Capabilities::default();
    assert_eq!((defaults.descriptors(), defaults.transfer(), defaults.dma_maps()), (1, 1 << 20, 0xffff));

    let decode = |text: &str| Version::decode(&[&[0, 0, 1, 0], text.as_bytes()].concat());
    let none = Ok(Version { minor: 1, ..Version::default() });
    for text in
        ["", "{}\0", "{\"capabilities\":{}}\0", "{\"capabilities\":{\"migration\":{\"pgsize\":4096}}}\0"]
    {
        assert_eq!(decode(text), none, "{text}");
    }
    let deep = format!("{}\0", "[".repeat(10_000));
    let long = format!("{}\0", " ".repeat(MAX_VERSION_DATA));
    let wrong = [
        "{}",
        "\0",
        "[]\0",
        "{\"capabilities\":1}\0",
        "{\"capabilities\":{\"max_msg_fds\":-1}}\0",
        "{\"capabilities\":{\"max_data_xfer_size\":\"1\"}}\0",
        "{\"capabilities\":{\"write_multiple\":1}}\0",
        &deep,
        &long,
        "{\0}\0",
        "\u{fffd}\0",
    ];
    for text in wrong {
        assert!(matches!(decode(text), Err(WireError::Capabilities(_))), "{text:.40}");
    }
}

#[test]
fn several_writes_in_one() {
    let one = "0810000000000000 00000000 04000000 0500000000000000";
    let golden = bytes_of(&format!("0200000000000000 {one} {one}"));
    let Ok(Request::RegionWriteMulti(writes)) = Request::decode(command::REGION_WRITE_MULTI, &golden) else {
        panic!()
    };
    assert_eq!(writes.count(), 2);
    for SmallWrite { access, .. } in writes.iter() {
        assert_eq!(access, RegionAccess { offset: 0x1008, region: 0, count: 4 });
    }
    assert_eq!(writes.iter().next().unwrap().bytes(), [5, 0, 0, 0]);
    assert_eq!(encoded(|into| Request::RegionWriteMulti(writes).encode(into)), golden);
    let refused = |hex: &str| Request::decode(command::REGION_WRITE_MULTI, &bytes_of(hex)).is_err();
    assert!(refused(&format!("0300000000000000 {one} {one}")));
    assert!(refused(&format!("ffffffffffffffff {one}")));
    assert!(refused("0100000000000000 0810000000000000 00000000 09000000 0500000000000000"));
    assert!(refused("0100000000000000 0810000000000000 00000000 00000000 0500000000000000"));
}

#[test]
fn sums_do_not_wrap() {
    let end = "f0ffffffffffffff";
    let refused = [
        (command::DMA_MAP, format!("20000000 03000000 0000000000000000 {end} 0020000000000000")),
        (command::DMA_MAP, format!("20000000 03000000 {end} 0000000000000000 0020000000000000")),
        (command::DMA_UNMAP, format!("18000000 00000000 {end} 0020000000000000")),
        (command::REGION_READ, format!("{end} 00000000 20000000")),
        (command::DMA_READ, format!("{end} 2000000000000000")),
        (command::DMA_WRITE, format!("0000000000000000 {end}")),
        (command::DEVICE_SET_IRQS, "14000000 24000000 02000000 ffffffff 03000000".into()),
        (command::DEVICE_SET_IRQS, "14000000 25000000 02000000 00000000 03000000".into()),
        (command::DEVICE_SET_IRQS, "14000000 22000000 02000000 00000000 ffffffff 0101".into()),
    ];
    for (number, hex) in refused {
        let bytes = bytes_of(&hex);
        let decoded = Request::decode(number, &bytes);
        assert!(matches!(decoded, Err(WireError::Value { .. } | WireError::Short(_))), "{hex}");
    }
    assert_eq!(Request::decode(17, &[]), Err(WireError::Command(17)));
}

proptest! {
    /// What decodes says the same when it is encoded again; nothing panics.
    #[test]
    fn any_bytes_decode_or_are_refused(number in 0u16..18, bytes in proptest::collection::vec(any::<u8>(), 0..96)) {
        if let Ok(request) = Request::decode(number, &bytes) {
            let again = encoded(|into| request.encode(into));
            prop_assert_eq!(Request::decode(number, &again), Ok(request));
        }
        if let Ok(reply) = Reply::decode(number, &bytes) {
            let again = encoded(|into| reply.encode(into));
            prop_assert_eq!(Reply::decode(number, &again), Ok(reply));
        }
    }

    #[test]
    fn accesses_round_trip(offset in 0..=u64::MAX / 2, region: u32, data in proptest::collection::vec(any::<u8>(), 0..64)) {
        let count = u32::try_from(data.len()).unwrap();
        let access = RegionAccess { offset, region, count };
        let write = Request::RegionWrite(access, &data);
        let bytes = encoded(|into| write.encode(into));
        prop_assert_eq!(Request::decode(write.command(), &bytes), Ok(write));
        for cut in 0..bytes.len() {
            prop_assert!(Request::decode(command::REGION_WRITE, &bytes[..cut]).is_err());
        }
    }
}

fn soon() -> Duration {
    Duration::from_secs(10)
}

fn at_once() -> Duration {
    Duration::ZERO
}

const COMMAND: Kind = Kind::Command { no_reply: false };

#[test]
fn a_message_arrives_whole_with_its_descriptors() {
    let (a, b) = UnixStream::pair().unwrap();
    let mut b = Connection::new(b, Limits::default());
    assert!(b.receive(at_once).unwrap().is_none());
    let file = tempfile();
    let map = Request::DmaMap(DmaMap { flags: 3, offset: 0, address: 0, size: 4096 });
    send(&a, 1, COMMAND, &map, &[file.as_fd(), file.as_fd()], soon).unwrap();
    send(&a, 2, COMMAND, &Request::DeviceReset, &[], soon).unwrap();
    send(&a, 3, Kind::Reply { error: Some(22) }, &command::DMA_READ, &[file.as_fd()], soon).unwrap();
    let first = b.receive(soon).unwrap().unwrap();
    assert_eq!((first.header.id, first.request(), first.descriptors.len()), (1, Ok(map), 2));
    assert_eq!(first.reply(), Err(WireError::Direction));
    let second = b.receive(soon).unwrap().unwrap();
    assert_eq!((second.request(), second.descriptors.len()), (Ok(Request::DeviceReset), 0));
    let third = b.receive(soon).unwrap().unwrap();
    assert_eq!((third.header.command, third.header.kind), (11, Kind::Reply { error: Some(22) }));
    assert_eq!((third.reply(), third.request()), (Err(WireError::Direction), Err(WireError::Direction)));
    assert_eq!(third.descriptors.len(), 1);
    drop(a);
    assert!(matches!(b.receive(soon), Err(ReceiveError::Closed)));
}

fn tempfile() -> std::fs::File {
    std::fs::File::open("/dev/null").unwrap()
}

#[test]
fn a_message_in_pieces_is_kept_and_a_torn_one_is_told() {
    let (mut a, b) = UnixStream::pair().unwrap();
    let mut b = Connection::new(b, Limits::default());
    let data = vec![7; 100_000];
    let access = RegionAccess { offset: 0, region: 0, count: 100_000 };
    let mut whole = Header { id: 9, command: 10, size: 16 + 16 + 100_000, kind: COMMAND }.encode().to_vec();
    Request::RegionWrite(access, &data).encode(&mut whole);
    for piece in [&whole[..5], &whole[5..20], &whole[20..70_000]] {
        a.write_all(piece).unwrap();
        assert!(b.receive(at_once).unwrap().is_none());
        assert!(b.is_within_a_message());
    }
    a.write_all(&whole[70_000..]).unwrap();
    let message = b.receive(soon).unwrap().unwrap();
    assert_eq!(message.request(), Ok(Request::RegionWrite(access, &data)));
    assert!(!b.is_within_a_message());
    a.write_all(&whole[..40]).unwrap();
    drop(a);
    assert!(matches!(b.receive(soon), Err(ReceiveError::Torn)));
}

#[test]
fn too_much_is_refused() {
    let limits = Limits { message: 64, descriptors: 1 };
    let (a, b) = UnixStream::pair().unwrap();
    let mut b = Connection::new(b, limits);
    let access = RegionAccess { offset: 0, region: 0, count: 33 };
    let sent = send(&a, 0, COMMAND, &Request::RegionWrite(access, &[0; 33]), &[], soon);
    sent.unwrap();
    let error = b.receive(soon).unwrap_err();
    assert!(matches!(error, ReceiveError::Wire(WireError::Size { size: 65, limit: 64 })), "{error}");

    let (a, b) = UnixStream::pair().unwrap();
    let mut b = Connection::new(b, limits);
    let file = tempfile();
    send(&a, 0, COMMAND, &Request::DeviceReset, &[file.as_fd(), file.as_fd()], soon).unwrap();
    assert!(matches!(b.receive(soon), Err(ReceiveError::Descriptors)));
}

/// Time as a count of looks.
#[test]
fn who_takes_nothing_has_its_time() {
    let (a, _b) = UnixStream::pair().unwrap();
    let access = RegionAccess { offset: 0, region: 0, count: 16 << 20 };
    let mut looks = 3u32;
    let left = || {
        looks = looks.saturating_sub(1);
        Duration::from_millis(looks.into())
    };
    let error =
        send(&a, 0, COMMAND, &Request::RegionWrite(access, &vec![0; 16 << 20]), &[], left).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}
