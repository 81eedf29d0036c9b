//! The comparison, stage by stage.
//!
//! Each stage is compared with its reference on the streams that the program gave it, by the rule of the stage's own
//! program. A chain of references would not do: quantisation in front of the experts turns differences in the last bit
//! into whole codes, so that after a few layers two chains that sum in another order differ by the noise of the
//! quantisation, and a rule that lets this pass lets an error of the same size pass as well. Here nothing is handed on:
//! a stage that is wrong is named, and the ones behind it are judged by what they make of what they got.

use half::{bf16, f16};
use rayon::prelude::*;
use ring_runtime::{DType, Tensor};

use super::case::Case;
use super::{Attention, Taps};
use crate::compare::{Allclose, Exact, RatioAllclose, RatioReldiff, SampledIds, Tail, TensorVerdict};
use crate::golden;
use crate::golden::lm_head::LmHeadInput;
use crate::model::RANKS;
use crate::ops::layers::Layer;
use crate::ops::moe::fixture::{RankInput, reference};

/// Rules of the streams, hidden rows, logits and sampled ids, in words.
pub(crate) const TOKEN_RULES: [&str; 4] = [
    "per layer and rank, of the program's own streams: embedding equal; attention as in its own program; experts ratio_reldiff(diff_thd=5e-3, pct_thd=0.05, max_abs_diff=0.25) on live rows, zero tail",
    "of the program's pre_hc_hidden_out: ratio_allclose(atol=1e-4, rtol=1/64, ratio<=0.005) on live rows, zero tail",
    "of the program's hidden_out: allclose(rtol=1e-3, atol=1e-3)",
    "argmax of the program's logits",
];

/// One comparison that needs no other.
#[derive(Clone, Copy, Debug)]
enum Part {
    Embedding(usize),
    Attention(Layer),
    Experts(Layer),
    Hidden(usize),
    Logits,
    Sampled,
}

/// All verdicts on a dispatch, in the order of the program.
pub(super) fn verdicts<A: Attention>(case: &Case<A>, taps: &[Taps; RANKS]) -> Vec<TensorVerdict> {
    let layers = case
        .schedule
        .layers()
        .flat_map(|layer| [Part::Attention(layer), Part::Experts(layer)]);
    let parts: Vec<Part> = [Part::Embedding(0), Part::Embedding(1)]
        .into_iter()
        .chain(layers)
        .chain([Part::Hidden(0), Part::Hidden(1), Part::Logits, Part::Sampled])
        .collect();
    let found: Vec<Vec<TensorVerdict>> = parts.into_par_iter().map(|part| compare(case, taps, part)).collect();
    found.concat()
}

fn compare<A: Attention>(case: &Case<A>, taps: &[Taps; RANKS], part: Part) -> Vec<TensorVerdict> {
    match part {
        Part::Embedding(rank) => vec![embedding(case, taps, rank)],
        Part::Attention(layer) => attention(case, taps, layer),
        Part::Experts(layer) => experts(case, taps, layer),
        Part::Hidden(rank) => vec![hidden(case, rank)],
        Part::Logits => vec![logits(case)],
        Part::Sampled => vec![SampledIds.compare("sampled_ids", &case.outputs.sampled, &case.outputs.logits)],
    }
}

fn embedding<A: Attention>(case: &Case<A>, taps: &[Taps; RANKS], rank: usize) -> TensorVerdict {
    let (args, packed) = (&case.ranks[rank], &taps[rank].packed);
    let expected = golden::input_pack::input_pack(&args.input_ids.read::<i64>(), &args.embed.read::<bf16>());
    let expected = Tensor::from_vec(packed.dims(), expected);
    Exact.compare(&format!("embedding, rank {rank}: x_hc"), packed, &expected)
}

fn attention<A: Attention>(case: &Case<A>, taps: &[Taps; RANKS], layer: Layer) -> Vec<TensorVerdict> {
    let kind = layer.kind();
    let blocks: [A; RANKS] = std::array::from_fn(|rank| {
        let (args, taps) = (&case.ranks[rank], &taps[rank]);
        args.attention[layer.id].between(taps.before(layer), &taps.attended[layer.id])
    });
    let before = std::array::from_fn(|rank| case.initial.of(rank, kind));
    let reference = |rank: usize| {
        let weights = case.ranks[rank].attention_weights(layer);
        blocks[rank].reference(weights, before[rank])
    };
    let first = reference(0);
    let second = (!same_inputs(&blocks, before, taps.each_ref().map(|t| t.before(layer)))).then(|| reference(1));
    let mut verdicts = Vec::new();
    for (rank, reference) in [&first, second.as_ref().unwrap_or(&first)].into_iter().enumerate() {
        let named = |mut verdict: TensorVerdict| {
            let id = layer.id;
            verdict.name = format!("layer {id}, {} attention, rank {rank}: {}", kind.name(), verdict.name);
            verdict
        };
        verdicts.extend(blocks[rank].compare(reference).into_iter().map(named));
    }
    verdicts
}

/// Whether both ranks were given the same, bit for bit: the weights of a pass are.
fn same_inputs<A: Attention>(blocks: &[A; RANKS], before: [&[Tensor]; RANKS], x: [&Tensor; RANKS]) -> bool {
    let [Some(first), Some(second)] = blocks.each_ref().map(A::metadata) else {
        return false;
    };
    let pools = before[0].iter().zip(before[1]);
    let mut pairs = first.into_iter().zip(second).chain(pools).chain([(x[0], x[1])]);
    pairs.all(|(a, b)| same_bits(a, b))
}

fn same_bits(a: &Tensor, b: &Tensor) -> bool {
    if a.dtype() != b.dtype() || a.dims() != b.dims() {
        return false;
    }
    match a.dtype() {
        DType::F32 => a
            .read::<f32>()
            .iter()
            .zip(&*b.read::<f32>())
            .all(|(a, b)| a.to_bits() == b.to_bits()),
        DType::Bf16 => a
            .read::<bf16>()
            .iter()
            .zip(&*b.read::<bf16>())
            .all(|(a, b)| a.to_bits() == b.to_bits()),
        DType::F16 => a
            .read::<f16>()
            .iter()
            .zip(&*b.read::<f16>())
            .all(|(a, b)| a.to_bits() == b.to_bits()),
        DType::I8 => *a.read::<i8>() == *b.read::<i8>(),
        DType::I32 => *a.read::<i32>() == *b.read::<i32>(),
        DType::I64 => *a.read::<i64>() == *b.read::<i64>(),
    }
}

/// Both ranks at once, since each has experts of the other's tokens.
fn experts<A: Attention>(case: &Case<A>, taps: &[Taps; RANKS], layer: Layer) -> Vec<TensorVerdict> {
    let x = taps.each_ref().map(|taps| taps.attended[layer.id].read::<f32>());
    let ids = case.ranks.each_ref().map(|args| args.input_ids.read::<i64>());
    let inputs = std::array::from_fn(|rank| RankInput {
        x: &x[rank],
        input_ids: &ids[rank],
        layer_id: layer.id as i32,
        num_tokens: case.ranks[rank].num_tokens as i32,
    });
    let expected = reference(case.ranks.each_ref().map(|args| &args.experts[layer.id]), inputs);
    let compare = |(rank, expected)| {
        let (args, taps): (&super::Rank<A>, &Taps) = (&case.ranks[rank], &taps[rank]);
        let (actual, name) = match taps.next.get(layer.id) {
            Some(next) => (next, "x_next"),
            None => (&args.pre_hc, "pre_hc_hidden_out"),
        };
        RatioReldiff::new(5e-3, 0.05)
            .abs_cap(0.25)
            .valid_rows(args.num_tokens, 0, Tail::Zero)
            .compare(
                &format!("layer {}, experts, rank {rank}: {name}", layer.id),
                actual,
                &Tensor::from_vec(actual.dims(), expected),
            )
    };
    expected.into_iter().enumerate().map(compare).collect()
}

/// Two bf16 roundings, of the head and of the norm: each may be one step of 1/128 off in as many values as their own
/// programs allow.
fn hidden<A: Attention>(case: &Case<A>, rank: usize) -> TensorVerdict {
    let args = &case.ranks[rank];
    let hidden = &args.lm_head.hidden;
    let expected = Tensor::from_vec(hidden.dims(), args.head.reference(&args.pre_hc.read::<f32>()));
    RatioAllclose::new(1e-4, 1.0 / 64.0, 0.005)
        .valid_rows(args.num_tokens, 0, Tail::Zero)
        .compare(&format!("hidden_out, rank {rank}"), hidden, &expected)
}

fn logits<A: Attention>(case: &Case<A>) -> TensorVerdict {
    let guards = case.ranks.each_ref().map(|args| {
        let a = &args.lm_head;
        (a.hidden.read::<bf16>(), a.rows.read::<i32>(), a.weight.read::<bf16>())
    });
    let inputs = guards
        .each_ref()
        .map(|(hidden, rows, weight)| LmHeadInput { hidden, rows, weight });
    let logits = &case.outputs.logits;
    let expected = Tensor::from_vec(logits.dims(), golden::lm_head::lm_head(&inputs));
    Allclose::new(1e-3, 1e-3).compare("logits", logits, &expected)
}
