//! The files that hold tensors: safetensors, and PyTorch's zip and legacy files.

pub(super) mod entry;
mod pickle;
mod pytorch;
pub(super) mod safetensors;
pub(super) mod values;
pub(super) mod weight_file;
