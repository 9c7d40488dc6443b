//! CPUs that do not sleep.

use std::fs::File;
use std::io::{self, Write};

/// While it lives a CPU of this machine that has nothing to do looks for work instead of sleeping, so that
/// who is woken there runs at once (PM QoS, Linux's Documentation/power/pm_qos_interface.rst). That costs
/// power, and in a virtual machine the host's cores.
#[derive(Debug)]
pub(crate) struct Awake {
    _request: File,
}

impl Awake {
    /// # Errors
    /// The system's: only root may, and not every kernel can.
    pub(crate) fn new() -> io::Result<Awake> {
        let mut request = File::options().write(true).open("/dev/cpu_dma_latency")?;
        // Microseconds that waking a CPU may take.
        request.write_all(&0i32.to_ne_bytes())?;
        Ok(Awake { _request: request })
    }
}
