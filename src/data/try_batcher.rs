//! Items to batches.

use crate::error::Result;
use burn::prelude::*;

/// Makes the batches of an [`EpochLoader`](super::EpochLoader): a [`Batcher`](burn::data::dataloader::batcher::Batcher) that
/// returns errors.
pub trait TryBatcher: Send + Sync + 'static {
    /// An item of the dataset.
    type Item: Send + Sync + 'static;
    /// A batch of the model.
    type Batch: Send + 'static;

    /// Makes a batch of items on a device.
    ///
    /// # Errors
    ///
    /// The error of an item.
    fn try_batch(&self, items: Vec<Self::Item>, device: &Device) -> Result<Self::Batch>;

    /// Makes a batch in which everything random, such as the masked tokens, depends on `seed`. Without another
    /// implementation nothing is random.
    ///
    /// # Errors
    ///
    /// Those of [`try_batch`](Self::try_batch).
    fn try_batch_seeded(&self, items: Vec<Self::Item>, seed: u64, device: &Device) -> Result<Self::Batch> {
        let _ = seed;
        self.try_batch(items, device)
    }
}

/// Makes a [`TryBatcher`] one of Burn's batchers.
macro_rules! batcher {
    ($batcher:ident) => {
        /// For Burn's `DataLoaderBuilder`; panics where [`try_batch`](TryBatcher::try_batch) returns an error.
        impl burn::data::dataloader::batcher::Batcher<<Self as TryBatcher>::Item, <Self as TryBatcher>::Batch>
            for $batcher
        {
            fn batch(
                &self,
                items: Vec<<Self as TryBatcher>::Item>,
                device: &Device,
            ) -> <Self as TryBatcher>::Batch {
                self.try_batch(items, device).unwrap_or_else(|error| panic!("{error}"))
            }
        }
    };
}
pub(super) use batcher;

/// Makes a type with a list of items a dataset of Burn's.
macro_rules! in_memory {
    ($dataset:ident.$items:ident: $item:ident) => {
        impl burn::data::dataset::Dataset<$item> for $dataset {
            fn get(&self, index: usize) -> Result<$item, burn::data::dataset::DatasetError> {
                Ok(self.$items[index].clone())
            }

            fn len(&self) -> usize {
                self.$items.len()
            }
        }
    };
}
pub(super) use in_memory;
