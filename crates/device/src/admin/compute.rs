//! Load Program, Program Activation Management and Memory Range Set Management: the admin commands of a
//! compute namespace (docs/NVME.md). Whether a field is valid is looked at here; what it means, by the
//! firmware.

use nearside_spec::Status;
use nearside_spec::command::{common, compute};
use nearside_spec::data::MemoryRange;
use nearside_spec::opcode::admin;
use nearside_store::Store;

use super::{AdminCommand, Answer};
use crate::CommandSet;
use crate::fault::Fault;
use crate::firmware::{ComputeCommand, Firmware, NearDataCommand};

impl<S: Store, F: Firmware<S>> AdminCommand<'_, S, F> {
    /// A command about programs: the firmware answers.
    pub(super) fn of_programs(&mut self) -> Result<Answer, Fault> {
        let entry = self.entry;
        let namespace = self.reactor.shared.namespace(entry.nsid());
        if namespace.is_none_or(|namespace| namespace.command_set() != CommandSet::Compute) {
            return Err(Fault::new(Status::INVALID_NAMESPACE).of(common::NSID));
        }
        let index = entry.get(compute::PIND);
        let (command, bytes) = match entry.opcode() {
            admin::LOAD_PROGRAM if entry.get(compute::UNLOAD) => (ComputeCommand::Unload { index }, 0),
            admin::LOAD_PROGRAM => {
                let (size, at) = (entry.get(compute::PSIZE), entry.get(compute::LOFF));
                let bytes = entry.get(compute::NUMB);
                if bytes == 0 || u64::from(bytes) > self.reactor.shared.config.max_transfer() {
                    return Err(Fault::field(compute::NUMB));
                }
                let kind = entry.get(compute::PTYPE);
                (ComputeCommand::Load { index, kind, size, at }, bytes as usize)
            }
            admin::PROGRAM_ACTIVATION => match entry.get(compute::ACTIVATION) {
                how @ (0 | 1) => (ComputeCommand::Activate { index, active: how == 1 }, 0),
                _ => return Err(Fault::field(compute::ACTIVATION)),
            },
            _ => match entry.get(compute::SET_ACTION) {
                0 => {
                    let ranges = entry.get(compute::NUMR);
                    if ranges == 0 {
                        return Err(Fault::field(compute::NUMR));
                    }
                    (ComputeCommand::CreateSet, usize::from(ranges) * MemoryRange::SIZE)
                }
                1 => (ComputeCommand::DeleteSet { set: entry.get(compute::RSID) }, 0),
                _ => return Err(Fault::field(compute::SET_ACTION)),
            },
        };
        self.near_data(NearDataCommand::Compute(command), bytes, 0)
    }
}
