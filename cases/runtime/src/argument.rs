//! What a task declares that it touches.

use crate::tensor::Tensor;

/// How a task uses an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Reads an existing tensor.
    Input,
    /// Reads and writes an existing tensor.
    InOut,
    /// Writes an existing tensor whose former content doesn't matter.
    Write,
    /// Produces a fresh tensor in the task's own ring.
    Output,
}

impl Direction {
    /// Whether the task may read through the argument. A task may read back what it wrote itself,
    /// so only the scheduler tells `Write` from `InOut`.
    pub(crate) fn readable(self) -> bool {
        match self {
            Self::Input | Self::InOut | Self::Write | Self::Output => true,
        }
    }

    /// Whether the task may write through the argument.
    pub(crate) fn writable(self) -> bool {
        match self {
            Self::Input => false,
            Self::InOut | Self::Write | Self::Output => true,
        }
    }
}

/// One argument of a submitted task.
#[derive(Clone, Debug)]
pub(crate) struct Argument {
    pub(crate) tensor: Tensor,
    pub(crate) direction: Direction,
}
