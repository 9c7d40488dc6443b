//! Says how the library is called whose headers OpenSSL's crate was built with, where it is loaded late.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(loads_openssl)");
    let said = |name: &str| {
        println!("cargo::rerun-if-env-changed={name}");
        std::env::var(name).unwrap_or_default()
    };
    let of_target = said("TARGET").to_uppercase().replace('-', "_");
    let is_static = [said("OPENSSL_STATIC"), said(&format!("{of_target}_OPENSSL_STATIC"))]
        .iter()
        .any(|word| !word.is_empty() && word != "0")
        || said("CARGO_CFG_TARGET_FEATURE").split(',').any(|feature| feature == "crt-static");
    // 0xMNN00PP0 since version 3 (OPENSSL_VERSION_NUMBER(3)).
    let version = said("DEP_OPENSSL_VERSION_NUMBER");
    let major = u64::from_str_radix(&version, 16).map_or(0, |version| version >> 28);
    let has_jumps = said("CARGO_CFG_TARGET_OS") == "linux"
        && ["x86_64", "aarch64"].contains(&&*said("CARGO_CFG_TARGET_ARCH"));
    if major >= 3 && has_jumps && !is_static {
        println!("cargo::rustc-cfg=loads_openssl");
        let out = std::env::var("OUT_DIR").expect("cargo says where");
        let name = format!("c\"libssl.so.{major}\"\n");
        std::fs::write(Path::new(&out).join("library.rs"), name).expect("written");
    }
}
