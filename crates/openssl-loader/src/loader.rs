//! The jumps, and what they lead to.

// Whose version says which library it is.
use openssl_sys as _;
use std::ffi::{CStr, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The library of the headers that this was built with: the same major version has the same interface
/// (openssl-versioning(7)).
const LIBRARY: &CStr = include!(concat!(env!("OUT_DIR"), "/library.rs"));

/// Has OpenSSL at hand. What has failed is tried again: it may be installed by then.
pub(crate) fn load() -> Result<(), String> {
    static LOADED: Mutex<bool> = Mutex::new(false);
    let mut loaded = LOADED.lock().unwrap_or_else(|e| e.into_inner());
    if !*loaded {
        open()?;
        *loaded = true;
    }
    Ok(())
}

fn open() -> Result<(), String> {
    // SAFETY: the name ends with a zero. What the library does as it is loaded it does in every program that
    // is linked to it.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(said());
    }
    // All or none: nobody jumps before all are there.
    let mut found = [std::ptr::null_mut(); NAMES.len()];
    for (name, found) in NAMES.iter().zip(&mut found) {
        // SAFETY: the library is there and stays; the name ends with a zero.
        *found = unsafe { libc::dlsym(library, name.as_ptr()) };
        if found.is_null() {
            return Err(said());
        }
    }
    // SAFETY: as many pointers as there are names, in writable memory that lives as long as the program; who
    // jumps by one has been told by `load` that they are there.
    let places = unsafe { &nearside_openssl_places };
    for (place, found) in places.iter().zip(found) {
        place.store(found, Ordering::Release);
    }
    Ok(())
}

/// What the loader says of its last fault.
fn said() -> String {
    // SAFETY: a text that ends with a zero and stays until the thread's next call, or null.
    let text = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
    text.map_or_else(|| "OpenSSL cannot be loaded".to_owned(), |text| text.to_string_lossy().into_owned())
}

/// Somebody called OpenSSL without [`load`].
extern "C" fn not_loaded() -> ! {
    eprintln!("nearside: OpenSSL is called before it is loaded");
    std::process::abort()
}

macro_rules! functions {
    ($($name:ident)*) => {
        const NAMES: &[&CStr] = &[$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            }
        ),*];

        // SAFETY: as the assembly below has it: so many pointers, aligned, writable.
        unsafe extern "C" {
            static nearside_openssl_places: [AtomicPtr<c_void>; NAMES.len()];
        }

        std::arch::global_asm!(
            ".section .text.nearside_openssl,\"ax\",@progbits",
            $(
                concat!(".globl ", stringify!($name)),
                concat!(".hidden ", stringify!($name)),
                concat!(".type ", stringify!($name), ", %function"),
                concat!(stringify!($name), ":"),
                jump!($name),
                concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            )*
            ".section .data.nearside_openssl,\"aw\",@progbits",
            ".balign 8",
            ".globl nearside_openssl_places",
            ".hidden nearside_openssl_places",
            "nearside_openssl_places:",
            $(
                concat!(".Lplace_", stringify!($name), ": .quad {not_loaded}"),
            )*
            ".text",
            not_loaded = sym not_loaded,
        );
    };
}

/// To where a function's place says, with the caller's registers as they are.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($name:ident) => {
        concat!("endbr64\njmp qword ptr [rip + .Lplace_", stringify!($name), "]")
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($name:ident) => {
        concat!(
            "hint #34\nadrp x16, .Lplace_",
            stringify!($name),
            "\nldr x16, [x16, :lo12:.Lplace_",
            stringify!($name),
            "]\nbr x16"
        )
    };
}

functions! {
    BIO_clear_flags BIO_get_data BIO_meth_free BIO_meth_new BIO_meth_set_create BIO_meth_set_ctrl BIO_meth_set_destroy
    BIO_meth_set_puts BIO_meth_set_read BIO_meth_set_write BIO_new BIO_set_data BIO_set_flags BIO_set_init
    CRYPTO_get_ex_new_index CRYPTO_malloc
    ERR_get_error_all ERR_lib_error_string ERR_new ERR_reason_error_string ERR_set_debug ERR_set_error ERR_set_error_data
    OPENSSL_init_ssl
    SSL_CIPHER_find SSL_client_hello_get0_ext
    SSL_CTX_ctrl SSL_CTX_free SSL_CTX_get_ex_data SSL_CTX_new SSL_CTX_set_ciphersuites SSL_CTX_set_client_hello_cb
    SSL_CTX_set_ex_data SSL_CTX_set_keylog_callback SSL_CTX_set_num_tickets SSL_CTX_set_options
    SSL_CTX_set_psk_find_session_callback SSL_CTX_set_psk_use_session_callback SSL_CTX_set_verify SSL_CTX_up_ref
    SSL_SESSION_free SSL_SESSION_new SSL_SESSION_set1_master_key SSL_SESSION_set_cipher SSL_SESSION_set_protocol_version
    SSL_do_handshake SSL_free SSL_get_SSL_CTX SSL_get_error SSL_get_ex_data SSL_get_key_update_type SSL_get_rbio
    SSL_get_shutdown SSL_new SSL_pending SSL_read_ex SSL_session_reused SSL_set_accept_state SSL_set_bio
    SSL_set_ciphersuites SSL_set_connect_state SSL_set_ex_data SSL_set_shutdown SSL_shutdown SSL_write_ex
    TLS_client_method TLS_server_method
}
