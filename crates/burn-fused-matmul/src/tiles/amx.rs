//! AMX: `tdpbf16ps` and `tdpbusd` on eight tile registers of 16 rows of 64 bytes.

use super::{Instructions, PANEL, Panels, Rounding};
use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, _mm512_add_ps, _mm512_loadu_ps, _mm512_storeu_ps, _xgetbv};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Whether this process may use AMX's tiles and the CPU has its instructions for bf16 and 8 bits.
///
/// Linux grants the tiles to a process that asks, once and for all of its threads.
pub(crate) fn is_available() -> bool {
    super::avx512::is_available() && has_instructions() && is_permitted()
}

/// AMX-TILE, AMX-BF16 and AMX-INT8 in CPUID, tiles of the size that is used here, and tiles switched on by the system (bits 17 and
/// 18 of XCR0).
fn has_instructions() -> bool {
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    const AMX_INT8: u32 = 1 << 25;
    const TILES: u64 = 0b11 << 17;
    if __cpuid_count(0, 0).eax < 0x1d {
        return false;
    }
    let features = __cpuid_count(7, 0).edx;
    // Palette 1: bytes of a tile in the upper half of EAX, bytes of a row, then registers, in EBX, rows in ECX.
    let palette = __cpuid_count(0x1d, 1);
    const ALL: u32 = AMX_BF16 | AMX_TILE | AMX_INT8;
    features & ALL == ALL
        && (palette.eax >> 16) >= 1024
        && (palette.ebx & 0xffff) >= 64
        && (palette.ebx >> 16) >= 8
        && (palette.ecx & 0xffff) >= 16
        // SAFETY: a CPU with AVX-512 that the system has switched on has XSAVE, and with it `xgetbv` and register 0.
        && unsafe { _xgetbv(0) } & TILES == TILES
}

/// Asks Linux for the tiles' state (`arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`).
fn is_permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XTILEDATA: u64 = 18;
    // Other systems have other ways.
    if !cfg!(all(target_os = "linux", target_pointer_width = "64")) {
        return false;
    }
    let result: i64;
    // SAFETY: the call reads and writes no memory of this process; the kernel changes rax, rcx and r11 alone.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// The shapes of this thread's tile registers, which are released when it is dropped: while it lives, the thread may multiply.
pub(crate) struct Registers(PhantomData<*const ()>);

/// What `ldtilecfg` reads.
#[derive(Default)]
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_of_row: [u16; 16],
    rows: [u8; 16],
}

/// Steps along K in which a block of 32 rows is rounded.
const ROUNDING_STEPS: usize = PANEL / 4;

/// No sums.
macro_rules! zero {
    () => {
        "tilezero tmm0\ntilezero tmm1\ntilezero tmm2\ntilezero tmm3"
    };
}

/// Adds the products of two tiles of A and two of B, and goes on to the next.
macro_rules! step {
    () => {
        concat!(
            "tileloadd tmm4, [{a0} + {line}]\n",
            "tileloadd tmm6, [{b0} + {line}]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            "tileloadd tmm7, [{b1} + {line}]\n",
            "tdpbf16ps tmm1, tmm4, tmm7\n",
            "tileloadd tmm5, [{a1} + {line}]\n",
            "tdpbf16ps tmm2, tmm5, tmm6\n",
            "tdpbf16ps tmm3, tmm5, tmm7\n",
            "add {a0}, 1024\n",
            "add {a1}, 1024\n",
            "add {b0}, 1024\n",
            "add {b1}, 1024",
        )
    };
}

/// Rounds a row of each half of the block before, and goes on to the next.
macro_rules! round {
    () => {
        concat!(
            "vaddps {x}, {bias0}, [{sums}]\n",
            "vaddps {y}, {bias1}, [{sums} + 64]\n",
            "vcvtne2ps2bf16 {x}, {y}, {x}\n",
            "vaddps {z}, {bias0}, [{sums} + 2048]\n",
            "vaddps {y}, {bias1}, [{sums} + 2112]\n",
            "vcvtne2ps2bf16 {z}, {y}, {z}\n",
            "vmovdqu64 [{to}], {x}\n",
            "vmovdqu64 [{below}], {z}\n",
            "add {sums}, 128\n",
            "add {to}, {row}\n",
            "add {below}, {row}",
        )
    };
}

impl Registers {
    /// Eight tiles of 16 rows of 64 bytes.
    ///
    /// # Safety
    ///
    /// [`is_available`] must hold.
    pub(crate) unsafe fn new() -> Self {
        let mut configuration = Configuration { palette: 1, ..Default::default() };
        configuration.bytes_of_row[..8].fill(64);
        configuration.rows[..8].fill(16);
        // SAFETY: the CPU has the instruction, which reads 64 bytes. It changes the tile registers alone, in which no
        // Rust code keeps anything.
        unsafe {
            asm!(
                "ldtilecfg [{}]", in(reg) &configuration, options(nostack, readonly, preserves_flags),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            );
        }
        Self(PhantomData)
    }

    /// Multiplies two panels, and rounds the sums of the block before: in the same time, if it is whole and there are
    /// steps enough. Safe where [`Instructions::multiply`] is.
    pub(super) unsafe fn multiply(panels: Panels, before: Option<&Rounding>) {
        // SAFETY: the caller's promise; a block that is rounded goes where sums are, in rows of a panel.
        match before {
            Some(before) if before.shape == [PANEL; 2] && panels.words > 16 * (ROUNDING_STEPS - 1) => unsafe {
                Self::multiply_and_round(panels, before);
            },
            before => unsafe {
                if let Some(before) = before {
                    before.round(Instructions::Amx);
                }
                if panels.add { Self::add_block(panels) } else { Self::multiply_block(panels) }
            },
        }
    }

    /// [`multiply_block`](Self::multiply_block), whose products are added to C once they are summed up: a sum that begins at C
    /// would be one chain along all of K. Safe where [`multiply`](Self::multiply) is.
    #[target_feature(enable = "avx512f")]
    unsafe fn add_block(panels: Panels) {
        let Panels { c, row, .. } = panels;
        let mut sums = MaybeUninit::<[[f32; 16]; 2 * PANEL]>::uninit();
        let sums = sums.as_mut_ptr().cast::<f32>();
        // SAFETY: the caller's promise. There is room for 32 rows of 32 sums, all of which are written; C has as many values.
        unsafe {
            Self::multiply_block(Panels { c: sums, row: PANEL, ..panels });
            for i in 0..PANEL {
                for (c, sums) in [0, 16].map(|j| (c.add(i * row + j), sums.add(i * PANEL + j))) {
                    _mm512_storeu_ps(c, _mm512_add_ps(_mm512_loadu_ps(c), _mm512_loadu_ps(sums)));
                }
            }
        }
    }

    /// Multiplies two panels: 2 × 2 tiles of C, which are overwritten, are in registers.
    ///
    /// # Safety
    ///
    /// This thread must have registers, `panels` a tile to read in each half for each 16 words, or one, and C must be valid for what is
    /// written.
    unsafe fn multiply_block(panels: Panels) {
        let Panels { a: [a0, a1, ..], b: [b0, b1, ..], words, c, row, .. } = panels;
        // SAFETY: the tiles are configured as long as this thread's `Registers` live, which are not `Send`. Reads
        // and writes are those that the caller allows: 1024 bytes of each tile, whose rows of 64 bytes follow each other,
        // and 16 rows of 64 bytes at the four quarters of C.
        unsafe {
            let below = c.add(16 * row);
            asm!(
                zero!(),
                "2:",
                step!(),
                "dec {depth}",
                "jnz 2b",
                "tilestored [{c} + {row}], tmm0",
                "tilestored [{c} + {row} + 64], tmm1",
                "tilestored [{below} + {row}], tmm2",
                "tilestored [{below} + {row} + 64], tmm3",
                a0 = inout(reg) a0 => _,
                a1 = inout(reg) a1 => _,
                b0 = inout(reg) b0 => _,
                b1 = inout(reg) b1 => _,
                depth = inout(reg) words.div_ceil(16).max(1) => _,
                c = in(reg) c,
                below = in(reg) below,
                row = in(reg) 4 * row,
                line = in(reg) 64_usize,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }

    /// [`multiply_block`](Self::multiply_block) into sums in rows of a panel, rounding four rows of the block before in each of the first
    /// steps: alone, they would wait for their sums and the next products for them. Safe where [`multiply`](Self::multiply) is.
    #[target_feature(enable = "avx512f")]
    unsafe fn multiply_and_round(panels: Panels, before: &Rounding) {
        let Panels { a: [a0, a1, ..], b: [b0, b1, ..], words, c, .. } = panels;
        let bias = before.bias.unwrap_or(&[0.0; PANEL]);
        // SAFETY: as for `multiply_block`; of the block before, its 32 sums in 32 rows are read, and as many entries of C
        // written.
        unsafe {
            asm!(
                zero!(),
                "2:",
                step!(),
                round!(),
                round!(),
                "dec {rounding}",
                "jnz 2b",
                "test {depth}, {depth}",
                "jz 4f",
                "3:",
                step!(),
                "dec {depth}",
                "jnz 3b",
                "4:",
                "add {line}, 64",
                "tilestored [{c} + {line}], tmm0",
                "tilestored [{c} + {line} + 64], tmm1",
                "tilestored [{c} + {line} + 2048], tmm2",
                "tilestored [{c} + {line} + 2112], tmm3",
                a0 = inout(reg) a0 => _,
                a1 = inout(reg) a1 => _,
                b0 = inout(reg) b0 => _,
                b1 = inout(reg) b1 => _,
                rounding = inout(reg) ROUNDING_STEPS => _,
                depth = inout(reg) words.div_ceil(16) - ROUNDING_STEPS => _,
                c = in(reg) c,
                line = inout(reg) 64_usize => _,
                sums = inout(reg) before.sums => _,
                to = inout(reg) before.c => _,
                below = inout(reg) before.c.add(16 * before.to_row) => _,
                row = in(reg) 2 * before.to_row,
                bias0 = in(zmm_reg) _mm512_loadu_ps(bias.as_ptr()),
                bias1 = in(zmm_reg) _mm512_loadu_ps(bias.as_ptr().add(16)),
                x = out(zmm_reg) _, y = out(zmm_reg) _, z = out(zmm_reg) _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }

    /// Sums of products of 32 rows and 32 columns in 8 bits, unsigned and signed: `steps` times 16 words of each row, and 16 steps along K
    /// of 32 words, one for each column.
    ///
    /// # Safety
    ///
    /// This thread must have registers; the rows, which are `to_row` words apart, and the columns must have as many words to read, and
    /// there must be room for 32 rows of sums.
    pub(crate) unsafe fn multiply_int8(
        rows: *const u32,
        to_row: usize,
        columns: *const u32,
        steps: usize,
        sums: *mut [i32; PANEL],
    ) {
        // SAFETY: as for `multiply_block`; reads are those that the caller allows.
        unsafe {
            asm!(
                zero!(),
                "2:",
                "tileloadd tmm4, [{a0} + {to_row}]",
                "tileloadd tmm6, [{b} + {line}]",
                "tdpbusd tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{b} + {line} + 64]",
                "tdpbusd tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{a1} + {to_row}]",
                "tdpbusd tmm2, tmm5, tmm6",
                "tdpbusd tmm3, tmm5, tmm7",
                "add {a0}, 64",
                "add {a1}, 64",
                "add {b}, 2048",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{sums} + {line}], tmm0",
                "tilestored [{sums} + {line} + 64], tmm1",
                "tilestored [{sums} + {line} + 2048], tmm2",
                "tilestored [{sums} + {line} + 2112], tmm3",
                a0 = inout(reg) rows => _,
                a1 = inout(reg) rows.wrapping_add(16 * to_row) => _,
                b = inout(reg) columns => _,
                steps = inout(reg) steps => _,
                to_row = in(reg) 4 * to_row,
                line = in(reg) 4 * PANEL,
                sums = in(reg) sums,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: the CPU has the instruction. Released tiles need not be saved when the system switches threads.
        unsafe {
            asm!(
                "tilerelease", options(nostack, nomem, preserves_flags),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            );
        }
    }
}
