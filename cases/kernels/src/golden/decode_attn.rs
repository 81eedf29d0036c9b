//! Reference of the sparse attentions of a decode step.
//!
//! Which rows a token sees is stated as columns; the three variants differ in how they get them.

use half::bf16;
use rayon::prelude::*;

use super::sparse_attn::{attend, output_projection};
use crate::model::{HEAD_DIM, HEADS, PAGE, ROPE_DIM, WINDOW};

/// Columns of a block: one softmax step.
const BLOCK: usize = 128;

/// The row behind a column of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// None: the lane takes no part.
    Hidden,
    /// Physical row of the original pool.
    Window(usize),
    /// Physical row of the compressed pool.
    Compressed(usize),
}

/// Arguments, row-major as in the specs.
#[derive(Clone, Debug)]
pub struct DecodeIn<'a> {
    /// T × 128 × 512.
    pub q: &'a [bf16],
    /// Rows of 512.
    pub ori_kv: &'a [bf16],
    /// Rows of 512.
    pub cmp_kv: &'a [bf16],
    /// What each token sees: T × n, n a multiple of 128.
    pub columns: &'a [Column],
    /// 128.
    pub attn_sink: &'a [f32],
    /// Rows of T × 64, of which the first 32 columns count.
    pub rope_cos: &'a [bf16],
    /// T × 64.
    pub rope_sin: &'a [bf16],
    /// 16 × 1024 × 4096.
    pub wo_a: &'a [bf16],
    /// 7168 × 16384.
    pub wo_b: &'a [i8],
    /// 7168.
    pub wo_b_scale: &'a [f32],
}

/// Columns of window lists T × 128, the first `lens[t]` of token `t`; an entry of −1 is hidden.
pub fn window_columns(indices: &[i32], lens: &[i32]) -> Vec<Column> {
    let column = |(i, row): (usize, &i32)| {
        if ((i % WINDOW) as i32) < lens[i / WINDOW] {
            usize::try_from(*row).map_or(Column::Hidden, Column::Window)
        } else {
            Column::Hidden
        }
    };
    indices.iter().enumerate().map(column).collect()
}

/// Columns of window lists T × 128, followed for each token by the first `width` of its compressed list, `compressed.len() / T`
/// long. A logical compressed row is looked up in `tables`, one per request of `step` tokens, and counts below `bounds[t]`.
pub fn listed_columns(
    indices: &[i32],
    compressed: &[i32],
    width: usize,
    bounds: &[usize],
    (tables, requests): (&[i32], usize),
) -> Vec<Column> {
    let tokens = bounds.len();
    let (step, stride, pages) = (tokens / requests, compressed.len() / tokens, tables.len() / requests);
    let mut columns = Vec::with_capacity(tokens * (WINDOW + width));
    for t in 0..tokens {
        let table = &tables[t / step * pages..][..pages];
        columns.extend(window_columns(&indices[t * WINDOW..][..WINDOW], &[WINDOW as i32]));
        columns.extend(
            compressed[t * stride..][..width]
                .iter()
                .map(|c| match usize::try_from(*c) {
                    Ok(c) if c < bounds[t] => Column::Compressed(table[c / PAGE] as usize * PAGE + c % PAGE),
                    _ => Column::Hidden,
                }),
        );
    }
    columns
}

impl DecodeIn<'_> {
    /// The rows of a block that take part: a hidden lane has weight zero, so it may as well be missing.
    fn rows_of(&self, columns: &[Column]) -> Vec<bf16> {
        let row = |pool: &'_ [bf16], row: usize| pool[row * HEAD_DIM..][..HEAD_DIM].to_vec();
        let rows = columns.iter().filter_map(|column| match *column {
            Column::Hidden => None,
            Column::Window(r) => Some(row(self.ori_kv, r)),
            Column::Compressed(r) => Some(row(self.cmp_kv, r)),
        });
        rows.flatten().collect()
    }

    /// The attended rows, T × 128 × 512; zero where a token sees nothing.
    pub fn attention(&self) -> Vec<bf16> {
        let width = HEADS * HEAD_DIM;
        let mut out = vec![bf16::ZERO; self.q.len()];
        let columns = self.columns.len() / (self.q.len() / width);
        out.par_chunks_mut(width)
            .zip(self.q.par_chunks(width))
            .zip(self.columns.par_chunks(columns))
            .enumerate()
            .for_each(|(t, ((out, q), columns))| {
                let blocks: Vec<_> = columns.chunks(BLOCK).map(|block| self.rows_of(block)).collect();
                let live = blocks.iter().map(Vec::as_slice).filter(|rows| !rows.is_empty());
                let angles = [self.rope_cos, self.rope_sin].map(|table| &table[t * ROPE_DIM..][..ROPE_DIM]);
                out.copy_from_slice(&attend(q, live, self.attn_sink, angles));
            });
        out
    }

    /// The layer's output, T × 7168.
    pub fn output(&self) -> Vec<bf16> {
        output_projection(&self.attention(), self.wo_a, self.wo_b, self.wo_b_scale)
    }
}

#[cfg(test)]
mod tests {
    use super::Column::{Compressed, Hidden, Window};
    use super::*;

    #[test]
    fn columns_end_at_the_length_and_skip_missing_rows() {
        let mut indices = vec![-1; 2 * WINDOW];
        indices[..3].copy_from_slice(&[7, -1, 9]);
        indices[WINDOW] = 5;
        let columns = window_columns(&indices, &[3, 0]);
        assert_eq!(columns[..4], [Window(7), Hidden, Window(9), Hidden]);
        assert_eq!(columns[WINDOW], Hidden);
    }

    #[test]
    fn compressed_rows_are_looked_up_per_request_and_bounded() {
        let compressed = [0, 130, -1, 4, 1, 1, 1, 1];
        let columns = listed_columns(&[-1; 2 * WINDOW], &compressed, 3, &[131, 1], (&[2, 3, 4, 5], 2));
        assert_eq!(
            columns[WINDOW..WINDOW + 3],
            [Compressed(256), Compressed(3 * 128 + 2), Hidden]
        );
        assert_eq!(
            columns[2 * WINDOW + 3..],
            [Hidden; 3],
            "row 1 is not complete for token 1"
        );
    }
}
