//! Every kernel of this CPU against a plain loop in f64.

use burn_fused_matmul::{Kernel, Matrix, PackedMatrix, Values, add_product, product, product_bf16};
use half::bf16;
use proptest::prelude::*;

/// An operand as it lies in memory.
#[derive(Clone, Debug)]
struct Operand {
    values: Vec<f32>,
    is_bf16: bool,
    shape: [usize; 2],
    strides: [usize; 2],
}

impl Operand {
    /// Values of many sizes, from a seed.
    fn new(shape: [usize; 2], order: Order, is_bf16: bool, seed: u64) -> Self {
        let [rows, columns] = shape;
        let strides = match order {
            Order::Rows => [columns, 1],
            Order::Columns => [1, rows],
            Order::Wide => [columns + 3, 1],
            Order::Apart => [2 * columns + 1, 2],
            Order::Repeated => [0, 1],
            Order::Constant => [3, 0],
            Order::One => [0, 0],
        };
        let count =
            if rows * columns == 0 { 0 } else { (rows - 1) * strides[0] + (columns - 1) * strides[1] + 1 };
        let mut state = seed;
        let values = (0..count).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
            let value = value * f32::powi(2.0, (state >> 33) as i32 % 8 - 4);
            if is_bf16 { bf16::from_f32(value).to_f32() } else { value }
        });
        Self { values: values.collect(), is_bf16, shape, strides }
    }

    fn with<T>(&self, f: impl FnOnce(Matrix) -> T) -> T {
        let halves: Vec<_> = self.values.iter().map(|&value| bf16::from_f32(value)).collect();
        let values = if self.is_bf16 { Values::Bf16(&halves) } else { Values::F32(&self.values) };
        f(Matrix::new(values, self.shape, self.strides))
    }

    /// The entries as a kernel reads them.
    fn seen_by(&self, kernel: Kernel) -> impl Fn(usize, usize) -> f64 {
        let is_f32 = Kernel::all_f32().contains(&kernel);
        let read = |&value: &f32| if is_f32 { value.into() } else { bf16::from_f32(value).to_f64() };
        let (values, [row, column]) = (self.values.iter().map(read).collect::<Vec<_>>(), self.strides);
        move |i, j| values[i * row + j * column]
    }
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Rows,
    Columns,
    Wide,
    Apart,
    Repeated,
    /// One column.
    Constant,
    /// One value.
    One,
}

fn kernels() -> Vec<Kernel> {
    [Kernel::all_f32(), Kernel::all_bf16()].concat()
}

fn multiply(a: &Operand, b: &Operand, kernel: Kernel) -> Vec<f32> {
    a.with(|a| b.with(|b| product(a, b, kernel)))
}

/// Compares entries of C, every one of `step`, with sums in f64 from `start` on: each of K products and additions may round
/// once, and in bf16 the sum that is off itself is rounded.
fn check<T: Copy + Into<f64>>(
    a: &Operand,
    b: &Operand,
    start: impl Fn(usize) -> f32,
    c: &[T],
    kernel: Kernel,
    step: usize,
) {
    let ([m, k], [_, n]) = (a.shape, b.shape);
    assert_eq!(c.len(), m * n);
    let (a_at, b_at) = (a.seen_by(kernel), b.seen_by(kernel));
    for index in (0..m * n).step_by(step) {
        let (i, j) = (index / n, index % n);
        let terms = (0..k).map(|l| a_at(i, l) * b_at(l, j));
        let start = f64::from(start(index));
        let (sum, size) =
            terms.fold((start, start.abs()), |(sum, size), term| (sum + term, size + term.abs()));
        let allowed = (k + 2) as f64 * size * f64::from(f32::EPSILON);
        let round = |sum: f64| match size_of::<T>() {
            2 => bf16::from_f32(sum as f32).to_f64(),
            _ => sum,
        };
        let found = c[index].into();
        assert!(
            round(sum - allowed) <= found && found <= round(sum + allowed),
            "{kernel}: C[{i}, {j}] is {found}, not {sum}: {:?} {:?}",
            a.shape,
            b.shape
        );
    }
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..4_usize,
        4..70_usize,
        prop::sample::select(vec![15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129])
    ]
}

fn order() -> impl Strategy<Value = Order> {
    use Order::{Apart, Columns, Constant, One, Repeated, Rows, Wide};
    prop::sample::select(vec![Rows, Columns, Wide, Apart, Repeated, Constant, One])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn products_are_those_of_a_plain_loop_plus_the_bias_or_what_they_are_added_to(
        [m, n, k] in [size(), size(), size()],
        orders in [order(), order()],
        is_bf16 in [any::<bool>(), any::<bool>()],
        is_biased in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let a = Operand::new([m, k], orders[0], is_bf16[0], seed);
        let b = Operand::new([k, n], orders[1], is_bf16[1], !seed);
        let bias = is_biased.then(|| Operand::new([1, n], Order::Rows, false, seed ^ 1).values);
        let before = Operand::new([m, n], Order::Rows, false, seed ^ 1).values;
        for kernel in kernels() {
            check(&a, &b, |_| 0.0, &multiply(&a, &b, kernel), kernel, 1);
            // With the bias, rounded once.
            let c = a.with(|a| b.with(|b| product_bf16(a, b, bias.as_deref(), kernel)));
            check(&a, &b, |index| bias.as_ref().map_or(0.0, |bias| bias[index % n]), &c, kernel, 1);
            // Added to C, and to nothing beside it.
            let mut c = [&[7.0; 64][..], &before, &[7.0; 64]].concat();
            let middle = 64..64 + m * n;
            a.with(|a| b.with(|b| add_product(&mut c[middle.clone()], a, b, kernel)));
            check(&a, &b, |index| before[index], &c[middle.clone()], kernel, 1);
            c.drain(middle);
            prop_assert_eq!(c, vec![7.0; 128]);
        }
    }
}

/// Several phases, on several threads, with a bias or none; long thin matrices; each with what remains at the edges.
#[test]
fn large_products_are_those_of_a_plain_loop() {
    for ([m, n, k], orders) in [
        ([1100, 600, 4200], [Order::Rows, Order::Rows]),
        ([1100, 600, 4200], [Order::Columns, Order::Columns]),
        ([1, 40_000, 3], [Order::Rows, Order::Rows]),
        ([40_000, 1, 3], [Order::Columns, Order::Rows]),
        ([5, 3, 40_000], [Order::Columns, Order::Columns]),
        ([3, 5000, 5000], [Order::Rows, Order::Columns]),
        ([5000, 3, 5000], [Order::Columns, Order::Rows]),
        ([9000, 70, 40], [Order::Rows, Order::Rows]),
        // Columns in place: several strips and parts of K, an odd number of rows.
        ([15, 640, 700], [Order::Rows, Order::Rows]),
        ([63, 352, 500], [Order::Columns, Order::Rows]),
    ] {
        let a = Operand::new([m, k], orders[0], false, 1);
        let b = Operand::new([k, n], orders[1], false, 2);
        let bias = Operand::new([1, n], Order::Rows, false, 3).values;
        let bias = matches!(orders[0], Order::Columns).then_some(bias);
        for kernel in kernels() {
            let step = (m * n / 2000).max(1) | 1;
            check(&a, &b, |_| 0.0, &multiply(&a, &b, kernel), kernel, step);
            let c = a.with(|a| b.with(|b| product_bf16(a, b, bias.as_deref(), kernel)));
            check(&a, &b, |index| bias.as_ref().map_or(0.0, |bias| bias[index % n]), &c, kernel, step);
        }
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    for [m, k, n] in [[700, 900, 650], [150, 5000, 300], [1, 9000, 1000], [3, 9000, 390], [256, 14_000, 2]] {
        let a = Operand::new([m, k], Order::Rows, false, 1);
        let b = Operand::new([k, n], Order::Columns, false, 2);
        for kernel in kernels() {
            let on = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let rounded = || a.with(|a| b.with(|b| product_bf16(a, b, None, kernel)));
                pool.install(|| (multiply(&a, &b, kernel), rounded()))
            };
            let one = on(1);
            assert!([2, 3, 8].into_iter().all(|threads| on(threads) == one), "{kernel}");
        }
    }
}

/// From a single row to more than B is read in place for, and of the weights of linear layers in either layout; rows and
/// columns that are at the edge of one product and within the other; sums longer than registers add up at a time.
#[test]
fn a_sum_is_added_up_alike_whatever_is_beside_it() {
    for k in [1, 3, 48, 700, 1300] {
        for n in [1, 2, 5, 24, 64, 65, 96, 130] {
            for order in [Order::Rows, Order::Columns] {
                let (a, b) =
                    (Operand::new([300, k], Order::Rows, false, 5), Operand::new([k, n], order, false, 6));
                for kernel in kernels() {
                    let all = multiply(&a, &b, kernel);
                    for columns in [n, 97, 40, 32, 3].into_iter().filter(|&columns| columns <= n) {
                        let b = Operand { shape: [k, columns], ..b.clone() };
                        for rows in [1, 2, 7, 40, 64, 65, 256, 257] {
                            let values = a.values[k..][..rows * k].to_vec();
                            let a = Operand { values, shape: [rows, k], ..a.clone() };
                            let few = multiply(&a, &b, kernel);
                            let mut pairs = few.chunks(columns).zip(all[n..].chunks(n));
                            assert!(
                                pairs.all(|(few, all)| few == &all[..columns]),
                                "{rows} of {k} x {columns} of {n}, {order:?}, {kernel}"
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Few rows and many, on one thread and several, along K in a step and in several.
#[test]
fn packed_columns_give_the_bits_of_their_values_and_the_values_again() {
    for ([k, n], order) in [
        ([32, 32], Order::Rows),
        ([96, 160], Order::Columns),
        ([1568, 96], Order::Wide),
        ([4096, 64], Order::Rows),
        ([768, 1600], Order::Rows),
    ] {
        for is_bf16 in [false, true] {
            let b = Operand::new([k, n], order, is_bf16, 6);
            for kernel in kernels() {
                // As much memory holds them: values in f32 in f32's kernels, those in bf16 in kernels of bf16 pairs.
                let is_kept = if is_bf16 {
                    ["AMX", "AVX512-BF16"].contains(&kernel.name())
                } else {
                    Kernel::all_f32().contains(&kernel)
                };
                let packed = b.with(|b| PackedMatrix::new(b, kernel));
                assert_eq!(packed.is_some(), is_kept, "{kernel}");
                let Some(packed) = packed else { continue };
                let value = |index: usize| b.values[index / n * b.strides[0] + index % n * b.strides[1]];
                let bytes = |index| match is_bf16 {
                    true => bf16::from_f32(value(index)).to_le_bytes().to_vec(),
                    false => value(index).to_le_bytes().to_vec(),
                };
                assert!((0..k * n).flat_map(bytes).eq(packed.to_rows()), "{kernel}");
                for rows in [1, 5, 16, 40, 64, 65, 300] {
                    let a = Operand::new([rows, k], Order::Rows, rows % 2 == 0, 5);
                    let bias = vec![0.5; n];
                    a.with(|a| {
                        b.with(|b| {
                            assert_eq!(
                                product(a, &packed, kernel),
                                product(a, b, kernel),
                                "{kernel}, {rows} rows"
                            );
                            let narrow = product_bf16(a, &packed, Some(&bias), kernel);
                            assert_eq!(
                                narrow,
                                product_bf16(a, b, Some(&bias), kernel),
                                "{kernel}, {rows} rows"
                            );
                        })
                    });
                }
            }
        }
    }
    // Nor does a value lose a bit that is no number, or next to none.
    let values =
        [f32::NAN.to_bits() + 1, f32::NEG_INFINITY.to_bits(), 0x8000_0000, 1, 0x8001_0000, 0xff81_0000];
    let values: Vec<f32> = values.into_iter().cycle().take(32 * 64).map(f32::from_bits).collect();
    let halves: Vec<_> = values.iter().map(|value| bf16::from_bits((value.to_bits() >> 16) as u16)).collect();
    let [wide, narrow] = [Values::F32(&values), Values::Bf16(&halves)];
    let packed = |values, kernel| PackedMatrix::new(Matrix::rows(values, [32, 64]), kernel);
    let bytes = packed(wide, Kernel::F32).unwrap().to_rows();
    assert!(values.iter().flat_map(|value| value.to_le_bytes()).eq(bytes));
    for packed in Kernel::all_bf16().into_iter().filter_map(|kernel| packed(narrow, kernel)) {
        assert!(halves.iter().flat_map(|value| value.to_le_bytes()).eq(packed.to_rows()));
    }
    // What would take more memory is not kept.
    for [k, n] in [[16, 64], [64, 48], [0, 32], [32, 0]] {
        let b = Operand::new([k, n], Order::Rows, false, 7);
        assert!(b.with(|b| PackedMatrix::new(b, Kernel::F32)).is_none());
    }
}

#[test]
fn products_run_side_by_side_and_within_each_other() {
    let a = Operand::new([300, 300], Order::Rows, false, 1);
    for kernel in kernels() {
        let expected = multiply(&a, &a, kernel);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let results = std::sync::Mutex::new(Vec::new());
        pool.scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|_| {
                    let c = multiply(&a, &a, kernel);
                    results.lock().unwrap().push(c);
                });
            }
        });
        assert!(results.into_inner().unwrap().iter().all(|c| *c == expected), "{kernel}");
    }
}

/// f32 operands are rounded as the crate `half` rounds them, ties to even.
#[test]
fn operands_in_f32_give_the_bits_of_operands_rounded_before() {
    for order in [Order::Rows, Order::Columns, Order::Apart] {
        let mut a = Operand::new([50, 70], order, false, 1);
        for (i, value) in a.values.iter_mut().enumerate() {
            // Halfway between two values of bf16, and beside it.
            *value = f32::from_bits((value.to_bits() & 0xffff_0000) + 0x7fff + i as u32 % 3);
        }
        let rounded = Operand { is_bf16: true, ..a.clone() };
        let b = Operand::new([70, 40], Order::Rows, true, 2);
        for kernel in Kernel::all_bf16() {
            assert_eq!(multiply(&a, &b, kernel), multiply(&rounded, &b, kernel), "{kernel}");
        }
    }
}

#[test]
fn what_is_not_finite_reaches_its_row_and_column_alone() {
    for (value, other) in [
        (f32::NAN, 1.0),
        (f32::from_bits(0x7f80_0001), 1.0),
        (f32::INFINITY, 1.0),
        (f32::INFINITY, 0.0),
        (3.4e38, 1.0),
    ] {
        for kernel in Kernel::all_bf16() {
            let mut a = Operand::new([40, 50], Order::Rows, false, 1);
            a.values.fill(1.0);
            a.values[50 * 33 + 45] = value;
            let mut b = Operand::new([50, 37], Order::Rows, false, 1);
            b.values.fill(other);
            let c = multiply(&a, &b, kernel);
            for (index, c) in c.iter().enumerate() {
                assert_eq!(c.is_finite(), index / 37 != 33, "{kernel}, {value} · {other}: C[{index}] is {c}");
            }
            let is_nan = value.is_nan() || other == 0.0;
            assert!(c[37 * 33..37 * 34].iter().all(|c| c.is_nan() == is_nan), "{kernel}");
        }
    }
}

/// What `vdpbf16ps` and `tdpbf16ps` do, and the documentation says.
#[test]
fn subnormal_numbers_are_zero_to_the_instructions_for_bf16_alone() {
    let tiny = Operand { values: vec![1e-39], is_bf16: true, shape: [1, 1], strides: [1, 1] };
    let one = Operand { values: vec![1.0], ..tiny.clone() };
    for kernel in kernels() {
        let c = multiply(&tiny, &one, kernel);
        let is_kept = Kernel::all_f32().contains(&kernel) || kernel.name().contains("rounded");
        assert_eq!(c[0] != 0.0, is_kept, "{kernel}");
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let refuse = |expected: &str, run: &dyn Fn()| {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).expect_err(expected);
        let message = panic.downcast_ref::<String>().cloned();
        let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap();
        assert!(message.contains(expected), "{message:?} is not about {expected:?}");
    };
    let values = [0.0_f32; 6];
    let a = Matrix::rows(&values[..], [2, 3]);
    let beyond = "reaches beyond its 5 values";
    refuse(beyond, &|| _ = Matrix::rows(&values[..5], [2, 3]));
    // Strides that overflow.
    refuse(beyond, &|| _ = Matrix::new(&values[..5], [3, 3], [usize::MAX / 2, 1]));
    // A copy of them would be shorter than what reads it.
    refuse("has more entries than can be counted", &|| {
        _ = Matrix::new(&values[..1], [4, usize::MAX / 4 + 2], [0, 0]);
    });
    refuse("the columns of A must be as many as the rows of B", &|| drop(product(a, a, Kernel::bf16())));
    refuse("the bias must have as many values as B has columns", &|| {
        drop(product_bf16(a, a.transpose(), Some(&[0.0]), Kernel::bf16()));
    });
    refuse("C must have the rows of A times the columns of B", &|| {
        add_product(&mut [0.0; 5], a, a.transpose(), Kernel::bf16());
    });
}

/// The largest error of some of 64 × 64 sums of `k` products of f32, relative to the largest sum.
fn error_of_sums(value: impl Fn(usize) -> f32, k: usize, kernel: Kernel) -> f64 {
    let values: Vec<f32> = (0..64 * k).map(value).collect();
    let a = Matrix::rows(&values[..], [64, k]);
    let exact = |i: usize, j: usize| {
        let rows = [i, j].map(|row| &values[row * k..][..k]);
        rows[0].iter().zip(rows[1]).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>()
    };
    let c = product(a, a.transpose(), kernel);
    let (mut error, mut largest) = (0.0_f64, 0.0_f64);
    for (index, &c) in c.iter().enumerate().step_by(37) {
        let sum = exact(index / 64, index % 64);
        (error, largest) = (error.max((f64::from(c) - sum).abs()), largest.max(sum.abs()));
    }
    error / largest
}

/// PyTorch 2.15's (MKL, AVX2): of sums of 0.1 · 0.1, and of numbers between 0 and 1.
const PYTORCHS: [(usize, [f64; 2]); 6] = [
    (256, [7.04e-7, 3.74e-7]),
    (768, [7.97e-7, 4.05e-7]),
    (1536, [8.59e-7, 2.88e-7]),
    (4096, [8.90e-7, 3.24e-7]),
    (16384, [8.90e-7, 4.64e-7]),
    (65536, [4.14e-7, 1.10e-6]),
];

#[test]
fn errors_of_long_sums_are_at_most_twice_pytorchs() {
    let mixed = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(29);
    let uniform = |i: usize| (mixed(mixed(i as u64)) >> 40) as f32 / (1 << 24) as f32;
    for kernel in Kernel::all_f32() {
        for (k, pytorchs) in PYTORCHS {
            let errors = [error_of_sums(|_| 0.1, k, kernel), error_of_sums(uniform, k, kernel)];
            let is_near = errors.iter().zip(pytorchs).all(|(error, pytorchs)| *error <= 2.0 * pytorchs);
            assert!(is_near, "{kernel}: {errors:?} of sums of {k}, PyTorch's are {pytorchs:?}");
        }
    }
}
