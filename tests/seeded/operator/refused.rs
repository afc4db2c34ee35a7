//! What is refused.

use super::Case;
use burn::prelude::*;
use burn_bert::functional::{Norm, Rows, embed_layer_norm};

pub(super) fn shapes_that_do_not_fit_are_refused(case: &Case) {
    let device = &case.device;
    // The message of the panic, if there is one. One from inside Burn would be another.
    let refused = |rows: [Rows; 3], beta: usize| -> Option<String> {
        let norm = Norm {
            gamma: Tensor::ones([4], device),
            beta: Some(Tensor::zeros([beta], device)),
            epsilon: 1e-12,
        };
        let run = || embed_layer_norm([2, 3], rows, norm, 0.0).into_data();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).err()?;
        Some(panic.downcast_ref::<String>().expect("a panic with a formatted message").clone())
    };
    let refused_for = |rows: [Rows; 3], beta: usize, expected: &str| {
        let message = refused(rows, beta).unwrap_or_else(|| panic!("not refused: {expected}"));
        assert!(message.contains(expected), "{message:?} is not about {expected:?}");
    };
    let values = |shape: [usize; 3]| Rows::Values(Tensor::ones(shape, device));
    let table = |rows, width| Tensor::<2>::ones([rows, width], device);
    let ids = |shape: [usize; 2]| Tensor::<2, Int>::zeros(shape, device);
    let padded =
        |width, shape, padding_idx| Rows::Lookup { table: table(5, width), ids: ids(shape), padding_idx };
    let lookup = |width, shape| padded(width, shape, None);
    assert_eq!(refused([values([2, 3, 4]), Rows::Absent, Rows::Absent], 4), None);
    refused_for([values([2, 3, 4]), Rows::Absent, Rows::Absent], 3, "beta must have the shape of gamma");
    for shape in [[3, 2, 4], [1, 3, 4], [4, 3, 4], [2, 3, 5]] {
        let expected = "input_ids must have shape [B, S, H]";
        refused_for([values(shape), Rows::Absent, Rows::Absent], 4, expected);
    }
    for shape in [[2, 2], [3, 3]] {
        let expected = format!("input_ids: ids of shape {shape:?} do not fit a batch of [2, 3]");
        refused_for([lookup(4, shape), Rows::Absent, Rows::Absent], 4, &expected);
    }
    let expected = "input_ids: rows must be as long as gamma";
    refused_for([lookup(5, [2, 3]), Rows::Absent, Rows::Absent], 4, expected);
    assert_eq!(refused([lookup(4, [1, 3]), Rows::Absent, Rows::Absent], 4), None);
    let range = |first| Rows::Range { table: table(5, 4), first };
    assert_eq!(refused([values([2, 3, 4]), Rows::Absent, range(2)], 4), None);
    let expected = "position_ids: row 5 is needed, but there are 5";
    refused_for([values([2, 3, 4]), Rows::Absent, range(3)], 4, expected);
    let row = |row| Rows::Row { table: table(2, 4), row };
    let expected = "token_type_ids: row 2 is needed, but there are 2";
    refused_for([values([2, 3, 4]), row(2), Rows::Absent], 4, expected);
    assert_eq!(refused([padded(4, [2, 3], Some(4)), Rows::Absent, Rows::Absent], 4), None);
    let expected = "input_ids: the padding index is 5, but there are 5 rows";
    refused_for([padded(4, [2, 3], Some(5)), Rows::Absent, Rows::Absent], 4, expected);
}

pub(super) fn dropout_outside_its_range_is_refused(case: &Case) {
    for device in [case.device.clone(), case.device.clone().autodiff()] {
        for prob in [-0.1, 1.0, 1.5, f64::NAN, f64::INFINITY] {
            let values = Rows::Values(Tensor::ones([1, 2, 4], &device));
            let norm = Norm { gamma: Tensor::ones([4], &device), beta: None, epsilon: 1e-12 };
            let run = || embed_layer_norm([1, 2], [values, Rows::Absent, Rows::Absent], norm, prob);
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
            let expected = format!("dropout: the probability is {prob}, but must lie in [0, 1)");
            assert_eq!(panic.downcast_ref::<String>(), Some(&expected));
        }
    }
}
