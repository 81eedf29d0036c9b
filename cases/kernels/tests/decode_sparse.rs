//! Golden checks, task counts and two-sided ring checks of the sparse attentions of a decode step, at true shapes with fresh seeds.

use kernels::check::{Checked, Given, Launch, check_kernel, fresh_seed, two_sided};

/// Checks one run's heap use, tasks per ring and number of blocks.
fn check(kernel: &str, given: Given<'_>, heap: u64, tasks: [u32; 4], blocks: u64) {
    let run: Checked = check_kernel(kernel, given, fresh_seed());
    let report = &run.reports[0];
    assert_eq!(
        [0, 1, 2, 3].map(|ring| run.high_water(ring)),
        [0, heap, 0, 0],
        "{given:?}"
    );
    assert_eq!(report.rings.map(|ring| ring.tasks_submitted), tasks, "{given:?}");
    assert_eq!(report.tasks.blocks, blocks, "{given:?}");
}

#[test]
fn decode_sparse_attn_swa_matches_on_all_inputs() {
    let blocks = 1 + 32 + 8 + 1 + 64 + 16 * (8 + 1 + 14) + 14;
    for inputs in ["plain", "causal", "short"] {
        check(
            "decode_sparse_attn_swa",
            &[("inputs", inputs)],
            12_866_560,
            [0, 7, 48, 0],
            blocks,
        );
    }
}

#[test]
fn decode_sparse_attn_hca_matches_at_every_ratio() {
    let blocks = 1 + 32 + 16 + 2 + 64 + 16 * (8 + 1 + 14) + 14;
    for ratio in ["0", "4", "128"] {
        let given = [("compress_ratio", ratio)];
        check("decode_sparse_attn_hca", &given, 16_020_480, [0, 7, 48, 0], blocks);
    }
}

#[test]
fn decode_sparse_attn_hca_matches_on_all_inputs() {
    for inputs in ["causal", "short", "mixed", "replaced"] {
        check_kernel("decode_sparse_attn_hca", &[("inputs", inputs)], fresh_seed());
    }
}

#[test]
fn decode_sparse_attn_matches_at_every_ratio() {
    let blocks = 1 + 1 + 24 + 1 + 64 + 8 * (8 + 2 + 8) + 14;
    for ratio in ["0", "4", "128"] {
        let given = [("compress_ratio", ratio)];
        check("decode_sparse_attn", &given, 28_729_344, [0, 6, 32, 0], blocks);
    }
}

#[test]
fn decode_sparse_attn_matches_on_all_inputs() {
    for inputs in ["causal", "short", "mixed", "replaced"] {
        check_kernel("decode_sparse_attn", &[("inputs", inputs)], fresh_seed());
    }
}

#[test]
fn the_sparse_attentions_need_exactly_their_totals() {
    for (kernel, bytes) in [
        ("decode_sparse_attn_swa", 12_866_560),
        ("decode_sparse_attn_hca", 16_020_480),
        ("decode_sparse_attn", 28_729_344),
    ] {
        two_sided(kernel, &[], 1, bytes, Launch::Never);
    }
}
