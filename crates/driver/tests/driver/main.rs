//! The driver, against doubles, against the drive in this process and in others, and against servers that
//! lie.
//!
//! One program, since each links all that the crate is made of: a test that needs a process of its own is
//! beside it.

mod controller;
mod double;
mod model;
mod scripted;
mod tcp;
mod verify;
mod vfio_hostile;
mod vfio_messages;
mod vfio_unmap;
mod vfio_user;
