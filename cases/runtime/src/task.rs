//! Tasks as the program describes them.

use std::fmt;

use crate::argument::{Argument, Direction};
use crate::block::Block;
use crate::faults::TaskFault;
use crate::ids::TaskId;
use crate::spec::TensorSpec;
use crate::tensor::Tensor;

/// Most arguments of a task, fresh outputs included, and most outputs of an allocation.
pub const MAX_ARGUMENTS: usize = 32;

/// The kind of core that a task is written for. Every worker runs every kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// Matrix products.
    Matrix,
    /// Vector work.
    Vector,
    /// Both together.
    Mixed,
    /// Scalar work.
    Scalar,
}

/// What a task's blocks run.
pub(crate) type Body = Box<dyn Fn(&Block<'_>) + Send + Sync>;

/// A task under construction: what it touches, what it waits for, how wide it is.
#[derive(Debug)]
#[must_use = "finish the task with `run` or `dependency_only`, and submit it"]
pub struct TaskBuilder {
    pub(crate) task: Task,
}

/// A task, ready to be submitted.
#[must_use = "a task does nothing until it is submitted"]
pub struct Task {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) blocks: usize,
    /// Existing tensors; the fresh outputs join them once they have their place.
    pub(crate) arguments: Vec<Argument>,
    pub(crate) outputs: Vec<TensorSpec>,
    pub(crate) after: Vec<After>,
    pub(crate) together: bool,
    pub(crate) body: Option<Body>,
    pub(crate) fault: Option<TaskFault>,
}

/// An explicit dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct After {
    pub(crate) producer: TaskId,
    /// Whether the producer is kept alive until the task completes.
    pub(crate) retain: bool,
}

impl Task {
    /// A task of one block, without arguments.
    #[expect(clippy::new_ret_no_self, reason = "a task begins with its builder")]
    pub fn new(name: &'static str, unit: Unit) -> TaskBuilder {
        TaskBuilder {
            task: Self {
                name,
                unit,
                blocks: 1,
                arguments: Vec::new(),
                outputs: Vec::new(),
                after: Vec::new(),
                together: false,
                body: None,
                fault: None,
            },
        }
    }
}

impl TaskBuilder {
    /// Runs the task as `n` blocks, at least one. Cores take them one by one, several at a time.
    ///
    /// # Panics
    /// When `n` is 0 or does not fit 32 bits.
    #[track_caller]
    pub fn blocks(mut self, n: usize) -> Self {
        assert!(
            (1..=u32::MAX as usize).contains(&n),
            "task `{}` can't have {n} blocks",
            self.task.name
        );
        self.task.blocks = n;
        self
    }

    /// Reads an existing tensor: waits for its owner and for everybody who was told to write any of it.
    pub fn input(self, tensor: &Tensor) -> Self {
        self.argument(tensor, Direction::Input)
    }

    /// Reads and writes an existing tensor.
    ///
    /// As in the original, later writers do not wait for earlier readers: state that with [`Self::after`].
    pub fn inout(self, tensor: &Tensor) -> Self {
        self.argument(tensor, Direction::InOut)
    }

    /// Writes an existing tensor. Waits for its owner only: two such tasks on one tensor are not ordered.
    pub fn write(self, tensor: &Tensor) -> Self {
        self.argument(tensor, Direction::Write)
    }

    /// Produces a fresh tensor in the ring of the innermost scope.
    pub fn output(mut self, spec: TensorSpec) -> Self {
        self.task.outputs.push(spec);
        self
    }

    /// Waits for `producer`, and keeps it alive until this task completes.
    pub fn after(self, producer: TaskId) -> Self {
        self.depend(producer, true)
    }

    /// Waits for `producer`, without keeping it alive.
    pub fn after_order_only(self, producer: TaskId) -> Self {
        self.depend(producer, false)
    }

    /// Starts all blocks at the same time, each on a core of its own. More blocks than cores end the
    /// run with code 7.
    pub fn sync_start(mut self) -> Self {
        self.task.together = true;
        self
    }

    /// Each block runs `body`.
    pub fn run(mut self, body: impl Fn(&Block<'_>) + Send + Sync + 'static) -> Task {
        self.task.body = Some(Box::new(body));
        self.task
    }

    /// The task runs nothing: it completes once those that it waits for have.
    pub fn dependency_only(self) -> Task {
        self.task
    }

    fn argument(mut self, tensor: &Tensor, direction: Direction) -> Self {
        self.task.arguments.push(Argument {
            tensor: tensor.clone(),
            direction,
        });
        self
    }

    fn depend(mut self, producer: TaskId, retain: bool) -> Self {
        self.task.after.push(After { producer, retain });
        self
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("name", &self.name)
            .field("unit", &self.unit)
            .field("blocks", &self.blocks)
            .field("arguments", &self.arguments)
            .field("outputs", &self.outputs)
            .field("after", &self.after)
            .field("runs", &self.body.is_some())
            .finish_non_exhaustive()
    }
}

/// What became of a submitted task.
#[derive(Debug)]
pub struct Submitted {
    /// Its id, for explicit dependencies.
    pub id: TaskId,
    /// Its fresh outputs, in the order of their declaration.
    pub outputs: Vec<Tensor>,
}
