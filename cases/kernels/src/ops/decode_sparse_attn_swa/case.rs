//! The standalone kernel.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

use super::{SwaSparseArgs, SwaSparseScratch, decode_sparse_attn_swa, fill_bias};
use crate::compare::{RatioAllclose, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::{Fixture, Rounding, poison};
use crate::golden::decode_attn::window_columns;
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::ops::decode_attend::{DecodeArgs, KEYS, TOKENS, draw, matrix};
use crate::ops::prefill_sparse_attn::OutWeights;

/// Sliding-window attention of a decode step by itself.
#[derive(Clone, Copy, Debug)]
pub struct DecodeSparseAttnSwa;

static INFO: KernelInfo = KernelInfo {
    name: "decode_sparse_attn_swa",
    summary: "Decode attention over the sliding window with sink, inverse rotary and int8 output projection",
    level: Level::L2,
    ranks: 1,
    params: &[ParamSpec::choice(
        "inputs",
        &["plain", "causal", "short"],
        "Rows seen: whole windows; a strong last row of the window; windows of 17 rows",
    )],
    outputs: &[OutputInfo {
        name: "attn_out",
        dtype: DType::Bf16,
        shape: &[8, 7168],
        rule: "ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)",
    }],
    gflop: Gflop {
        f32: 0.0,
        bf16: 1.342,
        int8: 1.879,
    },
    ring_bytes: Some([0, 12_866_560, 0, 0]),
};

/// Rows of a short window.
const SHORT: usize = 17;

impl Kernel for DecodeSparseAttnSwa {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let fixture = Fixture::new(seed);
        let attn = DecodeArgs::draw(fixture, draw::small_angles());
        let inputs = params.word("inputs");
        if inputs == "causal" {
            attn.strengthen_last_row();
        }
        let len = if inputs == "short" { SHORT } else { KEYS };
        Ok(Box::new(Case {
            attn,
            swa_indices: draw::first_page_window(len),
            swa_lens: Tensor::from_vec(&[TOKENS], vec![len as i32; TOKENS]),
            weights: OutWeights::draw(fixture, Rounding::HalfEven),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    attn: DecodeArgs,
    swa_indices: Tensor,
    /// Rows of each window, \[8\] i32.
    swa_lens: Tensor,
    weights: OutWeights,
    golden: OnceLock<Tensor>,
}

impl Case {
    fn reference(&self) -> &Tensor {
        self.golden.get_or_init(|| {
            let columns = window_columns(&self.swa_indices.read::<i32>(), &self.swa_lens.read::<i32>());
            let rows = self
                .attn
                .with_reference(&self.weights, (&columns, &[]), |input| input.output());
            Tensor::from_vec(self.attn.attn_out.dims(), rows)
        })
    }
}

/// Submits the bias of each column, which the body takes as an argument.
fn valid_bias(o: &mut Orchestrator<'_>, lens: &Tensor, bias: &Tensor) -> Result<(), Halted> {
    let (source, target) = (lens.clone(), bias.clone());
    let task = Task::new("swa_valid_bias", Unit::Vector)
        .input(lens)
        .write(bias)
        .run(move |block| fill_bias(&block.read::<i32>(&source), &mut block.write::<f32>(&target)));
    o.submit(task)?;
    Ok(())
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.attn.attn_out);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let bias = matrix(&mut creates, "sparse_bias", DType::F32, TOKENS, KEYS);
            let scratch = SwaSparseScratch::declare(&mut creates);
            creates.alloc(o)?;
            valid_bias(o, &self.swa_lens, &bias)?;
            let args = SwaSparseArgs {
                attn: self.attn.clone(),
                swa_indices: self.swa_indices.clone(),
                bias: bias.tensor(),
            };
            decode_sparse_attn_swa(o, &args, &self.weights, &scratch)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let rule = RatioAllclose::new(1e-4, 1.0 / 128.0, 0.005);
        vec![rule.compare("attn_out", &self.attn.attn_out, self.reference())]
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
    fn a_short_window_a_sink_and_a_wrong_scale_are_seen() {
        assert!(!matches(&[], |case| case.swa_lens.write::<i32>()[2] = 127));
        assert!(!matches(&[], |case| case.attn.attn_sink.write::<f32>().fill(2.0)));
        assert!(!matches(&[], |case| {
            case.weights
                .wo_b
                .scales
                .write::<f32>()
                .iter_mut()
                .for_each(|s| *s *= 1.25);
        }));
    }
}
