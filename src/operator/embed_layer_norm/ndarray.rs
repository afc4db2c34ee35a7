//! NdArray: the reference.
#![allow(deprecated)] // Burn deprecates the backend; it is supported as long as Burn ships it.

use crate::operator::embed_layer_norm::ops::EmbeddingOps;
use burn::backend::NdArray;

impl EmbeddingOps for NdArray {}
