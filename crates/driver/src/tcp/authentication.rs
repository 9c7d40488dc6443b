//! A queue's authentication: what comes between Connect and everything else where the target, or the host,
//! asks for it (Base 2.0, 8.13.5). Exponentials are made on the calling thread.

use nearside_auth::{Exchange, Psk, ROOM, Refused};
use nearside_clock::Clock;
use nearside_spec::fabrics::command::{FabricsCommand, Security};

use super::host::Options;
use super::queue::Queue;
use crate::{Command, CommandKind, Error};

/// Proves who the host is and, where it has a key for that, has the target prove who it is. The PSK for a
/// secure channel, where that is to follow.
pub(super) fn authenticate(
    queue: &mut Queue,
    options: &Options,
    subsystem: &str,
    concatenates: bool,
    clock: &dyn Clock,
) -> Result<Option<Psk>, Error> {
    let refused = |why: String| Error::Refused { what: "authentication", why, again: false };
    let Some(keys) = &options.keys else {
        let host = &options.host_nqn;
        return Err(refused(format!("it wants {host} to prove who it is, and there is no key")));
    };
    let exchange = Exchange::new(keys, &options.host_nqn, subsystem)
        .map_err(|source| Error::System { what: "random numbers", source })?;
    let mut exchange = if concatenates { exchange.concatenating() } else { exchange };
    send(queue, exchange.negotiate(), clock)?;
    let challenge = receive(queue, clock)?;
    let said = match exchange.reply(&challenge) {
        Ok(reply) => {
            send(queue, reply, clock)?;
            exchange.finish(&receive(queue, clock)?)
        }
        Err(refusal) => Err(refusal),
    };
    match said {
        Ok(None) => Ok(exchange.generated()),
        Ok(Some(last)) => send(queue, last, clock).map(|()| exchange.generated()),
        Err(refusal) => {
            let why = refusal.why().name();
            Err(refused(match refusal {
                Refused::ByController(_) => format!("the target says of {}: {why}", options.host_nqn),
                Refused::ByHost(_, message) => {
                    // It hears of it where it still listens.
                    let _ = send(queue, message, clock);
                    format!("{subsystem} did not prove who it is: {why}")
                }
            }))
        }
    }
}

fn send(queue: &mut Queue, message: Vec<u8>, clock: &dyn Clock) -> Result<(), Error> {
    let command = FabricsCommand::AuthenticationSend(Security::message(message.len() as u32));
    let command = Command { entry: command.encode(), kind: CommandKind::Other };
    queue.run("authentication send", &command, Some(message), clock).map(drop)
}

fn receive(queue: &mut Queue, clock: &dyn Clock) -> Result<Vec<u8>, Error> {
    let command = FabricsCommand::AuthenticationReceive(Security::message(ROOM as u32));
    let command = Command { entry: command.encode(), kind: CommandKind::Other };
    let answer = queue.run("authentication receive", &command, Some(vec![0; ROOM]), clock)?;
    let mut message = answer.buffer.unwrap_or_default();
    message.truncate(answer.moved);
    Ok(message)
}
