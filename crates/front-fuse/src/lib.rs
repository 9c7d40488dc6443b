//! The namespace as a file: for a local loop device and mount
