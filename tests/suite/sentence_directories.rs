//! Sentence embeddings from and to directories of sentence-transformers.

use crate::prelude::*;
use burn_bert::encoder::Activation;

fn config() -> BertForSentenceEmbeddingConfig {
    let mut bert = small_bert(20, 8).with_num_hidden_layers(2);
    bert.embeddings.max_position_embeddings = 12;
    BertForSentenceEmbeddingConfig::new(bert)
}

/// A new model in a directory.
fn new(config: &BertForSentenceEmbeddingConfig) -> (BertForSentenceEmbedding, TempDir) {
    let model = config.init(&device());
    let dir = saved(&model);
    (model, dir)
}

#[test]
fn a_pooling_is_saved_as_its_flag_and_read_back() {
    let flags = "cls_token max_tokens mean_tokens mean_sqrt_len_tokens weightedmean_tokens lasttoken";
    for ((pooling, _), flag) in crate::sentences::POOLINGS.into_iter().zip(flags.split(' ')) {
        let (model, dir) = new(&config().with_pooling(pooling));
        assert_eq!(loaded::<BertForSentenceEmbedding>(&dir).config(), model.config());
        let config = json(dir.path().join("1_Pooling/config.json"));
        assert_eq!(config[format!("pooling_mode_{flag}")], json!(true));
    }
}

#[test]
fn what_sentence_transformers_saves_is_read() {
    let (model, dir) = new(&config());
    let fixture = fixture("sentences/saved");
    for name in
        ["modules.json", "sentence_bert_config.json", "1_Pooling/config.json", "2_Normalize/config.json"]
    {
        let mut value = json(fixture.join(name));
        if name == "1_Pooling/config.json" {
            value["embedding_dimension"] = json!(8);
        }
        edit(dir.path(), name, |file| *file = value.clone());
    }
    let found = BertForSentenceEmbeddingConfig::from_pretrained(dir.path()).unwrap();
    assert_eq!(found, config().with_pooling(Pooling::WeightedMean));
    let old = dir.path().join("sentence_roberta_config.json");
    let new = dir.path().join("sentence_bert_config.json");
    fs::rename(&new, dir.path().join("kept")).unwrap();
    fs::write(&old, r#"{"max_seq_length": 7}"#).unwrap();
    let limited = BertForSentenceEmbeddingConfig::from_pretrained(dir.path()).unwrap();
    assert_eq!(limited, found.with_max_seq_length(Some(7)));
    fs::remove_file(old).unwrap();
    fs::rename(dir.path().join("kept"), new).unwrap();
    // What is written over it is ours, and their other fields are kept.
    model.save_pretrained(dir.path()).unwrap();
    assert_eq!(BertForSentenceEmbeddingConfig::from_pretrained(dir.path()).unwrap(), config());
    let kept = json(dir.path().join("sentence_bert_config.json"));
    assert_eq!(kept, json(fixture.join("sentence_bert_config.json")));
}

#[test]
fn a_directory_without_modules_gets_the_mean_and_one_with_modules_keeps_other_files() {
    let mut bert = config().bert.init(&device());
    let dir = saved(&bert);
    let (model, report) = BertForSentenceEmbedding::from_pretrained(dir.path(), &device()).unwrap();
    assert_eq!(model.config(), config().with_normalize(false));
    assert_eq!((report.missing.len(), report.unused.len()), (0, 2));

    fs::write(dir.path().join("README.md"), "mine").unwrap();
    edit(dir.path(), "sentence_bert_config.json", |file| {
        *file = json!({ "max_seq_length": 5, "do_lower_case": false })
    });
    let config = model.config().with_normalize(true).with_max_seq_length(Some(7));
    let (model, _) = BertForSentenceEmbedding::from_pretrained_with(&config, dir.path(), &device()).unwrap();
    model.save_pretrained(dir.path()).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("README.md")).unwrap(), "mine");
    let sentence = json(dir.path().join("sentence_bert_config.json"));
    assert_eq!(sentence, json!({ "max_seq_length": 7, "do_lower_case": false }));
    let config = model.config().with_max_seq_length(None);
    let (model, _) = BertForSentenceEmbedding::from_pretrained_with(&config, dir.path(), &device()).unwrap();
    model.save_pretrained(dir.path()).unwrap();
    assert_eq!(json(dir.path().join("sentence_bert_config.json")), json!({ "do_lower_case": false }));
    assert_eq!(json(dir.path().join("modules.json")).as_array().unwrap().len(), 3);
    // The pooler that was there is there still.
    let report = bert.load(dir.path()).unwrap();
    assert!(report.is_complete(), "{report}");
    assert_eq!(config_json(dir.path())["architectures"], json!(["BertModel"]));
}

#[cfg(feature = "tokenizers")]
#[test]
fn sentences_are_cut_to_the_models_length_or_to_its_positions() {
    for (length, expected) in [(None, 12), (Some(9), 9), (Some(40), 12)] {
        let model = config().with_max_seq_length(length).init(&device());
        let plain = || tokenizer_of(&["a"]);
        let tokenizer = model.limit_tokenizer(plain()).unwrap();
        assert_eq!(tokenizer.encode(&"a ".repeat(50)).unwrap().len(), expected);

        // A pipeline needs no limited tokenizer, and a smaller limit of the caller's stays.
        let encode = |tokenizer: &BertTokenizer, words: usize| {
            let pipeline = Pipeline::new(model.clone(), tokenizer.clone()).unwrap();
            pipeline.encode(&["a ".repeat(words)], &TextOptions::new()).unwrap().into_data()
        };
        assert_eq!(encode(&plain(), 50), encode(&tokenizer, expected - 2));
        assert_eq!(encode(&plain().with_model_max_length(5), 50), encode(&tokenizer, 3));
    }
}

/// As a model of decoders' authors states it. sentence-transformers takes the first place of a padded text, which is padding.
#[cfg(feature = "tokenizers")]
#[test]
fn padding_on_the_left_moves_no_token_out_of_a_pooling() {
    let texts = ["a", "b a b a b"];
    for (pooling, _) in crate::sentences::POOLINGS {
        let (_, dir) = new(&config().with_pooling(pooling));
        fs::write(dir.path().join("vocab.txt"), vocabulary(&["a", "b"])).unwrap();
        edit(dir.path(), "tokenizer_config.json", |file| *file = json!({ "padding_side": "left" }));
        let pipeline = Pipeline::<BertForSentenceEmbedding>::from_pretrained(dir.path(), &device()).unwrap();
        let encode = |texts: &[&str]| values(pipeline.encode(texts, &TextOptions::new()).unwrap());
        let alone = [encode(&texts[..1]), encode(&texts[1..])].concat();
        assert_close(&encode(&texts), &alone, F32);
    }
}

/// A file of a directory with one field changed, and what reading it says.
#[test]
fn what_is_not_supported_in_a_directory_is_named() {
    let (_, dir) = with_layers();
    let dir = dir.path();
    let refused = |file: &str, change: &dyn Fn(&mut Value), says: &str| {
        let before = fs::read(dir.join(file)).ok();
        edit(dir, file, change);
        let error =
            fails!(BertForSentenceEmbedding::from_pretrained(dir, &device()), Error::ConfigFile { .. });
        assert!(error.to_string().contains(says), "{file}: {error}");
        match before {
            Some(before) => fs::write(dir.join(file), before).unwrap(),
            None => fs::remove_file(dir.join(file)).unwrap(),
        }
    };
    let (pooling, dense) = ("1_Pooling/config.json", "2_Dense/config.json");
    let (own, bert) = ("config_sentence_transformers.json", "sentence_bert_config.json");
    let rows = [
        (pooling, "pooling_mode_cls_token", json!(1), "cls_token 1, but it must be true or false"),
        (pooling, "pooling_mode_mean_tokens", json!(false), "no flag that is true"),
        (pooling, "pooling_mode_median", json!(true), "pooling_mode_median"),
        (pooling, "pooling_mode", json!(vec!["mean"; 7]), "has 7 names"),
        (pooling, "pooling_mode", json!("median"), "median"),
        (pooling, "pooling_mode", json!(3), "one of cls"),
        (pooling, "include_prompt", json!("no"), "true or false"),
        (pooling, "word_embedding_dimension", json!(9), "hidden_size is 8"),
        (dense, "activation_function", json!("torch.nn.modules.activation.Mish"), "ReLU"),
        (dense, "activation_function", json!("mine.Tanh"), "torch.nn.modules.activation.Tanh"),
        (dense, "in_features", json!(9), "has width 8"),
        (dense, "in_features", json!(null), "is missing"),
        (dense, "out_features", json!(0), "above 0"),
        ("3_Dense/config.json", "in_features", json!(8), "has width 6"),
        (dense, "use_residual", json!("yes"), "true or false"),
        (dense, "bias", json!(1), "true or false"),
        (dense, "module_input_name", json!("token_embeddings"), "sentence_embedding"),
        ("4_Normalize/config.json", "module_input_name", json!("token_embeddings"), "token_embeddings"),
        (own, "similarity_fn_name", json!("jaccard"), "manhattan"),
        (own, "truncate_dim", json!(0), "above 0"),
        (own, "prompts", json!(["query"]), "object of texts"),
        (own, "prompts", json!({ "query": 3 }), "object of texts"),
        (own, "default_prompt_name", json!("query"), "there are none"),
        (bert, "max_seq_length", json!(0), "whole number above 0"),
        (bert, "max_seq_length", json!("long"), "whole number above 0"),
        (bert, "do_lower_case", json!(1), "do_lower_case"),
    ];
    each(rows, |(file, field, value, says)| refused(file, &|config| config[field] = value.clone(), says));
    let module = |path: &str, kind: &str| json!({ "path": path, "type": format!("sentence_transformers.models.{kind}") });
    let rows = [
        (2, module("", "LayerNorm"), "have a LayerNorm in \"\", which"),
        (1, module("1_Dense", "Dense"), "Transformer, Dense, Dense"),
        (
            2,
            module("../2_Dense", "Dense"),
            "have a Dense in \"../2_Dense\", which is not the name of a folder",
        ),
        (1, module("/etc", "Pooling"), "have a Pooling in \"/etc\", which is not the name of a folder"),
        (1, module("", "Pooling"), "have a Pooling in \"\", which is not the name of a folder"),
        (4, module("../1_Pooling", "Normalize"), "have a Normalize in \"../1_Pooling\""),
        (0, module("0_BERT", "Transformer"), "0_BERT"),
        (1, module("", "Normalize"), "Normalize, Dense"),
        (1, module("1_W", "WeightedLayerPooling"), "WeightedLayerPooling, Dense"),
        (2, module("2_W", "WeightedLayerPooling"), "Pooling, WeightedLayerPooling, Dense"),
        (2, module("2_CNN", "CNN"), "have CNN, which computes"),
        (1, module("1_LSTM", "LSTM"), "have LSTM, which"),
        (0, module("", "BoW"), "have BoW, which reads words"),
        (0, module("0_Words", "WordEmbeddings"), "have WordEmbeddings, which"),
        (1, module("1_Words", "WordWeights"), "have WordWeights, which"),
        (0, module("", "Router"), "have Router, which chooses"),
        (0, module("", "Asym"), "have Asym, which chooses"),
        (0, module("", "StaticEmbedding"), "have StaticEmbedding, which"),
        (0, module("", "CLIPModel"), "have CLIPModel, which"),
        (1, json!({ "path": "1_Pooling", "type": "mine.Pooling" }), "mine.Pooling"),
    ];
    each(rows, |(index, new, says)| refused("modules.json", &|modules| modules[index] = new.clone(), says));
    refused("modules.json", &|modules| *modules = json!({}), "not a list");

    for (config, expected) in [
        (config().with_truncate_dim(Some(0)), "truncate_dim"),
        (config().with_prompts(Prompts::new().with("a", "b").with_default("c")), "prompts"),
        (config().with_modules(vec![SentenceDenseConfig::new(0).into()]), "modules"),
        // PyTorch has no class for it, but an argument of GELU.
        (
            config()
                .with_modules(vec![SentenceDenseConfig::new(6).with_activation(Activation::GeluTanh).into()]),
            "modules",
        ),
        (config().with_modules(vec![SentenceModuleConfig::Dropout(1.0)]), "modules"),
        (config().with_layer_start(Some(3)), "layer_start"),
    ] {
        fails!(config.validate(), Error::Config { field, .. } if *field == expected);
    }
}

#[test]
fn what_sentence_transformers_takes_for_a_default_is_one() {
    let (_, dir) = new(&config());
    let dir = dir.path();
    for (new, expected) in [
        (json!({ "pooling_mode": ["max"] }), Pooling::Max),
        (json!({ "pooling_mode": "lasttoken" }), Pooling::LastToken),
        (json!({}), Pooling::Mean),
    ] {
        edit(dir, "1_Pooling/config.json", |file| *file = new);
        assert_eq!(BertForSentenceEmbeddingConfig::from_pretrained(dir).unwrap().pooling, expected);
    }
    edit(dir, "2_Normalize/config.json", |file| *file = json!({ "module_output_name": null }));
    edit(dir, "sentence_bert_config.json", |file| *file = json!({ "max_seq_length": null }));
    // A file of another kind of model says nothing of this one.
    let other = json!({ "model_type": "CrossEncoder", "truncate_dim": 3 });
    edit(dir, "config_sentence_transformers.json", |file| *file = other);
    assert_eq!(BertForSentenceEmbeddingConfig::from_pretrained(dir).unwrap(), config());
}

#[test]
fn a_save_that_fails_leaves_model_and_pooling_as_they_were() {
    let (_, dir) = new(&config());
    let dir = dir.path();
    let contents = || {
        ["config.json", "model.safetensors", "1_Pooling/config.json"]
            .map(|name| fs::read(dir.join(name)).unwrap())
    };
    let before = contents();
    fs::remove_file(dir.join("modules.json")).unwrap();
    fs::create_dir_all(dir.join("modules.json/inside")).unwrap();
    let other = config().with_pooling(Pooling::Max).init(&device());
    assert!(matches!(other.save_pretrained(dir), Err(Error::Io { .. })));
    assert_eq!(contents(), before);
    // Nor does a folder take the place of a file.
    fs::remove_dir_all(dir.join("modules.json")).unwrap();
    fs::remove_dir_all(dir.join("2_Normalize")).unwrap();
    fs::write(dir.join("2_Normalize"), "a file").unwrap();
    assert!(matches!(other.save_pretrained(dir), Err(Error::Io { .. })));
    assert_eq!(contents(), before);
}

#[test]
fn resizing_loading_and_other_heads_keep_the_pooling() {
    let config = config().with_pooling(Pooling::Max).with_max_seq_length(Some(6));
    let (mut model, dir) = new(&config);
    model.resize_vocabulary(&VocabularyResize::new(24)).unwrap();
    assert_eq!(model.config().bert.embeddings.vocab_size, 24);
    assert_eq!(model.config().pooling, Pooling::Max);
    model.save_pretrained(dir.path()).unwrap();
    let read: BertForSentenceEmbedding = loaded(&dir);
    assert_eq!(read.config(), model.config());

    // A checkpoint of the bare model gives the values, and the pooling is the model's own.
    let alone = saved(&config.bert.init(&device()));
    let mut model = config.init(&device());
    assert_eq!(model.load(alone.path()).unwrap().unused.len(), 2);
    assert_eq!(model.config(), config);
    // The bare model saved over it keeps sentence-transformers' files.
    let (bert, _) = BertModel::from_pretrained(dir.path(), &device()).unwrap();
    bert.save_pretrained(dir.path()).unwrap();
    let (read, _) = BertForSentenceEmbedding::from_pretrained(dir.path(), &device()).unwrap();
    assert_eq!(read.config().pooling, Pooling::Max);
}

/// A model with two layers, in a directory.
fn with_layers() -> (BertForSentenceEmbedding, TempDir) {
    let layers = vec![
        SentenceDenseConfig::new(6).with_activation(Activation::Gelu).into(),
        SentenceDenseConfig::new(5).with_bias(false).into(),
    ];
    new(&config().with_modules(layers).with_include_prompt(false).with_truncate_dim(Some(3)))
}

#[test]
fn layers_are_saved_read_and_new_where_a_directory_has_none() {
    let (model, dir) = with_layers();
    let (read_back, report) = BertForSentenceEmbedding::from_pretrained(dir.path(), &device()).unwrap();
    assert_eq!((read_back.config(), report, read_back.width()), (model.config(), LoadReport::default(), 5));
    let input = BertEmbeddingsInput::from_rows(&[[2, 7, 9, 3]], &device()).unwrap();
    let embed = |model: &BertForSentenceEmbedding| values(model.embed(&input, None).unwrap());
    assert_eq!(embed(&read_back), embed(&model));

    // Saved elsewhere without layers, and from there with them: what is missing is named.
    let (_, plain) = new(&config());
    let (_, report) =
        BertForSentenceEmbedding::from_pretrained_with(&model.config(), plain.path(), &device()).unwrap();
    let expected = ["2_Dense/linear.weight", "2_Dense/linear.bias", "3_Dense/linear.weight"];
    assert_eq!(report.missing, expected);
    // Another number of layers, or another width.
    let mut other = model.config();
    other.modules.pop();
    let load = |config: &BertForSentenceEmbeddingConfig| {
        BertForSentenceEmbedding::from_pretrained_with(config, dir.path(), &device())
    };
    says(load(&other), "have Dense, Dense, but the config has Dense");
    other.modules.push(SentenceModuleConfig::LayerNorm);
    says(load(&other), "have Dense, Dense, but the config has Dense, LayerNorm");
    let mut wide = model.config();
    wide.modules[1] = SentenceDenseConfig::new(7).with_bias(false).into();
    assert!(matches!(load(&wide), Err(Error::CheckpointShape { .. })));
    let (_, report) =
        BertForSentenceEmbedding::from_pretrained_with_new_head(&wide, dir.path(), &device()).unwrap();
    assert_eq!(report.missing, ["3_Dense/linear.weight"]);
    // A load replaces their values, and one that fails none.
    let mut new = model.config().init(&device());
    assert!(new.load(dir.path()).unwrap().is_complete());
    assert_eq!(embed(&new), embed(&model));
    fs::write(dir.path().join("3_Dense/model.safetensors"), "no tensors").unwrap();
    let mut new = model.config().init(&device());
    let before = embed(&new);
    new.load(dir.path()).unwrap_err();
    assert_eq!(embed(&new), before);
    // Over a directory with layers a model without them is one without them.
    config().init(&device()).save_pretrained(dir.path()).unwrap();
    assert_eq!(BertForSentenceEmbeddingConfig::from_pretrained(dir.path()).unwrap(), config());
}

#[test]
fn modules_of_every_class_stay_where_they_are_and_their_files_are_checked() {
    let modules = vec![
        SentenceModuleConfig::Normalize,
        SentenceModuleConfig::LayerNorm,
        SentenceModuleConfig::Dropout(0.25),
        SentenceDenseConfig::new(6).with_use_residual(true).into(),
        SentenceModuleConfig::Normalize,
        SentenceModuleConfig::LayerNorm,
    ];
    let config = config().with_modules(modules).with_layer_start(Some(1));
    let (model, dir) = new(&config);
    let dir = dir.path();
    let (read_back, report) = BertForSentenceEmbedding::from_pretrained(dir, &device()).unwrap();
    assert_eq!((read_back.config(), report), (config.clone(), LoadReport::default()));
    let listed = json(dir.join("modules.json"));
    let listed: Vec<&str> =
        listed.as_array().unwrap().iter().map(|own| own["path"].as_str().unwrap()).collect();
    assert_eq!(
        listed.join(" "),
        " 1_WeightedLayerPooling 2_Pooling 3_Normalize 4_LayerNorm 5_Dropout 6_Dense 7_Normalize 8_LayerNorm 9_Normalize"
    );
    // What sentence-transformers takes for a default.
    let (weighted, dropout) = ("1_WeightedLayerPooling/config.json", "5_Dropout/config.json");
    for file in [dropout, "3_Normalize/config.json"] {
        fs::remove_file(dir.join(file)).unwrap();
    }
    edit(dir, weighted, |file| drop(file.as_object_mut().unwrap().remove("layer_start")));
    edit(dir, "config.json", |file| drop(file.as_object_mut().unwrap().remove("output_hidden_states")));
    let read = || BertForSentenceEmbeddingConfig::from_pretrained(dir);
    says(read(), "without which sentence-transformers skips the WeightedLayerPooling");
    for name in ["config_args", "config_kwargs"] {
        edit(dir, "sentence_bert_config.json", |file| {
            *file = json!({ name: { "output_hidden_states": true } })
        });
        edit(dir, weighted, |file| file["layer_start"] = json!(2));
        let found = read().unwrap();
        assert_eq!((found.layer_start, &found.modules[2]), (Some(2), &SentenceModuleConfig::Dropout(0.2)));
    }
    for (file, field, value, problem) in [
        (weighted, "layer_start", json!(3), "there are hidden states 0 to 2"),
        (weighted, "layer_start", json!(-1), "a whole number"),
        (weighted, "num_hidden_layers", json!(12), "the model has 2 layers"),
        (weighted, "num_hidden_layers", json!(null), "is 12, but"),
        ("4_LayerNorm/config.json", "dimension", json!(9), "has width 8"),
        ("8_LayerNorm/config.json", "dimension", json!(8), "has width 6"),
        ("8_LayerNorm/config.json", "dimension", json!(null), "is missing"),
        (dropout, "dropout", json!(1), "a number in [0, 1)"),
        (dropout, "dropout", json!("much"), "a number in [0, 1)"),
        ("7_Normalize/config.json", "module_output_name", json!("other"), "sentence_embedding"),
    ] {
        let before = fs::read(dir.join(file)).unwrap_or_else(|_| b"{}".to_vec());
        edit(dir, file, |config| config[field] = value.clone());
        says(read(), problem);
        fs::write(dir.join(file), before).unwrap();
    }
    // A model without the modules leaves them out, and one with other ones says what is there.
    let less = config.clone().with_layer_start(None);
    let load = |config: &_| BertForSentenceEmbedding::from_pretrained_with(config, dir, &device());
    says(load(&less), "have WeightedLayerPooling, LayerNorm, Dense, LayerNorm, but the config has LayerNorm");
    // Rows of padding alone are zeros, as the last hidden state of them.
    let input = BertEmbeddingsInput::from_rows(&[[2, 7], [0, 0]], &device()).unwrap();
    let padding = PaddingMask::from_lengths(&[2, 0], 2).unwrap();
    let nothing = PaddingMask::from_lengths(&[0, 0], 2).unwrap();
    let embed = |padding| values(model.embed(&input, Some(padding)).unwrap());
    assert_eq!(embed(&padding)[6..], embed(&nothing)[6..]);
    let shorter = |length: usize| {
        let mut model = model.clone();
        let weights = Tensor::ones([length], &device());
        model.layer_weights = Some(Param::from_tensor(weights));
        model.embed(&input, None)
    };
    shorter(3).unwrap();
    says(shorter(4), "layer_weights has shape [4], but expected [3]");
}

#[test]
fn a_directory_without_a_transformer_names_its_first_module() {
    let (_, dir) = new(&config());
    fs::remove_file(dir.path().join("config.json")).unwrap();
    let first = json!({ "path": "", "type": "sentence_transformers.models.StaticEmbedding" });
    edit(dir.path(), "modules.json", |modules| modules[0] = first.clone());
    says(
        BertForSentenceEmbedding::from_pretrained(dir.path(), &device()),
        "modules begin with \"sentence_transformers.models.StaticEmbedding\", but must begin with a Transformer",
    );
}

#[cfg(feature = "tokenizers")]
#[test]
fn sentences_are_converted_to_lower_case_where_the_directory_says_so() {
    let (_, dir) = new(&config());
    fs::write(dir.path().join("vocab.txt"), vocabulary(&["a", "A"])).unwrap();
    edit(dir.path(), "tokenizer_config.json", |file| *file = json!({ "do_lower_case": false }));
    let ids = |dir: &Path| {
        let (model, _) = BertForSentenceEmbedding::from_pretrained(dir, &device()).unwrap();
        let tokenizer = BertTokenizer::from_pretrained(dir).unwrap();
        model.limit_tokenizer(tokenizer).unwrap().encode("A a [MASK]").unwrap().input_ids().to_vec()
    };
    assert_eq!(ids(dir.path()), [2, 6, 5, 4, 3]);
    edit(dir.path(), "sentence_bert_config.json", |file| *file = json!({ "do_lower_case": true }));
    assert_eq!(ids(dir.path()), [2, 5, 5, 4, 3], "as in sentence-transformers 6.2");
    let pipeline = Pipeline::<BertForSentenceEmbedding>::from_pretrained(dir.path(), &device()).unwrap();
    let encode = |text| pipeline.encode(&[text], &TextOptions::new()).unwrap().into_data();
    assert_eq!(encode("A a"), encode("a a"));

    // It is saved elsewhere, too.
    let (model, _) = BertForSentenceEmbedding::from_pretrained(dir.path(), &device()).unwrap();
    let other = saved(&model);
    assert_eq!(json(other.path().join("sentence_bert_config.json")), json!({ "do_lower_case": true }));
}
