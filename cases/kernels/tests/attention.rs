//! Golden checks, task counts and two-sided ring checks of the attention programs, at true shapes with fresh seeds.

use kernels::check::{Checked, Launch, check_kernel, fresh_seed, two_sided};

/// Heap use of the four rings.
fn heaps(run: &Checked) -> [u64; 4] {
    [0, 1, 2, 3].map(|ring| run.high_water(ring))
}

/// Tasks of the four rings.
fn tasks(run: &Checked) -> [u32; 4] {
    run.reports[0].rings.map(|ring| ring.tasks_submitted)
}

#[test]
fn qkv_proj_rope_needs_exactly_its_total() {
    two_sided("qkv_proj_rope", &[("mode", "prefill")], 1, 37_519_360, Launch::Never);
}

#[test]
fn qkv_proj_rope_matches_in_both_modes() {
    // In decode only the rotary buffers shrink: from 3 × 32,768 to 3 × 2,048 bytes.
    for (mode, heap, blocks) in [
        ("prefill", 37_519_360, 16 + 24 + 96 + 16 + 16 + 32 + 16 + 32 + 16),
        (
            "decode",
            37_519_360 - 3 * (32_768 - 2_048),
            1 + 24 + 12 + 1 + 16 + 32 + 16 + 4 + 1,
        ),
    ] {
        let run = check_kernel("qkv_proj_rope", &[("mode", mode)], fresh_seed());
        assert_eq!(heaps(&run), [0, heap, 0, 0], "{mode}");
        assert_eq!(tasks(&run), [0, 11, 0, 0], "{mode}");
        assert_eq!(run.reports[0].tasks.blocks, blocks, "{mode}");
    }
}

#[test]
fn prefill_sparse_attn_matches_at_every_ratio() {
    for ratio in ["0", "4", "128"] {
        let run = check_kernel("prefill_sparse_attn", &[("compress_ratio", ratio)], fresh_seed());
        assert_eq!(heaps(&run), [0, 241_836_032, 0, 0], "ratio {ratio}");
        assert_eq!(tasks(&run), [0, 8, 304, 0], "ratio {ratio}");
        let launches = 2 + 96 + 8 + 128 + 128 + 64 + 56;
        assert_eq!(run.reports[0].tasks.blocks, launches + 304, "ratio {ratio}");
    }
}

#[test]
fn prefill_sparse_attn_needs_exactly_its_total() {
    two_sided("prefill_sparse_attn", &[], 1, 241_836_032, Launch::Never);
}

#[test]
fn prefill_attention_swa_needs_exactly_its_total() {
    two_sided("prefill_attention_swa", &[], 1, 306_889_728, Launch::Never);
}

#[test]
fn prefill_attention_swa_counts_its_tasks() {
    let run = check_kernel("prefill_attention_swa", &[], fresh_seed());
    assert_eq!(heaps(&run), [0, 306_889_728, 0, 0]);
    assert_eq!(tasks(&run), [0, 34, 305, 0]);
    let counts = run.reports[0].tasks;
    assert_eq!((counts.allocations, counts.dependency_only), (3, 1));
}

#[test]
fn prefill_attention_swa_leaves_padding_alone() {
    // Part of a tile, in the middle of a sequence: padding rows, an older window, the zero tail.
    let given = [("num_tokens", "37"), ("start_pos", "1000")];
    let run = check_kernel("prefill_attention_swa", &given, fresh_seed());
    assert_eq!(tasks(&run), [0, 34, 306, 0], "the tail has a launch of its own");
}

#[test]
fn prefill_attention_hca_needs_exactly_its_total() {
    two_sided("prefill_attention_hca", &[], 1, 303_253_504, Launch::Never);
}

#[test]
fn prefill_attention_hca_counts_its_tasks() {
    let run = check_kernel("prefill_attention_hca", &[], fresh_seed());
    assert_eq!(heaps(&run), [0, 303_253_504, 0, 0]);
    assert_eq!(tasks(&run), [0, 39, 305, 0]);
    let counts = run.reports[0].tasks;
    assert_eq!((counts.allocations, counts.dependency_only), (3, 1));
}

#[test]
fn prefill_attention_hca_pools_across_tiles() {
    // The window that closes in this tile began in the state; eight rows are complete already.
    let given = [("num_tokens", "50"), ("start_pos", "1100")];
    let run = check_kernel("prefill_attention_hca", &given, fresh_seed());
    assert_eq!(tasks(&run), [0, 39, 306, 0], "the tail has a launch of its own");
}

#[test]
fn prefill_attention_csa_needs_exactly_its_total() {
    two_sided("prefill_attention_csa", &[], 1, 312_274_944, Launch::Never);
}

#[test]
fn prefill_attention_csa_counts_its_tasks() {
    let run = check_kernel("prefill_attention_csa", &[], fresh_seed());
    assert_eq!(heaps(&run), [0, 312_274_944, 0, 0]);
    assert_eq!(tasks(&run), [0, 56, 313, 0]);
    let counts = run.reports[0].tasks;
    assert_eq!((counts.allocations, counts.dependency_only), (4, 3));
}

#[test]
fn prefill_attention_csa_pools_across_tiles() {
    // From the middle of a group of four; every compressed row before it was drawn.
    let given = [("num_tokens", "77"), ("start_pos", "898")];
    let run = check_kernel("prefill_attention_csa", &given, fresh_seed());
    assert_eq!(tasks(&run), [0, 56, 314, 0], "the tail has a launch of its own");
}

#[test]
fn prefill_attention_csa_takes_a_single_token() {
    check_kernel("prefill_attention_csa", &[("num_tokens", "1")], fresh_seed());
}
