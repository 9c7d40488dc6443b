//! Near-data operations over a file's bytes: search, count, checksum
