//! Gives the shared library its name, by which programs that were linked with it look for it.

/// The version of the binary interface: another, where a program that was linked before no longer works.
const ABI: &str = "0";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnearside.so.{ABI}");
}
