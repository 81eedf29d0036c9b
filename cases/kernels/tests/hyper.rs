//! Golden checks and ring totals of the small programs, at true shapes with fresh seeds.

use kernels::check::{Launch, check_kernel, fresh_seed, two_sided};

#[test]
fn rmsnorm_matches_in_both_modes() {
    for mode in ["prefill", "decode"] {
        let run = check_kernel("rmsnorm", &[("mode", mode)], fresh_seed());
        assert_eq!(run.reports[0].tasks.submitted, 1, "{mode}");
        assert_eq!(run.reports[0].tasks.blocks, if mode == "prefill" { 64 } else { 4 });
        assert_eq!([0, 1, 2, 3].map(|ring| run.high_water(ring)), [0; 4], "{mode}");
    }
}

#[test]
fn hc_pre_matches_in_both_modes() {
    for (mode, heap, blocks) in [
        ("prefill", 95_232, 16 + 32 + 8 + 128 + 128 + 16 + 16 + 112),
        ("decode", 14_336, 1 + 4 + 1 + 8 + 8 + 1 + 1 + 7),
    ] {
        let run = check_kernel("hc_pre", &[("mode", mode)], fresh_seed());
        let tasks = run.reports[0].tasks;
        assert_eq!((tasks.submitted, tasks.allocations, tasks.kernels), (9, 1, 8), "{mode}");
        assert_eq!(tasks.blocks, blocks, "{mode}");
        assert_eq!([0, 1, 2, 3].map(|ring| run.high_water(ring)), [0, heap, 0, 0], "{mode}");
    }
}

#[test]
fn hc_pre_needs_exactly_its_total() {
    two_sided("hc_pre", &[], 1, 95_232, Launch::Never);
}

#[test]
fn hc_head_matches_in_both_modes() {
    for (mode, tiles, matrix_tiles) in [("decode", 1, 1), ("prefill", 16, 8)] {
        let run = check_kernel("hc_head", &[("mode", mode)], fresh_seed());
        assert_eq!(
            run.reports[0].rings.map(|r| r.tasks_submitted),
            [0, 5, tiles, 0],
            "{mode}"
        );
        let blocks = tiles + 8 * matrix_tiles + matrix_tiles + 1 + tiles;
        assert_eq!(run.reports[0].tasks.blocks, u64::from(blocks), "{mode}");
        assert_eq!(
            [0, 1, 2, 3].map(|ring| run.high_water(ring)),
            [0, 82_944, 0, 0],
            "{mode}"
        );
    }
}

#[test]
fn hc_head_needs_exactly_its_total() {
    two_sided("hc_head", &[], 1, 82_944, Launch::Never);
}

#[test]
fn input_pack_matches_in_both_modes() {
    for mode in ["decode", "prefill"] {
        let run = check_kernel("input_pack", &[("mode", mode)], fresh_seed());
        assert_eq!(run.reports[0].rings.map(|r| r.tasks_submitted), [0, 1, 0, 0], "{mode}");
        assert_eq!(run.reports[0].tasks.blocks, 48, "{mode}");
        assert_eq!([0, 1, 2, 3].map(|ring| run.high_water(ring)), [0; 4], "{mode}");
    }
}

#[test]
fn mtp_projection_matches_in_both_modes() {
    for (mode, heap, tiles, linear) in [("decode", 4_724_736, 1, 56), ("prefill", 37_767_168, 16, 448)] {
        let run = check_kernel("mtp_projection", &[("mode", mode)], fresh_seed());
        assert_eq!(
            run.reports[0].rings.map(|r| r.tasks_submitted),
            [0, 2, 3 * tiles, linear],
            "{mode}"
        );
        assert_eq!([0, 1, 2, 3].map(|ring| run.high_water(ring)), [0, heap, 0, 0], "{mode}");
    }
}

#[test]
fn mtp_projection_needs_exactly_its_total() {
    two_sided("mtp_projection", &[], 1, 4_724_736, Launch::Never);
    two_sided("mtp_projection", &[("mode", "prefill")], 1, 37_767_168, Launch::Never);
}
