//! Golden checks, task counts and two-sided ring checks of the compressors, at true shapes with fresh seeds.

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
fn decode_compressors_match_wherever_the_requests_stand() {
    for (name, heap, blocks) in [
        ("decode_compressor_ratio4", 196_608, 16 + 1 + 1),
        ("decode_compressor_ratio128", 131_072, 8 + 1 + 1),
    ] {
        // The set of the spec, the very start, and steps whose first or second token completes a window.
        for start in ["-1", "0", "127", "126", "8191", "16382"] {
            let run = check_kernel(name, &[("start_pos", start)], fresh_seed());
            assert_eq!(heaps(&run), [0, heap, 0, 0], "{name} {start}");
            assert_eq!(tasks(&run), [0, 5, 0, 0], "{name} {start}");
            assert_eq!(run.reports[0].tasks.blocks, blocks, "{name} {start}");
        }
    }
}

#[test]
fn decode_compressors_need_exactly_their_totals() {
    two_sided("decode_compressor_ratio4", &[], 1, 196_608, Launch::Never);
    two_sided("decode_compressor_ratio128", &[], 1, 131_072, Launch::Never);
}

#[test]
fn prefill_compressor_ratio4_matches_for_whole_and_partial_tiles() {
    for (tokens, start) in [
        ("128", "0"),
        ("128", "1001"),
        ("1", "0"),
        ("1", "3"),
        ("30", "5"),
        ("128", "16256"),
    ] {
        let given = [("num_tokens", tokens), ("start_pos", start)];
        let run = check_kernel("prefill_compressor_ratio4", &given, fresh_seed());
        assert_eq!(heaps(&run), [0, 1_181_696, 0, 0], "{given:?}");
        assert_eq!(tasks(&run), [0, 8, 0, 0], "{given:?}");
        let pooling = tokens.parse::<u64>().unwrap().div_ceil(4) * 2;
        assert_eq!(run.reports[0].tasks.blocks, 32 + 1 + pooling + 2 + 2 + 128, "{given:?}");
    }
}

#[test]
fn prefill_compressor_ratio128_matches_for_whole_and_partial_tiles() {
    for (tokens, start) in [
        ("128", "0"),
        ("128", "1001"),
        ("1", "127"),
        ("30", "5"),
        ("128", "16256"),
    ] {
        let given = [("num_tokens", tokens), ("start_pos", start)];
        let run = check_kernel("prefill_compressor_ratio128", &given, fresh_seed());
        assert_eq!(heaps(&run), [0, 559_104, 0, 0], "{given:?}");
        assert_eq!(tasks(&run), [0, 8, 0, 0], "{given:?}");
        assert_eq!(run.reports[0].tasks.blocks, 1 + 16 + 1 + 128 + 8 + 1 + 1, "{given:?}");
    }
}

#[test]
fn prefill_compressors_need_exactly_their_totals() {
    two_sided("prefill_compressor_ratio4", &[], 1, 1_181_696, Launch::Never);
    two_sided("prefill_compressor_ratio128", &[], 1, 559_104, Launch::Never);
}

#[test]
fn decode_indexer_compressor_matches_wherever_the_requests_stand() {
    for start in ["-1", "0", "127", "126", "8191", "16382"] {
        let run = check_kernel("decode_indexer_compressor", &[("start_pos", start)], fresh_seed());
        assert_eq!(heaps(&run), [0, 65_536, 0, 0], "{start}");
        assert_eq!(tasks(&run), [0, 8, 0, 0], "{start}");
        assert_eq!(run.reports[0].tasks.blocks, 8 + 1 + 1 + 1 + 1 + 1, "{start}");
    }
}

#[test]
fn prefill_indexer_compressor_matches_for_whole_and_partial_tiles() {
    for (tokens, start) in [
        ("128", "0"),
        ("128", "1001"),
        ("1", "0"),
        ("1", "3"),
        ("30", "5"),
        ("128", "16256"),
    ] {
        let given = [("num_tokens", tokens), ("start_pos", start)];
        let run = check_kernel("prefill_indexer_compressor", &given, fresh_seed());
        assert_eq!(heaps(&run), [0, 305_152, 0, 0], "{given:?}");
        assert_eq!(tasks(&run), [0, 10, 0, 0], "{given:?}");
        let pooling = tokens.parse::<u64>().unwrap().div_ceil(4) * 4;
        assert_eq!(
            run.reports[0].tasks.blocks,
            4 + 1 + pooling + 2 + 2 + 2 + 512 + 2,
            "{given:?}"
        );
    }
}

#[test]
fn indexer_compressors_need_exactly_their_totals() {
    two_sided("decode_indexer_compressor", &[], 1, 65_536, Launch::Never);
    two_sided("prefill_indexer_compressor", &[], 1, 305_152, Launch::Never);
}

#[test]
fn outputs_that_nothing_writes_do_not_pass() {
    for name in [
        "decode_compressor_ratio4",
        "decode_compressor_ratio128",
        "decode_indexer_compressor",
        "prefill_compressor_ratio4",
        "prefill_compressor_ratio128",
        "prefill_indexer_compressor",
    ] {
        let session = session(name, &[], fresh_seed(), AMPLE);
        session.instance().reset();
        for verdict in session.instance().validate() {
            assert!(!verdict.passed(), "{name}: {verdict:?}");
        }
    }
}
