//! Where a pickle ends and whether it has views with a lazy sign, found without building what it describes.

use std::io::{self, BufRead, Read};

/// The pickle of a state dict has about 130 bytes a tensor; this is eight thousand tensors.
///
/// Parsing takes up to a hundred times a pickle's length, one object for each byte.
pub(super) const MAX_PICKLE_BYTES: u64 = 1 << 20;

/// What follows an opcode.
enum Argument {
    Bytes(u64),
    /// A length in so many bytes, then as many bytes as it says.
    Prefixed(usize),
    /// The same for text.
    Text(usize),
    /// Text to the end of the line, so many times.
    Lines(usize),
}

/// What `torch.save` (2.15's `torch._utils.get_tensor_metadata`) writes as `{"neg": True}` beside a tensor whose
/// stored values are to be negated, and likewise for the conjugate.
const LAZY_SIGNS: [&[u8]; 2] = [b"neg", b"conj"];

/// Reads to the end of the pickle that starts here, and returns whether it has a view with a lazy sign.
///
/// Source: CPython's `pickletools.opcodes`, protocols 0 to 5.
pub(super) fn skip_pickle(reader: &mut impl BufRead) -> io::Result<bool> {
    let mut pickle = reader.take(MAX_PICKLE_BYTES);
    let (mut has_lazy_sign, mut follows_name) = (false, false);
    loop {
        let mut opcode = [0];
        read(&mut pickle, &mut opcode)?;
        match opcode[0] {
            0x88 => has_lazy_sign |= follows_name, // True
            b'q' | b'r' | 0x94 => {}               // puts the name into the memo
            _ => follows_name = false,
        }
        let argument = match opcode[0] {
            b'.' => return Ok(has_lazy_sign),
            b'K' | b'h' | b'q' | 0x80 | 0x82 => Argument::Bytes(1),
            b'M' | 0x83 => Argument::Bytes(2),
            b'J' | b'j' | b'r' | 0x84 => Argument::Bytes(4),
            b'G' | 0x95 => Argument::Bytes(8),
            b'U' | b'C' | 0x8a => Argument::Prefixed(1),
            b'T' | b'B' | 0x8b => Argument::Prefixed(4),
            0x8e | 0x96 => Argument::Prefixed(8),
            0x8c => Argument::Text(1),
            b'X' => Argument::Text(4),
            0x8d => Argument::Text(8),
            b'I' | b'L' | b'F' | b'S' | b'V' | b'g' | b'p' | b'P' => Argument::Lines(1),
            b'c' | b'i' => Argument::Lines(2),
            _ => Argument::Bytes(0),
        };
        match argument {
            Argument::Bytes(count) => skip(&mut pickle, count)?,
            Argument::Prefixed(width) => {
                let length = read_length(&mut pickle, width)?;
                skip(&mut pickle, length)?;
            }
            Argument::Text(width) => {
                let length = read_length(&mut pickle, width)?;
                let mut start = [0; 4];
                let name = &mut start[..length.min(4) as usize];
                read(&mut pickle, name)?;
                follows_name = length <= 4 && LAZY_SIGNS.contains(&&*name);
                skip(&mut pickle, length.saturating_sub(4))?;
            }
            Argument::Lines(count) => {
                for _ in 0..count {
                    if pickle.skip_until(b'\n')? == 0 {
                        return Err(endless());
                    }
                }
            }
        }
    }
}

fn read_length(pickle: &mut impl Read, width: usize) -> io::Result<u64> {
    let mut length = [0; 8];
    read(pickle, &mut length[..width])?;
    Ok(u64::from_le_bytes(length))
}

fn read(pickle: &mut impl Read, bytes: &mut [u8]) -> io::Result<()> {
    pickle.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => endless(),
        _ => error,
    })
}

fn skip(pickle: &mut impl Read, count: u64) -> io::Result<()> {
    if io::copy(&mut pickle.take(count), &mut io::sink())? < count {
        return Err(endless());
    }
    Ok(())
}

fn endless() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("its pickle is truncated, or longer than the {MAX_PICKLE_BYTES} bytes that are read"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of `bytes` after their first pickle, and whether that has a lazy sign.
    fn skipped(mut bytes: &[u8]) -> io::Result<(&[u8], bool)> {
        let has_lazy_sign = skip_pickle(&mut bytes)?;
        Ok((bytes, has_lazy_sign))
    }

    /// Every opcode with an argument, by the argument's form: arguments are full stops, which end no pickle.
    #[test]
    fn arguments_of_every_form_are_skipped() {
        let dots = |count: usize| vec![b'.'; count];
        let prefixed = |width: usize| [&[3, 0, 0, 0, 0, 0, 0, 0][..width], b"..."].concat();
        let forms = [
            (b"Khq\x80\x82".as_slice(), dots(1)),
            (b"M\x83", dots(2)),
            (b"Jjr\x84", dots(4)),
            (b"G\x95", dots(8)),
            (b"UC\x8a\x8c", prefixed(1)),
            (b"TBX\x8b", prefixed(4)),
            (b"\x8d\x8e\x96", prefixed(8)),
            (b"ILFSVgpP", b"..\n".to_vec()),
            (b"ci", b"..\n..\n".to_vec()),
        ];
        for (opcodes, argument) in forms {
            for &opcode in opcodes {
                let pickle = [&[opcode], argument.as_slice(), b"N."].concat();
                let found = [pickle.as_slice(), b"rest"].concat();
                assert_eq!(skipped(&found).unwrap(), (b"rest".as_slice(), false), "{opcode:#x}");
                for end in 1..pickle.len() {
                    assert!(skipped(&pickle[..end]).is_err(), "{opcode:#x}, cut after {end}");
                }
            }
        }
    }
}
