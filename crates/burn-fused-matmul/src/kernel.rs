//! What multiplies, and its choice when the program runs.

use crate::tiles::{self, Instructions};
use std::fmt;
use std::sync::OnceLock;

/// What multiplies two matrices. Only a kernel that this CPU can run exists. [The crate](crate) has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(pub(crate) Instructions);

impl Kernel {
    /// Products in f32, with the widest vectors of this CPU.
    pub const F32: Self = Self(Instructions::F32);

    /// Every kernel for f32 that this CPU has, the fastest first: to compare them.
    pub fn all_f32() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        if Self::F32.name() == "AVX-512" {
            return vec![Self::F32, Self(Instructions::F32Avx2)];
        }
        vec![Self::F32]
    }

    /// Products of operands rounded to bf16, with f32 sums: the fastest kernel for them on this CPU.
    pub fn bf16() -> Self {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| Self::all_bf16()[0])
    }

    /// Every kernel for operands rounded to bf16 that this CPU has, the fastest first: to compare them.
    pub fn all_bf16() -> Vec<Self> {
        let rounded = Self(Instructions::F32OnRounded);
        #[cfg(target_arch = "x86_64")]
        {
            let amx = tiles::amx::is_available().then_some(Self(Instructions::Amx));
            let avx512 = tiles::avx512::is_available().then_some(Self(Instructions::Avx512));
            // Where `vdpbf16ps` is half as fast as f32's multiplication, it multiplies no more values in a second.
            let (first, last) = if tiles::avx512::is_fast() { (avx512, None) } else { (None, avx512) };
            amx.into_iter().chain(first).chain([rounded]).chain(last).collect()
        }
        #[cfg(not(target_arch = "x86_64"))]
        vec![rounded]
    }

    /// The instructions that it runs on.
    pub fn name(self) -> &'static str {
        match self.0 {
            Instructions::F32OnRounded => "f32 on rounded operands",
            Instructions::Avx512 => "AVX512-BF16",
            Instructions::Amx => "AMX",
            vectors => tiles::float::name(vectors),
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}
