//! Reading the weights of Hugging Face checkpoints.

use crate::checkpoint_files::{
    Stored, dtype, file_of, fixture, holds_pattern, safetensors_bytes, tensors_of, tiny, tiny_tensors,
};
use crate::files::{copy_of, fixture as files_fixture};
use crate::prelude::*;
use burn::module::{ModuleMapper, list_param_ids};
use safetensors::Dtype;

#[test]
fn shards_by_their_directory_or_index_and_every_file_that_torch_save_writes_are_read() {
    let [sharded, sharded_bin] = ["bert_sharded", "sharded_bin"].map(fixture);
    let shards = [
        sharded.join("model.safetensors.index.json"),
        sharded,
        sharded_bin.join("pytorch_model.bin.index.json"),
        sharded_bin,
    ];
    let files =
        ["zip.bin", "legacy.bin", "no_prefix.bin", "f16.bin", "bf16.bin", "transposed.bin"].map(fixture);
    for path in shards.into_iter().chain(files) {
        let module = BertEmbeddings::from_pretrained(&path, &device()).unwrap();
        assert!(holds_pattern(&module), "{}", path.display());
        assert_eq!(dtype(&module), DType::F32);
    }
}

#[test]
fn an_index_may_name_shards_and_tensors_of_parts_that_are_not_loaded() {
    let dir = copy_of(files_fixture("masked_lm/tiny_bert"));
    let whole: BertForMaskedLm = loaded(&dir);
    let (head, body): (Vec<_>, Vec<_>) =
        tensors_of(dir.path()).into_iter().partition(|tensor| tensor.key.starts_with("cls."));
    let mut weight_map = serde_json::Map::new();
    for (name, tensors) in [("body.safetensors", &body), ("head.safetensors", &head)] {
        fs::write(dir.path().join(name), safetensors_bytes(tensors)).unwrap();
        weight_map.extend(tensors.iter().map(|tensor| (tensor.key.clone(), json!(name))));
    }
    fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    let index = json!({ "metadata": { "total_size": 1 }, "weight_map": weight_map });
    fs::write(dir.path().join("model.safetensors.index.json"), index.to_string()).unwrap();

    assert_eq!(all_values(&loaded::<BertForMaskedLm>(&dir)), all_values(&whole));
    let (model, report) = BertModel::from_pretrained(dir.path(), &device()).unwrap();
    let mut unused: Vec<String> = head.into_iter().map(|tensor| tensor.key).collect();
    unused.sort();
    assert_eq!(report.unused, unused);
    let word = |embeddings: &BertEmbeddings| values(embeddings.word_embeddings.weight.val());
    assert_eq!(word(&model.embeddings), word(&whole.bert.embeddings));
    assert_eq!(
        word(&BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap()),
        word(&whole.bert.embeddings)
    );
}

#[test]
fn every_prefix_of_the_family_and_both_names_of_gamma_and_beta_are_read() {
    for prefix in ["", "embeddings.", "bert.embeddings.", "electra.embeddings.", "ernie.embeddings."] {
        let (_folder, path) = file_of(&tiny_tensors(prefix));
        assert!(holds_pattern(&BertEmbeddings::from_pretrained(path, &device()).unwrap()), "{prefix}");
    }
    let after_padding = tiny().with_position_embedding_type(PositionEmbeddingType::AfterPadding);
    let (_folder, path) = file_of(&tiny_tensors("roberta.embeddings."));
    let module = BertEmbeddings::from_pretrained_with(&after_padding, path, &device());
    assert!(holds_pattern(&module.unwrap()));
    // Which of the two is which is in `save_masked_lm`.
    let mut tensors = tiny_tensors("");
    tensors[3].key = "LayerNorm.gamma".into();
    tensors[4].key = "LayerNorm.beta".into();
    let (_folder, path) = file_of(&tensors);
    assert!(holds_pattern(&BertEmbeddings::from_pretrained(path, &device()).unwrap()));
}

#[test]
fn a_directory_or_a_lone_file_takes_the_config_there_or_else_its_sizes_from_its_shapes() {
    let load = |path| BertEmbeddings::from_pretrained(path, &device());
    for path in [fixture("bert"), fixture("zip.bin")] {
        let bert = load(path).unwrap();
        assert!(holds_pattern(&bert));
        assert_eq!(bert.config(), tiny());
    }
    for path in [fixture("roberta"), fixture("roberta").join("model.safetensors")] {
        let roberta = load(path).unwrap();
        assert!(holds_pattern(&roberta));
        assert_eq!(roberta.position_embedding_type(), PositionEmbeddingType::AfterPadding);
        assert_eq!(roberta.position_embeddings.as_ref().unwrap().padding_idx(), Some(1));
        assert_eq!(roberta.layer_norm.as_ref().unwrap().epsilon(), 1e-5);
    }
    let (_folder, path) = file_of(&tiny_tensors("roberta.embeddings."));
    says(load(path), "from_pretrained_with");
}

#[test]
fn a_directory_without_a_config_and_one_with_keys_of_another_family_are_refused() {
    let bare = folder(&[("model.safetensors", &safetensors_bytes(&tiny_tensors("")))]);
    says(BertEmbeddings::from_pretrained(bare.path(), &device()), "config.json");
    let folder = folder(&[
        ("config.json", &fs::read(fixture("bert").join("config.json")).unwrap()),
        ("model.safetensors", &safetensors_bytes(&tiny_tensors("roberta.embeddings."))),
    ]);
    let message = BertEmbeddings::from_pretrained(folder.path(), &device()).unwrap_err().to_string();
    assert!(message.contains("model_type") && message.contains("AfterPadding"), "{message}");
}

#[test]
fn values_are_cast_to_the_dtype_of_the_module() {
    for name in ["zip.bin", "f16.bin", "bf16.bin"] {
        for wanted in [FloatDType::F64, FloatDType::F32, FloatDType::F16, FloatDType::BF16] {
            let mut module = cast_module(tiny().init(&device()), wanted).unwrap();
            module.load(fixture(name)).unwrap();
            assert_eq!(dtype(&module), wanted.into(), "{name}");
            assert!(holds_pattern(&module), "{name} as {wanted:?}");
        }
    }
}

/// γ in the dtype of a module, of a file that has it in another or in the same.
fn gamma(stored: Dtype, bytes: Vec<u8>, dtype: FloatDType) -> Tensor<1> {
    let mut tensors = tiny_tensors("");
    (tensors[3].dtype, tensors[3].bytes) = (stored, bytes);
    let (_folder, path) = file_of(&tensors);
    let mut module = cast_module(tiny().init(&device()), dtype).unwrap();
    module.load(path).unwrap();
    module.layer_norm.as_ref().unwrap().gamma.val()
}

#[test]
fn a_number_between_two_halves_goes_to_the_nearer_one_and_f64_survives_bit_for_bit() {
    // One ulp of f16 at 1 is 2⁻¹⁰: 1 + 0.75 ulp rounds up, 1 + 0.25 ulp down.
    let values_in_f32 = [1.0 + 0.75 / 1024.0, 1.0 + 0.25 / 1024.0, 70000.0, 1e-9f32];
    let bytes = values_in_f32.iter().flat_map(|value| value.to_le_bytes()).collect();
    let halves = values(gamma(Dtype::F32, bytes, FloatDType::F16));
    assert_eq!(halves, [1.0 + 1.0 / 1024.0, 1.0, f64::INFINITY, 0.0]);

    let exact = [1.0 + f64::EPSILON, -0.0, f64::MIN_POSITIVE, 1.0 / 3.0];
    let bytes = exact.iter().flat_map(|value| value.to_le_bytes()).collect();
    let found: Vec<f64> = gamma(Dtype::F64, bytes, FloatDType::F64).into_data().try_into_vec().unwrap();
    assert_eq!(found.iter().map(|value| value.to_bits()).collect::<Vec<_>>(), exact.map(f64::to_bits));
}

#[test]
fn a_quantised_module_is_refused_and_stays_as_it_is() {
    for group in [ParamGroup::all(), ParamGroup::from_path("layer_norm.beta")] {
        let mut quantizer = quantizer();
        let mut module = tiny().init(&device()).quantize_weights_group(&mut quantizer, group);
        let before = all_values(&module.clone().map(&mut Dequantize));
        let error = module.load(fixture("zip.bin")).unwrap_err();
        let problem =
            "cannot be loaded into a quantised parameter; load the checkpoint first and quantise afterwards";
        assert!(matches!(&error, Error::Data { .. }) && error.to_string().ends_with(problem), "{error}");
        assert_eq!(all_values(&module.map(&mut Dequantize)), before);
    }
}

struct Dequantize;

impl ModuleMapper for Dequantize {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(Tensor::dequantize)
    }
}

#[test]
fn a_tied_table_that_a_file_has_once_under_two_names_is_read() {
    let dir = fixture("tied_bin");
    let tied: BertForMaskedLm = loaded(&dir);
    assert!(holds_pattern(&tied.bert.embeddings));
    // Twice, if the decoder is one of its own.
    let config = BertForMaskedLmConfig::from_pretrained(&dir).unwrap().with_tie_word_embeddings(false);
    let (untied, report) = BertForMaskedLm::from_pretrained_with(&config, &dir, &device()).unwrap();
    assert!(report.is_complete(), "{report}");
    let decoder = untied.head.decoder.unwrap().weight.val();
    assert_eq!(values(decoder), values(tied.bert.embeddings.word_embeddings.weight.val()));
}

// An existing module

#[test]
fn loading_keeps_ids_device_training_state_and_settings_and_a_loaded_module_can_be_trained() {
    let device = autodiff();
    let mut module = tiny().with_pad_token_id(Some(3)).init(&device);
    module.token_type_embeddings = module.token_type_embeddings.freeze();
    let before = list_param_ids(&module);
    module.load(fixture("zip.bin")).unwrap();
    assert!(holds_pattern(&module));
    assert_eq!(list_param_ids(&module), before);
    assert_eq!(module.devices(), [device]);
    assert!(module.word_embeddings.weight.val().is_require_grad());
    assert!(!module.token_type_embeddings.as_ref().unwrap().weight.val().is_require_grad());
    assert_eq!(module.word_embeddings.padding_idx(), Some(3));
    let plain = BertEmbeddings::from_pretrained(fixture("bert"), &self::device()).unwrap();
    assert!(plain.train().word_embeddings.weight.val().is_require_grad());
}

#[test]
fn a_table_that_was_never_drawn_is_not_drawn_to_be_compared() {
    let mut module = tiny().with_vocab_size(1 << 30).init(&device()); // 16 GiB
    says(module.load(fixture("zip.bin")), "[1073741824, 4]");
}

// All or nothing

/// Asserts that a load fails without a trace, and that the message says all this.
fn assert_refused(tensors: &[Stored], parts: &[&str]) {
    let (_folder, path) = file_of(tensors);
    let mut module = tiny().init(&device());
    let before = all_values(&module);
    let message = module.load(path).unwrap_err().to_string();
    assert_eq!(all_values(&module), before, "a failed load changed the module: {message}");
    assert!(parts.iter().chain(&["some.safetensors"]).all(|part| message.contains(part)), "{message}");
}

/// The layer's tensors, with another in the place of one.
fn with(index: usize, change: impl FnOnce(&mut Stored)) -> Vec<Stored> {
    let mut tensors = tiny_tensors("bert.embeddings.");
    change(&mut tensors[index]);
    tensors
}

#[test]
fn a_tensor_that_is_missing_or_does_not_fit_is_named_and_nothing_is_loaded() {
    for index in 0..5 {
        let mut tensors = tiny_tensors("bert.embeddings.");
        let missing = tensors.remove(index).key;
        assert_refused(&tensors, &[missing.strip_prefix("bert.").unwrap()]);
    }
    for (index, shape) in [(0, &[10, 4][..]), (1, &[7, 4]), (2, &[1, 4]), (0, &[4, 9]), (4, &[1, 4])] {
        let Stored { key, shape: expected, .. } = &tiny_tensors("bert.embeddings.")[index];
        let tensors = with(index, |tensor| *tensor = Stored::f32(key, shape));
        assert_refused(&tensors, &[key, &format!("{shape:?}"), &format!("{expected:?}")]);
    }
    for (dtype, size) in [(Dtype::I8, 1), (Dtype::I32, 4), (Dtype::F8_E4M3, 1), (Dtype::BOOL, 1)] {
        let tensors = with(4, |tensor| (tensor.dtype, tensor.bytes) = (dtype, vec![0; 4 * size]));
        assert_refused(&tensors, &["LayerNorm.bias", &dtype.to_string()]);
    }
    let message = BertEmbeddings::from_pretrained(fixture("int8.bin"), &device()).unwrap_err().to_string();
    assert!(message.contains("word_embeddings.weight") && message.contains("I8"), "{message}");
}

#[test]
fn tensors_that_are_ambiguous_or_of_no_family_are_refused_by_their_keys() {
    let [bert, roberta, xlnet] =
        ["bert", "roberta", "xlnet"].map(|base| tiny_tensors(&format!("{base}.embeddings.")));
    assert_refused(&[bert, roberta].concat(), &["bert.embeddings.", "roberta.embeddings."]);
    assert_refused(&xlnet, &["xlnet.embeddings.word_embeddings.weight"]);
}
