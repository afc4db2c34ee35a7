//! Gradients of what no fixture of transformers has, by central differences: the untied head and every pooling.
//! `parity_models` has those of the heads, `sentence_losses` those of the losses of sentence embeddings, `tests/backend` those
//! of the layer in every position scheme.

use crate::prelude::*;
use crate::sentences::POOLINGS;
use burn_gradcheck::{GradCheck, Probe};

fn assert_passes<M: Module>(model: M, loss: impl Fn(&M, &Probe) -> Tensor<1>) {
    GradCheck::new().run(&larger(model), loss).unwrap().assert_passes();
}

#[test]
fn an_untied_head_and_every_pooling_pass() {
    let input = BertEmbeddingsInput::from_rows(&[[2, 7, 4, 3], [1, 8, 5, 3]], &autodiff()).unwrap();
    let padding = Some(PaddingMask::from_lengths(&[4, 3], 4));
    let config = BertForMaskedLmConfig::new(small_bert(9, 4)).with_tie_word_embeddings(false);
    let batch = MaskedLmBatch::new(input.clone(), padding.clone(), &[[0, 1], [1, 2]], &[5, 8]).unwrap();
    assert_passes(config.init(&autodiff()), |model, _| model.forward(&batch).loss);
    for ((pooling, _), normalize) in POOLINGS.into_iter().zip([true, false].into_iter().cycle()) {
        println!("{pooling:?}");
        let config = BertForSentenceEmbeddingConfig::new(small_bert(9, 4));
        let model = config.with_pooling(pooling).with_normalize(normalize).init(&autodiff());
        assert_passes(model, |model, probe| {
            probe.weighted_sum(model.embed(&input, padding.as_ref()).unwrap())
        });
    }
}
