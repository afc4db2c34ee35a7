//! Every CubeCL runtime, fused or not: the reference.

use crate::ops::EmbeddingOps;
use burn::backend::Cube;

impl EmbeddingOps for Cube {}
