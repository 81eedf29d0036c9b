//! Inputs and reference of the standalone programs.

use half::bf16;
use ring_runtime::{DType, Tensor};

use super::{DecodeArgs, KEYS, TOKENS};
use crate::fixture::paging::{PageOrder, strided_table};
use crate::fixture::{Dist, Fixture, constant};
use crate::golden::decode_attn::{Column, DecodeIn};
use crate::kernel::ParamSpec;
use crate::model::{CMP_PAGES, HEAD_DIM, HEADS, HIDDEN, ORI_PAGES, PAGE, REQUESTS, ROPE_DIM, STEP_TOKENS};
use crate::ops::prefill_sparse_attn::OutWeights;

/// Which inputs a program with compressed rows runs on.
pub(crate) const INPUTS: ParamSpec = ParamSpec::choice(
    "inputs",
    &["plain", "causal", "short", "mixed", "replaced"],
    "Rows seen: all; a strong last row of the window and no compressed rows for token 0; few compressed rows; \
     scattered ones with holes; a strong row within the window and no compressed rows",
);

impl DecodeArgs {
    /// Queries and pools uniform in [−0.5, 0.5), no sink.
    pub(crate) fn draw(fixture: Fixture, (rope_cos, rope_sin): (Tensor, Tensor)) -> Self {
        Self {
            q: fixture.real("q", DType::Bf16, &[TOKENS, HEADS, HEAD_DIM], Dist::centred(1.0)),
            ori_kv: fixture.real(
                "ori_kv",
                DType::Bf16,
                &[ORI_PAGES, PAGE, 1, HEAD_DIM],
                Dist::centred(1.0),
            ),
            attn_sink: constant(DType::F32, &[HEADS], 0.0),
            rope_cos,
            rope_sin,
            attn_out: Tensor::zeros(DType::Bf16, &[TOKENS, HIDDEN]),
        }
    }

    /// Makes row 127 of the pool outweigh all others for token 0: what a window that ends too early would miss.
    pub(crate) fn strengthen_last_row(&self) {
        self.q.rows(0..1).write::<bf16>().fill(bf16::ONE);
        self.ori_kv
            .view(&[0, KEYS - 1, 0, 0], &[1, 1, 1, HEAD_DIM])
            .write::<bf16>()
            .fill(bf16::from_f32(8.0));
    }

    /// Makes row 16 of the pool zero but for a large first lane.
    pub(crate) fn replace_row(&self) {
        let row = self.ori_kv.view(&[0, 16, 0, 0], &[1, 1, 1, HEAD_DIM]);
        let mut row = row.write::<bf16>();
        row.fill(bf16::ZERO);
        row[0] = bf16::from_f32(4.0);
    }

    /// Calls `work` with the reference's view of the arguments.
    pub(crate) fn with_reference<R>(
        &self,
        weights: &OutWeights,
        (columns, cmp_kv): (&[Column], &[bf16]),
        work: impl FnOnce(DecodeIn<'_>) -> R,
    ) -> R {
        work(DecodeIn {
            q: &self.q.read(),
            ori_kv: &self.ori_kv.read(),
            cmp_kv,
            columns,
            attn_sink: &self.attn_sink.read(),
            rope_cos: &self.rope_cos.read(),
            rope_sin: &self.rope_sin.read(),
            wo_a: &weights.wo_a.read(),
            wo_b: &weights.wo_b.codes.read(),
            wo_b_scale: &weights.wo_b.scales.read(),
        })
    }
}

/// Angles of `(32·t + i) / 1000` for pair `i` of token `t`, each [8, 64] bf16, the second half as the first.
pub(crate) fn small_angles() -> (Tensor, Tensor) {
    let table = |f: fn(f32) -> f32| {
        let angle = |i: usize| 1e-3 * (i / ROPE_DIM * (ROPE_DIM / 2) + i % (ROPE_DIM / 2)) as f32;
        let values = (0..TOKENS * ROPE_DIM).map(|i| bf16::from_f32(f(angle(i)))).collect();
        Tensor::from_vec(&[TOKENS, ROPE_DIM], values)
    };
    (table(f32::cos), table(f32::sin))
}

/// Window lists [8, 128] i32: column `c` is row `b · 128 + c`, up to `len` columns, then −1.
pub(crate) fn first_page_window(len: usize) -> Tensor {
    let row = |i: usize| {
        if i % KEYS < len {
            (i / KEYS / STEP_TOKENS * PAGE + i % KEYS) as i32
        } else {
            -1
        }
    };
    Tensor::from_vec(&[TOKENS, KEYS], (0..TOKENS * KEYS).map(row).collect())
}

/// Block tables of the compressed pool, [4, 32] i32.
pub(crate) fn compressed_table() -> Tensor {
    let table = strided_table(REQUESTS, CMP_PAGES, CMP_PAGES, PageOrder::Linear);
    Tensor::from_vec(&[REQUESTS, CMP_PAGES], table)
}

/// Compressed pool, [32, 128, 1, 512] bf16.
pub(crate) fn compressed_pool(fixture: Fixture) -> Tensor {
    fixture.real(
        "cmp_kv",
        DType::Bf16,
        &[CMP_PAGES, PAGE, 1, HEAD_DIM],
        Dist::centred(1.0),
    )
}

/// Compressed lists of [`INPUTS`], 8 × `stride`: `full` is how many rows plain inputs list, `short` how many short ones do.
pub(crate) fn compressed_lists(fixture: Fixture, inputs: &str, stride: usize, full: usize, short: usize) -> Tensor {
    let mut lists = vec![-1i32; TOKENS * stride];
    for (t, list) in lists.chunks_mut(stride).enumerate() {
        let n = match inputs {
            "short" => short,
            "replaced" => 0,
            "causal" if t == 0 => 0,
            _ => full,
        };
        for (c, entry) in list[..n].iter_mut().enumerate() {
            *entry = c as i32;
        }
        if inputs == "mixed" {
            // A share of the rows that grows with the token, in any order, with holes.
            let order = fixture.stream(&format!("mixed_{t}"));
            let keep = full * (t + 1) / TOKENS;
            for (c, row) in order.permutation(full).into_iter().enumerate() {
                list[c] = if row < keep { row as i32 } else { -1 };
            }
        }
    }
    Tensor::from_vec(&[TOKENS, stride], lists)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_those_of_the_first_page_of_each_request() {
        let rows = first_page_window(17);
        let rows = rows.read::<i32>();
        assert_eq!((rows[16], rows[17], rows[5 * KEYS + 3]), (16, -1, 2 * 128 + 3));
    }

    #[test]
    fn angles_repeat_in_the_second_half() {
        let (cos, sin) = small_angles();
        let (cos, sin) = (cos.read::<bf16>(), sin.read::<bf16>());
        assert_eq!(cos[ROPE_DIM + 5], cos[ROPE_DIM + 37]);
        assert_eq!(sin[3 * ROPE_DIM + 7], bf16::from_f32(0.103f32.sin()));
    }

    #[test]
    fn lists_vary_as_the_inputs_say() {
        let seen = |inputs: &str| {
            let lists = compressed_lists(Fixture::new(3), inputs, 256, 128, 17);
            let lists = lists.read::<i32>();
            [0, 7].map(|t| lists[t * 256..(t + 1) * 256].iter().filter(|c| **c >= 0).count())
        };
        assert_eq!(seen("plain"), [128, 128]);
        assert_eq!(seen("causal"), [0, 128]);
        assert_eq!(seen("short"), [17, 17]);
        assert_eq!(seen("mixed"), [16, 128]);
        assert_eq!(seen("replaced"), [0, 0]);
    }
}
