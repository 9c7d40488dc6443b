//! The File Semantics Retriever (DAC'23 III): what makes the drive understand files.
//!
//! A near-data request comes to the [`handler`]; the path [`crawler`] finds the file and checks permission; the data
//! [`provider`] feeds its bytes to the operation; the metadata [`monitor`] sees every write of the host and keeps what the crawler has cached true.
