//! What multiplies, and its choice when the program runs.

use crate::Output;
#[cfg(target_arch = "x86_64")]
use crate::amx;
use crate::frame::{self, Panels};
use crate::matrix::Matrix;
use crate::{pack, vectors};
use half::bf16;
use std::fmt;
use std::sync::OnceLock;

/// What multiplies two matrices. Only a kernel that this CPU can run exists.
///
/// ```
/// use burn_fused_matmul::Kernel;
///
/// assert!(Kernel::all_bf16().contains(&Kernel::bf16()));
/// println!("f32 matmuls run on {}", Kernel::f32()); // AVX-512, AVX2 + FMA, NEON or scalar
/// println!("bf16 matmuls run on {}", Kernel::bf16()); // AMX, AVX512-BF16 or f32 on rounded operands
/// ```
#[derive(Clone, Copy)]
pub struct Kernel(&'static Instructions);

/// How operands become words of panels, and how panels are multiplied.
#[derive(Clone, Copy)]
pub(crate) struct Instructions {
    name: &'static str,
    /// Values along K in a word.
    pub(crate) values: usize,
    /// Whether operands whose values are words as they are in memory need not be packed.
    pub(crate) is_direct: bool,
    /// Whether a thread needs AMX's registers.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    pub(crate) is_amx: bool,
    pub(crate) pack: unsafe fn(pack::Part),
    pub(crate) multiply: unsafe fn(&Panels),
    /// Writes sums, plus a bias, in bf16.
    pub(crate) narrow: unsafe fn(&[f32], Option<&[f32]>, *mut bf16),
}

/// Kernels in f32, and the same on rounded operands.
type F32 = [Instructions; 2];

const fn f32(name: &'static str, pack: [unsafe fn(pack::Part); 2], multiply: unsafe fn(&Panels)) -> F32 {
    let [pack, pack_rounded] = pack;
    let narrow = pack::narrow;
    let exact = Instructions { name, values: 1, is_direct: true, is_amx: false, pack, multiply, narrow };
    let name = "f32 on rounded operands";
    [exact, Instructions { name, is_direct: false, pack: pack_rounded, ..exact }]
}

static PORTABLE: F32 = f32(
    if cfg!(target_arch = "aarch64") { "NEON" } else { "scalar" },
    [pack::portable::<false>, pack::portable::<true>],
    vectors::portable,
);
#[cfg(target_arch = "x86_64")]
static AVX2: F32 = f32("AVX2 + FMA", [pack::x86::avx2::<false>, pack::x86::avx2::<true>], vectors::avx2);
#[cfg(target_arch = "x86_64")]
static AVX512: F32 = f32("AVX-512", [pack::x86::avx2::<false>, pack::x86::avx2::<true>], vectors::avx512);
#[cfg(target_arch = "x86_64")]
static AVX512_BF16: Instructions = Instructions {
    name: "AVX512-BF16",
    values: 2,
    is_direct: true,
    is_amx: false,
    pack: pack::x86::avx512_bf16,
    multiply: vectors::avx512_bf16,
    narrow: pack::x86::narrow,
};
#[cfg(target_arch = "x86_64")]
static AMX: Instructions =
    Instructions { name: "AMX", is_direct: false, is_amx: true, multiply: amx::multiply, ..AVX512_BF16 };

/// Kernels in f32 that this CPU has, the fastest first.
fn all_f32() -> Vec<&'static F32> {
    #[cfg(target_arch = "x86_64")]
    {
        let avx512 = cfg!(feature = "x86-v4") && is_x86_feature_detected!("avx512f");
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let fast = [avx512.then_some(&AVX512), avx2.then_some(&AVX2)];
        fast.into_iter().flatten().chain([&PORTABLE]).collect()
    }
    #[cfg(not(target_arch = "x86_64"))]
    vec![&PORTABLE]
}

/// Whether the CPU has the instructions to pack pairs of bf16 values and to multiply with them.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_avx512_bf16() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512bf16")
}

/// Whether `vdpbf16ps` multiplies more values in a second than f32's instructions do: on CPUs of AMD, which start one in each
/// cycle. Intel's Sapphire Rapids starts one in two, and two of f32's in each (measured: 102 and 201 GFLOP/s on a core).
#[cfg(target_arch = "x86_64")]
fn is_avx512_bf16_fast() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
}

impl Kernel {
    /// Matmuls in f32: the fastest kernel for them on this CPU.
    pub fn f32() -> Self {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| Self::all_f32()[0])
    }

    /// Every kernel in f32 that this CPU has, the fastest first: to compare them.
    pub fn all_f32() -> Vec<Self> {
        all_f32().into_iter().map(|[kernel, _]| Self(kernel)).collect()
    }

    /// Matmuls of operands rounded to bf16, with f32 sums: the fastest kernel for them on this CPU.
    pub fn bf16() -> Self {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| Self::all_bf16()[0])
    }

    /// Every kernel for operands rounded to bf16 that this CPU has, the fastest first: to compare them.
    pub fn all_bf16() -> Vec<Self> {
        let [_, rounded] = all_f32()[0];
        #[cfg(target_arch = "x86_64")]
        {
            let amx = amx::is_available().then_some(&AMX);
            let avx512 = has_avx512_bf16().then_some(&AVX512_BF16);
            // Where it is half as fast as f32's multiplication, it multiplies no more values in a second.
            let (first, last) = if is_avx512_bf16_fast() { (avx512, None) } else { (None, avx512) };
            amx.into_iter().chain(first).chain([rounded]).chain(last).map(Self).collect()
        }
        #[cfg(not(target_arch = "x86_64"))]
        vec![Self(rounded)]
    }

    /// The instructions that it runs on.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Multiplies, with as many columns in A as rows in B.
    ///
    /// # Safety
    ///
    /// The output must be valid for writes of M · N values, which are initialised when this returns. A bias must have N values.
    pub(crate) unsafe fn run(self, a: Matrix, b: Matrix, output: Output) {
        if a.shape()[0] > 0 && b.shape()[1] > 0 {
            // SAFETY: the caller's promise; a kernel exists only where its instructions do.
            unsafe { frame::multiply(a, b, output, self.0) }
        }
    }
}

impl PartialEq for Kernel {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Kernel {}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Kernel({})", self.0.name)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}
