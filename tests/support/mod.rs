//! What the test programs share.

#![allow(dead_code)] // every program takes what it needs

pub mod checkpoint_files;
pub mod counting_allocator;
pub mod devices;
pub mod files;
#[cfg(feature = "train")]
pub mod hook;
#[cfg(feature = "_cubecl")]
pub mod launches;
pub mod parity;
pub mod refusals;
pub mod sentences;
pub mod small_bert;
pub mod tolerance;
#[cfg(feature = "_cubecl")]
pub mod traffic;
pub mod transformers;
pub mod whole_model;
