//! How a fixed structure of the wire is written down: a byte array, with a getter and a setter for each field
//! by its offset. Offsets are checked at compile time against each other and the structure's size.

/// A value that has a place in a structure, little-endian.
pub trait Wire: Sized {
    /// Bytes.
    const LEN: usize;
    /// From the first [`Wire::LEN`] bytes; missing ones count as zero.
    fn load(bytes: &[u8]) -> Self;
    /// Into the first [`Wire::LEN`] bytes, as far as there are any.
    fn store(self, bytes: &mut [u8]);
}

macro_rules! wire_integers {
    ($($t:ty)*) => {$(
        impl Wire for $t {
            const LEN: usize = size_of::<$t>();
            #[inline]
            fn load(bytes: &[u8]) -> Self {
                <$t>::from_le_bytes(<[u8; size_of::<$t>()] as Wire>::load(bytes))
            }
            #[inline]
            fn store(self, bytes: &mut [u8]) {
                self.to_le_bytes().store(bytes)
            }
        }
    )*};
}
wire_integers!(u8 u16 u32 u64 u128);

impl<const N: usize> Wire for [u8; N] {
    const LEN: usize = N;
    #[inline]
    fn load(bytes: &[u8]) -> Self {
        // One move, where copying byte by byte is a call of memcpy with a length that is not known.
        if let Some(whole) = bytes.first_chunk() {
            return *whole;
        }
        let mut value = [0; N];
        for (to, from) in value.iter_mut().zip(bytes) {
            *to = *from;
        }
        value
    }
    #[inline]
    fn store(self, bytes: &mut [u8]) {
        if let Some(whole) = bytes.first_chunk_mut() {
            *whole = self;
            return;
        }
        for (to, from) in bytes.iter_mut().zip(self) {
            *to = from;
        }
    }
}

/// A structure of `size` bytes: `name(set_name): type = offset`.
macro_rules! layout {
    ($(#[$doc:meta])* $name:ident, $size:literal {
        $($(#[$fdoc:meta])* $get:ident($set:ident): $t:ty = $at:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $name(pub [u8; $size]);

        #[allow(unused_comparisons, unused_assignments, reason = "a place may be 0, and the last has an end")]
        const _: () = {
            let mut end = 0;
            $(
                assert!($at >= end, "fields are written down as they lie, and apart");
                end = $at + <$t as $crate::layout::Wire>::LEN;
                assert!(end <= $size);
            )*
            assert!(size_of::<$name>() == $size);
        };

        impl Default for $name {
            fn default() -> Self {
                $name([0; $size])
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name))$(.field(stringify!($get), &self.$get()))*.finish()
            }
        }

        impl $name {
            /// Bytes in the structure.
            pub const SIZE: usize = $size;

            /// From the first bytes of a buffer; missing ones count as zero.
            pub fn from_bytes(bytes: &[u8]) -> Self {
                $name(<[u8; $size] as $crate::layout::Wire>::load(bytes))
            }

            $(
                $(#[$fdoc])*
                pub fn $get(&self) -> $t {
                    <$t as $crate::layout::Wire>::load(self.0.get($at..).unwrap_or(&[]))
                }
                /// Sets it.
                pub fn $set(&mut self, value: $t) -> &mut Self {
                    $crate::layout::Wire::store(value, self.0.get_mut($at..).unwrap_or(&mut []));
                    self
                }
            )*
        }
    };
}
pub(crate) use layout;

/// Copies text into a fixed field, padded with spaces, as Identify's ASCII fields are (Base 2.0, 1.5).
pub fn ascii<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (to, from) in field.iter_mut().zip(text.bytes().filter(|b| (0x20..0x7f).contains(b))) {
        *to = from;
    }
    field
}

/// The text of such a field, without its padding.
pub fn text(field: &[u8]) -> alloc::string::String {
    let end = field.iter().rposition(|&b| b != b' ' && b != 0).map_or(0, |i| i.saturating_add(1));
    alloc::string::String::from_utf8_lossy(field.get(..end).unwrap_or(&[])).into_owned()
}
