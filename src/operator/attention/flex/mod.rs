//! Flex.

use super::ops::AttentionOps;
use burn::backend::Flex;

impl AttentionOps for Flex {}
