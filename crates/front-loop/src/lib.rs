//! Drive and driver in one process
