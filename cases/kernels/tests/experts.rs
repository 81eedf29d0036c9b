//! Golden checks, task counts and ring totals of the router and the experts, at true shapes with fresh seeds.

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
fn gate_matches_in_both_modes_and_routings() {
    for layer_id in ["0", "2", "3", "10"] {
        let run = check_kernel("gate", &[("layer_id", layer_id)], fresh_seed());
        assert_eq!(heaps(&run), [0, 526_336, 0, 0], "layer {layer_id}");
        assert_eq!(tasks(&run), [0, 4, 2, 0], "layer {layer_id}");
        assert_eq!(run.reports[0].tasks.blocks, 8 + 1 + 1 + 24 + 1, "layer {layer_id}");

        let given = [("mode", "prefill"), ("experts", "96"), ("layer_id", layer_id)];
        let run = check_kernel("gate", &given, fresh_seed());
        assert_eq!(heaps(&run), [0, 4_196_352, 0, 0], "layer {layer_id}");
        assert_eq!(tasks(&run), [0, 4, 17, 0], "layer {layer_id}");
        assert_eq!(run.reports[0].tasks.blocks, 128 + 16 + 1 + 48 + 16, "layer {layer_id}");
    }
}

#[test]
fn gate_leaves_tokens_out() {
    for num_tokens in ["-1", "0", "1", "7", "17", "37", "112", "127"] {
        for layer_id in ["1", "30"] {
            let given = [
                ("mode", "prefill"),
                ("experts", "96"),
                ("num_tokens", num_tokens),
                ("layer_id", layer_id),
            ];
            check_kernel("gate", &given, fresh_seed());
        }
    }
    check_kernel("gate", &[("num_tokens", "3")], fresh_seed());
}

#[test]
fn gate_needs_exactly_its_total() {
    two_sided("gate", &[], 1, 526_336, Launch::Never);
}
