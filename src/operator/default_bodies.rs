//! Backends that run the default bodies of operators that have no kernel there.
#![allow(deprecated)] // Burn deprecates NdArray; it is supported as long as Burn ships it.

use crate::operator::add_layer_norm::ops::AddLayerNormOps;
use crate::operator::attention::ops::AttentionOps;
use crate::operator::bias_gelu::ops::BiasGeluOps;
use crate::operator::cross_entropy::ops::CrossEntropyOps;

#[cfg(feature = "ndarray")]
mod ndarray {
    use super::*;
    use burn::backend::NdArray;

    impl AddLayerNormOps for NdArray {}
    impl AttentionOps for NdArray {}
    impl BiasGeluOps for NdArray {}
    impl CrossEntropyOps for NdArray {}
}

#[cfg(feature = "_cubecl")]
mod cube {
    use super::*;
    use burn::backend::Cube;

    impl AddLayerNormOps for Cube {}
    impl AttentionOps for Cube {}
    impl BiasGeluOps for Cube {}
    impl CrossEntropyOps for Cube {}
}
