//! Values from the bytes of a file.

use burn::tensor::{DType, TensorData, bf16, f16};

/// The byte order of the numbers that a reader returns.
#[derive(Clone, Copy)]
pub(in crate::checkpoint) enum ByteOrder {
    Little,
    Native,
}

/// The values of a tensor from its bytes; `None` if they are not as many as the shape says, or no floats.
pub(in crate::checkpoint) fn decode(
    bytes: &[u8],
    shape: &[usize],
    dtype: DType,
    order: ByteOrder,
) -> Option<TensorData> {
    macro_rules! values {
        ($type:ty, $size:literal) => {{
            let (chunks, rest) = bytes.as_chunks::<$size>();
            let values: Vec<$type> = match order {
                ByteOrder::Little => chunks.iter().map(|&bytes| <$type>::from_le_bytes(bytes)).collect(),
                ByteOrder::Native => chunks.iter().map(|&bytes| <$type>::from_ne_bytes(bytes)).collect(),
            };
            (rest.is_empty() && values.len() == shape.iter().product::<usize>())
                .then(|| TensorData::new(values, shape.to_vec()))
        }};
    }
    match dtype {
        DType::F64 => values!(f64, 8),
        DType::F32 => values!(f32, 4),
        DType::F16 => values!(f16, 2),
        DType::BF16 => values!(bf16, 2),
        _ => None,
    }
}

/// The transpose of a matrix.
pub(in crate::checkpoint) fn transposed(data: TensorData) -> TensorData {
    let (dtype, [rows, columns]) = (data.dtype(), data.shape().dims());
    let bytes = data.as_bytes();
    macro_rules! turned {
        ($size:literal) => {{
            let (elements, _) = bytes.as_chunks::<$size>();
            let column = |column| (0..rows).map(move |row| elements[row * columns + column]);
            (0..columns).flat_map(column).collect::<Vec<_>>().into_flattened()
        }};
    }
    let turned = match dtype.size() {
        2 => turned!(2),
        4 => turned!(4),
        _ => turned!(8),
    };
    TensorData::from_bytes_vec(turned, [columns, rows], dtype)
}
