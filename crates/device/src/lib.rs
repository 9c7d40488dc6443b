//! The controller: registers, admin, queues, I/O, near-data commands and the namespace
