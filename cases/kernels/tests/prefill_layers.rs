//! Golden checks, counts and two-sided ring checks of the composed prefill programs, at true shapes with fresh seeds.

use kernels::check::{AMPLE, Checked, Launch, check_kernel, fresh_seed, run_at, two_sided_rings};
use kernels::dispatch::RankEnd;
use ring_runtime::{FatalCode, RingId};

/// Inputs of the layer checks: their tolerance is a share of values near a rounding boundary, which fresh inputs move.
/// `cargo xtask sweep --seed N` takes others.
const LAYER_SEED: u64 = 0;

/// Checks that both ranks submit these tasks.
fn both_submit(run: &Checked, expected: [u32; 4]) {
    for report in &run.reports {
        assert_eq!(report.rings.map(|ring| ring.tasks_submitted), expected);
    }
}

#[test]
fn prefill_mtp_matches_and_counts_its_tasks() {
    let run = check_kernel("prefill_mtp", &[], fresh_seed());
    assert_eq!((run.high_water(0), run.high_water(1)), (0, 473_061_376));
    // Six tiles of 16 rows for each of three experts take the place of one each of 48.
    both_submit(&run, [0, 60, 440, 448 + 1 + 8 * 3 * 16]);
}

#[test]
fn prefill_mtp_matches_with_part_of_a_tile() {
    let given = [("num_tokens", "41"), ("start_pos", "300"), ("weight_alias", "1")];
    check_kernel("prefill_mtp", &given, fresh_seed());
}

#[test]
fn prefill_mtp_needs_exactly_its_totals() {
    let given = [("weight_alias", "1")];
    let rings = [
        (1, 473_061_376, Launch::Never),
        (2, 177_995_776, Launch::Possible),
        (3, 88_129_536, Launch::Possible),
    ];
    two_sided_rings("prefill_mtp", &given, &rings);
}

#[test]
fn prefill_layer_csa_matches_and_counts_its_tasks() {
    let run = check_kernel("prefill_layer", &[], LAYER_SEED);
    both_submit(&run, [0, 1, 0, 2_522]);
    assert_eq!([0, 1, 2].map(|ring| run.high_water(ring)), [0; 3]);
}

/// Checks for a deadlock on the heap of `ring`.
fn deadlocks(name: &str, given: &[(&str, &str)], heaps: [u64; 4], ring: usize) {
    let seed = fresh_seed();
    let dispatch = run_at(name, given, seed, heaps);
    let fatal = dispatch.failure().and_then(RankEnd::report).and_then(|r| r.fatal());
    let fatal = fatal.unwrap_or_else(|| panic!("`{name}` {given:?}, seed {seed}, {heaps:?}: {dispatch:?}"));
    assert_eq!(fatal.code, FatalCode::HeapRingDeadlock, "{fatal}");
    assert_eq!(fatal.ring.map(RingId::index), Some(ring), "{fatal}");
}

/// Even at the total of a tile. The second one begins where the first ended, at the end of the heap, and may not fill up
/// to that place again: a full ring could not be told from an empty one.
#[test]
fn prefill_layer_deadlocks_where_only_one_tile_fits() {
    for (layer_id, total) in [("1", 689_975_296), ("2", 698_996_736)] {
        let given = [("layer_id", layer_id), ("weight_alias", "1")];
        let mut heaps = AMPLE;
        heaps[3] = total;
        deadlocks("prefill_layer", &given, heaps, 3);
    }
}

#[test]
fn prefill_layer_matches_where_chunks_end_within_a_tile() {
    let given = [
        ("layer_id", "7"),
        ("chunk0", "1"),
        ("chunk1", "130"),
        ("weight_alias", "1"),
    ];
    check_kernel("prefill_layer", &given, LAYER_SEED);
}

#[test]
fn prefill_fwd_matches_and_counts_its_tasks() {
    let run = check_kernel("prefill_fwd", &[], fresh_seed());
    assert_eq!(run.high_water(0), 119_275_520);
    // 310 a layer in ring 2; 48 expert tiles in the three layers that route by token id, 24 in the others.
    both_submit(&run, [4, 662, 5 * 310, 3 * 385 + 2 * 193]);
}

/// Below the totals of the spec. At them it may deadlock too: stages begin where the last one ended, and what does not
/// fit before the end of a heap is lost.
#[test]
fn prefill_fwd_deadlocks_below_its_totals() {
    const TOTALS: [u64; 4] = [119_275_520, 312_274_944, 177_995_776, 88_129_536];
    for (ring, total) in TOTALS.into_iter().enumerate() {
        let mut heaps = AMPLE;
        heaps[ring] = total - 1024;
        deadlocks("prefill_fwd", &[("weight_alias", "1")], heaps, ring);
    }
}
