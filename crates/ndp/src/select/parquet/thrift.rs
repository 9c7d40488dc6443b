//! Thrift's compact protocol (apache/thrift, doc/specs/thrift-compact-protocol.md), as Parquet's footers and
//! page headers are written in it. Nothing is allocated for a length that is read: what is kept is what its
//! reader pushes, of elements that are there. No list has more elements than bytes are left.
#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

/// What is wrong with such bytes.
pub(super) type Wrong = &'static str;

/// How deep fields that nobody asks for may lie in each other.
const DEPTH: u32 = 16;

/// A field's or an element's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    True,
    False,
    Byte,
    /// Of 16, 32 or 64 bits: a varint.
    Int,
    Double,
    Binary,
    List,
    Map,
    Struct,
    Uuid,
}

impl Wire {
    fn of(number: u8) -> Result<Wire, Wrong> {
        Ok(match number {
            1 => Wire::True,
            2 => Wire::False,
            3 => Wire::Byte,
            4..=6 => Wire::Int,
            7 => Wire::Double,
            8 => Wire::Binary,
            9 | 10 => Wire::List,
            11 => Wire::Map,
            12 => Wire::Struct,
            13 => Wire::Uuid,
            _ => return Err("a field of no type"),
        })
    }
}

/// Reads from the front.
#[derive(Clone, Debug)]
pub(super) struct Thrift<'b> {
    rest: &'b [u8],
}

impl<'b> Thrift<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Thrift<'b> {
        Thrift { rest: bytes }
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    fn byte(&mut self) -> Result<u8, Wrong> {
        let (first, rest) = self.rest.split_first().ok_or(SHORT)?;
        self.rest = rest;
        Ok(*first)
    }

    fn bytes(&mut self, len: usize) -> Result<&'b [u8], Wrong> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(SHORT)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// ULEB128, of 64 bits.
    pub(super) fn varint(&mut self) -> Result<u64, Wrong> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number of more than 64 bits")
    }

    /// A signed number, of which the sign comes last.
    pub(super) fn zigzag(&mut self) -> Result<i64, Wrong> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ (value & 1).cast_signed().wrapping_neg())
    }

    fn len(&mut self) -> Result<usize, Wrong> {
        usize::try_from(self.varint()?).map_err(|_| SHORT)
    }

    /// Each field of a struct: its number and its type. What the reader leaves (`false`) is passed over.
    pub(super) fn fields(
        &mut self,
        mut each: impl FnMut(&mut Self, i16, Wire) -> Result<bool, Wrong>,
    ) -> Result<(), Wrong> {
        self.fields_at(DEPTH, &mut each)
    }

    fn fields_at(
        &mut self,
        depth: u32,
        each: &mut dyn FnMut(&mut Self, i16, Wire) -> Result<bool, Wrong>,
    ) -> Result<(), Wrong> {
        let mut last = 0i16;
        loop {
            let head = self.byte()?;
            if head & 0xf == 0 {
                return Ok(());
            }
            let wire = Wire::of(head & 0xf)?;
            last = match head >> 4 {
                0 => i16::try_from(self.zigzag()?).map_err(|_| "a field of no number")?,
                more => last.checked_add(i16::from(more)).ok_or("a field of no number")?,
            };
            if !each(self, last, wire)? {
                self.pass(wire, depth)?;
            }
        }
    }

    /// How many elements a list has, and of which type.
    pub(super) fn list(&mut self) -> Result<(usize, Wire), Wrong> {
        let head = self.byte()?;
        if head == 0 {
            // Some writers give an empty list no type.
            return Ok((0, Wire::Byte));
        }
        let count = match head >> 4 {
            15 => self.len()?,
            few => usize::from(few),
        };
        if count > self.left() {
            return Err("a list of more elements than there are bytes");
        }
        Ok((count, Wire::of(head & 0xf)?))
    }

    /// Passes over a value.
    fn pass(&mut self, wire: Wire, depth: u32) -> Result<(), Wrong> {
        let below = depth.checked_sub(1).ok_or("fields too deep in each other")?;
        match wire {
            Wire::True | Wire::False => {}
            Wire::Byte => drop(self.byte()?),
            Wire::Int => drop(self.varint()?),
            Wire::Double => drop(self.bytes(8)?),
            Wire::Uuid => drop(self.bytes(16)?),
            Wire::Binary => drop(self.binary()?),
            Wire::Struct => self.fields_at(below, &mut |_, _, _| Ok(false))?,
            Wire::List => {
                let (count, of) = self.list()?;
                (0..count).try_for_each(|_| self.pass_element(of, below))?;
            }
            Wire::Map => {
                let count = self.len()?;
                if count > self.left() {
                    return Err("a map of more elements than there are bytes");
                }
                if count > 0 {
                    let kinds = self.byte()?;
                    let (key, value) = (Wire::of(kinds >> 4)?, Wire::of(kinds & 0xf)?);
                    for _ in 0..count {
                        self.pass_element(key, below)?;
                        self.pass_element(value, below)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A truth among others has a byte of its own.
    fn pass_element(&mut self, of: Wire, depth: u32) -> Result<(), Wrong> {
        match of {
            Wire::True | Wire::False => self.byte().map(drop),
            of => self.pass(of, depth),
        }
    }

    /// Bytes behind their length.
    pub(super) fn binary(&mut self) -> Result<&'b [u8], Wrong> {
        let len = self.len()?;
        self.bytes(len)
    }

    pub(super) fn text(&mut self) -> Result<&'b str, Wrong> {
        std::str::from_utf8(self.binary()?).map_err(|_| "a text that is none")
    }

    /// A number of a field, which has to be one.
    pub(super) fn int(&mut self, wire: Wire) -> Result<i64, Wrong> {
        match wire {
            Wire::Byte => Ok(i64::from(self.byte()?.cast_signed())),
            Wire::Int => self.zigzag(),
            _ => Err(OTHER),
        }
    }

    /// A number that has to be none below zero.
    pub(super) fn size(&mut self, wire: Wire) -> Result<u64, Wrong> {
        u64::try_from(self.int(wire)?).map_err(|_| "a size below zero")
    }
}

const SHORT: Wrong = "it ends too early";
/// Of a field whose type is another.
pub(super) const OTHER: Wrong = "a field of another type";

/// That a field is of a type.
pub(super) fn is(wire: Wire, want: Wire) -> Result<(), Wrong> {
    if wire == want { Ok(()) } else { Err(OTHER) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_64_bits() {
        let of = |bytes: &[u8]| Thrift::new(bytes).zigzag();
        assert_eq!(of(&[0]), Ok(0));
        assert_eq!(of(&[1]), Ok(-1));
        assert_eq!(of(&[0xac, 2]), Ok(150));
        let ten = |last: u8| [&[0xff; 9][..], &[last]].concat();
        assert_eq!(of(&ten(1)), Ok(i64::MIN));
        assert_eq!(of(&ten(2)), Err("a number of more than 64 bits"));
        assert_eq!(of(&[0x80; 1000]), Err("a number of more than 64 bits"));
        assert_eq!(of(&[0x80]), Err(SHORT));
    }

    /// A list of truths of 2^31, which takes no bytes where its reader says so: no work is done for it.
    #[test]
    fn nothing_is_more_than_its_bytes() {
        let pass = |bytes: &[u8]| Thrift::new(bytes).fields(|_, _, _| Ok(false));
        let many = [0xff, 0xff, 0xff, 0xff, 7];
        for (of, what) in [(0xf1, "list"), (0xfc, "list")] {
            let bytes = [&[0x19, of][..], &many, &[1, 1, 0]].concat();
            assert_eq!(pass(&bytes), Err("a list of more elements than there are bytes"), "{what}");
        }
        let bytes = [&[0x1b][..], &many, &[0x11, 0]].concat();
        assert_eq!(pass(&bytes), Err("a map of more elements than there are bytes"));
        assert_eq!(pass(&[0x1c; 40]), Err("fields too deep in each other"));
        assert_eq!(pass(&[0x18, 5, 1]), Err(SHORT));
        // What is known to be there is passed over.
        assert_eq!(pass(&[0x19, 0x21, 1, 2, 0x15, 2, 0x1c, 0x11, 0, 0]), Ok(()));
    }
}
