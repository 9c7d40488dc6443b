//! The host's end of an exchange. The controller is not trusted: a message that is not the expected one, is
//! too short or asks for what was not offered ends it.

use nearside_spec::fabrics::authentication::{
    COMMON, Challenge, DHCHAP, Descriptor, Explanation, Failure, Head, LISTED, Negotiate, PROTOCOL, Reply,
    Success1, Success2, channel, id,
};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::response::{Asked, Names};
use crate::{Group, Hash, Key, Psk};

/// What a host proves itself by, and what it wants proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The host's key.
    pub host: Key,
    /// The subsystem's; without it, the subsystem need not prove itself.
    pub controller: Option<Key>,
}

/// Room that every message of a controller has.
pub const ROOM: usize = 4096;

/// Why an exchange has failed.
#[derive(Debug)]
pub enum Refused {
    /// The controller says so.
    ByController(Explanation),
    /// The host says so: this message tells the controller.
    ByHost(Explanation, Vec<u8>),
}

impl Refused {
    /// The reason.
    pub fn why(&self) -> Explanation {
        match self {
            Refused::ByController(why) | Refused::ByHost(why, _) => *why,
        }
    }
}

/// A host's exchange on a queue.
pub struct Exchange<'a> {
    keys: &'a Keys,
    names: Names,
    t_id: u16,
    /// Of the challenge that the controller got: how it has to be answered, and that.
    expected: Option<Zeroizing<Vec<u8>>>,
    hash: Hash,
    /// The secure channel that it asks for.
    sc_c: u8,
    /// The PSK for it, once both ends have what it is made of.
    generated: Option<Psk>,
}

impl<'a> Exchange<'a> {
    /// Between a host and a subsystem.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(keys: &'a Keys, host: &str, subsystem: &str) -> std::io::Result<Exchange<'a>> {
        let t_id = crate::seqnum()? as u16;
        let names = Names { host: host.to_owned(), subsystem: subsystem.to_owned() };
        let (hash, sc_c) = (Hash::Sha256, channel::NONE);
        Ok(Exchange { keys, names, t_id, expected: None, hash, sc_c, generated: None })
    }

    /// It asks for a secure channel as well, for which it generates a PSK.
    #[must_use]
    pub fn concatenating(self) -> Exchange<'a> {
        Exchange { sc_c: channel::NEW_TLS_PSK, ..self }
    }

    /// That PSK, once [`Exchange::finish`] was well.
    pub fn generated(&mut self) -> Option<Psk> {
        self.generated.take()
    }

    /// The first message: all that there is, is offered.
    pub fn negotiate(&self) -> Vec<u8> {
        let mut head = Negotiate::default();
        head.set_kind(COMMON).set_id(id::NEGOTIATE).set_t_id(self.t_id).set_sc_c(self.sc_c).set_napd(1);
        let (mut hashes, mut groups) = ([0; LISTED], [0; LISTED]);
        let (all, of) = (Hash::ALL.into_iter(), Group::ALL.into_iter());
        let known: Vec<u8> = all.filter(|hash| self.may_use(*hash)).map(Hash::id).collect();
        let exchanged: Vec<u8> = of.filter(|group| self.may_exchange(*group)).map(Group::id).collect();
        hashes[..known.len()].copy_from_slice(&known);
        groups[..exchanged.len()].copy_from_slice(&exchanged);
        let mut descriptor = Descriptor::default();
        descriptor.set_authid(PROTOCOL).set_halen(known.len() as u8).set_dhlen(exchanged.len() as u8);
        descriptor.set_hashes(hashes).set_groups(groups);
        [&head.0[..], &descriptor.0].concat()
    }

    /// A secure channel needs a hash that TLS has, and an exchange.
    fn may_use(&self, hash: Hash) -> bool {
        self.sc_c == channel::NONE || hash != Hash::Sha512
    }

    fn may_exchange(&self, group: Group) -> bool {
        self.sc_c == channel::NONE || group != Group::Null
    }

    fn refuse(&self, why: Explanation) -> Refused {
        Refused::ByHost(why, Failure::new(id::FAILURE2, self.t_id, why).0.to_vec())
    }

    /// Whether a message is the one that is expected.
    fn expect(&self, message: &[u8], kind: u8, size: usize) -> Result<(), Refused> {
        let head = Head::from_bytes(message);
        if (head.kind(), head.id()) == (COMMON, id::FAILURE1) {
            return Err(Refused::ByController(Explanation(Failure::from_bytes(message).explanation())));
        }
        if (head.kind(), head.id()) != (DHCHAP, kind) {
            return Err(self.refuse(Explanation::INCORRECT_MESSAGE));
        }
        if message.len() < size || head.t_id() != self.t_id {
            return Err(self.refuse(Explanation::INCORRECT_PAYLOAD));
        }
        Ok(())
    }

    /// Answers the challenge.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn reply(&mut self, message: &[u8]) -> Result<Vec<u8>, Refused> {
        self.expect(message, id::CHALLENGE, Challenge::SIZE)?;
        let head = Challenge::from_bytes(message);
        let hash = Hash::of_id(head.hash()).ok_or_else(|| self.refuse(Explanation::HASH_NOT_USABLE))?;
        let group = Group::of_id(head.group()).ok_or_else(|| self.refuse(Explanation::GROUP_NOT_USABLE))?;
        if !self.may_use(hash) || !self.may_exchange(group) {
            return Err(self.refuse(Explanation::CONCATENATION_MISMATCH));
        }
        let len = hash.bytes();
        let rest = message.get(Challenge::SIZE..).unwrap_or(&[]);
        let parts = rest.split_at_checked(len).filter(|_| usize::from(head.hl()) == len);
        let dhvlen = usize::from(head.dhvlen());
        let parts = parts.and_then(|(asked, rest)| Some((asked, rest.get(..dhvlen)?)));
        let parts = parts.filter(|_| dhvlen == group.len());
        let (asked, theirs) = parts.ok_or_else(|| self.refuse(Explanation::INCORRECT_PAYLOAD))?;
        let unlucky = |_| self.refuse(Explanation::FAILED);
        let (secret, public) = group.secret().map_err(unlucky)?;
        let shared = secret.shared(theirs).ok_or_else(|| self.refuse(Explanation::INCORRECT_PAYLOAD))?;
        let (t_id, sc_c) = (self.t_id, self.sc_c);
        let own = Asked { hash, shared: &shared, challenge: asked, seqnum: head.seqnum(), t_id, sc_c };
        let response = own.of_host(&self.keys.host, &self.names);
        let mut challenge = Zeroizing::new(vec![0; len]);
        let mut head = Reply::default();
        head.set_kind(DHCHAP)
            .set_id(id::REPLY)
            .set_t_id(t_id)
            .set_hl(len as u8)
            .set_dhvlen(public.len() as u16);
        let (mut expected, concatenates) = (None, sc_c != channel::NONE);
        if concatenates || self.keys.controller.is_some() {
            getrandom::fill(&mut challenge).map_err(unlucky)?;
            // Without a proof that is asked for, its number is zero.
            head.set_cvalid(1);
        }
        if let Some(key) = &self.keys.controller {
            let seqnum = crate::seqnum().map_err(|_| self.refuse(Explanation::FAILED))?;
            head.set_seqnum(seqnum);
            let theirs = Asked { hash, shared: &shared, challenge: &challenge, seqnum, t_id, sc_c };
            expected = Some(theirs.of_controller(key, &self.names));
        }
        let challenges = [asked, &challenge[..]];
        self.generated = concatenates.then(|| Psk::generated(hash, &shared, challenges, &self.names));
        (self.expected, self.hash) = (expected, hash);
        Ok([&head.0[..], &response, &challenge, &public].concat())
    }

    /// Takes what the controller says of the reply. The last message to it, where there is one.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn finish(&self, message: &[u8]) -> Result<Option<Vec<u8>>, Refused> {
        self.expect(message, id::SUCCESS1, Success1::SIZE)?;
        let head = Success1::from_bytes(message);
        if usize::from(head.hl()) != self.hash.bytes() {
            return Err(self.refuse(Explanation::INCORRECT_PAYLOAD));
        }
        let Some(expected) = &self.expected else { return Ok(None) };
        let response = message.get(Success1::SIZE..).and_then(|rest| rest.get(..self.hash.bytes()));
        // One that says nothing of itself has proved nothing.
        let response =
            response.filter(|_| head.rvalid() & 1 == 1).ok_or_else(|| self.refuse(Explanation::FAILED))?;
        if !bool::from(expected.ct_eq(response)) {
            return Err(self.refuse(Explanation::FAILED));
        }
        let mut done = Success2::default();
        done.set_kind(DHCHAP).set_id(id::SUCCESS2).set_t_id(self.t_id);
        Ok(Some(done.0.to_vec()))
    }
}
