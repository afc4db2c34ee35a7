//! Packed weights in the storage of Burn's tensors, which are like all others to everybody else.

use crate::int8::PackedInt8Matrix;
use crate::tiles::PackedMatrix;
use burn_std::{AccessError, AccessPolicy, AllocationController, AllocationProperty, Bytes, Reader};
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A weight as matmuls read it; [`PackedMatrix`] has an example.
#[derive(Debug)]
pub enum Packed {
    /// In f32 or bf16.
    Float(PackedMatrix),
    /// In 8 bits, with scales.
    Int8(PackedInt8Matrix),
}

impl Packed {
    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        match self {
            Self::Float(packed) => packed.shape(),
            Self::Int8(packed) => packed.shape(),
        }
    }

    fn to_rows(&self) -> Vec<u8> {
        match self {
            Self::Float(packed) => packed.to_rows(),
            Self::Int8(packed) => packed.to_rows(),
        }
    }

    /// The storage of a tensor with these values. When something else than [`of`](Self::of) reads it, it lays them out row by row, and
    /// has nothing packed any more.
    pub fn into_bytes(self) -> Bytes {
        let [k, n] = self.shape();
        let size = match &self {
            Self::Float(packed) => 4 / packed.values_of_word(),
            Self::Int8(_) => 1,
        };
        let len = k * n * size;
        let storage = Storage { packed: Mutex::new(Some(Arc::new(self))), rows: OnceLock::new(), len };
        // SAFETY: what the storage returns is initialised, and has this length.
        unsafe { Bytes::from_controller(Box::new(storage), len) }
    }

    /// What a storage has packed.
    pub fn of(bytes: &Bytes) -> Option<Arc<Self>> {
        ANSWER.set(Some(None));
        // Storages of other kinds do not answer, and copy nothing.
        let _ = bytes.read(Reader::new().no_copy());
        ANSWER.take().flatten()
    }
}

thread_local! {
    /// Where a storage that is read puts what it has packed, while [`Packed::of`] asks: Burn does not say of which type a storage is.
    static ANSWER: RefCell<Option<Option<Arc<Packed>>>> = const { RefCell::new(None) };
}

struct Storage {
    /// `None` once there are rows.
    packed: Mutex<Option<Arc<Packed>>>,
    rows: OnceLock<Bytes>,
    /// Bytes of all values.
    len: usize,
}

impl Storage {
    fn packed(&self) -> MutexGuard<'_, Option<Arc<Packed>>> {
        self.packed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rows(&self, policy: AccessPolicy) -> Result<&Bytes, AccessError> {
        if self.rows.get().is_none() && !policy.copy_allowed() {
            return Err(AccessError::WouldCopy);
        }
        let lay_out = || self.packed().take().expect("packed values, as long as there are no rows").to_rows();
        Ok(self.rows.get_or_init(|| Bytes::from_bytes_vec(lay_out())))
    }
}

impl AllocationController for Storage {
    fn alloc_align(&self) -> usize {
        align_of::<f32>()
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }

    unsafe fn memory_mut(&mut self, policy: AccessPolicy) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        self.rows(policy)?;
        let rows: &mut [u8] = self.rows.get_mut().expect("rows, as was just seen");
        // SAFETY: the caller writes initialised values.
        Ok(unsafe { from_raw_parts_mut(rows.as_mut_ptr().cast(), rows.len()) })
    }

    fn memory(&self, policy: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        ANSWER.with_borrow_mut(|answer| {
            if let Some(answer) = answer {
                answer.clone_from(&self.packed());
            }
        });
        let rows: &[u8] = self.rows(policy)?;
        // SAFETY: what is initialised may be seen as what may not be.
        Ok(unsafe { from_raw_parts(rows.as_ptr().cast(), rows.len()) })
    }

    fn capacity(&self) -> usize {
        self.len
    }
}
