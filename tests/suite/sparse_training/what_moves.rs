//! What a step changes and what it leaves.

use super::{LEARNING_RATE, device, gradients, inputs, loss_weights, module, positions, row, train};
use crate::tolerance::values;
use burn::module::{Module, Param};
use burn::optim::{AdamWConfig, SgdConfig};
use burn::prelude::*;
use burn_bert::sparse::{LazyAdamWConfig, RowSgdConfig, SparseAdamConfig};
use burn_bert::{BertEmbeddings, VocabularyResize};

#[test]
fn only_touched_rows_move_and_the_padding_row_never_does() {
    for mut rows in [
        RowSgdConfig::new().init(),
        SparseAdamConfig::new().init(),
        LazyAdamWConfig::new().with_weight_decay(0.5).init(),
    ] {
        let mut module = module();
        let mut rest = AdamWConfig::new().init();
        let weights = loss_weights();
        train(&mut module, &mut rows, &mut rest, &weights, 0..3); // every word but 15..19 and 0 has momentum now
        let before = module.clone();
        let (_, gradients, _) = gradients(&module, &inputs()[0], &weights);
        rows.step(LEARNING_RATE, &mut module, gradients).unwrap();
        let moved = |table: &dyn Fn(&BertEmbeddings) -> Param<Tensor<2>>, ids: std::ops::Range<usize>| {
            ids.filter(|&id| row(&table(&module), id) != row(&table(&before), id)).collect::<Vec<_>>()
        };
        assert_eq!(
            moved(&|module| module.word_embeddings.weight.clone(), 0..20),
            [4, 5, 6, 7, 8, 9],
            "{rows:?}"
        );
        assert_eq!(moved(&|module| positions(module).clone(), 0..12), [0, 1, 2, 3, 4], "{rows:?}");
    }
}

#[test]
fn a_frozen_table_stays_and_the_others_train() {
    let mut module = module();
    module.word_embeddings.weight = module.word_embeddings.weight.set_require_grad(false);
    let before = module.clone();
    let (mut rows, mut rest) = (SparseAdamConfig::new().init(), SgdConfig::new().init());
    train(&mut module, &mut rows, &mut rest, &loss_weights(), 0..3);
    assert_eq!(values(module.word_embeddings.weight.val()), values(before.word_embeddings.weight.val()));
    assert!(!module.word_embeddings.weight.is_require_grad());
    assert_ne!(values(positions(&module).val()), values(positions(&before).val()));
    assert!(positions(&module).is_require_grad());

    // Frozen altogether: there is nothing to step, and nothing to stumble over.
    let touched = before.clone().freeze().touched_rows(&inputs()[0]).unwrap();
    assert!(!touched.forward().is_tracked());
}

#[test]
fn a_step_keeps_parameter_ids_and_clones_keep_their_values() {
    let mut module = module();
    let before = module.clone();
    let held = values(before.word_embeddings.weight.val());
    let (mut rows, mut rest) = (SparseAdamConfig::new().init(), SgdConfig::new().init());
    train(&mut module, &mut rows, &mut rest, &loss_weights(), 0..2);
    assert_eq!(module.word_embeddings.weight.id, before.word_embeddings.weight.id);
    assert_eq!(values(before.word_embeddings.weight.val()), held);
    assert_ne!(values(module.word_embeddings.weight.val()), held);
}

#[test]
fn a_resized_table_starts_afresh_and_the_other_one_goes_on() {
    // Larger, smaller, and of the old size again with rows that are new.
    for sizes in [&[24][..], &[15], &[15, 20]] {
        let (mut module, weights) = (module(), loss_weights());
        let mut rows = SparseAdamConfig::new().init();
        train(&mut module, &mut rows, &mut SgdConfig::new().init(), &weights, 0..4);
        let saved = rows.to_bytes().unwrap();
        for &size in sizes {
            module.resize_vocabulary(&VocabularyResize::new(size)).unwrap();
        }
        let (_, gradients, _) = gradients(&module, &inputs()[0], &weights);

        let mut afresh = module.clone();
        SparseAdamConfig::new().init().step(LEARNING_RATE, &mut afresh, gradients.clone()).unwrap();
        let mut frozen = module.clone();
        frozen.word_embeddings = frozen.word_embeddings.freeze();
        let (_, of_positions, _) = self::gradients(&frozen, &inputs()[0], &weights);
        let mut positions_alone = SparseAdamConfig::new().init().from_bytes(saved, &device()).unwrap();
        positions_alone.step(LEARNING_RATE, &mut frozen, of_positions).unwrap();

        rows.step(LEARNING_RATE, &mut module, gradients).unwrap();
        let words = |module: &BertEmbeddings| values(module.word_embeddings.weight.val());
        assert_eq!(words(&module), words(&afresh), "{sizes:?}");
        assert_eq!(values(positions(&module).val()), values(positions(&frozen).val()), "{sizes:?}");
        assert_ne!(values(positions(&module).val()), values(positions(&afresh).val()), "{sizes:?}");
    }
}
