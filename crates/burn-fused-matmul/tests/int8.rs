//! Every kernel of this CPU against plain loops: over the integers that it documents, and over the floats that they stand for.

use burn_fused_matmul::{Int8Kernel, Int8Matrix, Matrix, PackedInt8Matrix, bf16, product_int8};
use proptest::prelude::*;

/// Numbers from a seed.
fn numbers(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    }
}

struct Case {
    a: Vec<f32>,
    weight: Vec<i8>,
    scales: Vec<f32>,
    bias: Vec<f32>,
    /// M, K and N.
    shape: [usize; 3],
    block: usize,
}

impl Case {
    fn new([m, blocks, n]: [usize; 3], block: usize, seed: u64) -> Self {
        let mut next = numbers(seed);
        let k = blocks * block;
        let mut float = |low: f32| low + next() as f32 / (1 << 30) as f32;
        // Rows on one side of 0 and across it, of many sizes.
        let a = (0..m * k)
            .map(|i| float([-1.0, 0.25, -2.5][i / k % 3]) * 10_f32.powi((i / k % 7) as i32 - 3))
            .collect();
        let scales = (0..blocks * n).map(|_| float(0.01) * 1e-2).collect();
        let bias = (0..n).map(|_| float(-1.0)).collect();
        let weight = (0..k * n).map(|_| (next() % 256) as u8 as i8).collect();
        Self { a, weight, scales, bias, shape: [m, k, n], block }
    }

    fn product(&self, kernel: Int8Kernel) -> Vec<f32> {
        let [m, k, _] = self.shape;
        self.with(Matrix::rows(&self.a[..], [m, k]), kernel)
    }

    fn with(&self, a: Matrix, kernel: Int8Kernel) -> Vec<f32> {
        let [_, k, n] = self.shape;
        let weight = Int8Matrix::new(&self.weight, &self.scales, [k, n], self.block);
        let product = product_int8(a, weight, Some(&self.bias), kernel);
        let packed = PackedInt8Matrix::new(weight);
        let fits = n > 0 && n.is_multiple_of(32) && self.block.is_multiple_of(4);
        assert_eq!(packed.is_some(), fits, "{k} × {n} in blocks of {}", self.block);
        if let Some(packed) = packed {
            let bits = |product: &[f32]| product.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&product_int8(a, &packed, Some(&self.bias), kernel)), bits(&product), "packed");
            assert!(packed.to_rows().iter().map(|&value| value as i8).eq(self.weight.iter().copied()));
        }
        product
    }

    /// What is added up in integers, in f64; and in floats, with how far off it may be.
    fn expected(&self, i: usize, j: usize) -> (f64, f64, f64) {
        let [_, k, n] = self.shape;
        let row = &self.a[i * k..][..k];
        let (least, most) = row.iter().fold((0_f32, 0_f32), |(least, most), &x| (least.min(x), most.max(x)));
        // In f32, as it is quantised: a value between two integers is rounded to the same one.
        let step = most / 255.0 - least / 255.0;
        let zero = (-least / step).round_ties_even();
        let (mut integers, mut floats, mut off) = (0.0, 0.0, 0.0);
        for (at, &x) in row.iter().enumerate() {
            let scale = f64::from(self.scales[at / self.block * n + j]);
            let weight = scale * f64::from(self.weight[at * n + j]);
            let q = (x * step.recip() + zero).clamp(0.0, 255.0).round_ties_even();
            integers += f64::from(step) * f64::from(q - zero) * weight;
            floats += f64::from(x) * weight;
            off += f64::from(step) * weight.abs();
        }
        let bias = f64::from(self.bias[j]);
        (integers + bias, floats + bias, off)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn products_are_those_of_the_quantised_rows(
        m in 1..70_usize, n in prop_oneof![1..70_usize, Just(32), Just(96)], blocks in 1..4_usize,
        block in prop_oneof![1..70_usize, prop::sample::select(vec![64, 128])], seed: u64,
    ) {
        let case = Case::new([m, blocks, n], block, seed);
        let product = case.product(Int8Kernel::best());
        prop_assert_eq!(product.len(), m * n);
        for (index, &found) in product.iter().enumerate() {
            let (integers, floats, off) = case.expected(index / n, index % n);
            let found = f64::from(found);
            // Sums of blocks and of what the zero point takes away are rounded: 255 steps of each weight at most.
            prop_assert!((found - integers).abs() <= 255.0 * 3e-7 * off + 3e-7 * integers.abs() + 1e-7);
            // A value is off by half a step at most.
            prop_assert!((found - floats).abs() <= 0.501 * off + 1e-6 * floats.abs());
        }
        for kernel in Int8Kernel::all() {
            prop_assert_eq!(&case.product(kernel), &product, "{}", kernel);
        }
    }
}

/// Sizes that need several phases and threads, and the largest sums that there are.
#[test]
fn large_products_are_the_same_on_any_number_of_threads() {
    for (weight, value) in [(127, 3.0), (-128, 3.0), (127, -3.0)] {
        let mut case = Case::new([1, 1, 33], Int8Matrix::LONGEST_BLOCK, 7);
        case.weight.fill(weight);
        case.a.fill(value);
        for kernel in Int8Kernel::all() {
            let product = case.product(kernel);
            for j in [0, 32] {
                let (integers, ..) = case.expected(0, j);
                let off = (f64::from(product[j]) - integers).abs();
                assert!(off <= 1e-6 * integers.abs(), "{kernel}: {off} off {integers}");
            }
        }
    }
    let case = Case::new([1500, 48, 1400], 128, 11);
    let product = case.product(Int8Kernel::best());
    for index in (0..product.len()).step_by(9973) {
        let (integers, _, off) = case.expected(index / 1400, index % 1400);
        assert!((f64::from(product[index]) - integers).abs() <= 255.0 * 3e-7 * off);
    }
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert!(pool.install(|| case.product(Int8Kernel::best())) == product);
    }
}

#[test]
fn operands_may_be_transposed_and_in_16_bits() {
    let case = Case::new([37, 3, 45], 20, 3);
    let [m, k, _] = case.shape;
    let rounded: Vec<_> = case.a.iter().map(|&x| bf16::from_f32(x)).collect();
    let case = Case { a: rounded.iter().map(|x| x.to_f32()).collect(), ..case };
    let expected = case.product(Int8Kernel::best());
    assert_eq!(case.with(Matrix::rows(&rounded[..], [m, k]), Int8Kernel::best()), expected);
    let columns: Vec<f32> = (0..m * k).map(|index| case.a[index % m * k + index / m]).collect();
    assert_eq!(case.with(Matrix::new(&columns[..], [m, k], [1, m]), Int8Kernel::best()), expected);
    // One row, seen m times.
    let repeated = case.with(Matrix::new(&case.a[..], [m, k], [0, 1]), Int8Kernel::best());
    assert!(repeated.chunks(45).all(|row| row == &expected[..45]));
}

#[test]
fn values_that_are_not_finite_reach_their_row_alone() {
    let mut case = Case::new([5, 2, 33], 8, 5);
    let expected = case.product(Int8Kernel::best());
    let k = case.shape[1];
    case.a[k + 3] = f32::NAN;
    case.a[3 * k + 15] = f32::NEG_INFINITY;
    case.a[4 * k..].fill(0.0);
    let product = case.product(Int8Kernel::best());
    for (i, (row, expected)) in product.chunks(33).zip(expected.chunks(33)).enumerate() {
        match i {
            1 | 3 => assert!(row.iter().all(|x| x.is_nan())),
            4 => assert_eq!(row, case.bias),
            _ => assert_eq!(row, expected),
        }
    }
    // Without terms the product is the bias; without rows or columns, nothing.
    for (shape, len) in [([2, 0, 3], 6), ([0, 4, 3], 0), ([2, 4, 0], 0)] {
        let [m, k, n] = shape;
        let empty = Case {
            a: vec![1.0; m * k],
            weight: vec![1; k * n],
            scales: vec![1.0; k / 4 * n],
            bias: vec![2.0; n],
            shape,
            block: 4,
        };
        assert_eq!(empty.product(Int8Kernel::best()), vec![2.0; len]);
    }
}

#[test]
#[should_panic(expected = "6 rows are not a number of whole blocks of 4")]
fn a_cut_block_is_refused() {
    Int8Matrix::new(&[0; 12], &[1.0; 4], [6, 2], 4);
}
