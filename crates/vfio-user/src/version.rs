//! What both ends agree on before anything else: a version, and capabilities as JSON.

use serde_json::{Map, Value, json};

use crate::WireError;
use crate::bytes::Fields;

/// Most bytes of capabilities that are looked at.
pub const MAX_VERSION_DATA: usize = 16 << 10;

/// A version and capabilities: proposed by the client, and what is left of it by the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Must be the same at both ends.
    pub major: u16,
    /// The server's is at most the client's.
    pub minor: u16,
    /// What the sender can.
    pub capabilities: Capabilities,
}

/// What a sender can. `None`: it does not say, and the protocol's default holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Most descriptors that it takes with one message.
    pub max_msg_fds: Option<u64>,
    /// Most bytes of data that it takes with one message.
    pub max_data_xfer_size: Option<u64>,
    /// Most DMA regions that it takes at a time.
    pub max_dma_maps: Option<u64>,
    /// Page sizes of DMA regions, or'ed together.
    pub pgsizes: Option<u64>,
    /// Whether it knows REGION_WRITE_MULTI.
    pub write_multiple: bool,
}

impl Capabilities {
    /// [`Capabilities::max_msg_fds`], or the protocol's default of one.
    pub fn descriptors(&self) -> u64 {
        self.max_msg_fds.unwrap_or(1)
    }

    /// [`Capabilities::max_data_xfer_size`], or the protocol's default of 1 MiB.
    pub fn transfer(&self) -> u64 {
        self.max_data_xfer_size.unwrap_or(1 << 20)
    }

    /// [`Capabilities::max_dma_maps`], or the protocol's default of 65,535.
    pub fn dma_maps(&self) -> u64 {
        self.max_dma_maps.unwrap_or(0xffff)
    }
}

impl Version {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Version, WireError> {
        let mut fields = Fields(bytes);
        let (major, minor) = (fields.half("version major")?, fields.half("version minor")?);
        let capabilities = match fields.0 {
            [] => Capabilities::default(),
            data if data.len() > MAX_VERSION_DATA => {
                return Err(WireError::Capabilities("they are longer than 16 KiB"));
            }
            [text @ .., 0] => capabilities(text)?,
            _ => return Err(WireError::Capabilities("they do not end with a zero byte")),
        };
        Ok(Version { major, minor, capabilities })
    }

    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.major.to_le_bytes());
        into.extend_from_slice(&self.minor.to_le_bytes());
        let mut said = Map::new();
        let c = &self.capabilities;
        let numbers = [
            ("max_msg_fds", c.max_msg_fds),
            ("max_data_xfer_size", c.max_data_xfer_size),
            ("max_dma_maps", c.max_dma_maps),
            ("pgsizes", c.pgsizes),
        ];
        said.extend(numbers.into_iter().filter_map(|(name, n)| Some((name.to_owned(), Value::from(n?)))));
        if c.write_multiple {
            said.insert("write_multiple".to_owned(), Value::Bool(true));
        }
        into.extend_from_slice(json!({ "capabilities": said }).to_string().as_bytes());
        into.push(0);
    }
}

/// Members that are not known are passed over, those that are have to be what they must be. The parser bounds
/// how deep values lie in one another.
fn capabilities(text: &[u8]) -> Result<Capabilities, WireError> {
    let whole: Value =
        serde_json::from_slice(text).map_err(|_| WireError::Capabilities("they are no JSON"))?;
    let whole = whole.as_object().ok_or(WireError::Capabilities("they are no object"))?;
    let said = match whole.get("capabilities") {
        None => return Ok(Capabilities::default()),
        Some(said) => said.as_object().ok_or(WireError::Capabilities("capabilities is no object"))?,
    };
    let number = |name, wrong| match said.get(name) {
        None => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or(WireError::Capabilities(wrong)),
    };
    Ok(Capabilities {
        max_msg_fds: number("max_msg_fds", "max_msg_fds is no number")?,
        max_data_xfer_size: number("max_data_xfer_size", "max_data_xfer_size is no number")?,
        max_dma_maps: number("max_dma_maps", "max_dma_maps is no number")?,
        pgsizes: number("pgsizes", "pgsizes is no number")?,
        write_multiple: match said.get("write_multiple") {
            None => false,
            Some(value) => {
                value.as_bool().ok_or(WireError::Capabilities("write_multiple is neither true nor false"))?
            }
        },
    })
}
