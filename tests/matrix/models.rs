//! The families and the heads: a family or a head more is one entry.

use crate::tolerance::values;
use burn::module::{Module, ModuleMapper, Param};
use burn::prelude::*;
use burn_bert::PositionEmbeddingType::{
    self, Absolute, AfterPadding, Disentangled, RelativeKey, RelativeKeyQuery, Rotary,
};
use burn_bert::model::*;
use burn_bert::{BertEmbeddingsInput, Family, PaddingMask, Result};

/// Every family with a published config of it.
const FAMILIES: [(Family, fn() -> BertModelConfig); 17] = [
    (Family::Bert, BertModelConfig::bert_base_uncased),
    (Family::Ernie, BertModelConfig::bert_base_uncased),
    (Family::Roberta, BertModelConfig::roberta_base),
    (Family::XlmRoberta, BertModelConfig::roberta_base),
    (Family::Camembert, BertModelConfig::roberta_base),
    (Family::Data2VecText, BertModelConfig::roberta_base),
    (Family::DistilBert, BertModelConfig::distilbert_base_uncased),
    (Family::Electra, BertModelConfig::electra_small),
    (Family::Electra, BertModelConfig::electra_base),
    (Family::MpNet, BertModelConfig::mpnet_base),
    (Family::Albert, BertModelConfig::albert_base_v2),
    (Family::ModernBert, BertModelConfig::modernbert_base),
    (Family::NomicBert, BertModelConfig::nomic_embed_text_v1_5),
    (Family::Gte, BertModelConfig::gte_multilingual_base),
    (Family::JinaEmbeddingsV3, BertModelConfig::jina_embeddings_v3),
    (Family::DebertaV2, BertModelConfig::deberta_v3_base),
    (Family::EuroBert, BertModelConfig::eurobert_610m),
];

pub const VOCABULARY: usize = 24;

/// A family with positions that its config permits.
#[derive(Clone, Debug)]
pub struct Architecture {
    pub name: String,
    config: BertModelConfig,
}

/// Of `width` values a token.
pub fn architectures(width: usize) -> Vec<Architecture> {
    let mut found = Vec::new();
    for (family, published) in FAMILIES {
        for positions in [Absolute, AfterPadding, RelativeKey, RelativeKeyQuery, Rotary, Disentangled] {
            let mut config = published()
                .with_num_hidden_layers(2)
                .with_num_attention_heads(2)
                .with_intermediate_size(width + width / 2);
            // Both heads of queries read one of keys.
            config.num_key_value_heads = config.num_key_value_heads.map(|_| 1);
            let embeddings = &mut config.embeddings;
            embeddings.family = family;
            embeddings.vocab_size = VOCABULARY;
            embeddings.hidden_size = width;
            embeddings.embedding_size = embeddings.embedding_size.map(|_| width / 2);
            embeddings.max_position_embeddings = 64;
            embeddings.position_embedding_type = positions;
            embeddings.pad_token_id = embeddings.pad_token_id.map(|pad| pad % 2);
            // A layer with a window of one token on each side follows one without.
            config.rotary = config.rotary.map(|rotary| rotary.with_local_attention(2));
            // The others of a kind compute as its first, and are there once.
            // Buckets of several distances from three tokens on, and projections of its own beside absolute positions.
            config.disentangled = config.disentangled.map(|disentangled| {
                let disentangled =
                    disentangled.with_position_buckets(Some(4)).with_max_relative_positions(16);
                disentangled.with_share_att_key(positions == Disentangled)
            });
            let is_first =
                !["Ernie", "XlmRoberta", "Camembert", "Data2VecText"].contains(&&*format!("{family:?}"));
            let is_published = positions == published().embeddings.position_embedding_type;
            if (is_first || is_published) && config.validate().is_ok() {
                let projected = config.embeddings.embedding_size.map_or("", |_| ", projected");
                found.push(Architecture { name: format!("{family:?} {positions:?}{projected}"), config });
            }
        }
    }
    found
}

impl Architecture {
    pub fn family(&self) -> Family {
        self.config.embeddings.family
    }

    pub fn positions(&self) -> PositionEmbeddingType {
        self.config.embeddings.position_embedding_type
    }

    /// Of the longest sequence.
    pub fn longest(&self) -> usize {
        self.config.embeddings.max_sequence_length().unwrap_or(self.config.embeddings.max_position_embeddings)
    }

    pub fn pad(&self) -> i32 {
        self.config.embeddings.pad_token_id.unwrap() as i32
    }

    pub fn config(&self, dropout: f64) -> BertModelConfig {
        let mut config = self.config.clone().with_attention_probs_dropout_prob(dropout);
        config.embeddings.hidden_dropout_prob = if self.family() == Family::EuroBert { 0.0 } else { dropout };
        config.mlp_dropout = if self.family() == Family::ModernBert { dropout } else { 0.0 };
        config
    }
}

/// A batch: each text with padding before and behind it.
#[derive(Clone, Debug)]
pub struct Texts {
    pub ids: Vec<Vec<i32>>,
    pub before: Vec<usize>,
    pub seq: usize,
    pub pad: i32,
}

impl Texts {
    pub fn new(ids: Vec<Vec<i32>>, pad: i32) -> Self {
        let seq = ids.iter().map(Vec::len).max().unwrap();
        Self { before: vec![0; ids.len()], ids, seq, pad }
    }

    /// `value` by text and token; `padding` where there is none.
    fn rows<T: Clone>(&self, padding: T, value: impl Fn(usize, usize) -> T) -> Vec<Vec<T>> {
        let row = |(text, ids): (usize, &Vec<i32>)| {
            let first = self.before[text];
            let mut row = vec![padding.clone(); self.seq];
            (0..ids.len()).for_each(|token| row[first + token] = value(text, token));
            row
        };
        self.ids.iter().enumerate().map(row).collect()
    }

    pub fn run<M>(&self, run: Run<M>, model: &M, device: &Device) -> (Tensor<1>, Vec<f64>) {
        let (input, padding) = self.input(device);
        run(model, self, input, padding)
    }

    fn input(&self, device: &Device) -> (BertEmbeddingsInput, Option<PaddingMask>) {
        let ids = self.rows(self.pad, |text, token| self.ids[text][token]);
        let padding = PaddingMask::from_rows(&self.rows(true, |_, _| false)).unwrap();
        let input = BertEmbeddingsInput::from_rows(&ids, device).unwrap();
        (input, (!padding.is_full()).then_some(padding))
    }

    /// The rows of [B, S, C] that are tokens, text by text.
    fn tokens(&self, all: Tensor<3>) -> Vec<f64> {
        let [_, seq, width] = all.dims();
        let all = values(all);
        let of_text = |(text, ids): (usize, &Vec<i32>)| {
            let first = (text * seq + self.before[text]) * width;
            all[first..first + ids.len() * width].to_vec()
        };
        self.ids.iter().enumerate().flat_map(of_text).collect()
    }

    /// The first token of each text; 0 where there is none.
    fn first(&self) -> impl Iterator<Item = i32> {
        self.ids.iter().map(|ids| ids.first().copied().unwrap_or(0))
    }

    /// A class for each text.
    fn classes(&self, count: i64) -> Vec<i64> {
        self.first().map(|id| i64::from(id) % count).collect()
    }

    /// A number for each text and label.
    fn targets(&self, labels: usize) -> Vec<Vec<f64>> {
        let target = |id: i32, label: usize| f64::from(id % 5) / 4.0 / (label + 1) as f64;
        self.first().map(|id| (0..labels).map(|label| target(id, label)).collect()).collect()
    }

    fn token_labels(
        &self,
        input: BertEmbeddingsInput,
        padding: Option<PaddingMask>,
        classes: i64,
    ) -> TokenClassificationBatch {
        let labels = self.rows(-100, |text, token| i64::from(self.ids[text][token]).rem_euclid(classes));
        TokenClassificationBatch::new(input, padding, &labels).unwrap()
    }
}

/// A head: its model, and the loss and the logits of a batch in one forward.
pub struct Head<M> {
    pub number: usize,
    pub name: &'static str,
    /// Logits are of each token, or of each text.
    pub of_tokens: bool,
    /// `None` for a family that has no such head.
    pub init: Box<Init<M>>,
    pub run: Run<M>,
}

/// A model with a head, where the family has it.
pub type Init<M> = dyn Fn(BertModelConfig, &Device) -> Option<M>;

/// The loss and the logits of a batch.
pub type Run<M> = fn(&M, &Texts, BertEmbeddingsInput, Option<PaddingMask>) -> (Tensor<1>, Vec<f64>);

impl<M: Module> Head<M> {
    /// The model on `device`, with numbers from the host: the device's generator is left alone.
    pub fn model(&self, bert: BertModelConfig, device: &Device) -> Option<M> {
        (self.init)(bert, device).map(|model| model.map(&mut Fill(0)))
    }
}

/// Values as large as those of a trained model: at initialisation all tokens are nearly equal.
struct Fill(u64);

impl ModuleMapper for Fill {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.0 += 1;
        let shape = param.lazy_shape();
        let count = shape.num_elements();
        let (middle, scale) = if D == 1 { (0.6, 0.5) } else { (0.0, 0.35) };
        let draw = |i: usize| {
            let bits = (self.0 << 32 | i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let bits = (bits ^ bits >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
            middle + scale * (bits as f32 / (1 << 23) as f32 - 1.0)
        };
        let data = TensorData::new((0..count).map(draw).collect::<Vec<f32>>(), shape);
        // In the place of a value that nothing has drawn.
        let value = Tensor::from_data(data, &param.lazy_device());
        let value = if value.is_autodiff() { value.require_grad() } else { value };
        Param::initialized(param.id, value)
    }
}

// A family with a dropout of its own for a head gets that of the layers there too.

fn sequences(bert: BertModelConfig, labels: usize) -> BertForSequenceClassificationConfig {
    let prob = bert.embeddings.hidden_dropout_prob;
    let config = BertForSequenceClassificationConfig::new(bert).with_num_labels(labels);
    let stated = config.clone().with_classifier_dropout(Some(prob));
    if stated.validate().is_ok() { stated } else { config }
}

fn tokens(bert: BertModelConfig) -> BertForTokenClassificationConfig {
    let prob = bert.embeddings.hidden_dropout_prob;
    let config = BertForTokenClassificationConfig::new(bert).with_num_labels(3);
    let stated = config.clone().with_classifier_dropout(Some(prob));
    if stated.validate().is_ok() { stated } else { config }
}

fn answers(bert: BertModelConfig) -> BertForQuestionAnsweringConfig {
    let prob = bert.embeddings.hidden_dropout_prob;
    let config = BertForQuestionAnsweringConfig::new(bert);
    let stated = config.clone().with_qa_dropout(Some(prob));
    if stated.validate().is_ok() { stated } else { config }
}

fn run_sequences(
    model: &BertForSequenceClassification,
    batch: Result<SequenceClassificationBatch>,
) -> (Tensor<1>, Vec<f64>) {
    let output = model.forward(&batch.unwrap());
    (output.loss, values(output.logits))
}

pub trait ForHead {
    fn run<M: Module>(&mut self, head: &Head<M>);
}

pub fn for_each_head(f: &mut impl ForHead) {
    let mut numbers = 0..;
    let mut next = || numbers.next().unwrap();
    f.run(&Head {
        number: next(),
        name: "no head",
        of_tokens: true,
        init: Box::new(|bert, device| Some(bert.init(device))),
        run: |model, texts, input, padding| {
            let output = model.forward(&input, padding.as_ref());
            let of_pooler = output.pooler_output.map(|pooled| pooled.sum());
            let of_tokens = output.last_hidden_state.clone().powi_scalar(3).sum();
            let sum = of_pooler.into_iter().fold(of_tokens, |sum, part| sum + part);
            (sum, texts.tokens(output.last_hidden_state))
        },
    });
    for (name, tied) in [("masked LM", true), ("untied masked LM", false)] {
        f.run(&Head {
            number: next(),
            name,
            of_tokens: true,
            init: Box::new(move |bert, device| {
                Some(BertForMaskedLmConfig::new(bert).with_tie_word_embeddings(tied).init(device))
            }),
            run: |model, texts, input, padding| {
                let at = |text: usize| {
                    (0..texts.ids[text].len()).map(move |token| [text, texts.before[text] + token])
                };
                let positions: Vec<_> = (0..texts.ids.len()).flat_map(at).collect();
                let label = |&id: &i32| (id as u32).wrapping_mul(7) % VOCABULARY as u32;
                let labels: Vec<_> = texts.ids.iter().flatten().map(label).collect();
                let output = model.forward(&MaskedLmBatch::new(input, padding, &positions, &labels).unwrap());
                (output.loss, output.logits.map_or(Vec::new(), values))
            },
        });
    }
    let of_texts: [(_, _, _, Run<BertForSequenceClassification>); 3] = [
        ("one class", 3, Some(vec![0.5, 2.0, 1.0]), |model, texts, input, padding| {
            run_sequences(model, SequenceClassificationBatch::single_label(input, padding, &texts.classes(3)))
        }),
        ("any classes", 3, None, |model, texts, input, padding| {
            run_sequences(model, SequenceClassificationBatch::multi_label(input, padding, &texts.targets(3)))
        }),
        ("regression", 1, None, |model, texts, input, padding| {
            run_sequences(model, SequenceClassificationBatch::regression(input, padding, &texts.targets(1)))
        }),
    ];
    for (name, labels, weights, run) in of_texts {
        let init = move |bert, device: &Device| {
            Some(sequences(bert, labels).with_class_weights(weights.clone()).init(device))
        };
        f.run(&Head { number: next(), name, of_tokens: false, init: Box::new(init), run });
    }
    f.run(&Head {
        number: next(),
        name: "token classes",
        of_tokens: true,
        init: Box::new(|bert, device| Some(tokens(bert).init(device))),
        run: |model, texts, input, padding| {
            let output = model.forward(&texts.token_labels(input, padding, 3));
            (output.loss, texts.tokens(output.logits))
        },
    });
    f.run(&Head {
        number: next(),
        name: "answers",
        of_tokens: true,
        init: Box::new(|bert, device| Some(answers(bert).init(device))),
        run: |model, texts, input, padding| {
            let answer = |(ids, first): (&Vec<i32>, &usize)| [*first, first + ids.len().max(1) - 1];
            let answers: Vec<_> = texts.ids.iter().zip(&texts.before).map(answer).collect();
            let output = model.forward(&QuestionAnsweringBatch::new(input, padding, &answers).unwrap());
            (output.loss, texts.tokens(Tensor::stack(vec![output.start_logits, output.end_logits], 2)))
        },
    });
    f.run(&Head {
        number: next(),
        name: "replaced tokens",
        of_tokens: true,
        init: Box::new(|bert, device| {
            let config = ElectraForPreTrainingConfig::new(bert);
            (config.bert.embeddings.family == Family::Electra).then(|| config.init(device))
        }),
        run: |model, texts, input, padding| {
            let output = model.forward(&texts.token_labels(input, padding, 2));
            (output.loss, texts.tokens(output.logits.unsqueeze_dim(2)))
        },
    });
    for (name, at_once) in [("sentence embeddings", None), ("sentence embeddings in mini-batches", Some(2))] {
        f.run(&Head {
            number: next(),
            name,
            of_tokens: false,
            init: Box::new(move |bert, device| {
                let modules = vec![
                    SentenceModuleConfig::Dropout(bert.embeddings.hidden_dropout_prob),
                    SentenceDenseConfig::new(6).into(),
                ];
                let config = BertForSentenceEmbeddingConfig::new(bert).with_mini_batch_size(at_once);
                Some(config.with_modules(modules).with_layer_start(at_once.map(|_| 0)).init(device))
            }),
            run: |model, _, input, padding| {
                let pairs =
                    SentencePairBatch::new((input.clone(), padding.clone()), (input, padding)).unwrap();
                let output = model.forward(&pairs);
                (output.loss, values(output.anchors))
            },
        });
    }
}
