use super::words::spaced;
use super::{Encoding, TextBatch, TokenizedText};
use crate::embeddings::{BertEmbeddingsConfig, BertEmbeddingsInput};
use crate::error::{Error, Result};
use crate::family::PositionEmbeddingType;
use crate::layers::{PaddingMask, check_multiple};
use burn::prelude::*;
use std::collections::BTreeMap;
use std::iter::repeat;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokenizers::normalizers::{Lowercase, NormalizerWrapper, Sequence};
use tokenizers::utils::parallelism::MaybeParallelRefIterator;
use tokenizers::utils::truncation::{TruncationDirection, TruncationParams, truncate_encodings};
use tokenizers::{EncodeInput, ModelWrapper, PostProcessor, PostProcessorWrapper, Tokenizer};

/// The tokenizer of a model of this crate; ids match those of transformers' class,
/// [with and without a `tokenizer.json`](Self::from_pretrained).
///
/// Texts longer than [`model_max_length`](Self::model_max_length) are cut, at the end unless the files say otherwise, special
/// tokens kept; of a pair the longer text is cut first (transformers' `truncation="longest_first"`). Without a limit nothing is
/// cut. The [module](super) has an example.
#[derive(Clone, Debug)]
pub struct BertTokenizer {
    /// The files that it was read from, by their usual names.
    pub(super) files: Arc<BTreeMap<&'static str, Vec<u8>>>,
    /// Without its post-processor, which would cut the spaces off the offsets of a byte-level token once for the text and
    /// once again with the special tokens.
    pub(super) tokenizer: Arc<Tokenizer>,
    /// Whether the start of a text has the tokens that it has in the whole text.
    pub(super) is_local: bool,
    pub(super) lowers_case: bool,
    /// Without its trimming of offsets, which adds characters to bytes.
    pub(super) post_processor: PostProcessorWrapper,
    /// Whether offsets leave out the white space at the ends of a token; and if so, whether the tokenizer puts a space before a text.
    pub(super) trim_offsets: Option<bool>,
    pub(super) special: SpecialTokens,
    pub(super) special_token_ids: Vec<u32>,
    pub(super) vocab_size: usize,
    /// Whether the second text of a pair has other token types.
    pub(super) has_token_types: bool,
    /// The limit of the files.
    pub(super) stated_max_length: Option<usize>,
    /// The caller's, in place of that of the files.
    pub(super) own_max_length: Option<usize>,
    /// What the model can read.
    pub(super) readable_length: Option<usize>,
    /// What it was trained with, if nobody states another length.
    pub(super) trained_length: Option<usize>,
    /// The end at which texts are cut.
    pub(super) truncation_side: TruncationDirection,
    pub(super) pad_to_multiple_of: Option<usize>,
}

/// Tokens with their ids.
#[derive(Clone, Debug)]
pub(super) struct SpecialTokens {
    pub(super) pad: (String, u32),
    pub(super) cls: (String, u32),
    pub(super) sep: (String, u32),
    pub(super) mask: (String, u32),
    pub(super) unk: Option<(String, u32)>,
    pub(super) bos: Option<(String, u32)>,
    pub(super) eos: Option<(String, u32)>,
}

impl BertTokenizer {
    /// The tokenizer of a model with this embedding layer; `PretrainedModel::limit_tokenizer` says what that means.
    pub(crate) fn limited_to(self, config: &BertEmbeddingsConfig) -> Result<Self> {
        self.check_vocabulary(config.vocab_size)?;
        let pad_token_id = self.pad_token_id();
        if config.position_embedding_type == PositionEmbeddingType::AfterPadding
            && config.pad_token_id != Some(pad_token_id as usize)
        {
            let problem = format!(
                "is {:?}, but this tokenizer pads with {pad_token_id} and AfterPadding counts positions from it; \
                 is this the tokenizer that the model was made with?",
                config.pad_token_id
            );
            return Err(Error::config("pad_token_id", problem));
        }
        let trained_length = Some(config.max_position_embeddings);
        Ok(Self { readable_length: config.max_sequence_length(), trained_length, ..self })
    }

    /// Replaces the files' [`model_max_length`](Self::model_max_length). The limit of the model remains.
    pub fn with_model_max_length(self, model_max_length: usize) -> Self {
        Self { own_max_length: Some(model_max_length), ..self }
    }

    /// `max_seq_length` of sentence-transformers: it replaces the limit of the other files, but not a smaller one that
    /// the caller set.
    pub(crate) fn with_max_seq_length(self, max_seq_length: usize) -> Self {
        let own_max_length = self.own_max_length.map(|own| own.min(max_seq_length));
        Self { stated_max_length: Some(max_seq_length), own_max_length, ..self }
    }

    /// Converts texts to lower case, but for special tokens, before anything else: `do_lower_case` of
    /// sentence-transformers.
    pub(crate) fn with_lower_case(self) -> Self {
        // `encode` limits a tokenizer that its caller may have limited already.
        if self.lowers_case {
            return self;
        }
        let mut tokenizer = Arc::unwrap_or_clone(self.tokenizer);
        let own = tokenizer.get_normalizer().cloned();
        let lower_case = NormalizerWrapper::Lowercase(Lowercase);
        let both = Sequence::new([lower_case].into_iter().chain(own).collect());
        tokenizer.with_normalizer(Some(both));
        Self {
            is_local: Self::is_local(&tokenizer),
            lowers_case: true,
            tokenizer: Arc::new(tokenizer),
            ..self
        }
    }

    /// Makes [`batch`](Self::batch) pad to a multiple of this many tokens, so that batches have fewer shapes.
    /// [`Error::Config`] if it is 0 or above 65,536.
    pub fn with_pad_to_multiple_of(self, pad_to_multiple_of: usize) -> Result<Self> {
        check_multiple(pad_to_multiple_of)?;
        Ok(Self { pad_to_multiple_of: Some(pad_to_multiple_of), ..self })
    }

    /// [`Error::Data`] if there is a token without one of `vocab_size` word embeddings.
    pub fn check_vocabulary(&self, vocab_size: usize) -> Result<()> {
        if self.vocab_size > vocab_size {
            let problem = format!(
                "has {} tokens, but the model has {vocab_size} word embeddings; is this the tokenizer that the model \
                 was made with? If tokens were added to it, resize_vocabulary adds rows",
                self.vocab_size
            );
            return Err(Error::data("the tokenizer's vocabulary", problem));
        }
        Ok(())
    }

    /// Tokens in the vocabulary: one more than the largest id.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The number of tokens, special ones included, beyond which texts are cut or split; `None` for any length.
    pub fn model_max_length(&self) -> Option<usize> {
        let length = self.own_max_length.or(self.stated_max_length).or(self.trained_length);
        length.into_iter().chain(self.readable_length).min()
    }

    /// The multiple that [`batch`](Self::batch) pads to.
    pub fn pad_to_multiple_of(&self) -> Option<usize> {
        self.pad_to_multiple_of
    }

    /// The id of `[PAD]`.
    pub fn pad_token_id(&self) -> u32 {
        self.special.pad.1
    }

    /// The id of `[CLS]`, which starts a sequence.
    pub fn cls_token_id(&self) -> u32 {
        self.special.cls.1
    }

    /// The id of `[SEP]`, which ends a text.
    pub fn sep_token_id(&self) -> u32 {
        self.special.sep.1
    }

    /// The id of `[MASK]`.
    pub fn mask_token_id(&self) -> u32 {
        self.special.mask.1
    }

    /// The id of `[UNK]`.
    pub(crate) fn unk_token_id(&self) -> Option<u32> {
        self.special.unk.as_ref().map(|unk| unk.1)
    }

    /// The ids of all special tokens, `[UNK]` included, ascending.
    pub fn special_token_ids(&self) -> &[u32] {
        &self.special_token_ids
    }

    /// The id of a token as the vocabulary writes it, such as `##ing`.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// The token of an id, as the vocabulary writes it.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    /// Whether a token, at these bytes of a text, continues the word of the token before it, as decided by
    /// `TokenClassificationPipeline` of transformers 5.23: in vocabularies with a prefix such as `##`, if the token is
    /// not as long as its text; in others, if there is no space before it. An unknown token begins a word.
    pub(crate) fn continues_word(&self, id: u32, text: &str, start: usize, end: usize) -> bool {
        if self.unk_token_id() == Some(id) {
            return false;
        }
        let prefix = match self.tokenizer.get_model() {
            ModelWrapper::WordPiece(model) => Some(&model.continuing_subword_prefix),
            ModelWrapper::BPE(model) => model.continuing_subword_prefix.as_ref(),
            _ => None,
        };
        if prefix.is_some_and(|prefix| !prefix.is_empty()) {
            let token = self.id_to_token(id).unwrap_or_default();
            return token.chars().count() != text[start..end].chars().count();
        }
        let (before, after) = text.split_at(start);
        start > 0 && !before.ends_with(' ') && !after.starts_with(' ')
    }

    /// The text of tokens, without special ones and ids that are in no vocabulary; [`Error::Tokenize`] if the decoder
    /// refuses the tokens.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.decoded(ids, true)
    }

    pub(crate) fn decoded(&self, ids: &[u32], skips_special_tokens: bool) -> Result<String> {
        guarded(|| self.tokenizer.decode(ids, skips_special_tokens)).map_err(failed)
    }

    /// Encodes one text: `[CLS] text [SEP]`. [`Error::Data`] if [`model_max_length`](Self::model_max_length) has no room
    /// for the special tokens, or a text that is cut has a word of more than 256 KiB; [`Error::Tokenize`] if the tokenizer fails on
    /// the text.
    pub fn encode(&self, text: &str) -> Result<Encoding> {
        self.encode_truncated(text, None)
    }

    /// Encodes a pair of texts: `[CLS] text [SEP] pair [SEP]`, the second of type 1 if `model_input_names` of
    /// `tokenizer_config.json`, or else the class, BERT's or DeBERTa's, says so (with RoBERTa: `<s> text </s></s> pair </s>`, all of
    /// type 0). Errors are those of [`encode`](Self::encode).
    pub fn encode_pair(&self, text: &str, pair: &str) -> Result<Encoding> {
        self.encode_truncated(text, Some(pair))
    }

    /// [`encode_pair`](Self::encode_pair), but the first text alone is cut (transformers' `truncation="only_first"`);
    /// [`Error::Data`] also if the second leaves no room.
    pub(crate) fn encode_premise(&self, premise: &str, hypothesis: &str) -> Result<Encoding> {
        let (room, second) = (self.room(true)?, self.tokenize(hypothesis)?);
        let left = room.checked_sub(second.len()).ok_or_else(|| {
            let problem = format!("has {} tokens, but there is room for {room}; shorten it", second.len());
            Error::data(format!("the hypothesis {hypothesis:?}"), problem)
        })?;
        let (mut first, _) = self.tokenize_start(premise, left)?;
        first.truncate(left, 0, self.truncation_side);
        self.finish(
            (first, TokenizedText::Text(premise)),
            Some((second, TokenizedText::Text(hypothesis))),
            room,
        )
    }

    /// Encodes text that is split into words (transformers' `is_split_into_words=True`); [`Encoding::word_ids`] gives the word
    /// of each token. A byte-level tokenizer, as RoBERTa's, takes a space as a part of the word after it; the first word has
    /// one with `add_prefix_space` only. Errors are those of [`encode`](Self::encode).
    pub fn encode_words<T: AsRef<str>>(&self, words: &[T]) -> Result<Encoding> {
        let (words, lengths) = spaced(words);
        words.iter().try_for_each(|word| check_word(word))?;
        let room = self.room(false)?;
        // No more words than may fit, with one token each: of the rest none is kept.
        let mut count = words.len().min(room.saturating_add(1));
        if self.truncation_side == TruncationDirection::Left {
            count = words.len();
        }
        let mut pieces = self.tokenize(&words[..count])?;
        // A word has the same pieces whatever follows; some have none.
        while count < words.len() && pieces.len() <= room {
            count = words.len().min(4 * count); // so that long texts take few rounds
            pieces = self.tokenize(&words[..count])?;
        }
        self.finish((pieces, TokenizedText::Words(&words, &lengths)), None, room)
    }

    /// Encodes texts one by one, on as many threads as tokenizers uses (`TOKENIZERS_PARALLELISM=false`: one).
    /// Errors are those of [`encode`](Self::encode).
    pub fn encode_batch<T: AsRef<str> + Sync>(&self, texts: &[T]) -> Result<Vec<Encoding>> {
        // One by one: `encode` cuts and finishes each text itself.
        let encodings = texts.maybe_par_iter().map(|text| self.encode(text.as_ref()));
        encodings.collect::<Vec<_>>().into_iter().collect()
    }

    /// Encodes pairs of texts one by one, on as many threads as [`encode_batch`](Self::encode_batch).
    /// Errors are those of [`encode`](Self::encode).
    pub fn encode_pairs<T, U>(&self, pairs: &[(T, U)]) -> Result<Vec<Encoding>>
    where
        T: AsRef<str> + Sync,
        U: AsRef<str> + Sync,
    {
        let encodings =
            pairs.maybe_par_iter().map(|(text, pair)| self.encode_pair(text.as_ref(), pair.as_ref()));
        encodings.collect::<Vec<_>>().into_iter().collect()
    }

    /// Packs encodings into a batch, padded at the end to the longest, or to the next multiple of
    /// [`pad_to_multiple_of`](Self::pad_to_multiple_of). [`Error::Empty`] if there is no encoding.
    pub fn batch(&self, encodings: &[Encoding], device: &Device) -> Result<TextBatch> {
        let lengths: Vec<usize> = encodings.iter().map(Encoding::len).collect();
        let (seq, padding) = PaddingMask::to_multiple(&lengths, self.pad_to_multiple_of);
        // At the end, whatever the files say: positions count from the first token.
        let padded = |field: fn(&Encoding) -> &[u32], padding: u32| -> Vec<Vec<u32>> {
            let pad = |encoding| field(encoding).iter().copied().chain(repeat(padding)).take(seq).collect();
            encodings.iter().map(pad).collect()
        };
        let ids = padded(Encoding::input_ids, self.pad_token_id());
        let token_types = padded(Encoding::token_type_ids, 0);
        let input = BertEmbeddingsInput::from_rows(&ids, device)?.with_token_type_ids(&token_types)?;
        Ok(TextBatch { input, padding })
    }

    fn encode_truncated(&self, text: &str, pair: Option<&str>) -> Result<Encoding> {
        let room = self.room(pair.is_some())?;
        let (mut first, is_first_cut) = self.tokenize_start(text, room)?;
        let mut second = None;
        if let Some(pair) = pair {
            let (mut tokens, is_second_cut) = self.tokenize_start(pair, room)?;
            // Of an odd room the longer text gets a token more, and what was cut may be the longer one.
            let is_open = room % 2 == 1 && first.len().min(tokens.len()) > room;
            if is_open && (is_first_cut || is_second_cut) {
                (first, tokens) = (self.tokenize(text)?, self.tokenize(pair)?);
            }
            second = Some((tokens, TokenizedText::Text(pair)));
        }
        self.finish((first, TokenizedText::Text(text)), second, room)
    }

    /// The tokens of a text, without special ones that the text does not have, and not cut.
    pub(crate) fn tokenize<'s>(&self, text: impl Into<EncodeInput<'s>>) -> Result<tokenizers::Encoding> {
        guarded(|| self.tokenizer.encode(text, false)).map_err(failed)
    }

    /// Cuts texts to `room` tokens together, the longer one first, and adds the special tokens.
    pub(super) fn finish(
        &self,
        (text, source): (tokenizers::Encoding, TokenizedText),
        pair: Option<(tokenizers::Encoding, TokenizedText)>,
        room: usize,
    ) -> Result<Encoding> {
        let (pair, second) = pair.unzip();
        let sources = [source, second.unwrap_or(source)];
        let params =
            TruncationParams { max_length: room, direction: self.truncation_side, ..Default::default() };
        let (mut text, mut pair) = truncate_encodings(text, pair, &params).map_err(failed)?;
        // What was cut off would be combined, each piece of the one with each of the other.
        let is_cut = |tokens: &mut tokenizers::Encoding| !tokens.take_overflowing().is_empty();
        let is_truncated = is_cut(&mut text) | pair.as_mut().is_some_and(is_cut);
        let first = text.len();
        let finished = guarded(|| self.post_processor.process(text, pair, true));
        let finished = finished.map_err(failed)?;
        let mut encoding = Encoding::new(&finished, first, sources, self.trim_offsets);
        // The post-processor of a class without types can have some, and its model is given type 0 for all.
        encoding.token_type_ids.iter_mut().filter(|_| !self.has_token_types).for_each(|id| *id = 0);
        Ok(Encoding { is_truncated, ..encoding })
    }

    /// The places that special tokens leave; without a limit more than any text has tokens.
    pub(super) fn room(&self, is_pair: bool) -> Result<usize> {
        let max_length = self.model_max_length().unwrap_or(usize::MAX);
        let special_tokens = self.post_processor.added_tokens(is_pair);
        max_length.checked_sub(special_tokens).ok_or_else(|| {
            let problem = format!(
                "have no room for the {special_tokens} special tokens; set a larger model_max_length"
            );
            Error::data(format!("sequences of at most {max_length} tokens"), problem)
        })
    }
}

/// The longest word of a text that is cut, in bytes. Its first tokens may depend on its end, so it is tokenised whole, which takes
/// 200 times its size.
pub(super) const MAX_WORD: usize = 256 << 10;

/// Refuses a word, or the start of one, that is too long to be tokenised for the few tokens that are kept of it.
pub(super) fn check_word(word: &str) -> Result<()> {
    if word.len() <= MAX_WORD {
        return Ok(());
    }
    let start: String = word.chars().take(40).collect();
    let problem = format!("has more than {MAX_WORD} bytes without a break between words; shorten it");
    Err(Error::data(format!("the text at {start:?}…"), problem))
}

/// Runs the library, and turns its panics into errors.
pub(super) fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> tokenizers::Result<T> {
    // What a panic could leave half-changed is not used again: encoding changes no tokenizer, and loading makes a new one.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Err(format!("the tokenizers library panicked: {message}").into())
    })
}

fn failed(source: tokenizers::Error) -> Error {
    Error::Tokenize { source }
}
