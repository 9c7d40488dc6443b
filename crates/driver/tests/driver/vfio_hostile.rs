//! Our driver against servers that lie: wrong lengths, other commands' answers, descriptors withheld, regions
//! that are none, a death within a message. Each is an error that says what, in bounded time.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use nearside_clock::TscClock;
use nearside_dma::Region;
use nearside_driver::{Driver, DriverConfig, Error};
use nearside_spec::registers::{CAP, Cap};
use nearside_vfio_user::*;

/// What a server does with a request.
enum Does {
    /// Answers as an honest one would.
    Right,
    /// Answers so, with these descriptors.
    Says(Reply<'static>, Vec<OwnedFd>),
    /// Answers with an error.
    Refuses(u32),
    /// Sends these bytes.
    Sends(Vec<u8>),
    /// Says nothing, and waits for more.
    Nothing,
    /// Sends these bytes and goes.
    Dies(Vec<u8>),
}

/// What an honest one answers before it is a controller that does anything.
fn right(request: &Request<'_>, data: &mut [u8; 8]) -> Reply<'static> {
    match *request {
        Request::Version(version) => Reply::Version(version),
        Request::DmaMap(_) => Reply::DmaMap,
        Request::DmaUnmap(unmap) => Reply::DmaUnmap(unmap),
        Request::DeviceInfo { .. } => Reply::DeviceInfo(DeviceInfo {
            flags: device_flags::PCI,
            regions: region::COUNT,
            irqs: irq::COUNT,
        }),
        Request::RegionInfo { index, .. } => Reply::RegionInfo(registers(index)),
        Request::IrqInfo { index, .. } => {
            Reply::IrqInfo(IrqInfo { flags: irq_flags::EVENTFD, index, count: 4 })
        }
        Request::SetIrqs(_) => Reply::SetIrqs,
        Request::RegionRead(access) => {
            *data = match (access.region, access.offset) {
                (region::CONFIG, 9) => u64::from_le_bytes([2, 8, 1, 0, 0, 0, 0, 0]),
                (region::BAR0, at) if at == CAP as u64 => Cap::new(63, 1).0,
                _ => 0,
            }
            .to_le_bytes();
            let bytes: &'static [u8] = Box::leak(Box::new(*data));
            Reply::RegionRead(access, &bytes[..access.count as usize])
        }
        Request::RegionWrite(access, _) => Reply::RegionWrite(access),
        _ => panic!("{request:?}"),
    }
}

fn registers(index: u32) -> RegionInfo {
    let flags = region_flags::READ | region_flags::WRITE;
    RegionInfo { flags, index, size: 0x4000, ..RegionInfo::default() }
}

/// Connects to a server that does so, and returns why the driver gave up.
fn against(mut does: impl FnMut(&Request<'_>) -> Does + Send) -> Error {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || serve(listener.accept().unwrap().0, &mut does));
        let config = DriverConfig { timeout_ms: 300, pool_bytes: 1 << 20, ..DriverConfig::default() };
        Driver::connect(&path, config, TscClock::new()).err().expect("it is no controller that works")
    })
}

fn serve(mut socket: UnixStream, does: &mut dyn FnMut(&Request<'_>) -> Does) {
    let limits = Limits { descriptors: 8, ..Limits::default() };
    let mut connection = Connection::new(socket.try_clone().unwrap(), limits);
    let patience = || Duration::from_secs(5);
    while let Ok(Some(message)) = connection.receive(patience) {
        let Ok(request) = message.request() else { continue };
        let id = message.header.id;
        let answer = |reply: &Reply<'_>, descriptors: &[OwnedFd]| {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            send(&socket, id, Kind::Reply { error: None }, reply, &descriptors, patience)
        };
        // Who is not heard any more is told so by the next wait.
        let _ = match does(&request) {
            Does::Right => answer(&right(&request, &mut [0; 8]), &[]),
            Does::Says(reply, descriptors) => answer(&reply, &descriptors),
            Does::Refuses(errno) => {
                let kind = Kind::Reply { error: Some(errno) };
                send(&socket, id, kind, &message.header.command, &[], patience)
            }
            Does::Sends(bytes) => socket.write_all(&bytes),
            Does::Nothing => Ok(()),
            Does::Dies(bytes) => {
                let _ = socket.write_all(&bytes);
                return;
            }
        };
    }
}

fn header(id: u16, command: u16, size: u32) -> Vec<u8> {
    Header { id, command, size, kind: Kind::Reply { error: None } }.encode().to_vec()
}

#[test]
fn one_that_closes_or_dies_or_is_silent() {
    assert!(matches!(against(|_| Does::Dies(vec![])), Error::Closed));
    // Within a header; within what follows it; at every request.
    assert!(matches!(against(|_| Does::Dies(vec![1, 0, 1])), Error::Closed));
    assert!(matches!(against(|_| Does::Dies(header(1, 1, 100))), Error::Closed));
    for at in 0..14 {
        let mut seen = 0;
        let error = against(|_| {
            seen += 1;
            if seen > at { Does::Dies(vec![]) } else { Does::Right }
        });
        assert!(matches!(error, Error::Closed), "{at}: {error}");
    }
    let why = "connecting: no answer within 300 ms: another client may have the function";
    assert_eq!(against(|_| Does::Nothing).to_string(), why);
    let silent = against(|request| match request {
        Request::DeviceInfo { .. } => Does::Nothing,
        _ => Does::Right,
    });
    assert!(matches!(silent, Error::TimedOut { command: "device information", timeout_ms: 300 }), "{silent}");
    // One that says that it is there, and never becomes ready.
    let error = against(|_| Does::Right);
    assert!(matches!(error, Error::NotReady { wanted: "ready", .. }), "{error}");
}

#[test]
fn answers_that_are_none() {
    let wire = |error: Error| match error {
        Error::Wire(why) => why,
        other => panic!("{other}"),
    };
    let too_large = WireError::Size { size: u32::MAX, limit: (1 << 20) + 4096 };
    assert_eq!(wire(against(|_| Does::Sends(header(1, 1, u32::MAX)))), too_large);
    // Of another command, under another name, a command that no client takes, twice.
    assert_eq!(wire(against(|_| Does::Says(Reply::DeviceReset, vec![]))), WireError::Direction);
    assert_eq!(wire(against(|_| Does::Sends(header(77, 1, 16)))), WireError::Direction);
    assert!(matches!(
        wire(against(|_| Does::Says(
            Reply::Version(Version::default()),
            (0..9).map(|_| std::fs::File::open("/dev/null").unwrap().into()).collect()
        ))),
        WireError::Value { field: "descriptors", .. }
    ));
    // Data that are shorter than what was asked for.
    let short = against(|request| match request {
        Request::RegionRead(access) => {
            Does::Says(Reply::RegionRead(RegionAccess { count: 1, ..*access }, &[1]), vec![])
        }
        _ => Does::Right,
    });
    assert_eq!(wire(short), WireError::Short("data"));
    let refused = against(|request| match request {
        Request::DmaMap(_) => Does::Refuses(28),
        _ => Does::Right,
    });
    assert_eq!(refused.to_string(), "shared memory: No space left on device (os error 28)");
}

#[test]
fn what_is_no_controller_for_us() {
    let unsupported = |error: Error| match error {
        Error::Unsupported(why) => why,
        other => panic!("{other}"),
    };
    let version = |major, minor| {
        move |_: &Request<'_>| {
            Does::Says(Reply::Version(Version { major, minor, ..Version::default() }), vec![])
        }
    };
    assert_eq!(unsupported(against(version(1, 0))), "it speaks another version of vfio-user");
    assert_eq!(unsupported(against(version(0, 9))), "it speaks another version of vfio-user");
    let device = |flags, regions| {
        move |request: &Request<'_>| match request {
            Request::DeviceInfo { .. } => {
                Does::Says(Reply::DeviceInfo(DeviceInfo { flags, regions, irqs: 5 }), vec![])
            }
            _ => Does::Right,
        }
    };
    assert_eq!(unsupported(against(device(0, 9))), "it is no PCI device");
    assert_eq!(unsupported(against(device(device_flags::PCI, 3))), "it is no PCI device");
    let class = against(|request| match request {
        Request::RegionRead(access) => Does::Says(Reply::RegionRead(*access, &[0, 0, 2]), vec![]),
        _ => Does::Right,
    });
    assert_eq!(unsupported(class), "it is a PCI device, and no NVMe controller");
    for size in [0, 0x1000, 0x100f] {
        let few = against(|request| match request {
            Request::RegionInfo { index, .. } => {
                Does::Says(Reply::RegionInfo(RegionInfo { size, ..registers(*index) }), vec![])
            }
            _ => Does::Right,
        });
        assert_eq!(unsupported(few), "its registers are too few, or cannot be read and written");
    }
    let ones = against(|request| match request {
        Request::RegionRead(access) if access.region == region::BAR0 => {
            Does::Says(Reply::RegionRead(*access, &[0xff; 8][..access.count as usize]), vec![])
        }
        _ => Does::Right,
    });
    assert!(unsupported(ones).starts_with("its "));
}

/// Doorbells that cannot be mapped as they are offered are written by messages, and nothing else is lost.
#[test]
fn doorbells_that_are_not_there() {
    let offer = |areas: Vec<Area>, offset, descriptors: fn() -> Vec<OwnedFd>| {
        against(move |request| match request {
            Request::RegionInfo { index, .. } => {
                let flags = region_flags::READ | region_flags::WRITE | region_flags::MMAP;
                let info = RegionInfo { flags, offset, areas: areas.clone(), ..registers(*index) };
                Does::Says(Reply::RegionInfo(info.for_room(4096)), descriptors())
            }
            _ => Does::Right,
        })
    };
    let page = Area { offset: 0x1000, size: 0x1000 };
    let short = || {
        let region = Region::shared("short", 4096).unwrap();
        vec![region.fd().unwrap().try_clone_to_owned().unwrap()]
    };
    let goes_on = |error: Error| assert!(matches!(error, Error::NotReady { wanted: "ready", .. }), "{error}");
    goes_on(offer(vec![page], 0, Vec::new));
    goes_on(offer(vec![page], 0, short));
    goes_on(offer(vec![page], u64::MAX / 2, short));
    goes_on(offer(vec![], 0, Vec::new));
    goes_on(offer(vec![Area { offset: 0, size: 0x10 }], 0, short));
    goes_on(offer(vec![page, page], 0, short));
    goes_on(offer(vec![page], 0, || vec![std::fs::File::open("/dev/null").unwrap().into()]));
    // An area beyond its region is a lie, and the end.
    let error = offer(vec![Area { offset: 0x1000, size: u64::MAX / 2 }], 0, short);
    assert!(matches!(error, Error::Wire(WireError::Value { field: "area size", .. })), "{error}");
}
