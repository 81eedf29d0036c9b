//! Golden checks, counts and two-sided ring checks of the composed prefill programs, at true shapes with fresh seeds.

use kernels::check::{AMPLE, Checked, Launch, Prepared, check_kernel, fresh_seed, least_heaps, two_sided_rings};
use kernels::dispatch::Dispatch;
use ring_runtime::RunReport;

/// Inputs of the layer checks: their tolerance is a share of values near a rounding boundary, which fresh inputs move.
/// `cargo xtask sweep --seed N` takes others.
const LAYER_SEED: u64 = 0;

/// Checks that both ranks submit these tasks.
fn both_submit(run: &Checked, expected: [u32; 4]) {
    for report in &run.reports {
        assert_eq!(report.rings.map(|ring| ring.tasks_submitted), expected);
    }
}

/// One of each rank.
fn reports(dispatch: &Dispatch) -> Vec<RunReport> {
    dispatch.ranks.iter().filter_map(|end| end.report().cloned()).collect()
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

/// Checks that `tile`, what a tile of the layer holds, does for one tile but not for one behind the other: the second
/// begins where the first ended, at the end of the heap, and may not fill up to that place again, since a full ring
/// could not be told from an empty one. `least` does.
fn needs_more_than_a_tile(layer_id: &str, tile: u64, least: u64) {
    let program = Prepared::new(
        "prefill_layer",
        &[("layer_id", layer_id), ("weight_alias", "1")],
        fresh_seed(),
    );
    let ample = program.run_at(AMPLE);
    assert!(ample.passed(), "{program:?}: {:#?}", ample.failure());
    assert_eq!(least_heaps(&reports(&ample)), [1024, 1024, 1024, least], "{program:?}");
    program.streams(3, tile, least);
}

#[test]
fn prefill_layer_hca_needs_more_than_a_tile() {
    needs_more_than_a_tile("1", 689_975_296, 780_565_504);
}

#[test]
fn prefill_layer_csa_needs_more_than_a_tile() {
    needs_more_than_a_tile("2", 698_996_736, 789_586_944);
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

/// Five layers. What is held at most in each ring at a time, and the least heaps: below them a stage that begins where
/// the last one ended does not get through.
const FWD_HELD: [u64; 4] = [119_275_520, 312_274_944, 177_995_776, 88_129_536];
const FWD_LEAST: [u64; 4] = [FWD_HELD[0], 409_401_344, FWD_HELD[2], 125_927_424];

#[test]
fn prefill_fwd_matches_and_needs_its_least_heaps() {
    let program = Prepared::new("prefill_fwd", &[("weight_alias", "1")], fresh_seed());
    let run = program.check_at(AMPLE);
    assert_eq!(run.high_water(0), FWD_HELD[0]);
    // 310 a layer in ring 2; 48 expert tiles in the three layers that route by token id, 24 in the others.
    both_submit(&run, [4, 662, 5 * 310, 3 * 385 + 2 * 193]);
    assert_eq!(least_heaps(&run.reports), FWD_LEAST);
    for ring in 0..4 {
        program.streams(ring, FWD_HELD[ring], FWD_LEAST[ring]);
    }
}
