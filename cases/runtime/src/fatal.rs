//! Errors that end a run: what could not be admitted, where, and what was in the way.

use std::fmt;
use std::time::Duration;

use crate::ids::{RingId, TaskId};
use crate::scope::ScopeMode;

/// Number of a fatal error, as device logs print it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FatalCode {
    /// The innermost scope already holds as many tasks as the window admits.
    ScopeDeadlock = 1,
    /// The ring's heap can not hold the outputs.
    HeapRingDeadlock = 2,
    /// The ring has no free task slot.
    FlowControlDeadlock = 3,
    /// The dependency pool or the fan-in spill pool is exhausted.
    DepPoolOverflow = 4,
    /// The runtime rejected the call.
    InvalidArgs = 5,
    /// A task wants more blocks to start together than there are cores.
    RequireSyncStartInvalid = 7,
    /// A wait for tensor data lasted too long.
    TensorWaitTimeout = 8,
    /// The program ended itself.
    ExplicitOrchFatal = 9,
    /// The list of tasks held by open scopes is full.
    ScopeTasksOverflow = 10,
    /// The tensor map is full and nothing frees an entry.
    TensorMapOverflow = 11,
}

impl FatalCode {
    /// The number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Name in capitals, as device logs print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScopeDeadlock => "SCOPE_DEADLOCK",
            Self::HeapRingDeadlock => "HEAP_RING_DEADLOCK",
            Self::FlowControlDeadlock => "FLOW_CONTROL_DEADLOCK",
            Self::DepPoolOverflow => "DEP_POOL_OVERFLOW",
            Self::InvalidArgs => "INVALID_ARGS",
            Self::RequireSyncStartInvalid => "REQUIRE_SYNC_START_INVALID",
            Self::TensorWaitTimeout => "TENSOR_WAIT_TIMEOUT",
            Self::ExplicitOrchFatal => "EXPLICIT_ORCH_FATAL",
            Self::ScopeTasksOverflow => "SCOPE_TASKS_OVERFLOW",
            Self::TensorMapOverflow => "TENSORMAP_OVERFLOW",
        }
    }
}

/// How a deadlock was established.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Proof {
    /// No waiting could help.
    Immediate,
    /// The oldest task of the ring is held by a scope that can not end before the call returns.
    Structural,
    /// Nothing was reclaimed for the allocation time limit.
    Backstop,
}

/// State of one ring when the orchestrator gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingState {
    /// Padded size of the outputs that were to be placed, in bytes.
    pub requested: u64,
    /// Offset behind the youngest block, in bytes.
    pub top: u64,
    /// Offset of the oldest block, in bytes.
    pub tail: u64,
    /// Heap capacity, in bytes.
    pub capacity: u64,
    /// Bytes in use.
    pub used: u64,
    /// Largest gap, in bytes.
    pub free: u64,
    /// Next task id of the ring.
    pub current: u32,
    /// Oldest task id that is not consumed.
    pub last_alive: u32,
    /// Task slots.
    pub window: u32,
}

impl RingState {
    /// Live tasks.
    pub const fn active(&self) -> u32 {
        self.current - self.last_alive
    }
}

/// State of a pool when the orchestrator gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolState {
    /// Entries that were needed.
    pub needed: u32,
    /// Entries in use.
    pub used: u32,
    /// Entries in all.
    pub capacity: u32,
    /// Most entries ever in use.
    pub high_water: u32,
    /// Linear counter of the next entry, from 1.
    pub top: u64,
    /// Linear counter of the oldest entry in use.
    pub tail: u64,
    /// Next task id of the ring; the failing task is counted.
    pub current: u32,
    /// Oldest task id that is not consumed.
    pub last_alive: u32,
}

/// What ran out, or what was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Tasks in one scope.
    Scope {
        /// Tasks that the innermost scope holds.
        tasks: usize,
        /// Task slots of its ring; one less is usable.
        window: u32,
        /// Live tasks of its ring.
        active: u32,
    },
    /// Heap bytes.
    Heap(RingState),
    /// Task slots.
    Slots(RingState),
    /// Dependency entries.
    DepPool(PoolState),
    /// Fan-in edges beyond the 64 that a slot holds.
    FaninPool(PoolState),
    /// Tensor-map entries.
    TensorMap {
        /// Entries that were needed.
        needed: usize,
        /// Entries in use.
        used: usize,
        /// Entries in all.
        capacity: usize,
    },
    /// Entries of the list of held tasks.
    ScopeTasks {
        /// Entries in all: the sum of the windows.
        capacity: usize,
    },
    /// Cores.
    Cores {
        /// Blocks that were to start together.
        blocks: usize,
        /// Worker cores.
        cores: usize,
    },
    /// Tensor data that never came.
    TensorData {
        /// The task that had not completed.
        task: TaskId,
        /// How long it was waited for (monotonic clock).
        waited: Duration,
    },
    /// None: the call was wrong.
    Arguments,
    /// None: the program ended itself.
    Program,
}

impl Resource {
    /// Short name: `scope`, `heap`, `slots`, `dep_pool`, `fanin_pool`, `tensormap`, `scope_tasks`, `cores`,
    /// `tensor_data`, `invalid_args`, `program`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Scope { .. } => "scope",
            Self::Heap(_) => "heap",
            Self::Slots(_) => "slots",
            Self::DepPool(_) => "dep_pool",
            Self::FaninPool(_) => "fanin_pool",
            Self::TensorMap { .. } => "tensormap",
            Self::ScopeTasks { .. } => "scope_tasks",
            Self::Cores { .. } => "cores",
            Self::TensorData { .. } => "tensor_data",
            Self::Arguments => "invalid_args",
            Self::Program => "program",
        }
    }
}

/// Progress of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskState {
    /// Waiting, ready or running.
    Pending,
    /// Done, but still held by its scope or by consumers.
    Completed,
    /// Released by everybody.
    Consumed,
}

/// The oldest live task of a ring: what pins everything behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadTask {
    /// Which task.
    pub id: TaskId,
    /// Its name.
    pub name: &'static str,
    /// Its progress.
    pub state: TaskState,
    /// Consumers that have released it.
    pub consumers_done: u32,
    /// Consumers that have claimed it.
    pub consumers: u32,
    /// Whether its scope has ended.
    pub scope_released: bool,
}

/// The innermost scope when the run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenScope {
    /// Its depth; the root's is 0.
    pub depth: usize,
    /// Its mode.
    pub mode: ScopeMode,
    /// Tasks that it holds itself.
    pub tasks: usize,
    /// The oldest task that the shallowest open scope of the ring holds.
    pub oldest: Option<TaskId>,
}

/// Why a run ended in an error of the rings or of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// Number of the error.
    pub code: FatalCode,
    /// The ring that was to admit something.
    pub ring: Option<RingId>,
    /// Scope depth of the failing call; the root's is 0.
    pub depth: usize,
    /// For deadlocks: how it was established.
    pub proof: Option<Proof>,
    /// What ran out, with its numbers.
    pub resource: Resource,
    /// The oldest live task of the ring, if there is one.
    pub head: Option<HeadTask>,
    /// The innermost scope.
    pub scope: Option<OpenScope>,
    /// What was being submitted.
    pub task_name: Option<&'static str>,
    /// One sentence.
    pub message: String,
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.code.name(), self.code.number())?;
        if let Some(ring) = self.ring {
            write!(f, " on ring {ring}")?;
        }
        write!(f, ": {}", self.message)
    }
}
