//! Outputs of a validation that ranks share: how they travel.

use crate::distributed::Ranks;
use crate::model::Similarity;
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::kind::Basic;
use burn::train::ClassificationOutput;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;

thread_local! {
    static SHARED: RefCell<Option<(Ranks, Device)>> = const { RefCell::new(None) };
}

/// Runs the validation step of a model, which calls [`shared`], on all ranks; received outputs are put on `device`.
pub(super) fn sharing<T>(ranks: &Ranks, device: Device, step: impl FnOnce() -> T) -> T {
    SHARED.set(Some((ranks.clone(), device)));
    let output = step();
    SHARED.set(None); // a model of another crate does not take it
    output
}

/// The outputs of the next batch of a validation: of the one that `own` computes, or of another rank's.
pub(super) fn shared<T: Output>(own: impl Fn() -> T) -> T {
    let Some((ranks, device)) = SHARED.take() else { return own() };
    let message = || {
        let mut message = Vec::new();
        own().write(&mut message);
        message
    };
    match ranks.output(message) {
        Ok(Some(message)) => T::read(&mut message.as_slice(), &device),
        // After an error nobody reads it: `Training` ends the training.
        Ok(None) | Err(_) => own(),
    }
}

/// What metrics are computed from, and its fields.
pub(super) trait Output {
    fn write(&self, message: &mut Vec<u8>);
    fn read(message: &mut &[u8], device: &Device) -> Self;
}

/// An [`Output`], whose fields are written one after the other.
macro_rules! output {
    ($output:ident { $($field:ident),* }) => {
        impl $crate::training::outputs::Output for $output {
            fn write(&self, message: &mut Vec<u8>) {
                $(self.$field.write(message);)*
            }

            fn read(message: &mut &[u8], device: &burn::prelude::Device) -> Self {
                Self { $($field: $crate::training::outputs::Output::read(message, device)),* }
            }
        }
    };
}
pub(super) use output;

output!(ClassificationOutput { loss, output, targets });

fn write_json(value: &impl Serialize, message: &mut Vec<u8>) {
    serde_json::to_writer(&mut *message, value).expect("numbers and names are JSON");
    message.push(b'\n');
}

fn read_json<T: DeserializeOwned>(message: &mut &[u8]) -> T {
    let end = message.iter().position(|&byte| byte == b'\n').expect("a line that a rank wrote");
    serde_json::from_slice(take(message, end + 1)).expect("what a rank wrote")
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> &'a [u8] {
    message.split_off(..length).expect("as many bytes as a rank wrote")
}

/// Its shape and dtype in a line of JSON, and its values.
impl<const D: usize, K: Basic> Output for Tensor<D, K> {
    fn write(&self, message: &mut Vec<u8>) {
        let data = self.to_data();
        write_json(&(data.shape().to_vec(), data.dtype()), message);
        message.extend_from_slice(data.as_bytes());
    }

    fn read(message: &mut &[u8], device: &Device) -> Self {
        let (shape, dtype): (Vec<usize>, DType) = read_json(message);
        let bytes = take(message, shape.iter().product::<usize>() * dtype.size());
        Tensor::from_data(TensorData::from_bytes_vec(bytes.to_vec(), shape, dtype), (device, dtype))
    }
}

impl<T: Output> Output for Option<T> {
    fn write(&self, message: &mut Vec<u8>) {
        write_json(&self.is_some(), message);
        self.iter().for_each(|value| value.write(message));
    }

    fn read(message: &mut &[u8], device: &Device) -> Self {
        read_json::<bool>(message).then(|| T::read(message, device))
    }
}

macro_rules! json {
    ($($field:ty),*) => {$(
        impl Output for $field {
            fn write(&self, message: &mut Vec<u8>) {
                write_json(self, message);
            }

            fn read(message: &mut &[u8], _device: &Device) -> Self {
                read_json(message)
            }
        }
    )*};
}
json!(Similarity, Vec<f32>, Vec<usize>);
