//! Both ends of TLS with PSKs, against each other and against OpenSSL's own programs.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nearside_auth::{Hash, Psk, TlsKey};
use nearside_channel::{Channel, Find, HANDSHAKE, Tls, TlsError};
use nearside_tls::OpenSsl;

const HOST: &str = "nqn.2026-11.example:host";
const DISKS: &str = "nqn.2026-11.example:disks";

/// Two ends of a connection.
fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (host, listener.accept().unwrap().0)
}

/// As a host with a PSK.
fn host_end(socket: TcpStream, psk: Psk) -> Channel {
    socket.set_nonblocking(true).unwrap();
    let mut channel = Channel::plain(socket);
    channel.connect(&Tls::new(OpenSsl::default()), psk).unwrap();
    channel
}

fn controller_end(socket: TcpStream, find: &Find) -> Channel {
    socket.set_nonblocking(true).unwrap();
    let mut channel = Channel::plain(socket);
    channel.accept(&Tls::new(OpenSsl::default()), find).unwrap();
    channel
}

fn knowing(keys: &[&TlsKey]) -> Find {
    let keys: Vec<TlsKey> = keys.iter().map(|key| (*key).clone()).collect();
    Arc::new(move |identity| keys.iter().find_map(|key| key.answering(identity)))
}

/// Goes on until it is through.
fn through(channel: &mut Channel) -> Result<(), TlsError> {
    let until = Instant::now() + Duration::from_secs(20);
    while !channel.handshake()? {
        assert!(Instant::now() < until, "a handshake takes for ever");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

type Both = (Result<Channel, TlsError>, Result<Channel, TlsError>);

/// A host's end and a controller's, after their handshake.
fn both(psk: Psk, find: &Find) -> Both {
    let (host, controller) = sockets();
    thread::scope(|scope| {
        let host = scope.spawn(move || {
            let mut stream = host_end(host, psk);
            through(&mut stream).map(|()| stream)
        });
        let mut stream = controller_end(controller, find);
        let controller = through(&mut stream).map(|()| stream);
        // Whoever was refused is gone, which the other end has to see.
        (host.join().unwrap(), controller)
    })
}

fn keys() -> [TlsKey; 4] {
    let new = |hash, len| TlsKey::generate(hash, len).unwrap();
    [new(None, 32), new(Some(Hash::Sha256), 32), new(None, 48), new(Some(Hash::Sha384), 48)]
}

/// So many bytes through one end and out of the other, in pieces of all sizes.
fn carries(from: &mut Channel, to: &mut Channel, len: usize) {
    let sent: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
    let (mut at, mut got) = (0, Vec::new());
    let mut room = vec![0; 40_000];
    while got.len() < len {
        if at < len {
            let rest = &sent[at..len.min(at + 70_000)];
            let (one, two) = rest.split_at(rest.len() / 3);
            match from.write_vectored(&[io::IoSlice::new(one), io::IoSlice::new(two)]) {
                Ok(wrote) => at += wrote,
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
            }
        }
        let (one, two) = room.split_at_mut(5);
        match to.read_vectored(&mut [io::IoSliceMut::new(one), io::IoSliceMut::new(two)]) {
            Ok(read) => got.extend_from_slice(&room[..read]),
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
        }
    }
    assert!(got == sent);
}

#[test]
fn each_key_carries_bytes_in_both_directions() {
    let all = keys();
    let find = knowing(&all.iter().collect::<Vec<_>>());
    for key in &all {
        let psk = key.psk(HOST, DISKS);
        let (host, controller) = both(psk.clone(), &find);
        let (mut host, mut controller) = (host.unwrap(), controller.unwrap());
        assert_eq!(controller.identity(), Some(psk.identity.as_str()));
        carries(&mut host, &mut controller, 3 << 20);
        carries(&mut controller, &mut host, 3 << 20);
        host.finish();
        assert_eq!(controller.read(&mut [0; 8]).unwrap(), 0);
    }
}

#[test]
fn without_the_key_there_is_no_connection() {
    let [short, other, long, _] = keys();
    let refused = |psk: Psk, find: &Find| {
        let (host, controller) = both(psk, find);
        host.map(|_| ()).unwrap_err();
        controller.map(|_| ()).unwrap_err()
    };
    let unknown = refused(other.psk(HOST, DISKS), &knowing(&[&short, &long]));
    assert!(
        matches!(&unknown, TlsError::Unknown(named) if named.starts_with("NVMe1R01 nqn.2026")),
        "{unknown}"
    );
    // The right identity, and another secret: by SHA-256 and SHA-384.
    for key in [&short, &long] {
        let mut psk = key.psk(HOST, DISKS);
        psk.secret[7] ^= 1;
        let failed = refused(psk, &knowing(&[&short, &long]));
        assert!(matches!(&failed, TlsError::Failed(why) if why.contains("binder")), "{failed}");
    }
    // An identity of the other hash.
    let mut psk = short.psk(HOST, DISKS);
    psk.hash = Hash::Sha384;
    refused(psk, &knowing(&[&short]));
}

#[test]
fn what_is_no_handshake_is_refused_at_once() {
    let find = knowing(&[]);
    let hello = {
        let (host, mut controller) = sockets();
        let mut stream = host_end(host, keys()[0].psk(HOST, DISKS));
        assert!(!stream.handshake().unwrap());
        let mut bytes = vec![0; 4096];
        let len = controller.read(&mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    };
    assert_eq!(hello[0], HANDSHAKE);
    let ends = |bytes: &[u8]| {
        let (mut host, controller) = sockets();
        let mut stream = controller_end(controller, &find);
        host.write_all(bytes).unwrap();
        host.shutdown(std::net::Shutdown::Write).unwrap();
        through(&mut stream).unwrap_err()
    };
    assert!(matches!(ends(&[]), TlsError::Closed));
    assert!(matches!(ends(&hello[..20]), TlsError::Closed));
    assert!(matches!(ends(&[0; 128]), TlsError::Failed(_) | TlsError::NotOffered));
    // Each byte of a ClientHello as another: it ends, and nobody is let in.
    for at in 0..hello.len() {
        let mut bytes = hello.clone();
        bytes[at] ^= 0x11;
        ends(&bytes);
    }
}

/// A program of OpenSSL's; it ends with this.
struct Openssl(Child);

impl Drop for Openssl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn openssl(arguments: &[&str]) -> Openssl {
    let mut command = Command::new("openssl");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Openssl(command.spawn().expect("openssl"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// OpenSSL's client takes PSKs of SHA-256.
#[test]
fn a_stock_client_is_taken_with_the_key_and_only_with_it() {
    let key = TlsKey::generate(Some(Hash::Sha256), 32).unwrap();
    let psk = key.psk(HOST, DISKS);
    let with = |secret: &[u8]| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let arguments =
            ["s_client", "-connect", &at, "-tls1_3", "-quiet", "-psk_identity", &psk.identity, "-psk"];
        let mut client = openssl(&[&arguments[..], &[&hex(secret)]].concat());
        let socket = listener.accept().unwrap().0;
        let mut stream = controller_end(socket, &knowing(&[&key]));
        let done = through(&mut stream);
        if done.is_ok() {
            stream.write_all(b"hello\n").unwrap();
            let mut line = String::new();
            BufReader::new(client.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "hello\n");
        }
        done
    };
    with(&psk.secret).unwrap();
    with(&[7; 32]).unwrap_err();
}

/// A server that has the PSK, and one that shows a certificate in its place.
#[test]
fn a_stock_server_has_to_have_the_key() {
    let folder = std::env::temp_dir().join(format!("nearside-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (cert, key_file) = (folder.join("cert.pem"), folder.join("key.pem"));
    let (cert, key_file) = (cert.to_str().unwrap(), key_file.to_str().unwrap());
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-keyout", key_file, "-out", cert])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let psk = TlsKey::generate(None, 32).unwrap().psk(HOST, DISKS);
    let with = |arguments: &[&str]| {
        // Found free just now; the server binds it again at once.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = format!("127.0.0.1:{port}");
        let server = openssl(&[&["s_server", "-accept", &at, "-tls1_3", "-quiet"][..], arguments].concat());
        let until = Instant::now() + Duration::from_secs(20);
        let socket = loop {
            match TcpStream::connect(&at) {
                Ok(socket) => break socket,
                Err(e) => assert!(Instant::now() < until, "{e}"),
            }
            thread::sleep(Duration::from_millis(10));
        };
        let mut stream = host_end(socket, psk.clone());
        let done = through(&mut stream);
        drop(server);
        done
    };
    let secret = hex(&psk.secret);
    with(&["-nocert", "-psk_identity", &psk.identity, "-psk", &secret]).unwrap();
    with(&["-nocert", "-psk_identity", &psk.identity, "-psk", &hex(&[7; 32])]).unwrap_err();
    let by_certificate = with(&["-cert", cert, "-key", key_file]).unwrap_err();
    assert!(matches!(by_certificate, TlsError::Failed(_)), "{by_certificate}");
    std::fs::remove_dir_all(&folder).unwrap();
}
