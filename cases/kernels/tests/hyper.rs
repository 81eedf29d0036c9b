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
