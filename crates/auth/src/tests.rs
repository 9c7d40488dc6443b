//! Both ends against each other, and each against an end that does not keep to the rules.

use std::sync::Arc;

use nearside_spec::fabrics::authentication::{COMMON, Challenge, Failure, Reply, id};

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
