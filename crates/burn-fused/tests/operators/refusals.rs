//! What is refused, by name.

use crate::devices::{all, flex};
use crate::panics::{says, unless_panics};
use burn::prelude::*;
use burn::tensor::DType;
use burn_fused::*;

/// What is refused, and the words of it. A panic from inside Burn would have others.
#[test]
fn what_does_not_fit_is_refused_by_name() {
    for device in all() {
        let rows = |rows: usize, columns: usize| Tensor::<2>::zeros([rows, columns], &device);
        let vector = |length: usize| Tensor::<1>::ones([length], &device);
        let norm = |beta: usize| Norm { gamma: vector(4), beta: Some(vector(beta)), epsilon: 1e-12 };
        let embed =
            |rows: [Rows; 3], beta: usize, prob: f64| drop(embed_layer_norm([2, 3], rows, norm(beta), prob));
        let words = |words: Rows| embed([words, Rows::Absent, Rows::Absent], 4, 0.0);
        let vectors = |shape: [usize; 3]| Rows::Values(Tensor::ones(shape, &device));
        let lookup = |width: usize, shape: [usize; 2], padding_idx| Rows::Lookup {
            table: rows(5, width),
            ids: Tensor::zeros(shape, &device),
            padding_idx,
        };
        let attend_with = |lengths: Vec<usize>, heads, positions| {
            let sequences = Sequences::new(lengths, &device);
            drop(attention([rows(3, 8), rows(3, 8), rows(3, 8)], &sequences, heads, positions, 0.0))
        };
        let attend = |lengths, heads| attend_with(lengths, heads, Positions::default());
        let distances = |by_query, by_key| Positions { by_query, by_key, ..Positions::default() };
        let range = |first| {
            embed([vectors([2, 3, 4]), Rows::Absent, Rows::Range { table: rows(5, 4), first }], 4, 0.0)
        };
        let add = |residual, prob| drop(add_layer_norm(rows(3, 4), None, rows(residual, 4), norm(4), prob));
        let of_ids =
            |shape: [usize; 2]| format!("input_ids: ids of shape {shape:?} do not fit a batch of [2, 3]");
        let of_prob = |prob: f64| format!("dropout: the probability is {prob}, but must lie in [0, 1)");
        let whole = || vectors([2, 3, 4]);
        let refuse = |expected: &str, run: &dyn Fn()| says(unless_panics(run), expected);
        let ids = |shape| Tensor::<1, Int>::from_ints(shape, &device);
        refuse("residual must have the shape of x", &|| add(1, 0.0));
        refuse("bias must be as long as a row of x", &|| drop(bias_gelu(rows(3, 8), vector(1))));
        refuse("lengths must add up to the number of rows", &|| attend(vec![2], 2));
        refuse("heads: 3 do not divide rows of length 8", &|| attend(vec![3], 3));
        refuse("by_query must have shape [2L - 1, H]", &|| {
            attend_with(vec![3], 2, distances(Some(rows(3, 8)), None));
        });
        let of_bias = |shape| Positions { bias: Some(Tensor::zeros(shape, &device)), ..Positions::default() };
        for shape in [[2, 2, 3, 3], [1, 1, 3, 3], [1, 2, 3, 2]] {
            let expected = format!("bias must have shape [B, A, L, L] or [1, A, L, L], but is {shape:?}");
            refuse(&expected, &|| attend_with(vec![1, 1, 1], 2, of_bias(shape)));
        }
        let weigh = |lengths, heads| {
            let sequences = Sequences::new(lengths, &device);
            drop(attention_weights([rows(3, 8), rows(3, 8)], &sequences, heads, Positions::default()))
        };
        refuse("lengths must add up to the number of rows", &|| weigh(vec![2], 2));
        refuse("heads: 3 do not divide rows of length 8", &|| weigh(vec![3], 3));
        refuse("by_key must have shape [2L - 1, H]", &|| {
            attend_with(vec![2, 1], 2, distances(None, Some(rows(3, 4))));
        });
        let labels = || ids([1, 2, 3]);
        refuse("logits are [2, 5] and labels [3]", &|| drop(cross_entropy(rows(2, 5), labels())));
        refuse("beta must have the shape of gamma", &|| embed([whole(), Rows::Absent, Rows::Absent], 3, 0.0));
        for shape in [[2, 2], [3, 3]] {
            refuse(&of_ids(shape), &|| words(lookup(4, shape, None)));
        }
        refuse("input_ids: rows must be as long as gamma", &|| words(lookup(5, [2, 3], None)));
        let padding = "input_ids: the padding index is 5, but there are 5 rows";
        refuse(padding, &|| words(lookup(4, [2, 3], Some(5))));
        let ids_of_five = || Tensor::zeros([2, 3], &device);
        refuse("the padding index is 5, but", &|| {
            drop(burn_fused::lookup(rows(5, 4), ids_of_five(), Some(5)))
        });
        refuse("position_ids: row 5 is needed, but there are 5", &|| range(3));
        let last = "position_ids: row 18446744073709551617 is needed, but there are 5";
        refuse(last, &|| range(usize::MAX));
        refuse("token_type_ids: row 2 is needed, but there are 2", &|| {
            embed([whole(), Rows::Row { table: rows(2, 4), row: 2 }, Rows::Absent], 4, 0.0);
        });
        for shape in [[3, 2, 4], [1, 3, 4], [4, 3, 4], [2, 3, 5]] {
            refuse("input_ids must have shape [B, S, H]", &|| words(vectors(shape)));
        }
        for prob in [-0.1, 1.0, 1.5, f64::NAN, f64::INFINITY] {
            refuse(&of_prob(prob), &|| add(3, prob));
            refuse(&of_prob(prob), &|| embed([whole(), Rows::Absent, Rows::Absent], 4, prob));
        }
        if device == flex() {
            let logits = || Tensor::zeros([2, 5], &flex().autodiff());
            let expected = "labels[1] is 5, but there are 5 classes (valid labels: 0..=4)";
            refuse(expected, &|| drop(cross_entropy(logits(), Tensor::from_ints([4, 5], &flex()))));
        }
        // A row would be at two places.
        assert!(Moves::new(&[1, 0, 1], 3, &device).is_none());
        // What is next to it is not.
        attend_with(vec![2, 1], 2, distances(Some(rows(3, 8)), Some(rows(3, 8))));
        words(lookup(4, [1, 3], None));
        words(lookup(4, [2, 3], Some(4)));
        range(2);
    }
}

#[test]
fn a_device_says_which_precision_it_lacks() {
    for device in all() {
        match Precision::Bf16.check(&device) {
            Ok(()) => assert!(device.supports_dtype(DType::BF16)),
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains("is bf16, which") && message.contains("choose f32"), "{message}");
                let run = || {
                    autocast(Precision::Bf16, || {
                        linear(Tensor::<2>::ones([1, 2], &device), Tensor::ones([2, 2], &device), None)
                    })
                };
                says(unless_panics(run), "the precision is bf16, which");
            }
        }
        assert!(Precision::F32.check(&device).is_ok());
    }
    assert!(Precision::Bf16.check(&flex()).is_ok());
}
