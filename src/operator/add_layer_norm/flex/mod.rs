//! Flex.

use super::ops::AddLayerNormOps;
use burn::backend::Flex;

impl AddLayerNormOps for Flex {}
