//! What an optimiser does to a row: SGD, SparseAdam, lazy AdamW.

use crate::optim::{Adam, AdamKind};

/// What an optimiser does to rows.
#[derive(Debug, Clone)]
pub(super) enum Rule {
    /// Plain descent, without state.
    Sgd,
    /// Descent along running means.
    Adam(Adam),
}

impl Rule {
    /// Its name, by which a saved state is recognised.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Sgd => "RowSgd",
            Self::Adam(adam) => match adam.kind() {
                AdamKind::Sparse => "SparseAdam",
                AdamKind::W { .. } => "LazyAdamW",
            },
        }
    }
}
