//! The standalone kernel, with the reference that other programs share.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{CsaSparseArgs, CsaSparseScratch, RATIO, decode_sparse_attn};
use crate::compare::{RatioAllclose, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::{Fixture, Profile, RopeTables, Rounding, poison};
use crate::golden::decode_attn::{Column, listed_columns};
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::model::{INDEX_TOPK, REQUESTS};
use crate::ops::decode_attend::draw::INPUTS;
use crate::ops::decode_attend::{DecodeArgs, KEYS, TOKENS, draw};
use crate::ops::prefill_sparse_attn::OutWeights;
use crate::scopes::BodyScopes;

/// Attention of a decode step over the window and chosen ratio-4 rows by itself.
#[derive(Clone, Copy, Debug)]
pub struct DecodeSparseAttn;

/// Columns of a list of chosen rows.
pub(crate) const CHOSEN: usize = 4096;

static INFO: KernelInfo = KernelInfo {
    name: "decode_sparse_attn",
    summary: "Decode attention over the window and 1024 chosen rows with int8 output projection",
    level: Level::L2,
    ranks: 1,
    params: &[
        ParamSpec::choice(
            "compress_ratio",
            &["4", "0", "128"],
            "Tokens of a compressed row (0: none)",
        ),
        INPUTS,
    ],
    outputs: &[OutputInfo {
        name: "attn_out",
        dtype: DType::Bf16,
        shape: &[8, 7168],
        rule: "ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)",
    }],
    gflop: Gflop {
        f32: 0.0,
        bf16: 3.490,
        int8: 1.879,
    },
    ring_bytes: Some([0, 28_729_344, 0, 0]),
};

/// Position of every token: 1024 rows are complete.
const POSITION: i32 = 4096;
/// Compressed rows of short inputs.
const SHORT: usize = 17;

impl Kernel for DecodeSparseAttn {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let fixture = Fixture::new(seed);
        let first_positions: Vec<i32> = (0..TOKENS as i32).collect();
        let attn = DecodeArgs::draw(fixture, RopeTables::of(Profile::Compressed).rows(&first_positions));
        let inputs = params.word("inputs");
        match inputs {
            "causal" => attn.strengthen_last_row(),
            "replaced" => attn.replace_row(),
            _ => {}
        }
        let full = match params.count("compress_ratio") {
            0 => 0,
            4 => INDEX_TOPK,
            _ => KEYS,
        };
        Ok(Box::new(Case {
            args: CsaSparseArgs {
                attn,
                window_indices: draw::first_page_window(KEYS),
                cmp_kv: draw::compressed_pool(fixture),
                cmp_block_table: draw::compressed_table(),
                idx_topk: draw::compressed_lists(fixture, inputs, CHOSEN, full, SHORT.min(full)),
                position_ids: Tensor::from_vec(&[TOKENS, 1], vec![POSITION; TOKENS]),
            },
            weights: OutWeights::draw(fixture, Rounding::HalfEven),
            golden: OnceLock::new(),
        }))
    }
}

/// What each token sees, from plain arguments: window lists, chosen rows, positions and page tables.
pub(crate) fn columns(window: &[i32], chosen: &[i32], positions: &[i32], tables: &[i32]) -> Vec<Column> {
    let bounds: Vec<usize> = positions.iter().map(|p| (*p as usize + 1) / RATIO).collect();
    listed_columns(window, chosen, INDEX_TOPK, &bounds, (tables, REQUESTS))
}

struct Case {
    args: CsaSparseArgs,
    weights: OutWeights,
    golden: OnceLock<Tensor>,
}

impl Case {
    fn reference(&self) -> &Tensor {
        self.golden.get_or_init(|| {
            let a = &self.args;
            let lists = [&a.window_indices, &a.idx_topk, &a.position_ids, &a.cmp_block_table].map(Tensor::read::<i32>);
            let columns = columns(&lists[0], &lists[1], &lists[2], &lists[3]);
            let pool = a.cmp_kv.read();
            let rows = a
                .attn
                .with_reference(&self.weights, (&columns, &pool), |input| input.output());
            Tensor::from_vec(a.attn.attn_out.dims(), rows)
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.args.attn.attn_out);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = CsaSparseScratch::declare(&mut creates);
            creates.alloc(o)?;
            decode_sparse_attn(o, &self.args, &self.weights, &scratch, BodyScopes::Automatic)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let rule = RatioAllclose::new(1e-4, 1.0 / 128.0, 0.005);
        vec![rule.compare("attn_out", &self.args.attn.attn_out, self.reference())]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::check::{AMPLE, fresh_seed, session};

    /// Whether the output still matches after `change` to the arguments, once the golden is known.
    fn matches(given: &[(&str, &str)], change: impl FnOnce(&Case)) -> bool {
        let mut session = session(INFO.name, given, fresh_seed(), AMPLE);
        session.instance().golden();
        let case = session.instance().as_any().downcast_ref::<Case>();
        change(case.expect("the kernel's own instance"));
        assert!(session.dispatch(Duration::ZERO).passed());
        session.instance().validate().iter().all(TensorVerdict::passed)
    }

    #[test]
    fn a_missing_row_and_an_incomplete_one_are_seen() {
        let given = [("compress_ratio", "128")];
        // One of the 256 rows that token 3 sees.
        assert!(!matches(&given, |case| case.args.idx_topk.write::<i32>()[3 * CHOSEN + 5] = -1));
        // Rows from 1 on are not complete at position 4.
        assert!(!matches(&given, |case| case.args.position_ids.write::<i32>()[6] = 4));
        // Columns from 1024 on do not count.
        assert!(matches(&given, |case| case.args.idx_topk.write::<i32>()
            [3 * CHOSEN + INDEX_TOPK] = 1000));
    }
}
