//! Golden checks, task counts and ring totals of the router and the experts, at true shapes with fresh seeds.

use kernels::check::{Checked, Launch, check_kernel, fresh_seed, two_sided, two_sided_rings};

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
    two_sided("gate", &[("mode", "prefill")], 1, 4_196_352, Launch::Never);
}

#[test]
fn expert_shared_matches_in_both_modes() {
    for (mode, tiles, act_blocks) in [("decode", 1, 4), ("prefill", 8, 8)] {
        let run = check_kernel("expert_shared", &[("mode", mode)], fresh_seed());
        assert_eq!(tasks(&run), [0, 0, 6 * tiles, 0], "{mode}");
        let blocks = 12 + 12 + act_blocks + 28 + 1;
        assert_eq!(run.reports[0].tasks.blocks, u64::from(tiles) * blocks, "{mode}");
    }
}

#[test]
fn expert_shared_needs_a_tile_at_a_time() {
    two_sided("expert_shared", &[], 2, 1_098_752, Launch::Never);
    // Tiles stream through the ring: one fits, and the next waits for its end.
    two_sided("expert_shared", &[("mode", "prefill")], 2, 1_098_752, Launch::Never);
}

/// Tiles of 16 rows over all experts, from the task count: four launches and an allocation in the first phase, two and one in the second.
fn routed_tiles(run: &Checked) -> u32 {
    let [_, _, on_ring_2, on_ring_3] = tasks(run);
    assert_eq!(on_ring_2, 1, "the hidden rows' allocation");
    assert_eq!(on_ring_3 % 8, 0);
    let tiles = on_ring_3 / 8;
    assert_eq!(
        run.reports[0].tasks.blocks,
        u64::from(tiles) * (3 + 3 + 6 + 1 + 7 + 1),
        "blocks"
    );
    tiles
}

#[test]
fn expert_routed_matches() {
    for _ in 0..2 {
        let run = check_kernel("expert_routed", &[], fresh_seed());
        assert_eq!(run.high_water(2), 9_449_472);
        assert!((20..=40).contains(&routed_tiles(&run)), "{} tiles", routed_tiles(&run));
    }
}

#[test]
fn expert_routed_matches_at_the_edges() {
    let none = check_kernel("expert_routed", &[("routes", "0")], fresh_seed());
    assert_eq!(routed_tiles(&none), 0);
    let one = check_kernel("expert_routed", &[("routes", "1"), ("recv_max", "16")], fresh_seed());
    assert_eq!((routed_tiles(&one), one.high_water(2)), (1, 2_362_368));
    // 16 rows an expert on average: some have two tiles, the second one partly filled.
    let given = [("routes", "768"), ("recv_max", "256"), ("weight_alias", "1")];
    let many = check_kernel("expert_routed", &given, fresh_seed());
    assert!(routed_tiles(&many) > 48, "{} tiles", routed_tiles(&many));
    assert_eq!(many.high_water(2), 37_797_888);
}

#[test]
fn expert_routed_needs_exactly_its_totals() {
    let rings = [(2, 9_449_472, Launch::Never), (3, 589_824, Launch::Never)];
    two_sided_rings("expert_routed", &[], &rings);
}
