//! Flex, Burn's CPU backend.

use crate::ops::EmbeddingOps;
use burn::backend::Flex;

impl EmbeddingOps for Flex {}
