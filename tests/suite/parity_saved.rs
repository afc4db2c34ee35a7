//! What transformers saved is read, and what is saved here transformers reads.

use crate::checkpoint_files::{keys_of, tensors_of};
use crate::files::copy_of;
use crate::parity::{Fixture, Head, collected, fixtures, token_rows};
use crate::prelude::*;
use crate::transformers::{Python, real_checkpoint};
use std::fmt::Debug;

/// The fields of a `config.json` that a save into a new directory writes.
fn assert_fields_of(written: &Path, expected: &Path) {
    let [written, expected] = [written, expected].map(config_json);
    let number = |value: &Value| value.as_f64();
    for (field, value) in written.as_object().unwrap() {
        let stated = &expected[field];
        let same = stated == value || number(stated).is_some() && number(stated) == number(value);
        let synonym = *stated == "gelu_pytorch_tanh" && *value == "gelu_new";
        let is_default = stated.is_null() && value.as_object().is_some_and(|names| names.len() == 2);
        // What transformers 5 reads and does not write, or not of every family.
        let is_old = [
            "global_rope_theta",
            "local_rope_theta",
            "global_attn_every_n_layers",
            "rope_theta",
            "tie_word_embeddings",
        ];
        let is_old = stated.is_null() && is_old.contains(&field.as_str());
        assert!(same || synonym || is_default || is_old, "{field} is {value}, and transformers has {stated}");
    }
}

/// Each model once, though it may have several cases.
fn models(mut fixtures: Vec<Fixture>) -> Vec<Fixture> {
    fixtures.dedup_by(|a, b| a.model == b.model);
    fixtures
}

/// Those that transformers 4.49 made: 5 has no relative positions.
fn is_relative(fixture: &Fixture) -> bool {
    fixture.model.parent().unwrap().ends_with("relative_positions")
}

fn assert_round_trip<M: PretrainedModel<Config: PartialEq + Debug>>(all: Vec<Fixture>) {
    let device = Device::default();
    for fixture in models(all) {
        let (dir, name) = (&fixture.model, fixture.name());
        let (model, _) = M::from_pretrained(dir, &device).unwrap();
        let saved = saved(&model);
        let mut expected = tensors_of(dir);
        if is_relative(&fixture) {
            // Transformers 4.49 keeps a table that it does not read.
            expected.retain(|tensor| !tensor.key.ends_with(".position_embeddings.weight"));
        }
        assert!(tensors_of(saved.path()) == expected, "{name}");
        assert_eq!(loaded::<M>(&saved).stored_config(), model.stored_config(), "{name}");
        // Over a copy of the directory everything is replaced and nothing added.
        let copy = copy_of(dir);
        model.save_pretrained(copy.path()).unwrap();
        assert_fields_of(dir, copy.path());
        if !is_relative(&fixture) {
            assert_fields_of(saved.path(), dir);
            assert_eq!(keys_of(copy.path()), keys_of(dir), "{name}");
        }
    }
}

#[test]
fn every_head_is_written_under_transformers_names_and_read_back() {
    assert_round_trip::<BertModel>(Fixture::families("model"));
    assert_round_trip::<BertForMaskedLm>(BertForMaskedLm::fixtures());
    assert_round_trip::<BertForSequenceClassification>(BertForSequenceClassification::fixtures());
    assert_round_trip::<BertForTokenClassification>(BertForTokenClassification::fixtures());
    assert_round_trip::<BertForQuestionAnswering>(BertForQuestionAnswering::fixtures());
    assert_round_trip::<ElectraForPreTraining>(ElectraForPreTraining::fixtures());
}

/// The logits of all words at every token.
fn word_logits(
    model: &BertForMaskedLm,
    input: &BertEmbeddingsInput,
    padding: Option<&PaddingMask>,
) -> Vec<f64> {
    let hidden = model.bert.forward(input, padding).last_hidden_state;
    values(model.scores(hidden.flatten(0, 1)).unwrap())
}

/// Has transformers read every model of a head, `changed`, and compares logits where there is a token.
fn assert_read_by_transformers<H: Head>(
    command: &str,
    changed: impl Fn(H) -> H,
    logits: impl Fn(&H, &BertEmbeddingsInput, Option<&PaddingMask>) -> Vec<f64>,
) {
    let load = |fixture: &Fixture| changed(H::from_pretrained(&fixture.model, &Device::default()).unwrap().0);
    let models: Vec<H> =
        models(H::fixtures()).iter().filter(|fixture| !is_relative(fixture)).map(load).collect();
    let [saved, out] = [(); 2].map(|()| tempdir().unwrap());
    for (i, model) in models.iter().enumerate() {
        model.save_pretrained(saved.path().join(i.to_string())).unwrap();
    }
    // In one process, as it takes seconds to start.
    Python::named().check(command, saved.path(), out.path());
    for (i, model) in models.iter().enumerate() {
        let case = File::at(&out.path().join(format!("{i}/f32.safetensors")));
        let meant = |all: Vec<f64>| if command == "sequence_logits" { all } else { token_rows(&all, &case) };
        let (input, padding) = case.batch(&Device::default());
        let found = logits(model, &input, Some(&padding));
        assert_close(&meant(found), &meant(case.values("logits")), LOGITS_F32);
    }
}

#[test]
#[ignore = "needs Python with torch and transformers, named by BURN_BERT_PYTHON"]
fn transformers_reads_every_head_without_a_missing_or_unexpected_key() {
    let untied = |model: BertForMaskedLm| {
        model.config().with_tie_word_embeddings(false).init(&Device::default()) // a decoder of its own
    };
    assert_read_by_transformers("logits", |model| model, word_logits);
    assert_read_by_transformers("logits", untied, word_logits);
    assert_read_by_transformers(
        "sequence_logits",
        |model| model,
        |model: &BertForSequenceClassification, input, padding| values(model.logits(input, padding).unwrap()),
    );
    assert_read_by_transformers(
        "token_logits",
        |model| model,
        |model: &BertForTokenClassification, input, padding| values(model.logits(input, padding).unwrap()),
    );
    assert_read_by_transformers(
        "answer_logits",
        |model| model,
        |model: &BertForQuestionAnswering, input, padding| {
            let [start, end] = model.logits(input, padding).unwrap();
            values(Tensor::stack::<3>(vec![start, end], 2))
        },
    );
    assert_read_by_transformers(
        "replaced_logits",
        |model| model,
        |model: &ElectraForPreTraining, input, padding| values(model.logits(input, padding).unwrap()),
    );
}

/// `tests/backend` has its vectors.
#[test]
fn a_checkpoint_of_the_encoder_alone_gives_its_pooler_and_a_pickled_model_is_the_same() {
    let device = Device::default();
    let dir = fixtures().join("masked_lm/tiny_bert_encoder_only");
    let (_, report) = BertForMaskedLm::from_pretrained(&dir, &device).unwrap();
    let expected = [
        "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.bias",
        "cls.predictions.bias",
    ];
    assert_eq!(report.missing, expected.map(String::from));
    assert!(report.to_string().contains("not in the checkpoint, not loaded: cls.predictions."));
    assert_eq!(report.unused, ["pooler.dense.bias", "pooler.dense.weight"]);

    let model: BertModel = loaded(&dir);
    let pooler = values(model.pooler.unwrap().dense.bias.unwrap().val());
    assert_eq!(pooler, File::at(&dir.join("model.safetensors")).values("pooler.dense.bias"));
    let dir = fixtures().join("masked_lm/tiny_bert_bin");
    let model: BertForMaskedLm = loaded(dir);
    let same: BertForMaskedLm = BertForMaskedLm::fixtures()[0].load(FloatDType::F32, &device);
    assert_eq!(collected(&model, None), collected(&same, None));
}

#[test]
#[ignore = "needs Python with transformers and a checkpoint: BURN_BERT_PYTHON, BURN_BERT_CHECKPOINT"]
fn a_real_checkpoint_on_real_sentences_equals_transformers_after_every_layer() {
    let (python, model) = (Python::named(), real_checkpoint());
    let out = tempdir().unwrap();
    python.check("hidden_states", &model, out.path());
    let (loaded, report) = BertModel::from_pretrained(&model, &Device::default()).unwrap();
    println!("{report}");
    for (dtype, suffix, tolerance) in [(FloatDType::F32, "f32", MODEL_F32), (FloatDType::F64, "f64", F64)] {
        let case = File::at(&out.path().join(format!("{suffix}.safetensors")));
        crate::parity_models::assert_outputs(&cast_module(loaded.clone(), dtype).unwrap(), &case, tolerance);
    }
}
