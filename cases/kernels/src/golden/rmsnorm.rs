//! Reference of `rmsnorm`.

use half::bf16;
use rayon::prelude::*;

use super::{inv_rms, widen};
use crate::model::{HIDDEN, RMS_EPS};

/// `bf16((x · inv) · w)` of every row of 7168; squares are summed in chunks of 128.
pub fn rms_norm(x: &[bf16], w: &[bf16]) -> Vec<bf16> {
    let row = |row: &[bf16]| -> Vec<bf16> {
        let inv = inv_rms(&widen(row), 128, RMS_EPS);
        row.iter()
            .zip(w)
            .map(|(x, w)| bf16::from_f32((x.to_f32() * inv) * w.to_f32()))
            .collect()
    };
    x.par_chunks(HIDDEN).flat_map_iter(row).collect()
}
