//! Every backend against a loop.

use super::{MoveRows, MoveRowsOp};
use crate::operator::dropout::ops::DropoutOps;
use crate::operator::kernels::Kernels;
use crate::operator::path::Path;
use crate::operator::testing::{float, int, numbers};
use burn::tensor::DType;

/// Row i is `x`'s row `from[i]`, zeros where there is none.
fn expected(x: &[f32], from: &[usize], columns: usize) -> Vec<f64> {
    let zeros = vec![0.0; columns];
    let rows = from.iter().flat_map(|&row| x.chunks(columns).nth(row).unwrap_or(&zeros).to_vec());
    rows.map(f64::from).collect()
}

/// The inverse of `from`, of which no row is twice.
fn inverse(from: &[usize], rows: usize) -> Vec<usize> {
    let place = |row| from.iter().position(|&other| other == row).unwrap_or(from.len());
    (0..rows).map(place).collect()
}

fn check<B: DropoutOps>(path: Path)
where
    MoveRowsOp: Kernels<B>,
{
    let cases: [(&[usize], usize, usize); 7] = [
        (&[0], 1, 1),
        (&[2, 0, 1], 3, 5),
        (&[4, 0, 4, 3], 4, 127),
        (&[1, 5], 6, 768),
        (&[3, 3, 3], 3, 2),
        (&[], 3, 5),
        (&[0, 0], 0, 5),
    ];
    for (from, rows, columns) in cases {
        let floats = |rows: usize| (0..rows * columns).map(|i| i as f32 - 3.5).collect::<Vec<_>>();
        let float =
            |values: &[f32]| float::<B>(values.to_vec(), [values.len() / columns, columns], DType::F32);
        let int =
            |values: &[usize]| int::<B>(values.iter().map(|&value| value as i32).collect(), [values.len()]);
        let (x, grad, to) = (floats(rows), floats(from.len()), inverse(from, rows));
        let moved = from.iter().filter(|&&row| row < rows).count();
        let (x_tensor, from_tensor, to_tensor) = (float(&x), int(from), int(&to));
        let input =
            MoveRows::<B> { x: x_tensor, from: from_tensor, to: to_tensor, rows: from.len(), moved, path };
        let y = <MoveRowsOp as Kernels<B>>::forward(input.clone()).0;
        assert_eq!(numbers::<B>(&y), expected(&x, from, columns), "{from:?} of {rows}");
        let dx = <MoveRowsOp as Kernels<B>>::backward(input, [], float(&grad), [true]).remove(0).unwrap();
        assert_eq!(numbers::<B>(&dx), expected(&grad, &to, columns), "backward of {from:?} of {rows}");
    }
}

#[test]
#[cfg(feature = "flex")]
fn rows_are_moved_on_flex_as_by_a_loop() {
    check::<burn::backend::Flex>(Path::Fused);
}

#[test]
#[cfg(feature = "_cubecl")]
fn rows_are_moved_on_cubecl_devices_as_by_a_loop() {
    check::<burn_cubecl::CubeBackend>(Path::Fused);
    check::<burn_cubecl::CubeBackend>(Path::Reference);
    check::<burn::backend::Cube>(Path::Fused);
}

#[test]
#[cfg(feature = "flex")]
fn a_row_that_would_be_at_two_places_is_refused() {
    use super::functional::Moves;
    let moves = |from: &[usize]| Moves::new(from, 3, &burn::tensor::Device::flex());
    assert!(moves(&[3, 1, 3, 0]).is_some());
    assert!(moves(&[1, 0, 1]).is_none());
}
