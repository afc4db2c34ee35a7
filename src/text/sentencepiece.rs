//! Reading SentencePiece models, which are protobuf messages.

/// The most pieces, for each of which the library takes some 300 bytes. mDeBERTa has 250,101.
const MAX_PIECES: usize = 900_000;

const CUT: &str = "is not a SentencePiece model, or is cut short";

/// What transformers takes of a SentencePiece model.
///
/// Source: `sentencepiece_model.proto` of SentencePiece 0.2.
#[derive(Default)]
pub(super) struct SentencePiece<'a> {
    /// Texts, scores, and types: 3 of pieces that no text contains, 4 of those that are never a part of another.
    pub(super) pieces: Vec<(&'a str, f32, u64)>,
    pub(super) unk_id: u64,
    /// Empty if texts are not normalized.
    pub(super) precompiled_charsmap: &'a [u8],
}

impl<'a> SentencePiece<'a> {
    pub(super) fn read(mut file: &'a [u8]) -> Result<Self, String> {
        let mut model = Self::default();
        while !file.is_empty() {
            let (part, _, mut message) = take_field(&mut file).ok_or(CUT)?;
            let mut piece = ("", 0.0, 1);
            while !message.is_empty() {
                let (field, number, bytes) = take_field(&mut message).ok_or(CUT)?;
                match (part, field) {
                    (1, 1) => piece.0 = str::from_utf8(bytes).map_err(|_| "has a piece that is not UTF-8")?,
                    (1, 2) => piece.1 = f32::from_bits(number as u32), // of 32 bits
                    (1, 3) => piece.2 = number,
                    // The trainer's settings.
                    (2, 3) if number != 1 => {
                        return Err(format!(
                            "has a model of type {number}, but only type 1 (unigram) is supported"
                        ));
                    }
                    (2, 40) => model.unk_id = number,
                    // The normalizer's.
                    (3, 2) => model.precompiled_charsmap = bytes,
                    _ => {}
                }
            }
            model.pieces.extend((part == 1).then_some(piece));
            if model.pieces.len() > MAX_PIECES {
                return Err(format!("has more than {MAX_PIECES} pieces"));
            }
        }
        Ok(model)
    }
}

/// The number of a field, and its value: a number, bytes, or four bytes as a number.
fn take_field<'a>(message: &mut &'a [u8]) -> Option<(u64, u64, &'a [u8])> {
    let key = take_number(message)?;
    let (number, bytes) = match key & 7 {
        0 => (take_number(message)?, &[][..]),
        1 => (0, message.split_off(..8)?),
        2 => {
            let length = usize::try_from(take_number(message)?).ok()?;
            (0, message.split_off(..length)?)
        }
        5 => (u32::from_le_bytes(message.split_off(..4)?.try_into().ok()?).into(), &[][..]),
        _ => return None,
    };
    Some((key >> 3, number, bytes))
}

/// Seven bits a byte, the lowest first, up to a byte below 128.
fn take_number(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *message.split_off_first()?;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
