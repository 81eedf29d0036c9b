//! Golden checks, task counts and two-sided ring checks of the indexers, at true shapes with fresh seeds.

use kernels::check::{AMPLE, Checked, Launch, check_kernel, fresh_seed, session, two_sided};

/// Heap use of the four rings.
fn heaps(run: &Checked) -> [u64; 4] {
    [0, 1, 2, 3].map(|ring| run.high_water(ring))
}

/// Tasks of the four rings.
fn tasks(run: &Checked) -> [u32; 4] {
    run.reports[0].rings.map(|ring| ring.tasks_submitted)
}

#[test]
fn decode_indexer_matches_wherever_the_requests_stand() {
    // No key at all, one more in the step's first or second token, and all of the table: more keys than are listed.
    for start in ["-1", "0", "3", "126", "4600", "16382"] {
        let run = check_kernel("decode_indexer", &[("start_pos", start)], fresh_seed());
        assert_eq!(heaps(&run), [0, 9_744_384, 0, 0], "{start}");
        assert_eq!(tasks(&run), [0, 20, 0, 0], "{start}");
        let inner = 8 + 1 + 1 + 1 + 1 + 1;
        assert_eq!(
            run.reports[0].tasks.blocks,
            8 + 8 + 1 + 16 + 8 + 8 + 7 + 1 + inner + 8 + 32 + 8,
            "{start}"
        );
    }
}

#[test]
fn prefill_indexer_matches_for_whole_and_partial_tiles() {
    for (tokens, start) in [("128", "0"), ("128", "899"), ("1", "0"), ("30", "5"), ("77", "400")] {
        let given = [("num_tokens", tokens), ("start_pos", start)];
        let run = check_kernel("prefill_indexer", &given, fresh_seed());
        assert_eq!(heaps(&run), [0, 8_235_008, 0, 0], "{given:?}");
        assert_eq!(tasks(&run), [0, 17, 8, 0], "{given:?}");
        let inner = 4 + 1 + tokens.parse::<u64>().unwrap().div_ceil(4) * 4 + 2 + 2 + 2 + 512;
        assert_eq!(
            run.reports[0].tasks.blocks,
            32 + 128 + 32 + 4 + inner + 8 + 1 + 1 + 8 + 8,
            "{given:?}"
        );
    }
}

#[test]
fn indexers_need_exactly_their_totals() {
    two_sided("decode_indexer", &[], 1, 9_744_384, Launch::Never);
    two_sided("prefill_indexer", &[], 1, 8_235_008, Launch::Never);
}

#[test]
fn outputs_that_nothing_writes_do_not_pass() {
    for name in ["decode_indexer", "prefill_indexer"] {
        let session = session(name, &[], fresh_seed(), AMPLE);
        session.instance().reset();
        for verdict in session.instance().validate() {
            assert!(!verdict.passed(), "{name}: {verdict:?}");
        }
    }
}
