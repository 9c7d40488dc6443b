//! Both ends against each other, and each against an end that does not keep to the rules.

use std::sync::Arc;

use nearside_spec::fabrics::authentication::{COMMON, Challenge, Failure, Reply, id};

use super::response::{Asked, Names};
use super::*;

const HOST: &str = "nqn.2026-11.dev.nearside:host";
const SUBSYSTEM: &str = "nqn.2026-11.dev.nearside:disk";

fn key() -> Key {
    Key::generate(Some(Hash::Sha384), 48).unwrap()
}

/// A controller's end, what it knows, and the host's keys.
fn ends(hash: Hash, group: Group, both: bool) -> (Authenticator, Arc<Credentials>, Keys) {
    let keys = Keys { host: key(), controller: both.then(key) };
    let known = Credentials {
        host: keys.host.clone(),
        controller: keys.controller.clone(),
        hashes: vec![hash],
        groups: vec![group],
    };
    (Authenticator::new(HOST, SUBSYSTEM), Arc::new(known), keys)
}

fn fetched(controller: &mut Authenticator) -> (Vec<u8>, Option<Outcome>) {
    match controller.fetch() {
        Fetched::Message(message, outcome) => (message, outcome),
        Fetched::Later => panic!("work is not done"),
    }
}

/// The controller takes a message, and does the work of it.
fn say(controller: &mut Authenticator, known: &Arc<Credentials>, message: &[u8]) -> Option<Outcome> {
    let (work, outcome) = controller.take(message, || Some(known.clone()));
    if let Some(work) = work {
        assert_eq!(controller.fetch(), Fetched::Later);
        controller.done(work.run());
    }
    outcome
}

fn fails(controller: &mut Authenticator, why: Explanation) {
    let (message, outcome) = fetched(controller);
    assert_eq!(outcome, Some(Outcome::Failed(why)));
    let failure = Failure::from_bytes(&message);
    assert_eq!((failure.kind(), failure.id(), failure.explanation()), (COMMON, id::FAILURE1, why.0));
    assert!(!controller.is_underway());
}

#[test]
fn both_ends_agree_with_every_hash_and_group() {
    for (group, both) in Group::ALL.into_iter().flat_map(|group| [(group, false), (group, true)]) {
        for hash in Hash::ALL {
            let (mut controller, known, keys) = ends(hash, group, both);
            let mut exchange = Exchange::new(&keys, HOST, SUBSYSTEM).unwrap();
            assert_eq!(say(&mut controller, &known, &exchange.negotiate()), None);
            let (challenge, none) = fetched(&mut controller);
            assert_eq!(none, None);
            assert!(challenge.len() <= ROOM);
            assert_eq!(say(&mut controller, &known, &exchange.reply(&challenge).unwrap()), None);
            let (success, outcome) = fetched(&mut controller);
            // A proof that is left out is none, right as it may be.
            let silent = [&success[..8], &[0], &success[9..]].concat();
            assert_eq!(exchange.finish(&silent).is_err(), both);
            let last = exchange.finish(&success).unwrap();
            let outcome = match last {
                Some(last) => say(&mut controller, &known, &last),
                None => outcome,
            };
            assert_eq!(outcome, Some(Outcome::Authenticated), "{hash:?} {group:?} {both}");
            assert!(!controller.is_underway());
            if (hash, group) != (Hash::Sha256, Group::Ffdhe2048) && group != Group::Null {
                break;
            }
        }
    }
}

/// What the Linux kernel answers, by its formula (`nvme_auth_dhchap_setup_host_response` and its like, in
/// drivers/nvme/host/auth.c), worked out with Python's hmac. The host's key is the bytes 0 to 31; the
/// controller's has a hash of its own.
#[test]
fn responses_are_the_kernels() {
    let (host, controller): (Key, Key) = (
        "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:".parse().unwrap(),
        "DHHC-1:01:1HvY5uO7ldsWiWNEUXqoWR4FruGUqlIBSSlz/tAiz7H9gb+v:".parse().unwrap(),
    );
    let name = |of: &str| format!("nqn.2026-11.example:{of}");
    let names = Names { host: name("host"), subsystem: name("disk") };
    let (secret, challenge): (Vec<u8>, Vec<u8>) = ((0..=255).collect(), (100..164).collect());
    for (hash, shared, expected) in [
        (
            Hash::Sha256,
            &secret[..],
            [
                "b1de93cbba8acea443ecbc35db20764d52b856fe48ad7ee42b172f85e044035c",
                "3e5bb0ffb4898ecb231f7f6d599791ca541367e23fc22ea31d146cb68e5ae0db",
            ],
        ),
        (
            Hash::Sha512,
            &[],
            [
                "739955aa5ffbbe76728c11dc7006d9ed4171ab4d4bebc59bd70a73ad9c23ece3\
                 07d0c38884b44e85f383a4ff7fd88c83bd1184c3160808eeda20ab970914dee8",
                "554be0b29ec9b97e69b2b9cad6e91f7034c96e1cb7ffe846e564b27c9ff68065\
                 5a82f8827790476591c22616097e8e203b6051a31b2c0ea8de7ebc8ec77a3bd6",
            ],
        ),
    ] {
        let challenge = &challenge[..hash.bytes()];
        let asked = Asked { hash, shared, challenge, seqnum: 0x0102_0304, t_id: 0x0506, sc_c: 0 };
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let said = [asked.of_host(&host, &names), asked.of_controller(&controller, &names)];
        assert_eq!(said.map(|said| hex(&said)), expected, "{hash:?}");
    }
}

/// Both ends generate the same PSK where the host asks for a secure channel, another each time, and none
/// where it does not; nor is one generated where the controller has no such channel.
#[test]
fn a_secure_channel_has_a_psk_of_its_own() {
    let mut all = Vec::new();
    for (hash, both) in [(Hash::Sha256, false), (Hash::Sha384, true), (Hash::Sha256, true)] {
        for concatenates in [true, false] {
            let (controller, known, keys) = ends(hash, Group::Ffdhe2048, both);
            let mut controller = controller.concatenating(true);
            let exchange = Exchange::new(&keys, HOST, SUBSYSTEM).unwrap();
            let mut exchange = if concatenates { exchange.concatenating() } else { exchange };
            say(&mut controller, &known, &exchange.negotiate());
            let challenge = fetched(&mut controller).0;
            say(&mut controller, &known, &exchange.reply(&challenge).unwrap());
            assert!(controller.generated().is_none(), "before it is told that it is well");
            let (success, _) = fetched(&mut controller);
            if let Some(last) = exchange.finish(&success).unwrap() {
                assert!(controller.generated().is_none(), "before the host has had its proof");
                assert_eq!(say(&mut controller, &known, &last), Some(Outcome::Authenticated));
            }
            let (ours, theirs) = (exchange.generated(), controller.generated());
            assert_eq!((ours.is_some(), theirs.is_some()), (concatenates, concatenates));
            let Some((ours, theirs)) = ours.zip(theirs) else { continue };
            assert_eq!((&ours.identity, &ours.secret), (&theirs.identity, &theirs.secret));
            let identity = Identity::parse(&ours.identity).unwrap();
            assert_eq!((identity.host, identity.subsystem, identity.hash()), (HOST, SUBSYSTEM, hash));
            assert!(identity.is_generated() && ours.secret.len() == hash.bytes());
            all.push(ours.secret.to_vec());
        }
    }
    assert!(all.len() == 3 && all[0] != all[2]);
    // SHA-512 is no hash of TLS, and without an exchange there is no secret.
    for (hash, group, why) in [
        (Hash::Sha512, Group::Ffdhe2048, Explanation::HASH_NOT_USABLE),
        (Hash::Sha256, Group::Null, Explanation::GROUP_NOT_USABLE),
    ] {
        let (controller, known, keys) = ends(hash, group, false);
        let mut controller = controller.concatenating(true);
        let exchange = Exchange::new(&keys, HOST, SUBSYSTEM).unwrap().concatenating();
        say(&mut controller, &known, &exchange.negotiate());
        fails(&mut controller, why);
    }
    let (mut controller, known, keys) = ends(Hash::Sha256, Group::Ffdhe2048, false);
    let exchange = Exchange::new(&keys, HOST, SUBSYSTEM).unwrap().concatenating();
    say(&mut controller, &known, &exchange.negotiate());
    fails(&mut controller, Explanation::CONCATENATION_MISMATCH);
}

/// Neither end asks the same twice, by its random bytes or by its number.
#[test]
fn nothing_is_asked_twice() {
    let (_, known, keys) = ends(Hash::Sha256, Group::Null, true);
    let asked = || {
        let (mut controller, mut exchange) =
            (controller_of(), Exchange::new(&keys, HOST, SUBSYSTEM).unwrap());
        say(&mut controller, &known, &exchange.negotiate());
        let challenge = fetched(&mut controller).0;
        let reply = exchange.reply(&challenge).unwrap();
        let of_host = Reply::SIZE + 32;
        [&challenge[Challenge::SIZE..][..32], &challenge[12..16], &reply[of_host..][..32], &reply[12..16]]
            .map(<[u8]>::to_vec)
    };
    let (first, second) = (asked(), asked());
    assert!(first.iter().zip(&second).all(|(first, second)| first != second), "{first:?}, {second:?}");
}

/// Up to the reply of the host.
fn replied(controller: &mut Authenticator, known: &Arc<Credentials>, keys: &Keys) -> Vec<u8> {
    let mut exchange = Exchange::new(keys, HOST, SUBSYSTEM).unwrap();
    say(controller, known, &exchange.negotiate());
    exchange.reply(&fetched(controller).0).unwrap()
}

#[test]
fn another_key_or_name_and_a_replay_fail() {
    let (mut controller, known, keys) = ends(Hash::Sha256, Group::Null, true);
    let reply = replied(&mut controller, &known, &Keys { host: key(), ..keys.clone() });
    say(&mut controller, &known, &reply);
    fails(&mut controller, Explanation::FAILED);
    // The right reply to one challenge is none to the next, in the same transaction.
    let reply = replied(&mut controller, &known, &keys);
    say(&mut controller, &known, &reply);
    assert_eq!(fetched(&mut controller).1, None);
    let mut again = Authenticator::new(HOST, SUBSYSTEM);
    let mut exchange = Exchange::new(&keys, HOST, SUBSYSTEM).unwrap();
    let mut negotiate = exchange.negotiate();
    negotiate[4..6].copy_from_slice(&reply[4..6]);
    say(&mut again, &known, &negotiate);
    assert_eq!(fetched(&mut again).1, None);
    say(&mut again, &known, &reply);
    fails(&mut again, Explanation::FAILED);
    // Another host's proof is not this one's.
    let mut other = Authenticator::new("nqn.2026-11.dev.nearside:other", SUBSYSTEM);
    say(&mut other, &known, &exchange.negotiate());
    let reply = exchange.reply(&fetched(&mut other).0).unwrap();
    say(&mut other, &known, &reply);
    fails(&mut other, Explanation::FAILED);
    // Nobody's key: nothing begins.
    let mut nobody = Authenticator::new(HOST, SUBSYSTEM);
    assert!(nobody.take(&exchange.negotiate(), || None).0.is_none());
    fails(&mut nobody, Explanation::FAILED);
    // The controller has no key, and is asked for a proof.
    let known = Arc::new(Credentials { controller: None, ..(*known).clone() });
    let reply = replied(&mut controller_of(), &known, &keys);
    let mut controller = controller_of();
    say(&mut controller, &known, &reply);
    fails(&mut controller, Explanation::INCORRECT_MESSAGE);
    let reply = replied(&mut controller, &known, &keys);
    say(&mut controller, &known, &reply);
    fails(&mut controller, Explanation::FAILED);
}

fn controller_of() -> Authenticator {
    Authenticator::new(HOST, SUBSYSTEM)
}

#[test]
fn a_controller_that_proves_nothing_is_refused() {
    let (mut controller, known, keys) = ends(Hash::Sha512, Group::Null, true);
    let known = Arc::new(Credentials { controller: Some(key()), ..(*known).clone() });
    let mut exchange = Exchange::new(&keys, HOST, SUBSYSTEM).unwrap();
    say(&mut controller, &known, &exchange.negotiate());
    let (challenge, _) = fetched(&mut controller);
    for (at, value, why) in [
        (0, 9, Explanation::INCORRECT_MESSAGE),
        (1, 3, Explanation::INCORRECT_MESSAGE),
        (4, challenge[4] ^ 1, Explanation::INCORRECT_PAYLOAD),
        (6, 32, Explanation::INCORRECT_PAYLOAD),
        (8, 9, Explanation::HASH_NOT_USABLE),
        (9, 9, Explanation::GROUP_NOT_USABLE),
        (9, 1, Explanation::INCORRECT_PAYLOAD),
        (10, 255, Explanation::INCORRECT_PAYLOAD),
    ] {
        let mut changed = challenge.clone();
        changed[at] = value;
        let refused = exchange.reply(&changed).unwrap_err();
        assert_eq!(refused.why(), why, "byte {at}");
        let Refused::ByHost(_, message) = refused else { panic!("{refused:?}") };
        assert_eq!((message[1], message[7]), (id::FAILURE2, why.0));
    }
    for len in 0..Challenge::SIZE + 64 {
        assert!(exchange.reply(&challenge[..len]).is_err(), "{len} bytes");
    }
    let reply = exchange.reply(&challenge).unwrap();
    say(&mut controller, &known, &reply);
    let (success, _) = fetched(&mut controller);
    let refused = exchange.finish(&success).unwrap_err();
    assert_eq!(refused.why(), Explanation::FAILED);
    assert!(exchange.finish(&success[..20]).is_err() && exchange.finish(&[]).is_err());
    let Refused::ByHost(_, message) = refused else { panic!("{refused:?}") };
    assert_eq!(say(&mut controller, &known, &message), Some(Outcome::Failed(Explanation::FAILED)));
    let failure = Failure::new(id::FAILURE1, 0, Explanation::HASH_NOT_USABLE);
    let told = exchange.finish(&failure.0).unwrap_err();
    assert!(matches!(told, Refused::ByController(Explanation::HASH_NOT_USABLE)), "{told:?}");
}

#[test]
fn what_a_host_offers_has_to_be_usable() {
    let (_, known, keys) = ends(Hash::Sha512, Group::Ffdhe3072, false);
    let negotiate = Exchange::new(&keys, HOST, SUBSYSTEM).unwrap().negotiate();
    for (changes, why) in [
        (&[(6, 1)][..], Explanation::CONCATENATION_MISMATCH),
        (&[(7, 0)], Explanation::INCORRECT_PAYLOAD),
        (&[(7, 2)], Explanation::INCORRECT_PAYLOAD),
        (&[(8, 2)], Explanation::NOT_USABLE),
        (&[(10, 31)], Explanation::INCORRECT_PAYLOAD),
        (&[(11, 255)], Explanation::INCORRECT_PAYLOAD),
        (&[(10, 0)], Explanation::INCORRECT_PAYLOAD),
        (&[(10, 2)], Explanation::HASH_NOT_USABLE),
        (&[(11, 1)], Explanation::GROUP_NOT_USABLE),
        (&[(0, 1)], Explanation::INCORRECT_MESSAGE),
        (&[(1, 2)], Explanation::INCORRECT_MESSAGE),
        (&[(1, 0xf0)], Explanation::INCORRECT_MESSAGE),
    ] {
        let mut changed = negotiate.clone();
        changes.iter().for_each(|(at, value)| changed[*at] = *value);
        let mut controller = controller_of();
        say(&mut controller, &known, &changed);
        fails(&mut controller, why);
    }
    for len in 0..negotiate.len() {
        let mut controller = controller_of();
        say(&mut controller, &known, &negotiate[..len]);
        fails(&mut controller, Explanation::INCORRECT_PAYLOAD);
    }
}

#[test]
fn what_comes_out_of_turn_ends_the_exchange() {
    let (mut controller, known, keys) = ends(Hash::Sha256, Group::Ffdhe2048, true);
    let exchange = Exchange::new(&keys, HOST, SUBSYSTEM).unwrap();
    // Nothing was begun, and a challenge cannot be fetched twice.
    fails(&mut controller, Explanation::INCORRECT_MESSAGE);
    say(&mut controller, &known, &exchange.negotiate());
    fetched(&mut controller);
    fails(&mut controller, Explanation::INCORRECT_MESSAGE);
    // A second Negotiate in an exchange; one before the challenge was fetched.
    say(&mut controller, &known, &exchange.negotiate());
    say(&mut controller, &known, &exchange.negotiate());
    fails(&mut controller, Explanation::INCORRECT_MESSAGE);
    let reply = replied(&mut controller, &known, &keys);
    let group = Group::Ffdhe2048.len();
    for (at, flip, why) in [
        (4, 1, Explanation::INCORRECT_PAYLOAD),
        (6, 16, Explanation::INCORRECT_PAYLOAD),
        (11, 0xfe, Explanation::INCORRECT_PAYLOAD),
        (11, 1, Explanation::INCORRECT_PAYLOAD),
        (1, id::REPLY ^ id::SUCCESS2, Explanation::INCORRECT_MESSAGE),
        (Reply::SIZE, 1, Explanation::FAILED),
        (Reply::SIZE + 64 + group - 1, 1, Explanation::FAILED),
    ] {
        let mut controller = controller_of();
        let mut changed = replied(&mut controller, &known, &keys);
        changed[at] ^= flip;
        say(&mut controller, &known, &changed);
        fails(&mut controller, why);
    }
    for len in [0, 5, 6, 15, 16, 47, 80, reply.len() - 1] {
        let mut controller = controller_of();
        let reply = replied(&mut controller, &known, &keys);
        say(&mut controller, &known, &reply[..len]);
        fails(&mut controller, Explanation::INCORRECT_PAYLOAD);
    }
}
