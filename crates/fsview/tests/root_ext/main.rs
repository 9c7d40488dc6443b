//! ext4 as this machine's kernel writes and recovers it, against the view. Needs root.

#[path = "../fsview/ext_images/mod.rs"]
mod ext_images;
mod instants;
mod journal;
mod kernel;
mod writes;
