//! The graphs' file: one program a line.

use serde::Deserialize;

/// One program, with the least passing heaps that were found for it.
#[derive(Debug, Deserialize)]
pub(crate) struct Graph {
    pub(crate) id: String,
    pub(crate) ops: Vec<Op>,
    pub(crate) n_tasks: usize,
    pub(crate) n_tensors: usize,
    #[serde(default)]
    pub(crate) thresholds: Vec<Threshold>,
}

/// One step of a program.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(crate) enum Op {
    Scope {
        mode: Mode,
    },
    End,
    Alloc {
        task: usize,
        out: Vec<Output>,
    },
    Task(TaskOp),
    View {
        t: usize,
        of: usize,
        off: usize,
        len: usize,
    },
    Open {
        gate: usize,
    },
    Wait {
        t: usize,
    },
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    Auto,
    Manual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kernel {
    Aiv,
    Dummy,
}

/// A submitted task.
#[derive(Debug, Deserialize)]
pub(crate) struct TaskOp {
    pub(crate) task: usize,
    pub(crate) kernel: Kernel,
    pub(crate) blocks: usize,
    pub(crate) hold: Option<usize>,
    pub(crate) delay_us: u64,
    #[serde(rename = "in")]
    pub(crate) inputs: Vec<usize>,
    pub(crate) out: Vec<Output>,
    pub(crate) inout: Vec<usize>,
    pub(crate) write: Vec<usize>,
    pub(crate) deps: Vec<Dep>,
}

/// A fresh tensor of bytes.
#[derive(Debug, Deserialize)]
pub(crate) struct Output {
    pub(crate) t: usize,
    pub(crate) bytes: usize,
}

/// An explicit dependency.
#[derive(Debug, Deserialize)]
pub(crate) struct Dep {
    pub(crate) task: usize,
    pub(crate) retain: bool,
}

/// The least passing heap of one ring, all else being ample.
#[derive(Debug, Deserialize)]
pub(crate) struct Threshold {
    pub(crate) ring: usize,
    pub(crate) least_pass: u64,
    pub(crate) larger_heaps_that_fail: Vec<u64>,
}

impl Graph {
    /// Whether some task asks for 2 GiB of outputs or more: the original's sum wraps there.
    pub(crate) fn exceeds_two_gib(&self) -> bool {
        let sum = |out: &[Output]| out.iter().map(|o| o.bytes.next_multiple_of(1024)).sum::<usize>();
        self.ops.iter().any(|op| match op {
            Op::Alloc { out, .. } => sum(out) > i32::MAX as usize,
            Op::Task(task) => sum(&task.out) > i32::MAX as usize,
            Op::Scope { .. } | Op::End | Op::View { .. } | Op::Open { .. } | Op::Wait { .. } => false,
        })
    }

    /// Cores that tasks held at a gate can occupy at the same time, at most.
    pub(crate) fn held_blocks(&self) -> usize {
        let mut held: Vec<(usize, usize)> = Vec::new();
        let mut most = 0;
        for op in &self.ops {
            match op {
                Op::Task(TaskOp {
                    hold: Some(gate),
                    blocks,
                    ..
                }) => held.push((*gate, *blocks)),
                Op::Open { gate } => held.retain(|(of, _)| of != gate),
                Op::Scope { .. } | Op::End | Op::Alloc { .. } | Op::Task(_) | Op::View { .. } | Op::Wait { .. } => {}
            }
            most = most.max(held.iter().map(|(_, blocks)| blocks).sum());
        }
        most
    }
}
