//! The files that hold tensors: safetensors, and PyTorch's zip and legacy files.

pub(super) mod header;
mod pickle;
mod pytorch;
mod safetensors;
pub(super) mod weight_file;
