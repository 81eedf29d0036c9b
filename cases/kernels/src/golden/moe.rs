//! Reference of `moe`: all ranks at once.

use half::bf16;

use super::expert::{Expert, Received, expert_routed, feed_forward};
use super::gate::{Gate, GateInput, gate};
use super::hc_post::hc_post;
use super::hc_pre::{HcPre, hc_pre};
use crate::model::{CHOSEN, HIDDEN, LOCAL_EXPERTS};

/// Hyper-connection weights.
#[derive(Clone, Copy, Debug)]
pub struct HcInput<'a> {
    /// Projection, 24 × 28672.
    pub weight: &'a [f32],
    /// Scales of pre, post and comb.
    pub scale: &'a [f32],
    /// Bias of each row of the projection.
    pub base: &'a [f32],
}

/// What one rank brings.
#[derive(Clone, Copy, Debug)]
pub struct MoeInput<'a> {
    /// Streams, T × 4 × 7168.
    pub x: &'a [f32],
    /// Hyper-connections.
    pub hc: HcInput<'a>,
    /// Router; its rows are those that the pre-mix makes, whatever stands here.
    pub gate: GateInput<'a>,
    /// The rank's routed experts.
    pub routed: Expert<'a>,
    /// The shared expert.
    pub shared: Expert<'a>,
}

/// A rank between its router and the experts.
struct Routed {
    mixed: HcPre,
    gate: Gate,
    shared: Vec<bf16>,
}

/// A route, seen from the rank that owns the expert.
#[derive(Clone, Copy)]
struct Source {
    rank: usize,
    route: usize,
}

fn route(input: &MoeInput<'_>) -> Routed {
    let mixed = hc_pre(input.x, input.hc.weight, input.hc.scale, input.hc.base);
    let gate = gate(&GateInput {
        x: &mixed.x_mixed,
        ..input.gate
    });
    let ones = vec![1.0; gate.x_scale.len()];
    let shared = feed_forward(&gate.x_i8, &gate.x_scale, &ones, &input.shared);
    Routed { mixed, gate, shared }
}

/// `x_next` of every rank, T × 4 × 7168 each.
///
/// # Panics
/// If an expert is chosen that no rank owns, or twice by one token.
pub fn moe(ranks: &[MoeInput<'_>]) -> Vec<Vec<f32>> {
    let routed: Vec<Routed> = ranks.iter().map(route).collect();
    let tokens = routed[0].gate.x_scale.len();
    let mut made: Vec<Vec<bf16>> = vec![vec![bf16::ZERO; tokens * CHOSEN * HIDDEN]; ranks.len()];
    for (owner, input) in ranks.iter().enumerate() {
        let lists = sources(&routed, owner);
        for (source, row) in lists.iter().flatten().zip(expert_rows(&routed, &lists, &input.routed)) {
            made[source.rank][source.route * HIDDEN..][..HIDDEN].copy_from_slice(&row);
        }
    }
    let results = routed.iter().zip(&made).zip(ranks);
    results
        .map(|((rank, made), input)| {
            let ffn = reduce(rank, made);
            hc_post(&ffn, input.x, &rank.mixed.post, &rank.mixed.comb, tokens)
        })
        .collect()
}

/// The routes to each local expert of `owner`: source after source, each in the order of its tokens.
fn sources(routed: &[Routed], owner: usize) -> Vec<Vec<Source>> {
    let mut lists = vec![Vec::new(); LOCAL_EXPERTS];
    for (rank, from) in routed.iter().enumerate() {
        for (route, expert) in from.gate.indices[..from.gate.active * CHOSEN].iter().enumerate() {
            let expert = usize::try_from(*expert).expect("an expert id is not negative");
            assert!(expert < routed.len() * LOCAL_EXPERTS, "no rank owns expert {expert}");
            if expert / LOCAL_EXPERTS == owner {
                lists[expert % LOCAL_EXPERTS].push(Source { rank, route });
            }
        }
    }
    lists
}

/// What the experts make of their routes, in the order of the lists.
fn expert_rows(routed: &[Routed], lists: &[Vec<Source>], experts: &Expert<'_>) -> Vec<Vec<bf16>> {
    let most = lists.iter().map(Vec::len).max().unwrap_or(0);
    if most == 0 {
        return Vec::new();
    }
    let mut x = vec![0i8; lists.len() * most * HIDDEN];
    let (mut scale, mut weights) = (vec![0f32; lists.len() * most], vec![0f32; lists.len() * most]);
    for (expert, list) in lists.iter().enumerate() {
        for (slot, source) in list.iter().enumerate() {
            let (row, from) = (expert * most + slot, &routed[source.rank].gate);
            let token = source.route / CHOSEN;
            x[row * HIDDEN..][..HIDDEN].copy_from_slice(&from.x_i8[token * HIDDEN..][..HIDDEN]);
            scale[row] = from.x_scale[token];
            weights[row] = from.weights[source.route];
        }
    }
    let count: Vec<i32> = lists.iter().map(|list| list.len() as i32).collect();
    let received = Received {
        x: &x,
        scale: &scale,
        weights: &weights,
        count: &count,
    };
    let y = expert_routed(&received, experts);
    let rows = lists
        .iter()
        .enumerate()
        .flat_map(|(e, list)| (0..list.len()).map(move |slot| e * most + slot));
    rows.map(|row| y[row * HIDDEN..][..HIDDEN].to_vec()).collect()
}

/// Adds what the routed experts made, in the order of the routes, to what the shared one made.
fn reduce(rank: &Routed, made: &[bf16]) -> Vec<bf16> {
    let mut ffn = rank.shared.clone();
    for (t, row) in ffn.chunks_mut(HIDDEN).take(rank.gate.active).enumerate() {
        for (d, value) in row.iter_mut().enumerate() {
            let routes = (0..CHOSEN).map(|k| made[(t * CHOSEN + k) * HIDDEN + d].to_f32());
            *value = bf16::from_f32(routes.fold(value.to_f32(), |sum, y| sum + y));
        }
    }
    ffn
}
