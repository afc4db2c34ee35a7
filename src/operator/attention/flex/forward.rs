//! The forward pass.

use super::rows::SoftMax;
use super::{Batch, Head, heads, parts};
use crate::operator::attention::Attention;
use crate::operator::flex::products::multiply;
use crate::operator::flex::scalar::{Scalar, Wide};
use crate::operator::flex::tensor;
use crate::operator::parallel;
use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use pulp::Arch;

/// O [N, H], and of each row of the scores the maximum and the inverse sum, [B, A, L].
pub(super) fn forward<T: Scalar>(input: &Attention<Flex>) -> (FloatTensor<Flex>, Vec<T::Wide>, Vec<T::Wide>) {
    let shape = input.query.shape();
    let heads = heads(input);
    let longest = input.longest();
    let bias = input.bias.as_ref().map(FloatTensor::<Flex>::to_contiguous);
    let batch = Batch::new(input, &bias);
    let mut output = vec![T::default(); shape.num_elements()];
    let mut max = vec![T::Wide::ZERO; heads.len() * longest];
    let mut inverse_sum = vec![T::Wide::ZERO; heads.len() * longest];
    let statistics = max.chunks_mut(longest).zip(inverse_sum.chunks_mut(longest));
    let tasks: Vec<_> = heads.iter().zip(parts(&heads, &mut output, input.heads)).zip(statistics).collect();
    let work = tasks.len() * longest * longest;
    parallel::for_each(work, tasks.into_iter(), |((head, output), (max, inverse_sum))| {
        batch.head(head, output, max, inverse_sum);
    });
    (tensor(output, shape), max, inverse_sum)
}

impl<T: Scalar> Batch<'_, T> {
    fn head(&self, head: &Head, mut output: Vec<&mut [T]>, max: &mut [T::Wide], inverse_sum: &mut [T::Wide]) {
        let key = head.view::<T>(&self.input.key).transpose(0, 1);
        let value = head.view::<T>(&self.input.value);
        for block in head.blocks() {
            let query = head.view_of::<T>(&self.input.query, block.clone());
            let mut products = multiply(query, key.clone());
            let first = head.index * self.longest + block.start;
            Arch::new().dispatch(SoftMax {
                scores: self.scores(head, first),
                products: products.storage_mut(),
                max: &mut max[block.clone()],
                inverse_sum: &mut inverse_sum[block.clone()],
            });
            let context = multiply(products, value.clone());
            let rows = context.storage::<T::Wide>().chunks_exact(head.columns.len());
            for ((context, output), &inverse_sum) in
                rows.zip(&mut output[block.clone()]).zip(&inverse_sum[block])
            {
                output.iter_mut().zip(context).for_each(|(o, &c)| *o = T::narrow(c * inverse_sum));
            }
        }
    }
}
