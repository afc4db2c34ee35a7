//! Whole models of every family and head against transformers: logits, losses, gradients, ten steps of AdamW, adapters,
//! frozen parts, 16 bits, and what is saved.

use crate::parity::{DTYPES, Fixture, Head, collected, rows_at, token_rows, undropped};
use crate::prelude::*;
use crate::sentences::POOLINGS;
use burn::optim::SgdConfig;
use burn_bert::optim::{AdamWConfig, adamw};
use burn_gradcheck::{GradCheck, Probe};

fn devices() -> [Device; 2] {
    let device = Device::default().autodiff();
    [device.clone(), device.gradient_checkpointing()]
}

fn assert_equal<H: Head>(fixtures: &[Fixture]) {
    for (fixture, device) in fixtures.iter().flat_map(|fixture| devices().map(|device| (fixture, device))) {
        let name = fixture.name();
        println!("{name}, {device:?}");
        for (dtype, tolerance) in DTYPES {
            let case = fixture.case(dtype);
            let batch = H::batch(&case, &device);
            let model: H = fixture.load(dtype, &device);
            let (loss, logits) = model.run(&batch);
            let [found, expected] = [logits, H::logits(&case)].map(|logits| H::meant(logits, &case));
            assert_close(&found, &expected, tolerance);
            assert_close(&values(loss.clone()), &case.values("loss"), tolerance);
            let gradients = collected(&model, Some(&loss.backward()));
            let mut largest = 0.0f64;
            for (path, gradient) in &gradients {
                let expected = fixture.values(&case, "grad.", path).unwrap();
                assert_close(gradient, &expected, tolerance);
                largest = largest.max(largest_difference(gradient, &expected));
            }
            let of_logits = largest_difference(&found, &expected);
            println!("{dtype:?}: at most {of_logits:.0e} in logits, {largest:.0e} in gradients");
            let count = |values: &[f64]| values.len();
            let expected = case.names().into_iter().filter(|name| name.starts_with("grad."));
            let expected: usize = expected.map(|name| count(&case.values(&name))).sum();
            assert_eq!(gradients.values().map(|values| count(values)).sum::<usize>(), expected, "{name}");
            if !case.has("losses") {
                continue; // relative positions, long sequences
            }
            let (mut model, mut optimizer) = (model, adamw(&AdamWConfig::new()).unwrap());
            let mut losses = Vec::new();
            for _ in 0..10 {
                let (loss, _) = model.run(&batch);
                losses.extend(values(loss.clone()));
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                model = optimizer.step(1e-3, model, gradients);
            }
            assert_close(&losses, &case.values("losses"), TRAINING);
            let mut compared = 0;
            for (path, value) in collected(&model, None) {
                if let Some(after) = fixture.values(&case, "after.", &path) {
                    assert_close(&value, &after, TRAINING);
                    compared += after.len();
                }
            }
            let expected = case.names().into_iter().filter(|name| name.starts_with("after."));
            let expected: usize = expected.map(|name| count(&case.values(&name))).sum();
            let has_them = name == format!("{}_token", fixture.family);
            assert!(compared == expected && (compared > 0 || !has_them), "{name}");
        }
    }
}

/// In every value and gradient. A test a head, since they take longest of all.
mod equals_transformers {
    use super::*;

    #[test]
    fn masked_lm() {
        assert_equal::<BertForMaskedLm>(&BertForMaskedLm::fixtures());
    }

    #[test]
    fn sequence_classification() {
        assert_equal::<BertForSequenceClassification>(&BertForSequenceClassification::fixtures());
    }

    #[test]
    fn token_classification() {
        assert_equal::<BertForTokenClassification>(&BertForTokenClassification::fixtures());
    }

    #[test]
    fn question_answering() {
        assert_equal::<BertForQuestionAnswering>(&BertForQuestionAnswering::fixtures());
    }

    #[test]
    fn pre_training() {
        assert_equal::<ElectraForPreTraining>(&ElectraForPreTraining::fixtures());
    }

    /// Across the edges of windows, and beyond the positions that a model was trained with.
    #[test]
    fn long_texts() {
        let long = ["modernbert", "nomic_bert", "gte", "jina_embeddings_v3", "eurobert"].map(Fixture::long);
        assert_equal::<BertForTokenClassification>(&long);
    }
}

#[test]
fn class_weights_weigh_as_in_pytorch() {
    fn assert_weighted<H: Head>(weigh: fn(H::Config) -> H::Config) {
        let device = Device::default().autodiff();
        for fixture in H::fixtures() {
            let plain: H = fixture.load(FloatDType::F32, &device);
            for (dtype, tolerance) in DTYPES {
                let case = fixture.case(dtype);
                if !case.has("weighted.loss") {
                    continue;
                }
                let config = weigh(plain.stored_config());
                let (model, _) = H::from_pretrained_with(&config, &fixture.model, &device).unwrap();
                let model = cast_module(model, dtype).unwrap();
                let (loss, _) = model.run(&H::batch(&case, &device));
                assert_close(&values(loss.clone()), &case.values("weighted.loss"), tolerance);
                let mut gradients = collected(&model, Some(&loss.backward()));
                gradients.retain(|path, _| path.starts_with("classifier."));
                assert!(gradients.len() >= 2);
                for (path, gradient) in gradients {
                    assert_close(
                        &gradient,
                        &fixture.values(&case, "weighted.grad.", &path).unwrap(),
                        tolerance,
                    );
                }
            }
        }
    }
    assert_weighted::<BertForSequenceClassification>(|config| {
        config.with_class_weights(Some(vec![0.5, 2.0, 1.25]))
    });
    assert_weighted::<BertForTokenClassification>(|config| {
        config.with_class_weights(Some(vec![0.25, 1.0, 3.0, 0.5]))
    });
}

/// Compares logits of weights in 16 bits with those of f64. What is rounded elsewhere and added up in another order than
/// PyTorch's may be half as far again.
fn assert_held(limits: [f64; 2], expected: &[f64], logits: impl Fn(FloatDType) -> Vec<f64>) {
    for (dtype, limit) in [FloatDType::BF16, FloatDType::F16].into_iter().zip(limits) {
        let found = logits(dtype);
        assert_close(&found, expected, Tolerance { absolute: 1.5 * limit, relative: 0.0 });
        let largest = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!("{dtype:?}: {largest:.1e}, PyTorch's up to {limit:.1e}");
        assert!(largest > MODEL_F32.absolute, "computed in more bits than {dtype:?}");
    }
}

#[test]
fn models_held_in_16_bits_are_as_near_to_f64_as_pytorchs() {
    fn assert_head<H: Head>() {
        let device = Device::default();
        for fixture in H::fixtures() {
            let case = fixture.case(FloatDType::F64);
            let batch = H::batch(&case, &device);
            let limits = match (fixture.family, fixture.name().as_str()) {
                // No mean over tokens makes them smaller.
                (_, "modernbert_first_token" | "eurobert_first_token") => [2.9e-2, 6.0e-3],
                ("modernbert" | "eurobert", _) => H::MODERNBERT_HELD_IN_16_BITS,
                _ => H::HELD_IN_16_BITS,
            };
            assert_held(limits, &H::meant(H::logits(&case), &case), |dtype| {
                H::meant(fixture.load::<H>(dtype, &device).run(&batch).1, &case)
            });
        }
    }
    assert_head::<BertForMaskedLm>();
    assert_head::<BertForSequenceClassification>();
    assert_head::<BertForTokenClassification>();
    assert_head::<BertForQuestionAnswering>();
    assert_head::<ElectraForPreTraining>();
    let device = Device::default();
    for fixture in Fixture::families("model") {
        let case = fixture.case(FloatDType::F64);
        let (input, padding) = case.batch(&device);
        let (sentences, _) = BertForSentenceEmbedding::from_pretrained(&fixture.model, &device).unwrap();
        assert_held([3.5e-2, 2.9e-3], &case.values("mean_pooled"), |dtype| {
            values(cast_module(sentences.clone(), dtype).unwrap().embed(&input, Some(&padding)).unwrap())
        });
    }
}

/// Hidden states after every layer, attention weights, the pooler's output and the mean over tokens, wherever there is a
/// token.
pub fn assert_outputs(model: &BertModel, case: &File, tolerance: Tolerance) {
    let device = Device::default();
    let (input, padding) = case.batch(&device);
    let output = model.forward_all(&input, Some(&padding)).unwrap();
    let tokens = |all: Vec<f64>| token_rows(&all, case);
    for (i, state) in output.hidden_states.unwrap().into_iter().enumerate() {
        let name = format!("hidden_states.{i}");
        if case.has(&name) {
            assert_close(&tokens(values(state)), &tokens(case.values(&name)), tolerance);
        }
    }
    for (i, weights) in output.attentions.unwrap().into_iter().enumerate() {
        let by_query = |weights: Tensor<4>| tokens(values(weights.swap_dims(1, 2)));
        let name = format!("attentions.{i}");
        if case.has(&name) {
            let expected = Tensor::from_data(case.data(&name), (&device, DType::F64));
            assert_close(&by_query(weights), &by_query(expected), tolerance);
        }
    }
    if let (Some(pooled), true) = (output.pooler_output, case.has("pooler_output")) {
        // Transformers pools padding where a sequence begins with it.
        let starts: Vec<i32> =
            (0..).zip(padding.rows()).filter(|(_, row)| !row[0]).map(|(row, _)| row).collect();
        let [batch, _] = padding.dims();
        let [found, expected] =
            [values(pooled), case.values("pooler_output")].map(|all| rows_at(&all, &starts, batch));
        assert_close(&found, &expected, tolerance);
    }
    let mean = Pooling::Mean.forward(output.last_hidden_state.clone(), Some(&padding));
    if case.has("mean_pooled") {
        assert_close(&values(mean), &case.values("mean_pooled"), tolerance);
    }
    if case.has("last_hidden_state") {
        let expected = tokens(case.values("last_hidden_state"));
        assert_close(&tokens(values(output.last_hidden_state)), &expected, tolerance);
    }
}

#[test]
fn hidden_states_attentions_poolers_and_means_equal_transformers() {
    let device = Device::default();
    for fixture in Fixture::families("model") {
        let (model, report) = BertModel::from_pretrained(&fixture.model, &device).unwrap();
        assert_eq!(report, LoadReport::default(), "{}", fixture.name());
        let case = fixture.case(FloatDType::F64);
        assert_eq!(model.pooler.is_some(), case.has("pooler_output"), "{}", fixture.name());
        for (dtype, tolerance) in DTYPES {
            assert_outputs(&cast_module(model.clone(), dtype).unwrap(), &case, tolerance);
        }
    }
    for fixture in BertForMaskedLm::fixtures() {
        for (dtype, tolerance) in DTYPES {
            let (model, case) = (fixture.load::<BertForMaskedLm>(dtype, &device), fixture.case(dtype));
            assert_outputs(&model.bert, &case, tolerance);
        }
    }
}

#[test]
fn buckets_of_distances_equal_transformers_in_a_long_sequence() {
    let device = Device::default().autodiff();
    // Of MPNet's 32 buckets one is of no distance.
    for (family, table, buckets) in [
        ("mpnet", "mpnet.encoder.relative_attention_bias", 31),
        ("deberta", "deberta.encoder.rel_embeddings", 16),
    ] {
        let fixture = Fixture::long(family);
        let case = fixture.case(FloatDType::F64);
        let model: BertForTokenClassification = fixture.load(FloatDType::F64, &device);
        let output = model.forward(&BertForTokenClassification::batch(&case, &device));
        assert_close(&values(output.logits), &case.values("logits"), F64);
        let encoder = &model.bert.encoder;
        let bias = encoder.relative_attention_bias.as_ref().map(|bias| &bias.table);
        let vectors = encoder.distances.as_ref().map(|vectors| &vectors.table);
        let weight = &bias.or(vectors).unwrap().weight;
        let gradient = values(weight.grad(&output.loss.backward()).unwrap());
        assert_close(&gradient, &case.values(&format!("grad.{table}.weight")), F64);
        let rows = gradient.chunks(weight.dims()[1]);
        let read = rows.filter(|bucket| bucket.iter().any(|&value| value != 0.0)).count();
        assert_eq!(read, buckets, "{family}");
    }
}

/// Runs a test of the masked language models of each family, with and without gradient checkpointing.
fn for_each(dtype: FloatDType, test: impl Fn(&Fixture, BertForMaskedLm, &MaskedLmBatch, &File)) {
    for (fixture, device) in
        BertForMaskedLm::fixtures().iter().flat_map(|fixture| devices().map(|device| (fixture, device)))
    {
        let case = fixture.case(dtype);
        test(fixture, fixture.load(dtype, &device), &BertForMaskedLm::batch(&case, &device), &case);
    }
}

#[test]
fn adapters_get_their_part_of_the_gradient_of_what_they_adapt() {
    for_each(FloatDType::F64, |fixture, model, batch, case| {
        let group = ParamGroup::from_any_predicates(vec!["query.weight", "value.weight"]);
        let mut adapted = model.apply_lora(Lora::new(2, 6.0).set_param_group(group));
        let output = adapted.forward(batch);
        assert_close(&values(output.loss.clone()), &case.values("loss"), F64);
        let gradients = output.loss.backward();
        let found = collected(&adapted, Some(&gradients));
        assert_eq!(found.len(), 4 * adapted.bert.encoder.layers.len(), "{:?}", found.keys());
        for (i, layer) in adapted.bert.encoder.layers.iter().enumerate() {
            for (name, linear) in [("query", &layer.attention.query), ("value", &layer.attention.value)] {
                let adapter = linear.weight.adapter().unwrap();
                // dL/dB = s·Aᵀ·G and, with B zero, dL/dA = 0, for the gradient G of the weight; PyTorch keeps Gᵀ.
                let path = format!("bert.encoder.layers.{i}.attention.{name}.weight");
                let [inputs, outputs] = linear.weight.dims();
                let gradient = TensorData::new(fixture.gradient(&path), [outputs, inputs]);
                let gradient = Tensor::<2>::from_data(gradient, (&Device::default(), FloatDType::F64.into()));
                let expected =
                    adapter.a.val().inner().transpose().matmul(gradient.transpose()).mul_scalar(3.0);
                assert_close(&values(adapter.b.grad(&gradients).unwrap()), &values(expected), F64);
                assert!(values(adapter.a.grad(&gradients).unwrap()).iter().all(|&value| value == 0.0));
            }
        }
        let mut optimizer = SgdConfig::new().init();
        adapted = optimizer.step(0.01, adapted.clone(), GradientsParams::from_grads(gradients, &adapted));
        let last = adapted.forward(batch);
        // Added to the weights, saved and read by anyone.
        let dir = saved(&cast_module(adapted.materialize(), FloatDType::F32).unwrap());
        let (saved, report) =
            BertForMaskedLm::from_pretrained(undropped(dir.path()), &batch.input.device()).unwrap();
        assert!(report.is_complete() && report.unused.is_empty(), "{report}");
        assert_close(&saved.run(batch).1, &values(last.logits.unwrap()), MODEL_F32);
    });
}

#[test]
fn frozen_parts_get_no_gradient_and_pass_it_on() {
    for_each(FloatDType::F64, |fixture, model, batch, _| {
        for part in ["bert.embeddings", "bert.encoder", "head"] {
            let frozen = model.clone().freeze_group(ParamGroup::from_predicate(part));
            let gradients = collected(&frozen, Some(&frozen.forward(batch).loss.backward()));
            let trained = collected(&model, None).into_keys().filter(|path| !path.starts_with(part));
            assert!(gradients.keys().cloned().eq(trained), "{}", fixture.name());
            for (path, gradient) in gradients {
                assert_close(&gradient, &fixture.gradient(&path), F64);
            }
        }
    });
}

/// Gradients of what no fixture of transformers has, by central differences.
#[test]
fn an_untied_head_and_every_pooling_pass() {
    let input = BertEmbeddingsInput::from_rows(&[[2, 7, 4, 3], [1, 8, 5, 3]], &autodiff()).unwrap();
    let padding = Some(PaddingMask::from_lengths(&[4, 3], 4).unwrap());
    let config = BertForMaskedLmConfig::new(small_bert(9, 4)).with_tie_word_embeddings(false);
    let batch = MaskedLmBatch::new(input.clone(), padding.clone(), &[[0, 1], [1, 2]], &[5, 8]).unwrap();
    let check = GradCheck::new();
    check
        .run(&larger(config.init(&autodiff())), |model, _| model.forward(&batch).loss)
        .unwrap()
        .assert_passes();
    for ((pooling, _), normalize) in POOLINGS.into_iter().zip([true, false].into_iter().cycle()) {
        let config = BertForSentenceEmbeddingConfig::new(small_bert(9, 4));
        let model = config.with_pooling(pooling).with_normalize(normalize).init(&autodiff());
        let loss = |model: &BertForSentenceEmbedding, probe: &Probe| {
            probe.weighted_sum(model.embed(&input, padding.as_ref()).unwrap())
        };
        check.run(&larger(model), loss).unwrap().assert_passes();
    }
}
