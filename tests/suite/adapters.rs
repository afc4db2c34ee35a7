//! PEFT's adapters: alone and beside their base, as PEFT computes them, and as this crate writes them.

use crate::files::copy_of;
use crate::parity::{Fixture, Head};
use crate::prelude::*;
use crate::transformers::Python;
use burn::module::{LoraAdapter, Reparameterizer};

/// An adapter's files in a new directory: alone with the path of its base, or beside it.
fn placed(case: &str, is_alone: bool) -> TempDir {
    let adapter = fixture(&format!("adapters/{case}"));
    let config = json(adapter.join("adapter_config.json"));
    let base = fixture(config["base_model_name_or_path"].as_str().unwrap());
    let dir = if is_alone { tempdir().unwrap() } else { copy_of(&base) };
    for (name, bytes) in files_of(adapter) {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    if is_alone {
        set(&dir, "base_model_name_or_path", json!(base));
    }
    dir
}

fn set(dir: &TempDir, field: &str, value: Value) {
    edit(dir.path(), "adapter_config.json", |config| config[field] = value);
}

/// Asserts that a model computes what PEFT does, from both places of an adapter.
fn assert_equals_peft<M: PretrainedModel>(
    case: &str,
    missing: &[&str],
    run: impl Fn(&M, &BertEmbeddingsInput) -> Vec<f64>,
) {
    let expected = json(fixture(&format!("adapters/{case}/expected.json")));
    let ids: Vec<Vec<i32>> = list(&expected["ids"]);
    let rows: Vec<[i32; 5]> = ids.into_iter().map(|row| row.try_into().unwrap()).collect();
    let (input, expected) =
        (BertEmbeddingsInput::from_rows(&rows, &device()).unwrap(), list::<Vec<f64>>(&expected["output"]));
    for is_alone in [true, false] {
        let dir = placed(case, is_alone);
        let (model, report) = M::from_pretrained(dir.path(), &device()).unwrap();
        assert_eq!(report.adapter, Some(dir.path().join("adapter_config.json")), "{case}");
        assert_eq!(report.missing, missing, "{case}");
        assert_close(&run(&model, &input), &expected, F32);
        // Added in f64, whatever the files hold.
        let mut wide = cast_module(model.clone(), FloatDType::F64).unwrap();
        let _ = wide.load(dir.path()).unwrap();
        assert_close(&run(&wide, &input), &expected, F64);
        let config = model.stored_config();
        let (apart, _) = M::from_pretrained_with_adapter(&config, dir.path(), &device()).unwrap();
        assert_close(&run(&apart, &input), &expected, F32);
        assert_close(&run(&apart.materialize(), &input), &expected, F32);
    }
}

#[test]
fn adapters_compute_what_peft_does() {
    let logits = |model: &BertForSequenceClassification, input: &BertEmbeddingsInput| {
        values(model.logits(input, None).unwrap())
    };
    assert_equals_peft("classifier", &[], logits);
    assert_equals_peft("patterns", &[], logits);
    let hidden =
        |model: &BertModel, input: &BertEmbeddingsInput| values(model.forward(input, None).last_hidden_state);
    assert_equals_peft("encoder", &[], hidden);
    assert_equals_peft("fused", &[], hidden);
}

/// The silent case of before: a directory in which a base and its adapter lie gave the base's logits.
#[test]
fn an_adapter_beside_its_base_is_named_by_the_report_and_not_hidden_by_a_save() {
    let dir = placed("classifier", false);
    let (model, report) = BertForSequenceClassification::from_pretrained(dir.path(), &device()).unwrap();
    assert!(report.to_string().contains("adapter_config.json"), "{report}");
    says(model.save_pretrained(dir.path()), "it holds an adapter, which would be added to the saved model");
    // Elsewhere the merged model is one like any other.
    let merged: BertForSequenceClassification = loaded(saved(&model).path());
    let weight = |model: &BertForSequenceClassification| {
        values(model.bert.encoder.layers[0].attention.query.weight.val())
    };
    assert_eq!(weight(&merged), weight(&model));
}

#[test]
fn every_loader_finds_the_base_and_names_the_adapter() {
    fn assert_reported<M: PretrainedModel>(dir: &TempDir) {
        let (_, report) = M::from_pretrained(dir.path(), &device()).unwrap();
        assert!(report.adapter.is_some());
    }
    for is_alone in [true, false] {
        let dir = placed("classifier", is_alone);
        assert_reported::<BertForSentenceEmbedding>(&dir);
        assert_reported::<BertForTokenClassification>(&dir);
        assert_reported::<BertForMaskedLm>(&dir);
        let embeddings = BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
        let config = BertEmbeddingsConfig::from_pretrained(dir.path()).unwrap();
        assert_eq!(embeddings.config(), config);
    }
}

#[test]
fn an_adapter_that_is_not_plain_lora_or_does_not_fit_is_refused_by_name() {
    let fails = |field: &str, value: Value, part: &str| {
        let dir = placed("classifier", true);
        set(&dir, field, value);
        says(BertForSequenceClassification::from_pretrained(dir.path(), &device()), part);
    };
    fails("peft_type", json!("ADALORA"), "peft_type ADALORA, but only LORA");
    fails("use_dora", json!(true), "sets use_dora");
    fails("trainable_token_indices", json!([3]), "sets trainable_token_indices");
    fails("init_lora_weights", json!("pissa"), "init_lora_weights pissa, which changes the base");
    fails("lora_alpha", Value::Null, "no lora_alpha");
    fails("alpha_pattern", json!({"(": 1}), "has the alpha_pattern (");
    fails("alpha_pattern", json!({"query": 1, ".*query": 2}), "has two patterns of alpha_pattern");
    fails("base_model_name_or_path", Value::Null, "names no base_model_name_or_path");
    fails("base_model_name_or_path", json!("/nowhere"), "is an adapter of /nowhere");
    fails("base_model_name_or_path", json!(fixture("families/modernbert_masked_lm")), "bert.encoder.layer.0");
    let dir = placed("classifier", false);
    fs::remove_file(dir.path().join("adapter_model.safetensors")).unwrap();
    says(BertModel::from_pretrained(dir.path(), &device()), "is there without its weights");
}

/// Attaches adapters to the weights of a group, of rank 2 or, if they vary, of ranks and scales that differ, with values spread over
/// ±0.5, and changes the head.
struct Spread {
    group: ParamGroup,
    varies: bool,
    count: usize,
}

impl Reparameterizer for Spread {
    type Reparam = LoraAdapter;

    fn reparameterize<const D: usize>(
        &mut self,
        path: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<LoraAdapter>) {
        let base = param.set_require_grad(false);
        if !self.group.matches(&base.id, Some(path)) {
            let is_of_head = !path.contains("encoder.") && !path.contains("embeddings.");
            let base = if is_of_head { base.map(|values| values.mul_scalar(1.5)) } else { base };
            return (base, None);
        }
        self.count += 1;
        let (rank, scale) =
            if self.varies { (1 + self.count % 3, self.count as f64 / 8.0 - 0.3) } else { (2, 0.75) };
        let weight = base.val();
        // The same in each run: what other values would do to roundings in f32 is no property of the code.
        let spread = |shape: [usize; 2], step: usize| {
            let values =
                (0..shape[0] * shape[1]).map(|i| ((i + self.count) * step % 1013) as f32 / 1013.0 - 0.5);
            let data = TensorData::new(values.collect::<Vec<f32>>(), shape);
            Param::from_tensor(Tensor::from_data(data, (&weight.device(), weight.dtype())))
        };
        let (a, b) = (spread([weight.dims()[0], rank], 389), spread([rank, weight.dims()[1]], 571));
        (base, Some(LoraAdapter { a, b, scale }))
    }
}

fn adapted<M: PretrainedModel>(model: M, pattern: &str, varies: bool) -> M {
    let group = ParamGroup::from_regex(pattern).unwrap();
    model.apply_reparameterization(Spread { group, varies, count: 0 })
}

/// All linear layers, those of PEFT's defaults, and one whose name in BERT is the end of another's.
const GROUPS: [&str; 3] =
    [r"encoder\.layers\..*\.weight$", r"attention\.(query|value)\.weight$", r"layers\.\d+\.output\.weight$"];

/// The models that fixtures have of a head, of the families whose modules transformers 5 names as its files do.
fn bases(mut fixtures: Vec<Fixture>) -> Vec<PathBuf> {
    fixtures.dedup_by(|a, b| a.model == b.model);
    fixtures.retain(|fixture| !["gte", "nomic_bert", "jina_embeddings_v3"].contains(&fixture.family));
    let models = fixtures.into_iter().map(|fixture| fixture.model);
    models.filter(|model| !model.parent().unwrap().ends_with("relative_positions")).collect()
}

/// Asserts that what is read from the saved adapters of a group is the model, merged and apart.
fn assert_written_and_read<M: PretrainedModel>(
    fixtures: Vec<Fixture>,
    (group, varies): (&str, bool),
    (dtype, tolerance): (FloatDType, Tolerance),
) {
    for base in bases(fixtures) {
        let (model, _) = M::from_pretrained(&base, &device()).unwrap();
        let model = adapted(cast_module(model, dtype).unwrap(), group, varies);
        let dir = tempdir().unwrap();
        model.save_adapter(dir.path(), base.to_str().unwrap()).unwrap();
        let (read, report) = M::from_pretrained(dir.path(), &device()).unwrap();
        assert_eq!(report.adapter, Some(dir.path().join("adapter_config.json")));
        assert!(report.is_complete(), "{report}");
        let mut read = cast_module(read, dtype).unwrap();
        let _ = read.load(dir.path()).unwrap();
        let (what, expected) =
            (format!("{group} of {}", base.display()), all_values(&model.clone().materialize()));
        assert_all_close(&what, &all_values(&read), &expected, tolerance);
        let config = model.stored_config();
        let (apart, _) = M::from_pretrained_with_adapter(&config, dir.path(), &device()).unwrap();
        assert_all_close(&what, &all_values(&apart.clone().materialize()), &expected, F32);
        let again = tempdir().unwrap();
        apart.save_adapter(again.path(), base.to_str().unwrap()).unwrap();
        let (read, _) = M::from_pretrained(again.path(), &device()).unwrap();
        assert_all_close(&what, &all_values(&read), &expected, F32);
    }
}

#[test]
fn adapters_of_every_family_are_written_and_read_back() {
    let (wide, all) = ((FloatDType::F64, F64), (GROUPS[0], true));
    for group in [GROUPS[0], GROUPS[1], GROUPS[2]] {
        assert_written_and_read::<BertForQuestionAnswering>(
            BertForQuestionAnswering::fixtures(),
            (group, false),
            (FloatDType::F32, F32),
        );
    }
    assert_written_and_read::<BertForSequenceClassification>(
        BertForSequenceClassification::fixtures(),
        all,
        wide,
    );
    assert_written_and_read::<BertForTokenClassification>(BertForTokenClassification::fixtures(), all, wide);
    assert_written_and_read::<BertForMaskedLm>(BertForMaskedLm::fixtures(), all, wide);
    assert_written_and_read::<BertForSentenceEmbedding>(Fixture::families("model"), all, wide);
}

/// `target_modules` of PEFT: names that end no other module's name, whole ones otherwise.
#[test]
fn an_adapter_names_the_modules_and_heads_that_it_has() {
    let written = |group: &str| {
        let (model, _) =
            BertForSequenceClassification::from_pretrained(fixture("classifiers/bert_sequence"), &device())
                .unwrap();
        let dir = tempdir().unwrap();
        adapted(model, group, false).save_adapter(dir.path(), "owner/base@v1").unwrap();
        json(dir.path().join("adapter_config.json"))
    };
    let config = written(GROUPS[1]);
    assert_eq!(config["target_modules"], json!(["attention.self.query", "attention.self.value"]));
    assert_eq!(config["modules_to_save"], json!(["classifier", "pooler"]));
    assert_eq!([&config["base_model_name_or_path"], &config["revision"]], ["owner/base", "v1"]);
    assert_eq!([&config["r"], &config["lora_alpha"]], [&json!(2), &json!(1.5)]);
    assert_eq!(config["task_type"], "SEQ_CLS");
    let config = written(GROUPS[2]);
    assert_eq!(
        config["target_modules"],
        json!(["encoder.layer.0.output.dense", "encoder.layer.1.output.dense"])
    );
    // Of the tied heads, BERT's is a module with a decoder, and DeBERTa's newer one is given the embeddings.
    for (base, has_decoder) in [("masked_lm/tiny_bert", true), ("families/deberta_masked_lm", false)] {
        let (model, _) = BertForMaskedLm::from_pretrained(fixture(base), &device()).unwrap();
        let dir = tempdir().unwrap();
        adapted(model, GROUPS[1], false).save_adapter(dir.path(), "base").unwrap();
        let names = File::at(&dir.path().join("adapter_model.safetensors")).names();
        assert_eq!(names.iter().any(|name| name.ends_with("decoder.weight")), has_decoder, "{names:?}");
    }
}

#[test]
fn what_an_adapter_cannot_hold_is_refused_by_name() {
    let base = fixture("classifiers/bert_sequence");
    let load = || BertForSequenceClassification::from_pretrained(&base, &autodiff()).unwrap().0;
    let dir = tempdir().unwrap();
    let refuses = |model: BertForSequenceClassification, part: &str| {
        says(model.save_adapter(dir.path(), "base"), part);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    };
    refuses(load().no_grad(), "the model has no LoRA adapters to save");
    let norm = ParamGroup::from_regex("layer_norm").unwrap();
    let with_norm = adapted(load(), GROUPS[1], false).set_require_grad_group(norm, true);
    // As a pipeline holds it, too.
    for model in [with_norm.valid(), with_norm] {
        refuses(model, "bert.embeddings.LayerNorm.weight is trained, but an adapter of PEFT holds");
    }
    refuses(
        adapted(load(), r"(query|classifier.*)\.weight$", false),
        "classifier.weight has a LoRA adapter, but only",
    );
    let copy = copy_of(&base);
    says(adapted(load(), GROUPS[1], false).save_adapter(copy.path(), "base"), "holds a model, into which");
    for family in ["gte", "nomic_bert", "jina_embeddings_v3"] {
        let (model, _) = BertForTokenClassification::from_pretrained(
            fixture(&format!("families/{family}_token")),
            &device(),
        )
        .unwrap();
        says(
            adapted(model, GROUPS[1], false).save_adapter(dir.path(), "base"),
            "whose modules have other names",
        );
    }
    let mut config = BertForSentenceEmbeddingConfig::new(load().bert.config());
    config.modules = vec![SentenceDenseConfig::new(4).into()];
    let model = adapted(config.init(&device()), GROUPS[1], false);
    says(model.save_adapter(dir.path(), "base"), "lies in a folder of its own");
}

/// A decoder that is no copy of the word embeddings is a table here, and transposed in PyTorch.
#[test]
fn an_adapter_of_a_decoder_is_merged_and_not_kept_apart() {
    use crate::checkpoint_files::{Stored, safetensors_bytes, tensors_of};
    let config = BertForMaskedLmConfig::new(small_bert(9, 4)).with_tie_word_embeddings(false);
    let base = saved(&config.init(&device()));
    let own =
        tensors_of(base.path()).into_iter().find(|tensor| tensor.key == "cls.predictions.decoder.weight");
    let dir = tempdir().unwrap();
    let settings = json!({"peft_type": "LORA", "r": 1, "lora_alpha": 2, "target_modules": ["decoder"],
        "base_model_name_or_path": base.path()});
    fs::write(dir.path().join("adapter_config.json"), settings.to_string()).unwrap();
    let key = |half: &str| format!("base_model.model.cls.predictions.decoder.lora_{half}.weight");
    let factors = [Stored::f32(key("A"), &[1, 4]), Stored::f32(key("B"), &[9, 1])];
    fs::write(dir.path().join("adapter_model.safetensors"), safetensors_bytes(&factors)).unwrap();
    let (merged, _) = BertForMaskedLm::from_pretrained(dir.path(), &device()).unwrap();
    let floats = |tensor: &Stored| -> Vec<f64> {
        tensor.bytes.as_chunks().0.iter().map(|four| f64::from(f32::from_le_bytes(*four))).collect()
    };
    let [a, b] = factors.each_ref().map(floats);
    let decoder = floats(&own.expect("a decoder of its own")).into_iter().enumerate();
    let expected: Vec<f64> = decoder.map(|(i, value)| value + 2.0 * b[i / 4] * a[i % 4]).collect();
    let saved = saved(&merged);
    let found =
        tensors_of(saved.path()).into_iter().find(|tensor| tensor.key == "cls.predictions.decoder.weight");
    assert_close(&floats(&found.unwrap()), &expected, F32);
    let apart = BertForMaskedLm::from_pretrained_with_adapter(&config, dir.path(), &device());
    says(apart, "cls.predictions.decoder.weight has an adapter, but is none of the model's linear layers");
}

/// The outputs of a model with adapters for random tokens, and what PEFT and transformers compute with what was saved.
fn assert_read_by_peft<M: PretrainedModel>(
    fixtures: Vec<Fixture>,
    run: impl Fn(&M, &BertEmbeddingsInput) -> Vec<f64>,
) {
    let [saved, out] = [(); 2].map(|()| tempdir().unwrap());
    let mut models = Vec::new();
    for base in bases(fixtures) {
        for (group, dtype) in [(0, FloatDType::F64), (1, FloatDType::F32), (2, FloatDType::F32)] {
            let (model, _) = M::from_pretrained(&base, &device()).unwrap();
            let model = adapted(cast_module(model, dtype).unwrap(), GROUPS[group], group == 0);
            let dir = saved.path().join(models.len().to_string());
            model.save_adapter(dir, base.to_str().unwrap()).unwrap();
            models.push((model, if dtype == FloatDType::F64 { F64 } else { MODEL_F32 }));
        }
    }
    Python::named().check("adapter", saved.path(), out.path());
    for (i, (model, tolerance)) in models.iter().enumerate() {
        let file = File::at(&out.path().join(format!("{i}/output.safetensors")));
        let ids = Tensor::<2, Int>::from_data(file.data("input_ids"), &device());
        let input = BertEmbeddingsInput::from_ids(ids).unwrap();
        assert_all_close(&i.to_string(), &run(model, &input), &file.values("output"), *tolerance);
    }
}

#[test]
#[ignore = "needs Python with transformers and peft, named by BURN_BERT_PYTHON"]
fn peft_and_transformers_read_the_adapters_of_every_family() {
    assert_read_by_peft(
        BertForSequenceClassification::fixtures(),
        |model: &BertForSequenceClassification, input| values(model.logits(input, None).unwrap()),
    );
    assert_read_by_peft(
        BertForTokenClassification::fixtures(),
        |model: &BertForTokenClassification, input| values(model.logits(input, None).unwrap()),
    );
    assert_read_by_peft(BertForQuestionAnswering::fixtures(), |model: &BertForQuestionAnswering, input| {
        values(Tensor::stack::<3>(model.logits(input, None).unwrap().into(), 2))
    });
    assert_read_by_peft(BertForMaskedLm::fixtures(), |model: &BertForMaskedLm, input| {
        let hidden = model.bert.forward(input, None).last_hidden_state;
        values(model.scores(hidden.flatten(0, 1)).unwrap())
    });
    assert_read_by_peft(Fixture::families("model"), |model: &BertForSentenceEmbedding, input| {
        values(model.bert.forward(input, None).last_hidden_state)
    });
}
