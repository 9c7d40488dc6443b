//! The controller's end of an exchange.
//!
//! [`Authenticator::take`] reads a message of the host; what takes time (exponentials) is [`Work`], which
//! another thread does and [`Authenticator::done`] takes; [`Authenticator::fetch`] is the controller's next
//! message. Nothing of the host is trusted: what comes out of turn, is too short or does not fit the
//! transaction ends it.

use std::sync::Arc;

use nearside_spec::fabrics::authentication::{
    COMMON, Challenge, DHCHAP, Descriptor, Explanation, Failure, Head, LISTED, Negotiate, PROTOCOL, Reply,
    Success1, Success2, channel, id,
};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::group::Secret;
use crate::response::{Asked, Names};
use crate::{Group, Hash, Key, Psk};

/// What a host has to prove, and what it may have proved to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The host's key.
    pub host: Key,
    /// The subsystem's, where hosts may ask for a proof of it.
    pub controller: Option<Key>,
    /// Hash functions that may be used, the most wanted first.
    pub hashes: Vec<Hash>,
    /// And groups.
    pub groups: Vec<Group>,
}

/// What has come of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The host is who it says.
    Authenticated,
    /// It is not, or an end has broken the rules; nothing more is to be said.
    Failed(Explanation),
}

/// What the host may fetch.
#[derive(Debug, PartialEq, Eq)]
pub enum Fetched {
    /// Work is not done yet.
    Later,
    /// A message, and what has come of the exchange with it.
    Message(Vec<u8>, Option<Outcome>),
}

/// Where an exchange stands.
enum Step {
    /// None is under way.
    Idle,
    /// Its work is being done.
    Working,
    /// The challenge may be fetched; then the reply is waited for.
    Challenge(Vec<u8>, Box<Challenged>),
    /// The reply is waited for.
    Reply(Box<Challenged>),
    /// The host has proved itself; this may be fetched. Whether it has more to say, and the PSK for a secure
    /// channel.
    Success(Vec<u8>, bool, Option<Psk>),
    /// The host is to say whether the controller has proved itself.
    Verdict(Option<Psk>),
    /// A failure may be fetched.
    Failed(Explanation),
}

/// What is remembered of a challenge.
struct Challenged {
    credentials: Arc<Credentials>,
    names: Names,
    t_id: u16,
    hash: Hash,
    secret: Secret,
    challenge: Zeroizing<Vec<u8>>,
    seqnum: u32,
    sc_c: u8,
}

/// What takes time: at most a few exponentials.
pub struct Work(Todo);

enum Todo {
    Challenge { credentials: Arc<Credentials>, names: Names, t_id: u16, hash: Hash, group: Group, sc_c: u8 },
    Verify(Box<Challenged>, Zeroizing<Vec<u8>>),
}

/// What came of it.
pub struct Done(Step);

/// The controller's end, for a queue. Exchanges follow each other on it.
pub struct Authenticator {
    names: Names,
    t_id: u16,
    step: Step,
    /// A secure channel may be asked for.
    concatenates: bool,
    /// What the last exchange generated for it.
    generated: Option<Psk>,
}

impl Authenticator {
    /// Between a host and a subsystem.
    pub fn new(host: &str, subsystem: &str) -> Authenticator {
        let names = Names { host: host.to_owned(), subsystem: subsystem.to_owned() };
        Authenticator { names, t_id: 0, step: Step::Idle, concatenates: false, generated: None }
    }

    /// Hosts may ask for a secure channel, for which an exchange then generates a PSK.
    #[must_use]
    pub fn concatenating(self, concatenates: bool) -> Authenticator {
        Authenticator { concatenates, ..self }
    }

    /// The PSK that an exchange has generated, where its host asked for a secure channel.
    pub fn generated(&mut self) -> Option<Psk> {
        self.generated.take()
    }

    /// Whether an exchange is under way.
    pub fn is_underway(&self) -> bool {
        !matches!(self.step, Step::Idle)
    }

    /// Takes a message of the host: work that is to be done before the next may be fetched, or what has come
    /// of the exchange. `credentials` are for an exchange that begins now; without any, it fails.
    pub fn take(
        &mut self,
        message: &[u8],
        credentials: impl FnOnce() -> Option<Arc<Credentials>>,
    ) -> (Option<Work>, Option<Outcome>) {
        let head = Head::from_bytes(message);
        let step = std::mem::replace(&mut self.step, Step::Idle);
        let failed = match (head.kind(), head.id(), step) {
            _ if message.len() < Head::SIZE => Explanation::INCORRECT_PAYLOAD,
            (COMMON, id::NEGOTIATE, Step::Idle) => {
                self.t_id = head.t_id();
                match self.negotiate(message, credentials()) {
                    Ok(work) => {
                        self.step = Step::Working;
                        return (Some(work), None);
                    }
                    Err(why) => why,
                }
            }
            (.., Step::Idle) => {
                self.t_id = head.t_id();
                Explanation::INCORRECT_MESSAGE
            }
            _ if head.t_id() != self.t_id => Explanation::INCORRECT_PAYLOAD,
            (DHCHAP, id::REPLY, Step::Reply(challenged)) => {
                self.step = Step::Working;
                return (Some(Work(Todo::Verify(challenged, Zeroizing::new(message.to_vec())))), None);
            }
            (DHCHAP, id::SUCCESS2, Step::Verdict(psk)) if message.len() >= Success2::SIZE => {
                self.generated = psk;
                return (None, Some(Outcome::Authenticated));
            }
            (COMMON, id::FAILURE2, Step::Reply(_) | Step::Verdict(_)) => {
                return (
                    None,
                    Some(Outcome::Failed(Explanation(Failure::from_bytes(message).explanation()))),
                );
            }
            (DHCHAP, id::SUCCESS2, Step::Verdict(_)) => Explanation::INCORRECT_PAYLOAD,
            // What failed stays so.
            (.., Step::Failed(why)) => why,
            _ => Explanation::INCORRECT_MESSAGE,
        };
        self.step = Step::Failed(failed);
        (None, None)
    }

    /// The exchange fails, whatever the host has said.
    pub fn refuse(&mut self) {
        self.step = Step::Failed(Explanation::FAILED);
    }

    fn negotiate(&self, message: &[u8], credentials: Option<Arc<Credentials>>) -> Result<Work, Explanation> {
        let credentials = credentials.ok_or(Explanation::FAILED)?;
        let head = Negotiate::from_bytes(message);
        let descriptors = message.get(Negotiate::SIZE..).unwrap_or(&[]);
        let Some(descriptors) = descriptors.get(..usize::from(head.napd()) * Descriptor::SIZE) else {
            return Err(Explanation::INCORRECT_PAYLOAD);
        };
        if message.len() < Negotiate::SIZE || head.napd() == 0 {
            return Err(Explanation::INCORRECT_PAYLOAD);
        }
        let sc_c = head.sc_c();
        let concatenates = match sc_c {
            channel::NONE => false,
            channel::NEW_TLS_PSK | channel::REPLACE_TLS_PSK if self.concatenates => true,
            _ => return Err(Explanation::CONCATENATION_MISMATCH),
        };
        let descriptor = descriptors.chunks_exact(Descriptor::SIZE).map(Descriptor::from_bytes);
        let descriptor =
            descriptor.into_iter().find(|d| d.authid() == PROTOCOL).ok_or(Explanation::NOT_USABLE)?;
        let (hashes, groups) = (descriptor.hashes(), descriptor.groups());
        let listed = |len: u8, of| {
            let len = usize::from(len);
            if (1..=LISTED).contains(&len) { Ok(&<[u8; LISTED]>::as_slice(of)[..len]) } else { Err(()) }
        };
        let hashes = listed(descriptor.halen(), &hashes).map_err(|()| Explanation::INCORRECT_PAYLOAD)?;
        let groups = listed(descriptor.dhlen(), &groups).map_err(|()| Explanation::INCORRECT_PAYLOAD)?;
        // TLS has no suite of SHA-512, and what nobody exchanged makes no PSK.
        let usable = |hash: &&Hash| !concatenates || **hash != Hash::Sha512;
        let hash = credentials.hashes.iter().filter(usable).find(|hash| hashes.contains(&hash.id()));
        let hash = *hash.ok_or(Explanation::HASH_NOT_USABLE)?;
        let usable = |group: &&Group| !concatenates || **group != Group::Null;
        let group = credentials.groups.iter().filter(usable).find(|group| groups.contains(&group.id()));
        let group = *group.ok_or(Explanation::GROUP_NOT_USABLE)?;
        let (names, t_id) = (self.names.clone(), self.t_id);
        Ok(Work(Todo::Challenge { credentials, names, t_id, hash, group, sc_c }))
    }

    /// Takes what came of work.
    pub fn done(&mut self, done: Done) {
        if matches!(self.step, Step::Working) {
            self.step = done.0;
        }
    }

    /// What the host is told next.
    pub fn fetch(&mut self) -> Fetched {
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Working => {
                self.step = Step::Working;
                Fetched::Later
            }
            Step::Challenge(message, challenged) => {
                self.step = Step::Reply(challenged);
                Fetched::Message(message, None)
            }
            Step::Success(message, false, psk) => {
                self.generated = psk;
                Fetched::Message(message, Some(Outcome::Authenticated))
            }
            Step::Success(message, true, psk) => {
                self.step = Step::Verdict(psk);
                Fetched::Message(message, None)
            }
            Step::Failed(why) => self.failure(why),
            // Nothing is to be said now.
            Step::Idle | Step::Reply(_) | Step::Verdict(_) => self.failure(Explanation::INCORRECT_MESSAGE),
        }
    }

    fn failure(&self, why: Explanation) -> Fetched {
        let message = Failure::new(id::FAILURE1, self.t_id, why).0.to_vec();
        Fetched::Message(message, Some(Outcome::Failed(why)))
    }
}

impl Work {
    /// Does it. It takes milliseconds, and with the largest groups some dozens of them.
    pub fn run(self) -> Done {
        let step = match self.0 {
            Todo::Challenge { credentials, names, t_id, hash, group, sc_c } => {
                challenge(credentials, names, t_id, (hash, group), sc_c)
            }
            Todo::Verify(challenged, message) => verify(*challenged, &message),
        };
        Done(step.unwrap_or_else(Step::Failed))
    }
}

fn challenge(
    credentials: Arc<Credentials>,
    names: Names,
    t_id: u16,
    (hash, group): (Hash, Group),
    sc_c: u8,
) -> Result<Step, Explanation> {
    let mut challenge = Zeroizing::new(vec![0; hash.bytes()]);
    getrandom::fill(&mut challenge).map_err(|_| Explanation::FAILED)?;
    let seqnum = crate::seqnum().map_err(|_| Explanation::FAILED)?;
    let (secret, public) = group.secret().map_err(|_| Explanation::FAILED)?;
    let mut head = Challenge::default();
    head.set_kind(DHCHAP).set_id(id::CHALLENGE).set_t_id(t_id).set_hl(hash.bytes() as u8).set_hash(hash.id());
    head.set_group(group.id()).set_dhvlen(public.len() as u16).set_seqnum(seqnum);
    let message = [&head.0[..], &challenge, &public].concat();
    let challenged = Challenged { credentials, names, t_id, hash, secret, challenge, seqnum, sc_c };
    Ok(Step::Challenge(message, Box::new(challenged)))
}

fn verify(of: Challenged, message: &[u8]) -> Result<Step, Explanation> {
    let head = Reply::from_bytes(message);
    let (len, rest) = (of.hash.bytes(), message.get(Reply::SIZE..).unwrap_or(&[]));
    let dhvlen = usize::from(head.dhvlen());
    let whole = message.len() >= Reply::SIZE && usize::from(head.hl()) == len;
    let parts = rest.split_at_checked(len).and_then(|(response, rest)| {
        let (asked, rest) = rest.split_at_checked(len)?;
        Some((response, asked, rest.get(..dhvlen)?))
    });
    let (response, asked, public) = parts.filter(|_| whole).ok_or(Explanation::INCORRECT_PAYLOAD)?;
    let shared = of.secret.shared(public).ok_or(Explanation::INCORRECT_PAYLOAD)?;
    let Challenged { hash, t_id, credentials, names, .. } = &of;
    let (hash, t_id, sc_c) = (*hash, *t_id, of.sc_c);
    let own = Asked { hash, shared: &shared, challenge: &of.challenge, seqnum: of.seqnum, t_id, sc_c };
    if !bool::from(own.of_host(&credentials.host, names).ct_eq(response)) {
        return Err(Explanation::FAILED);
    }
    let concatenates = sc_c != channel::NONE;
    let psk = concatenates.then(|| Psk::generated(hash, &shared, [&of.challenge, asked], names));
    let mut head1 = Success1::default();
    head1.set_kind(DHCHAP).set_id(id::SUCCESS1).set_t_id(t_id).set_hl(len as u8);
    match (head.cvalid() & 1, &credentials.controller) {
        // Of a secure channel the second challenge is a part.
        (0, _) if concatenates => Err(Explanation::INCORRECT_PAYLOAD),
        (0, _) => Ok(Step::Success(head1.0.to_vec(), false, None)),
        // Its number is zero where no proof is asked for, but for a secure channel.
        _ if concatenates && head.seqnum() == 0 => Ok(Step::Success(head1.0.to_vec(), false, psk)),
        (_, Some(_)) if head.seqnum() == 0 => Err(Explanation::INCORRECT_PAYLOAD),
        (_, Some(key)) => {
            let theirs = Asked { hash, shared: &shared, challenge: asked, seqnum: head.seqnum(), t_id, sc_c };
            let response = theirs.of_controller(key, names);
            head1.set_rvalid(1);
            Ok(Step::Success([&head1.0[..], &response].concat(), true, psk))
        }
        (_, None) => Err(Explanation::FAILED),
    }
}
