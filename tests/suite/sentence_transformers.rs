//! Directories of sentence-transformers, its fixtures and the real thing: the same embeddings here and there.

use crate::prelude::*;
use crate::sentences::POOLINGS;
use crate::transformers::Python;
use burn::nn::Linear;

#[test]
fn layers_and_prompts_of_directories_equal_sentence_transformers() {
    let fixtures = fixture("sentences");
    let texts: Vec<String> = list(&json(fixtures.join("texts.json")));
    let device = device().autodiff();
    let copy = tempdir().unwrap();
    for name in ["dense", "max", "weighted", "cls", "modules", "layers"] {
        let dir = fixtures.join(name);
        let (mut model, report) = BertForSentenceEmbedding::from_pretrained(&dir, &device).unwrap();
        assert!(report.is_complete(), "{report}");
        // The gradients are those without dropout.
        for module in &mut model.modules {
            if let SentenceModule::Dropout(dropout) = module {
                *dropout = dropout.clone().freeze();
            }
        }
        let case = File::at(&fixtures.join(format!("{name}.safetensors")));
        let tokenizer = BertTokenizer::from_pretrained(&dir).unwrap();
        for (dtype, tolerance) in [(FloatDType::F32, MODEL_F32), (FloatDType::F64, F64)] {
            let model = cast_module(model.clone(), dtype).unwrap();
            let pipeline = Pipeline::new(model.clone(), tokenizer.clone()).unwrap();
            let encode = TextOptions::new().with_batch_size(3);
            let named = |name: &str| encode.clone().with_prompt_name(name);
            for (expected, options) in [
                ("default", encode.clone()),
                ("prompt", encode.clone().with_prompt("a dog. ")),
                ("narrow", encode.clone().with_truncate_dim(3)),
                ("named.query", named("query")),
                ("named.passage", named("passage")),
                ("named.long", named("long")),
            ] {
                let found = values(pipeline.encode(&texts, &options).unwrap());
                assert_close(&found, &case.values(expected), tolerance);
            }
            let (input, padding) = case.batch(&device);
            let vectors = model.embed(&input, Some(&padding)).unwrap();
            assert_close(&values(vectors.clone()), &case.values("vectors"), tolerance);
            let upstream = Tensor::<2>::from_data(case.data("upstream"), (&device, vectors.dtype()));
            let gradients = (vectors * upstream).sum().backward();
            let words = &model.bert.embeddings.word_embeddings.weight;
            assert_close(&values(words.grad(&gradients).unwrap()), &case.values("grad.words"), tolerance);
            let gradient = |param: &Param<Tensor<1>>| values(param.grad(&gradients).unwrap());
            let linear_gradient =
                |linear: &Linear| values(linear.weight.grad(&gradients).unwrap().transpose());
            let weights =
                model.layer_weights.iter().map(|weights| vec![("layer_weights", gradient(weights))]);
            let of_modules = model.modules.iter().filter_map(|module| match module {
                SentenceModule::Dense(SentenceDense { linear, residual, .. }) => {
                    let bias = linear.bias.as_ref().map(|bias| ("linear.bias", gradient(bias)));
                    let residual = residual.as_ref().map(|own| ("residual.weight", linear_gradient(own)));
                    let weight = ("linear.weight", linear_gradient(linear));
                    Some([weight].into_iter().chain(bias).chain(residual).collect())
                }
                SentenceModule::LayerNorm(norm) => {
                    let beta = norm.beta.as_ref().unwrap();
                    Some(vec![("norm.weight", gradient(&norm.gamma)), ("norm.bias", gradient(beta))])
                }
                _ => None,
            });
            let mut compared = 1;
            for (i, gradients) in weights.chain(of_modules).enumerate() {
                for (key, found) in gradients {
                    assert_close(&found, &case.values(&format!("grad.{i}.{key}")), tolerance);
                    compared += 1;
                }
            }
            let names = case.names();
            assert_eq!(compared, names.iter().filter(|name| name.starts_with("grad.")).count(), "{name}");
            says(pipeline.encode(&texts, &named("other")), "\"passage\"");
            let none = pipeline.encode::<&str>(&[], &encode).unwrap();
            assert_eq!(none.dims(), [0, model.config().truncate_dim.unwrap_or(model.width())]);
            assert_eq!(FloatDType::from(none.dtype()), dtype);
        }
        for (dtype, tolerance) in [(FloatDType::BF16, MODEL_BF16), (FloatDType::F16, MODEL_F16)] {
            let held = cast_module(model.clone(), dtype).unwrap();
            let pipeline = Pipeline::new(held, tokenizer.clone()).unwrap();
            let found = values(pipeline.encode(&texts, &TextOptions::new()).unwrap());
            assert_close(&found, &case.values("default"), tolerance);
        }
        // What is saved elsewhere is read back, and is what was there.
        let saved = copy.path().join(name);
        model.save_pretrained(&saved).unwrap();
        let read_back: BertForSentenceEmbedding = loaded(&saved);
        assert_eq!(read_back.config(), model.config());
        let of_modules = |dir: &Path| {
            let mut files = crate::files::walk(dir);
            files.retain(|path| path.ends_with("model.safetensors") && path.components().count() > 1);
            files
        };
        assert_eq!(of_modules(&saved), of_modules(&dir));
        for file in of_modules(&dir) {
            let [written, expected] = [saved.join(&file), dir.join(&file)].map(|path| File::at(&path));
            assert_eq!(written.names().len(), expected.names().len());
            for key in expected.names() {
                assert_eq!(written.data(&key), expected.data(&key), "{file:?} {key}");
            }
        }
        let own = "config_sentence_transformers.json";
        let mut expected = json(dir.join(own));
        expected.as_object_mut().unwrap().remove("__version__");
        assert_eq!(json(saved.join(own)), expected);
    }
}

#[test]
#[ignore = "needs Python with sentence-transformers, named by BURN_BERT_PYTHON"]
fn sentence_transformers_loads_what_is_saved_and_embeds_alike() {
    let fixtures = fixture("");
    let all = tempdir().unwrap();
    let mut models = Vec::new();
    let modes = POOLINGS.into_iter().map(|(pooling, _)| (Family::Bert, pooling, "tokenizer"));
    let families = [
        (Family::DistilBert, Pooling::Mean, "tokenizer"),
        (Family::Electra, Pooling::Mean, "tokenizer"),
        (Family::MpNet, Pooling::Mean, "families/mpnet_tokenizer"),
        (Family::Albert, Pooling::Mean, "families/albert_tokenizer"),
    ];
    for ((family, pooling, tokenizer), normalize) in
        modes.chain(families).zip([true, false].into_iter().cycle())
    {
        let config = BertForSentenceEmbeddingConfig::new(crate::families::config(family));
        let config = config.with_pooling(pooling).with_normalize(normalize);
        let mut config = config.with_max_seq_length(Some(10));
        config.bert.embeddings.vocab_size = 486;
        if normalize {
            let prompts = Prompts::new().with("query", "a question: ").with_default("query");
            config = config.with_prompts(prompts).with_include_prompt(false).with_truncate_dim(Some(4));
            config.modules = vec![
                SentenceModuleConfig::Normalize,
                SentenceDenseConfig::new(8).with_use_residual(true).into(),
                SentenceModuleConfig::LayerNorm,
                SentenceModuleConfig::Dropout(0.3),
                SentenceDenseConfig::new(5).with_bias(false).with_use_residual(true).into(),
                SentenceModuleConfig::LayerNorm,
            ];
            config.layer_start = Some(1);
        }
        let name = format!("{family:?}{pooling:?}");
        let dir = all.path().join(&name);
        let tokenizer = BertTokenizer::from_pretrained(fixtures.join(tokenizer)).unwrap();
        let pipeline = Pipeline::new(config.init(&device()), tokenizer).unwrap();
        pipeline.save_pretrained(&dir).unwrap();
        models.push((name, pipeline));
    }
    let out = tempdir().unwrap();
    Python::named().check("sentence_embeddings", all.path(), out.path());
    let texts: Vec<String> = list(&json(out.path().join("sentences.json")));
    // The vectors of each model by the name of its directory.
    for (dtype, file, tolerance) in
        [(FloatDType::F32, "f32.safetensors", MODEL_F32), (FloatDType::F64, "f64.safetensors", F64)]
    {
        let expected = File::at(&out.path().join(file));
        for (name, pipeline) in &models {
            let model = cast_module(pipeline.model().clone(), dtype).unwrap();
            let pipeline = Pipeline::new(model, pipeline.tokenizer().clone()).unwrap();
            let found = values(pipeline.encode(&texts, &TextOptions::new()).unwrap());
            assert_close(&found, &expected.values(name), tolerance);
        }
    }
}
