//! What is refused.

use super::Case;
use burn::prelude::*;
use burn_bert::functional::{Norm, Rows, embed_layer_norm};

pub(super) fn shapes_that_do_not_fit_are_refused(case: &Case) {
    let device = &case.device;
    let refused = |rows: [Rows; 3], beta: usize| {
        let norm = Norm {
            gamma: Tensor::ones([4], device),
            beta: Some(Tensor::zeros([beta], device)),
            epsilon: 1e-12,
        };
        let run = || embed_layer_norm([2, 3], rows, norm, 0.0).into_data();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
    };
    let values = |shape: [usize; 3]| Rows::Values(Tensor::ones(shape, device));
    let table = |rows, width| Tensor::<2>::ones([rows, width], device);
    let ids = |shape: [usize; 2]| Tensor::<2, Int>::zeros(shape, device);
    let padded =
        |width, shape, padding_idx| Rows::Lookup { table: table(5, width), ids: ids(shape), padding_idx };
    let lookup = |width, shape| padded(width, shape, None);
    assert!(!refused([values([2, 3, 4]), Rows::Absent, Rows::Absent], 4));
    assert!(refused([values([2, 3, 4]), Rows::Absent, Rows::Absent], 3), "beta");
    for shape in [[3, 2, 4], [1, 3, 4], [4, 3, 4], [2, 3, 5]] {
        assert!(refused([values(shape), Rows::Absent, Rows::Absent], 4), "{shape:?}");
    }
    for (width, shape) in [(4, [2, 2]), (4, [3, 3]), (5, [2, 3])] {
        assert!(refused([lookup(width, shape), Rows::Absent, Rows::Absent], 4), "{width}, {shape:?}");
    }
    assert!(!refused([lookup(4, [1, 3]), Rows::Absent, Rows::Absent], 4));
    let range = |first| Rows::Range { table: table(5, 4), first };
    assert!(!refused([values([2, 3, 4]), Rows::Absent, range(2)], 4));
    assert!(refused([values([2, 3, 4]), Rows::Absent, range(3)], 4), "position 5 of 5");
    let row = |row| Rows::Row { table: table(2, 4), row };
    assert!(refused([values([2, 3, 4]), row(2), Rows::Absent], 4), "token type 2 of 2");
    assert!(!refused([padded(4, [2, 3], Some(4)), Rows::Absent, Rows::Absent], 4));
    assert!(refused([padded(4, [2, 3], Some(5)), Rows::Absent, Rows::Absent], 4), "padding row 5 of 5");
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
