//! Reference of `input_pack`.

use half::bf16;

use super::widen;
use crate::model::{HIDDEN, STREAMS};

/// The embedding of each id, four times; `embed` has rows of 7168, and ids outside of it mean its first or last row.
pub fn input_pack(ids: &[i64], embed: &[bf16]) -> Vec<f32> {
    let rows = embed.len() / HIDDEN;
    ids.iter()
        .flat_map(|id| {
            let row = usize::try_from(*id).unwrap_or(0).min(rows - 1);
            widen(&embed[row * HIDDEN..][..HIDDEN]).repeat(STREAMS)
        })
        .collect()
}
