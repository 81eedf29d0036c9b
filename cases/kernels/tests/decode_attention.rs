//! Golden checks, task counts and two-sided ring checks of the attention blocks of a decode step, at true shapes with fresh seeds.

use kernels::check::{Given, Launch, check_kernel, fresh_seed, two_sided};

/// Checks one run's heap use and tasks per ring, and its allocation and dependency-only tasks.
fn check(kernel: &str, given: Given<'_>, heap: u64, tasks: [u32; 4], allocations: u64) {
    let run = check_kernel(kernel, given, fresh_seed());
    let report = &run.reports[0];
    assert_eq!(
        [0, 1, 2, 3].map(|ring| run.high_water(ring)),
        [0, heap, 0, 0],
        "{given:?}"
    );
    assert_eq!(report.rings.map(|ring| ring.tasks_submitted), tasks, "{given:?}");
    assert_eq!(
        (report.tasks.allocations, report.tasks.dependency_only),
        (allocations, 1)
    );
}

/// The starts of the fixture; the first and the last position that a step can start at; and a window that is just full.
const STARTS: [&str; 4] = ["-1", "0", "126", "16382"];

#[test]
fn decode_attention_swa_matches_at_all_starts() {
    for start in STARTS {
        let given = [("start_pos", start)];
        check("decode_attention_swa", &given, 51_726_336, [0, 3 + 27, 48, 0], 3);
    }
}

#[test]
fn decode_attention_swa_needs_exactly_its_total() {
    two_sided("decode_attention_swa", &[], 1, 51_726_336, Launch::Never);
}

#[test]
fn decode_attention_hca_matches_at_all_starts() {
    for start in STARTS {
        let given = [("start_pos", start)];
        check("decode_attention_hca", &given, 55_033_856, [0, 3 + 32, 48, 0], 3);
    }
}

#[test]
fn decode_attention_hca_needs_exactly_its_total() {
    two_sided("decode_attention_hca", &[], 1, 55_033_856, Launch::Never);
}

#[test]
fn decode_attention_csa_matches_at_all_starts() {
    for start in STARTS {
        let given = [("start_pos", start)];
        check("decode_attention_csa", &given, 77_816_832, [0, 5 + 48, 8 + 24, 0], 5);
    }
}

#[test]
fn decode_attention_csa_needs_exactly_its_total() {
    two_sided("decode_attention_csa", &[], 1, 77_816_832, Launch::Never);
}
