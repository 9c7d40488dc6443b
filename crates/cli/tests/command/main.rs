//! The built command on volumes that the machine's own tools made,
//! held against the tools that its users know.

mod act;
mod activated;
mod bench;
mod bench_formats;
mod bench_replay;
mod control;
mod counts;
mod cp;
mod dashboard;
mod diff;
mod disks;
mod errors;
mod examples;
mod find;
mod fixture;
mod forensics;
mod grep;
mod insight;
mod keyring;
mod library;
mod manual;
mod models;
mod network;
mod others;
mod parts;
mod programs;
mod reconnect;
mod select;
mod serve;
mod study;
mod tables;
mod terminal;
mod vfio_user;
mod writes;
mod yara;
