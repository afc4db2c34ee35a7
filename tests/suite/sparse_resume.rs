//! Saving a run of row-sparse training and going on with it.

use crate::tolerance::values;
use burn::module::{Module, ParamId};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn::store::ModuleRecord;
use burn_bert::sparse::{LazyAdamWConfig, RowGradients, RowSgdConfig, SparseAdamConfig, SparseOptimizer};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, Error};

fn device() -> Device {
    Device::default().autodiff()
}

fn module() -> BertEmbeddings {
    let config =
        BertEmbeddingsConfig::new().with_vocab_size(30).with_hidden_size(8).with_hidden_dropout_prob(0.0);
    config.init(&device())
}

/// Steps `steps` of a run, with batches that differ from step to step; the losses.
fn run(
    module: &mut BertEmbeddings,
    rows: &mut SparseOptimizer,
    rest: &mut ModuleOptimizer,
    steps: std::ops::Range<i32>,
) -> Vec<f64> {
    let step = |step: i32| {
        let ids = [[step, step + 1, step + 1, 2 * step % 30, 0], [7, 8, 29 - step, 0, 0]];
        let input = BertEmbeddingsInput::from_rows(&ids, &device()).unwrap();
        let touched = module.touched_rows(&input).unwrap();
        let loss = touched.forward().sub_scalar(0.5).abs().powi_scalar(3).mean();
        let mut gradients = loss.backward();
        let row_gradients = RowGradients::from_grads(&mut gradients, touched, module).unwrap();
        rows.step(0.02, module, row_gradients).unwrap();
        let gradients = GradientsParams::from_grads(gradients, module);
        *module = rest.step(0.02, module.clone(), gradients);
        values(loss)[0]
    };
    steps.map(step).collect()
}

#[test]
fn a_resumed_run_has_the_losses_of_one_that_was_not_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for optimizer in [
        || RowSgdConfig::new().init(),
        || SparseAdamConfig::new().init(),
        || LazyAdamWConfig::new().with_weight_decay(0.1).init(),
    ] {
        let mut module = module();
        let (mut rows, mut rest) = (optimizer(), AdamWConfig::new().init());
        run(&mut module, &mut rows, &mut rest, 0..5);
        rows.save(path("rows")).unwrap();
        rest.save(path("rest")).unwrap();
        module.clone().into_record().save(path("module")).unwrap();
        let expected = run(&mut module, &mut rows, &mut rest, 5..12);

        let mut module = self::module().load_record(ModuleRecord::load(path("module")).unwrap());
        let mut rows = optimizer().load(path("rows"), &device()).unwrap();
        let mut rest = AdamWConfig::new().init().load(path("rest")).unwrap();
        assert_eq!(run(&mut module, &mut rows, &mut rest, 5..12), expected);
    }
}

#[test]
fn a_state_holds_the_touched_rows_and_no_others() {
    let mut module = module();
    let mut rows = SparseAdamConfig::new().init();
    run(&mut module, &mut rows, &mut AdamWConfig::new().init(), 1..2);
    let saved = burn_pack::Reader::from_bytes(rows.to_bytes().unwrap()).unwrap();
    let size = |name: &str| saved.tensor_data(name).unwrap().len();
    assert_eq!(size("words.mean"), 5 * 8 * size_of::<f32>()); // 1, 2, 7, 8 and 28
    assert_eq!(size("words.ids"), 5 * size_of::<i64>());
    assert_eq!(size("positions.square"), 5 * 8 * size_of::<f32>());
}

fn state(mut rows: SparseOptimizer) -> SparseOptimizer {
    run(&mut module(), &mut rows, &mut AdamWConfig::new().init(), 1..3);
    rows
}

#[test]
fn a_damaged_state_is_refused() {
    let pack = |rows: i64, ids: [i64; 2], shape: [usize; 2]| {
        let floats = |name: &str| {
            let values = vec![0.5f32; shape[0] * shape[1]];
            let (bytes, shape, dtype) = TensorData::new(values, shape).into_parts();
            burn_pack::Tensor::new(name.into(), dtype, shape, None, bytes)
        };
        let (bytes, id_shape, dtype) = TensorData::from(ids).into_parts();
        let ids = burn_pack::Tensor::new("words.ids".into(), dtype, id_shape, None, bytes);
        burn_pack::Writer::new(vec![floats("words.mean"), floats("words.square"), ids])
            .with_metadata("row_optimizer", "SparseAdam")
            .with_scalar("words.time", 3u64.into())
            .with_scalar("positions.time", 3u64.into())
            .with_scalar("words.table_rows", rows.into())
    };
    let load = |writer: burn_pack::Writer| {
        SparseAdamConfig::new().init().from_bytes(writer.into_bytes().unwrap(), &device())
    };
    assert!(load(pack(30, [3, 4], [2, 8])).is_ok());
    for (writer, message) in [
        (pack(30, [3, 30], [2, 8]), "names row 30 of `words`, a table of 30 rows"),
        (pack(30, [3, -1], [2, 8]), "names row -1 of `words`, a table of 30 rows"),
        (pack(-1, [3, 4], [2, 8]), "has no count `words.table_rows`"),
        (pack(30, [3, 4], [3, 8]), "has `words.mean` of shape [3, 8], but names 2 rows"),
        (pack(30, [4, 4], [2, 8]), "names a row of `words` twice"),
    ] {
        let error = load(writer).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }

    // A table larger than any memory is not made before one of its shape is met.
    let mut huge = load(pack(1 << 60, [3, 4], [2, 8])).unwrap();
    let mut module = module();
    let input = BertEmbeddingsInput::from_rows(&[[3, 4]], &device()).unwrap();
    let touched = module.touched_rows(&input).unwrap();
    let mut gradients = touched.forward().powi_scalar(3).sum().backward();
    let gradients = RowGradients::from_grads(&mut gradients, touched, &module).unwrap();
    let error = huge.step(0.1, &mut module, gradients).unwrap_err();
    assert!(
        matches!(error, Error::Data { ref problem, .. } if problem.contains("[1152921504606846976, 8]")),
        "{error}"
    );
}

#[test]
fn a_state_that_was_loaded_and_not_stepped_is_saved_as_it_was() {
    let bytes = state(SparseAdamConfig::new().init()).to_bytes().unwrap();
    let loaded = SparseAdamConfig::new().init().from_bytes(bytes.clone(), &device()).unwrap();
    assert_eq!(loaded.to_bytes().unwrap(), bytes);
}

#[test]
fn a_loaded_state_goes_on_with_a_module_whose_parameters_have_other_ids() {
    let (mut module, mut rows) = (module(), SparseAdamConfig::new().init());
    let mut rest = AdamWConfig::new().init();
    run(&mut module, &mut rows, &mut rest, 0..5);
    let mut again = module.clone();
    for table in [&mut again.word_embeddings, again.position_embeddings.as_mut().unwrap()] {
        table.weight = table.weight.clone().transform_for_load(table.weight.val(), ParamId::new());
    }
    let mut loaded = SparseAdamConfig::new().init().from_bytes(rows.to_bytes().unwrap(), &device()).unwrap();
    let mut rest_again = AdamWConfig::new().init().from_bytes(rest.into_bytes().unwrap()).unwrap();
    let expected = run(&mut module, &mut rows, &mut rest, 5..8);
    assert_eq!(run(&mut again, &mut loaded, &mut rest_again, 5..8), expected);
}

#[test]
fn a_loaded_state_does_not_change_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.bpk");
    let rows = state(SparseAdamConfig::new().init());
    rows.save(&path).unwrap();
    let load = || SparseAdamConfig::new().init().load(folder.path().join("rows"), &device()).unwrap();
    let (overwritten, deleted) = (load(), load());
    let size = std::fs::read(&path).unwrap().len();
    std::fs::write(&path, vec![7; size]).unwrap();
    assert!(overwritten.to_bytes().unwrap() == rows.to_bytes().unwrap());
    drop(folder);
    assert!(deleted.to_bytes().unwrap() == rows.to_bytes().unwrap());
}

#[test]
fn a_failed_save_leaves_the_older_file() {
    let folder = tempfile::tempdir().unwrap();
    // The name is as long as a file system allows, so the file beside it, which is written first, cannot be made.
    let path = folder.path().join(format!("{}.bpk", "r".repeat(251)));
    let short = folder.path().join("rows.bpk");
    state(SparseAdamConfig::new().init()).save(&short).unwrap();
    std::fs::rename(&short, &path).unwrap();
    let old = std::fs::read(&path).unwrap();

    let other = state(LazyAdamWConfig::new().init());
    assert_ne!(other.to_bytes().unwrap()[..], old[..]);
    let error = other.save(&path).unwrap_err();
    assert!(matches!(error, Error::RowStateFile { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), old);
    SparseAdamConfig::new().init().load(&path, &device()).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}
