//! Flex.

use super::ops::BiasGeluOps;
use burn::backend::Flex;

impl BiasGeluOps for Flex {}
