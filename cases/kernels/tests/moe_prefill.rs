//! Golden checks, counts and two-sided ring checks of the mixture of experts over a prefill tile, at true shapes with fresh seeds.

use kernels::check::{Checked, Launch, check_kernel, fresh_seed, two_sided_rings};

/// Tasks of the four rings, per rank.
fn tasks(run: &Checked) -> Vec<[u32; 4]> {
    let reports = run.reports.iter();
    reports
        .map(|report| report.rings.map(|ring| ring.tasks_submitted))
        .collect()
}

#[test]
fn moe_prefill_matches_and_fills_every_expert() {
    let given = [("mode", "prefill"), ("table", "balanced")];
    let run = check_kernel("moe", &given, fresh_seed());
    assert_eq!((run.high_water(1), run.high_water(3)), (97_126_400, 88_129_536));
    // Beside gate's 17, six tasks per tile of the shared expert, and six of the inner scope.
    assert_eq!(tasks(&run), [[0, 18, 17 + 8 * 6 + 6, 8 * 48 + 1]; 2]);
}

#[test]
fn moe_prefill_matches_with_tokens_left_out() {
    let given = [("mode", "prefill"), ("layer_id", "3"), ("num_tokens", "64")];
    let run = check_kernel("moe", &given, fresh_seed());
    assert_eq!((run.high_water(1), run.high_water(3)), (97_126_400, 62_963_712));
}

#[test]
fn moe_prefill_needs_exactly_its_totals() {
    let given = [("mode", "prefill"), ("table", "balanced"), ("weight_alias", "1")];
    let rings = [
        (1, 97_126_400, Launch::Never),
        (2, 177_995_776, Launch::Possible),
        (3, 88_129_536, Launch::Possible),
    ];
    two_sided_rings("moe", &given, &rings);
}
