//! Reading SentencePiece models, which are protobuf messages.

/// The most pieces, for each of which the library takes some 300 bytes. mDeBERTa has 250,101.
const MAX_PIECES: usize = 900_000;

const CUT: &str = "is not a SentencePiece model, or is cut short";

/// What transformers takes of a SentencePiece model.
///
/// Source: `sentencepiece_model.proto` of SentencePiece 0.2.
#[derive(Default)]
pub(super) struct SentencePiece<'a> {
    pub(super) pieces: Vec<Piece<'a>>,
    pub(super) unk_id: u64,
    /// Empty if texts are not normalized.
    pub(super) precompiled_charsmap: &'a [u8],
}

#[derive(Default)]
pub(super) struct Piece<'a> {
    pub(super) text: &'a str,
    pub(super) score: f32,
    kind: u64,
}

impl Piece<'_> {
    /// Whether no text contains it: `CONTROL`.
    pub(super) fn is_control(&self) -> bool {
        self.kind == 3
    }

    /// Whether it is never a part of another: `CONTROL` or `USER_DEFINED`.
    pub(super) fn is_added(&self) -> bool {
        self.is_control() || self.kind == 4
    }
}

impl<'a> SentencePiece<'a> {
    pub(super) fn read(file: &'a [u8]) -> Result<Self, String> {
        let mut model = Self::default();
        for part in fields(file) {
            let (part, Value::Bytes(message)) = part.ok_or(CUT)? else { continue };
            if part == 1 {
                model.pieces.push(Piece::default());
            }
            for field in fields(message) {
                match (part, field.ok_or(CUT)?, model.pieces.last_mut()) {
                    (1, (1, Value::Bytes(bytes)), Some(piece)) => {
                        piece.text = str::from_utf8(bytes).map_err(|_| "has a piece that is not UTF-8")?;
                    }
                    (1, (2, Value::Fixed(bits)), Some(piece)) => piece.score = f32::from_bits(bits),
                    (1, (3, Value::Number(kind)), Some(piece)) => piece.kind = kind,
                    // The trainer's settings.
                    (2, (3, Value::Number(kind)), _) if kind != 1 => {
                        return Err(format!(
                            "has a model of type {kind}, but only type 1 (unigram) is supported"
                        ));
                    }
                    (2, (40, Value::Number(id)), _) => model.unk_id = id,
                    // The normalizer's.
                    (3, (2, Value::Bytes(map)), _) => model.precompiled_charsmap = map,
                    _ => {}
                }
            }
            if model.pieces.len() > MAX_PIECES {
                return Err(format!("has more than {MAX_PIECES} pieces"));
            }
        }
        Ok(model)
    }
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed(u32),
}

/// The fields of a message by their numbers; `None` where it is not one.
fn fields<'a>(mut message: &'a [u8]) -> impl Iterator<Item = Option<(u64, Value<'a>)>> {
    std::iter::from_fn(move || (!message.is_empty()).then(|| take_field(&mut message)))
}

fn take_field<'a>(message: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let key = take_number(message)?;
    let value = match key & 7 {
        0 => Value::Number(take_number(message)?),
        1 => Value::Bytes(message.split_off(..8)?),
        2 => {
            let length = usize::try_from(take_number(message)?).ok()?;
            Value::Bytes(message.split_off(..length)?)
        }
        5 => Value::Fixed(u32::from_le_bytes(message.split_off(..4)?.try_into().ok()?)),
        _ => return None,
    };
    Some((key >> 3, value))
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
