//! What a kernel is: a declaration, and instances of it that can be dispatched and validated.

use std::any::Any;
use std::num::NonZeroUsize;

use ring_runtime::{DType, Halted, Orchestrator, RuntimeConfig, ScopeMode};

use crate::compare::TensorVerdict;
pub use crate::params::{ParamKind, ParamSpec, Params, SetupError, Value};

/// How many devices a program spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// One device.
    L2,
    /// Several ranks.
    L3,
}

impl Level {
    /// `L2` or `L3`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::L2 => "L2",
            Self::L3 => "L3",
        }
    }
}

/// An output that is compared, at the default parameters.
#[derive(Clone, Copy, Debug)]
pub struct OutputInfo {
    /// Name in the spec.
    pub name: &'static str,
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: &'static [usize],
    /// The rule, in words.
    pub rule: &'static str,
}

/// Work of one dispatch at the default parameters, in units of 10⁹ operations (a multiply-add counts two), as the spec has it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gflop {
    /// f32 matrix work.
    pub f32: f64,
    /// bf16 matrix work.
    pub bf16: f64,
    /// int8 matrix work.
    pub int8: f64,
}

/// Declaration of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct KernelInfo {
    /// Name on the command line.
    pub name: &'static str,
    /// One sentence: what it computes.
    pub summary: &'static str,
    /// One device or several ranks.
    pub level: Level,
    /// Number of ranks at the default parameters.
    pub ranks: usize,
    /// Parameters; a mode (decode, prefill) is one of them.
    pub params: &'static [ParamSpec],
    /// Outputs that are compared.
    pub outputs: &'static [OutputInfo],
    /// Work of one dispatch.
    pub gflop: Gflop,
    /// Least heap of each ring at the default parameters, in bytes, as the spec computes it; `None` where it gives none.
    pub ring_bytes: Option<[u64; 4]>,
}

impl KernelInfo {
    /// Least worker cores of each rank.
    ///
    /// A task that waits for a peer holds its core meanwhile: it gives way to other threads, but not to
    /// other blocks. With a second core the rank goes on with what the peer waits for in turn.
    pub const fn min_cores(&self) -> NonZeroUsize {
        if self.ranks > 1 {
            NonZeroUsize::MIN.saturating_add(1)
        } else {
            NonZeroUsize::MIN
        }
    }
}

/// What a dispatch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Its outputs are compared.
    Validation,
    /// Its time is taken, or it warms up for that.
    Measurement,
}

/// A kernel: one module, and one line in the registry.
pub trait Kernel: Sync {
    /// The declaration.
    fn info(&self) -> &'static KernelInfo;

    /// Makes the inputs under `seed`, and memory for the outputs. `params` were resolved against [`KernelInfo::params`].
    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError>;
}

/// A kernel with its arguments: can be dispatched any number of times.
pub trait Instance: Send + Sync {
    /// Number of ranks; each runs on a runtime and a thread of its own.
    fn ranks(&self) -> usize {
        1
    }

    /// The configuration that the program's runtimes are made with. Every program takes what it is asked to; only the
    /// ones that fail on purpose shorten wall-clock limits, or take other rings to see whether anybody notices.
    fn configure(&self, asked: RuntimeConfig) -> RuntimeConfig {
        asked
    }

    /// Says what the coming dispatch is for, before [`Instance::reset`]. Programs that keep streams between their stages for
    /// the comparison keep them in a dispatch for validation only; they take every dispatch for one until they hear otherwise.
    fn announce(&self, _purpose: Purpose) {}

    /// Puts the arguments into the state before a dispatch: inout arguments as they were at first, outputs poisoned
    /// ([`crate::fixture::poison`]), so that an output that is not written can't pass. Outside of the timed interval.
    fn reset(&self);

    /// Puts back what a dispatch that failed left in memory that outlives dispatches: signals and credits between ranks,
    /// which a dispatch that passes takes back itself.
    fn recover(&self) {}

    /// The program of one rank, called in the root scope (depth 0).
    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted>;

    /// Computes the golden and keeps it, on all cores. Called once a dispatch has passed; parts that depend on what the
    /// program chose (a comparison at the chosen experts) belong to [`Instance::validate`].
    fn golden(&self);

    /// Compares every output with the golden, computing that first if need be.
    fn validate(&self) -> Vec<TensorVerdict>;

    /// Whether there is a reference to compare with.
    fn has_golden(&self) -> bool {
        true
    }

    /// The instance itself, for tests that look into it.
    fn as_any(&self) -> &dyn Any;
}

/// Opens the scope of an entry body (depth 1, automatic dependencies): what the compiler wraps a program in.
pub fn entry_scope<R>(
    o: &mut Orchestrator<'_>,
    body: impl FnOnce(&mut Orchestrator<'_>) -> Result<R, Halted>,
) -> Result<R, Halted> {
    o.scope(ScopeMode::Auto, body)
}
