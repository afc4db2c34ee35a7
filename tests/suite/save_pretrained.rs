//! Writing Hugging Face checkpoints.

use crate::checkpoint_files::{
    Stored, cast, copy_of, keys_of, safetensors_bytes, tensors_of, tiny, tiny_tensors,
};
use crate::prelude::*;
use crate::transformers::Python;
use safetensors::{Dtype, SafeTensors};
use std::os::unix::fs::MetadataExt;

fn roberta() -> BertEmbeddingsConfig {
    tiny()
        .with_family(Family::Roberta)
        .with_max_position_embeddings(8)
        .with_type_vocab_size(1)
        .with_pad_token_id(Some(1))
        .with_layer_norm_eps(1e-5)
        .with_position_embedding_type(PositionEmbeddingType::AfterPadding)
}

/// Key, dtype and shape of every tensor in `model.safetensors`, by key.
fn contents(dir: &Path) -> Vec<(String, Dtype, Vec<usize>)> {
    tensors_of(dir).into_iter().map(|tensor| (tensor.key, tensor.dtype, tensor.shape)).collect()
}

#[test]
fn a_new_directory_holds_hugging_faces_keys_shapes_and_fields() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("made/on/the/way");
    tiny().init(&device()).save_pretrained(&path).unwrap();
    let expected = [
        ("embeddings.LayerNorm.bias", vec![4]),
        ("embeddings.LayerNorm.weight", vec![4]),
        ("embeddings.position_embeddings.weight", vec![6, 4]),
        ("embeddings.token_type_embeddings.weight", vec![2, 4]),
        ("embeddings.word_embeddings.weight", vec![9, 4]),
    ]
    .map(|(key, shape)| (key.to_string(), Dtype::F32, shape));
    assert_eq!(contents(&path), expected);
    assert_eq!(
        config_json(&path),
        json!({
            "architectures": ["BertModel"],
            "hidden_dropout_prob": 0.1,
            "hidden_size": 4,
            "initializer_range": 0.02,
            "intermediate_size": 16,
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": 6,
            "model_type": "bert",
            "num_attention_heads": 1,
            "pad_token_id": 0,
            "type_vocab_size": 2,
            "vocab_size": 9,
        })
    );
    let bytes = fs::read(path.join("model.safetensors")).unwrap();
    let (header_length, header) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
    assert_eq!(header_length % 8, 0, "tensors start aligned");
    let files: Vec<String> = files_of(&path).into_keys().collect();
    assert_eq!(files, ["config.json", "model.safetensors"], "nothing temporary is left");
    for (hidden, heads) in [(128, 2), (768, 12), (1024, 16)] {
        let path = dir.path().join(heads.to_string());
        tiny().with_hidden_size(hidden).init(&device()).save_pretrained(&path).unwrap();
        let json = config_json(&path);
        let published = [&json["num_attention_heads"], &json["intermediate_size"]];
        assert_eq!(published, [heads, 4 * hidden]);
    }
    // A config that would be the same is not written.
    let save = |dropout| {
        tiny().with_hidden_dropout_prob(dropout).init(&device()).save_pretrained(dir.path()).unwrap();
        fs::metadata(dir.path().join("config.json")).unwrap().ino()
    };
    let first = save(0.0);
    assert_eq!(save(0.0), first);
    assert_ne!(save(0.5), first);
}

#[test]
fn what_is_saved_is_loaded_bit_for_bit_in_every_dtype_and_scheme() {
    use PositionEmbeddingType::*;
    let configs = [
        tiny(),
        roberta(),
        tiny().with_pad_token_id(None).with_hidden_dropout_prob(0.25).with_layer_norm_eps(1e-7),
        tiny().with_position_embedding_type(RelativeKey),
        tiny().with_position_embedding_type(RelativeKeyQuery).with_max_position_embeddings(100),
        tiny().with_initializer(EmbeddingInitializer::Normal { std: 0.3 }),
    ];
    for config in configs {
        for dtype in [FloatDType::F64, FloatDType::F32, FloatDType::F16, FloatDType::BF16] {
            let dir = tempdir().unwrap();
            // A module under training is saved as any other.
            let module = cast(config.init(&autodiff()), dtype);
            module.save_pretrained(dir.path()).unwrap();
            assert_eq!(BertEmbeddingsConfig::from_pretrained(dir.path()).unwrap(), config);
            let [class, model_type] = match config.family {
                Family::Roberta => ["RobertaModel", "roberta"],
                _ => ["BertModel", "bert"],
            };
            let json = config_json(&dir);
            assert_eq!([&json["architectures"][0], &json["model_type"]], [class, model_type]);
            let mut loaded = cast_module(config.init(&device()), dtype).unwrap();
            loaded.load(dir.path()).unwrap();
            let weight = |module: &BertEmbeddings| module.word_embeddings.weight.val().into_data();
            assert_eq!(weight(&loaded), weight(&module));
            assert_eq!(weight(&loaded).dtype(), DType::from(dtype));
            assert_eq!(all_values(&loaded), all_values(&module));
        }
    }
}

#[test]
fn the_metadata_of_a_models_file_is_kept() {
    let dir = copy_of("bert");
    let path = dir.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap().tensors();
    let metadata = [("trained_by".to_string(), "us".to_string())].into();
    std::fs::write(&path, safetensors::serialize(tensors, Some(metadata)).unwrap()).unwrap();
    BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap().save_pretrained(dir.path()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().as_ref().unwrap();
    // transformers refuses a file without a format.
    assert_eq!([&metadata["format"], &metadata["trained_by"]], ["pt", "us"]);
}

#[test]
fn a_bias_that_a_module_lacks_is_stored_as_zeros_of_the_modules_dtype() {
    let dir = tempfile::tempdir().unwrap();
    let mut module = cast_module(tiny().init(&device()), FloatDType::F16).unwrap();
    module.layer_norm.as_mut().unwrap().beta = None;
    module.save_pretrained(dir.path()).unwrap();
    let loaded = BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
    assert_eq!(loaded.layer_norm.unwrap().beta.unwrap().val().into_data(), TensorData::from([0.0f32; 4]));
}

#[test]
fn saving_into_a_models_directory_replaces_the_layer_and_keeps_the_rest() {
    for name in ["bert", "roberta"] {
        let dir = copy_of(name);
        let config = BertEmbeddingsConfig::from_pretrained(dir.path()).unwrap();
        let (before, json) = (tensors_of(dir.path()), config_json(dir.path()));
        let keys = contents(dir.path());
        let module = config.with_hidden_dropout_prob(0.3).init(&device());
        module.save_pretrained(dir.path()).unwrap();

        assert_eq!(contents(dir.path()), keys, "the same keys, dtypes and shapes");
        for (old, new) in before.iter().zip(tensors_of(dir.path())) {
            assert_eq!(*old == new, !new.key.contains(".embeddings."), "{}", new.key);
        }
        let mut expected = json;
        expected["hidden_dropout_prob"] = json!(0.3);
        assert_eq!(config_json(dir.path()), expected, "the other fields are as they were");
        let loaded = BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
        assert_eq!(all_values(&loaded), all_values(&module));
    }
}

#[test]
fn the_names_that_a_file_has_are_kept_and_its_old_buffer_is_dropped() {
    let mut stored = tiny_tensors("bert.embeddings.");
    stored[3].key = "bert.embeddings.LayerNorm.gamma".into();
    stored[4].key = "bert.embeddings.LayerNorm.beta".into();
    let mut buffer = Stored::f32("bert.embeddings.position_ids", &[1, 6]);
    buffer.dtype = Dtype::I32;
    stored.push(buffer);
    stored.push(Stored::f32("bert.pooler.dense.bias", &[4]));
    let dir = folder(&[("model.safetensors", &safetensors_bytes(&stored))]);
    tiny().with_vocab_size(11).init(&device()).save_pretrained(dir.path()).unwrap();
    assert_eq!(
        keys_of(dir.path()),
        [
            "bert.embeddings.LayerNorm.beta",
            "bert.embeddings.LayerNorm.gamma",
            "bert.embeddings.position_embeddings.weight",
            "bert.embeddings.token_type_embeddings.weight",
            "bert.embeddings.word_embeddings.weight",
            "bert.pooler.dense.bias",
        ]
    );
    assert_eq!(contents(dir.path())[4].2, [11, 4]);
}

/// Asserts that a save fails and leaves every file as it was.
fn refused(dir: &Path, module: &BertEmbeddings) -> Error {
    let before = files_of(dir);
    let error = module.save_pretrained(dir).expect_err("the save should fail");
    assert_eq!(files_of(dir), before, "a failed save changed the directory: {error}");
    error
}

#[test]
fn a_directory_of_another_model_or_whose_weights_would_be_hidden_or_cannot_be_read_is_refused() {
    let module = tiny().init(&device());
    for name in ["bert_sharded", "sharded_bin"] {
        let message = refused(copy_of(name).path(), &module).to_string();
        assert!(message.contains("index.json") && message.contains("another directory"), "{message}");
    }
    let error = refused(copy_of("roberta").path(), &module);
    assert!(matches!(error, Error::ConfigFile { field: "model_type", .. }), "{error}");
    let error = refused(copy_of("bert").path(), &tiny().with_hidden_size(8).init(&device()));
    assert!(matches!(error, Error::ConfigFile { field: "hidden_size", .. }), "{error}");
    let deberta_v1 = folder(&[("config.json", br#"{"model_type": "deberta"}"#)]);
    assert!(matches!(refused(deberta_v1.path(), &module), Error::UnsupportedModel { .. }));
    let other = folder(&[("model.safetensors", &safetensors_bytes(&[Stored::f32("wte.weight", &[9, 4])]))]);
    assert!(matches!(refused(other.path(), &module), Error::MissingKey { .. }));
    refused(folder(&[("model.safetensors", b"half a download")]).path(), &module);
    refused(folder(&[("config.json", b"{")]).path(), &module);
    let dir = folder(&[]);
    fs::create_dir(dir.path().join("model.safetensors")).unwrap();
    refused(dir.path(), &module);
}

#[test]
#[ignore = "needs Python with transformers: BURN_BERT_PYTHON"]
fn transformers_reads_what_was_saved_and_gives_it_back_bit_for_bit() {
    let python = Python::named();
    for (config, dtype) in [
        (tiny().with_pad_token_id(Some(2)), FloatDType::F32),
        (roberta(), FloatDType::F64),
        (tiny().with_pad_token_id(None), FloatDType::F16),
        (roberta(), FloatDType::BF16),
    ] {
        let dir = tempdir().unwrap();
        let module = cast(config.init(&device()), dtype);
        module.save_pretrained(dir.path()).unwrap();
        let back = tempdir().unwrap();
        python.check("saved", dir.path(), back.path());
        let mut loaded = cast_module(module.config().init(&device()), dtype).unwrap();
        loaded.load(back.path()).unwrap();
        assert_eq!(all_values(&loaded), all_values(&module), "from Burn to transformers and back");
    }
}
