//! Options that several commands take. Each command's own stand with the command.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use nearside_driver::Policy;
use nearside_driver::tcp::{Options, Recovery};
use nearside_embedded::partition::{Logical, Wanted};
use nearside_fsrlib::Credentials;
pub use nearside_instrument::help::{as_typed, flowing};

use crate::failure::{Failure, Outcome};
use crate::terminal;

/// Which drive, for whom, and how. The same for every command that asks a drive.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Drive")]
pub struct DriveArgs {
    /// Image file (raw or qcow2, also as .gz or .zst), block device,
    /// qcow2:PATH?snapshot=NAME, lvm:PATH?volume=VG/LV, file:PATH (raw, whatever
    /// its first bytes say), unix:PATH of an attached drive,
    /// nvme+tcp://HOST:PORT/NQN/NSID (several HOST:PORT with commas between them
    /// are paths to one drive), or vfio-user:PATH
    #[arg(
        short = 'd',
        long = "drive",
        env = "NEARSIDE_DRIVE",
        value_name = "DRIVE",
        required_unless_present = "mounted",
        default_value = "",
        hide_default_value = true
    )]
    pub drive: OsString,
    /// Paths are this host's, and shown so: the drive, and the paths on it, follow from what is mounted there
    #[arg(long, conflicts_with = "drive")]
    pub mounted: bool,
    /// Partition that holds the volume, where the drive has several: its number, its name in a GPT, its
    /// UUID, or its file system's label or UUID (with PARTLABEL=, PARTUUID=, LABEL= or UUID= before it: as
    /// that alone)
    #[arg(long, value_name = "N|NAME")]
    pub partition: Option<Wanted>,
    /// Logical volume of LVM that is read in the place of the whole image or block device; `nearside info`
    /// lists those there are. VG is the group's name or UUID; with --partition, the group in that partition
    #[arg(long, value_name = "VG/LV", conflicts_with = "mounted")]
    pub volume: Option<Logical>,
    /// Paths are patterns of the drive's: *, ?, [a-c], [!a-c], {a,b}, ** for directories of any depth, and \
    /// before what stands for itself; names that begin with a dot are as others. Without this a path is that
    /// path, whatever its name
    #[arg(long)]
    pub glob: bool,
    /// Give what lies in blocks to every user whom modes allow it, also where freed blocks may be
    /// another file's (a mounted volume without a journal or with data=writeback; --mounted; --home):
    /// the word of whoever owns the image
    #[arg(long)]
    pub allow_unrecovered: bool,
    /// Show what lies in home locations of a volume that was not unmounted, and leave out what only its
    /// journal or log holds. What is read with --mounted shows that in any case
    #[arg(long)]
    pub home: bool,
    /// Check permissions for this user and these groups instead of the caller's own
    #[arg(long = "as", value_name = "UID:GID[,GID...]")]
    pub identity: Option<Identity>,
    /// How the driver learns that a command is complete
    #[arg(long, value_enum, default_value_t, value_name = "MODEL")]
    pub completion: CompletionModel,
    /// Who finds the file: the drive, by path, or the host, which reads its metadata and sends a block list
    #[arg(long, value_enum, default_value_t, value_name = "WHERE")]
    pub locate: Where,
    /// Who does the operation; the host needs --locate host
    #[arg(long, value_enum, default_value_t, value_name = "WHERE")]
    pub compute: Where,
    /// With --locate host: keep metadata blocks that were read
    #[arg(long)]
    pub host_cache: bool,
    /// Print what the operation cost as a table on standard error
    #[arg(long)]
    pub timing: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// What this host says of itself.
    #[command(flatten)]
    pub host: HostArgs,
    /// How a lost connection is made again.
    #[command(flatten)]
    pub recovery: RecoveryArgs,
    /// Threads that search, count or sum a tree of an image, each with a drive of its own; 1: one drive, one
    /// command [default: one for each core]
    #[arg(long, value_name = "N")]
    pub threads: Option<Threads>,
    /// Carry each operation by Get Features, as DAC'23 does
    #[arg(long, hide = true)]
    pub get_features: bool,
}

/// What this host says of itself to a target over the network, in nvme-cli's words.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Network")]
pub struct HostArgs {
    /// This host's NQN, by which a target allows it [default: made of this machine and user]
    #[arg(long, env = "NEARSIDE_HOSTNQN", value_name = "NQN")]
    pub hostnqn: Option<String>,
    /// A file with this host's key, or `keyring:NAME`, a key that the kernel keeps: who it is, is proved to
    /// targets that ask for that (DH-HMAC-CHAP; see `nearside key`)
    #[arg(long, value_name = "FILE")]
    pub dhchap_key_file: Option<PathBuf>,
    /// A file with the subsystem's key (or `keyring:NAME`): it has to prove who it is as well
    #[arg(long, value_name = "FILE", requires = "dhchap_key_file")]
    pub dhchap_ctrl_key_file: Option<PathBuf>,
    /// A file with a TLS key (or `keyring:NAME`): connections are encrypted, and both ends prove by it who
    /// they are (`nearside key generate --tls`)
    #[arg(long, value_name = "FILE")]
    pub tls_key_file: Option<PathBuf>,
    /// Encrypt connections by what the keys of --dhchap-key-file agree on (secure channel concatenation)
    #[arg(long, requires = "dhchap_key_file", conflicts_with = "tls_key_file")]
    pub concat: bool,
    /// Protect the headers that go over the connection by digests
    #[arg(long)]
    pub hdr_digest: bool,
    /// Protect the data, too
    #[arg(long)]
    pub data_digest: bool,
}

impl HostArgs {
    /// The driver's options.
    pub fn options(&self) -> Result<Options, Failure> {
        let options = match &self.hostnqn {
            Some(name) => Options::for_host(name).map_err(|e| Failure::Message(format!("--hostnqn {e}")))?,
            None => Options::default(),
        };
        let options = match &self.dhchap_key_file {
            Some(own) => options.with_keys_of(own, self.dhchap_ctrl_key_file.as_deref())?,
            None => options,
        };
        let options = match &self.tls_key_file {
            Some(key) => options.with_tls_key_of(key, crate::tls::here()?)?,
            None => options,
        };
        let concatenates = if self.concat { Some(crate::tls::here()?) } else { None };
        Ok(Options { concatenates, header_digest: self.hdr_digest, data_digest: self.data_digest, ..options })
    }
}

/// How a connection that was lost is made again, in nvme-cli's words.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Network")]
pub struct RecoveryArgs {
    /// Seconds before a lost connection is made again, and from each attempt to the next: the command goes on
    /// where it was. Other addresses (nvme+tcp://HOST:PORT,HOST:PORT/NQN/NSID) are tried at once
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub reconnect_delay: u32,
    /// Seconds after which a lost connection is given up, and the command fails; -1: never, 0: at once
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 600,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-1..)
    )]
    pub ctrl_loss_tmo: i32,
}

impl From<RecoveryArgs> for Recovery {
    fn from(args: RecoveryArgs) -> Recovery {
        Recovery {
            reconnect_delay: Duration::from_secs(args.reconnect_delay.into()),
            ctrl_loss_tmo: u64::try_from(args.ctrl_loss_tmo).ok().map(Duration::from_secs),
        }
    }
}

/// A completion model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CompletionModel {
    /// The caller spins until the completion is there; for near-data work, which may take long, it sleeps
    /// between looks after a millisecond
    #[default]
    Polled,
    /// The caller sleeps until the drive interrupts
    Interrupt,
    /// Whichever is expected to be better for the command
    Hybrid,
}

impl From<CompletionModel> for Policy {
    fn from(model: CompletionModel) -> Policy {
        match model {
            CompletionModel::Polled => Policy::Polled,
            CompletionModel::Interrupt => Policy::Interrupt,
            CompletionModel::Hybrid => Policy::Hybrid,
        }
    }
}

/// What ends a program before it begins, as clap has it: shows the help that was asked for, or says what
/// cannot be understood.
///
/// # Errors
/// Those of writing to standard output.
pub fn explain(said: &clap::Error) -> Outcome {
    if said.kind() != ErrorKind::DisplayHelp {
        // As with any message, a closed standard error is no reason to fail.
        let _ = said.print();
        return Ok(u8::try_from(said.exit_code()).unwrap_or(2));
    }
    let help = said.render();
    let help = if Color::Auto.on() { help.ansi().to_string() } else { help.to_string() };
    let mut out = std::io::stdout().lock();
    out.write_all(as_typed(&help).as_bytes())?;
    out.flush()?;
    Ok(0)
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal
    #[default]
    #[value(aliases = ["tty", "if-tty"])]
    Auto,
    /// Always
    #[value(aliases = ["yes", "force"])]
    Always,
    /// Never
    #[value(aliases = ["no", "none"])]
    Never,
}

impl Color {
    /// Whether standard output is to have some.
    pub fn on(self) -> bool {
        let set = |name: &str| std::env::var_os(name);
        let dumb = || set("TERM").is_none_or(|term| term == "dumb") || set("NO_COLOR").is_some();
        self == Color::Always || self == Color::Auto && terminal::output() && !dumb()
    }
}

/// The drive or the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Where {
    /// In the drive
    #[default]
    Drive,
    /// On the host
    Host,
}

/// Where the drive of this process runs, and on how many threads it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Drive and driver on the caller's thread; trees in parts on so many.
    Inline(usize),
    /// A thread per reactor.
    Threaded,
}

/// Threads at most: each has a drive with its queues and caches.
const MOST_THREADS: usize = 256;

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Threads, String> {
        if text == "threaded" {
            return Ok(Threads::Threaded);
        }
        let number = text.parse().ok().filter(|n| (1..=MOST_THREADS).contains(n));
        number.map(Threads::Inline).ok_or_else(|| format!("{text:?} is no number from 1 to {MOST_THREADS}"))
    }
}

/// `UID:GID[,GID...]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(pub Credentials);

impl FromStr for Identity {
    type Err = String;

    fn from_str(text: &str) -> Result<Identity, String> {
        let id = |s: &str| {
            s.parse::<u32>().map_err(|_| format!("{s:?} is no user or group number (UID:GID[,GID...])"))
        };
        let (uid, groups) = text.split_once(':').ok_or("expected UID:GID[,GID...]")?;
        let uid = id(uid)?;
        let mut groups = groups.split(',').map(id).collect::<Result<Vec<u32>, String>>()?;
        let gid = groups.remove(0);
        let most = nearside_fsrlib::MAX_GROUPS;
        if groups.len() > most {
            return Err(format!("{} supplementary groups; the most is {most}", groups.len()));
        }
        Ok(Identity(Credentials { uid, gid, groups }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities() {
        let identity: Identity = "7:8,9,10".parse().unwrap();
        assert_eq!(identity.0, Credentials { uid: 7, gid: 8, groups: vec![9, 10] });
        for bad in ["", "7", "7:", "a:b", "7:8,", "-1:0", "4294967296:0"] {
            assert!(bad.parse::<Identity>().is_err(), "{bad:?}");
        }
    }
}
