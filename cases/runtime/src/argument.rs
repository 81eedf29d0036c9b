//! What a task declares that it touches.

use std::fmt;

use crate::claims::Access;
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
    /// Whether a block may access the argument so.
    ///
    /// A fresh output may be read back; a write-only argument may not, since the scheduler orders
    /// the task behind none of its earlier writers.
    pub(crate) fn allows(self, access: Access) -> bool {
        match (self, access) {
            (Self::Input | Self::InOut | Self::Output, Access::Read)
            | (Self::InOut | Self::Write | Self::Output, Access::Write) => true,
            (Self::Input, Access::Write) | (Self::Write, Access::Read) => false,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::InOut => "inout",
            Self::Write => "write",
            Self::Output => "output",
        })
    }
}

/// One argument of a submitted task. Fresh outputs stand among them once they have their place.
#[derive(Clone, Debug)]
pub(crate) struct Argument {
    pub(crate) tensor: Tensor,
    pub(crate) direction: Direction,
}
