//! What shows an outcome: quoted lines, where they stand, and the facts in them.

/// Most lines that a record quotes.
pub const MAX_LINES: usize = 12;

/// Most bytes of one quoted line.
pub const MAX_LINE_BYTES: usize = 400;

/// One quoted line of a case's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvidenceLine {
    /// Line in the log, from 1.
    pub line: u64,
    /// Text, made printable and cut to [`MAX_LINE_BYTES`].
    pub text: String,
}

/// What shows an outcome.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Evidence {
    /// One sentence for the table: what happened, with its numbers.
    pub summary: String,
    /// Where the verdict comes from: `report`, `rule:<name>`, `exit-status`, `supervisor`, `plan`.
    pub source: String,
    /// Quoted lines, at most [`MAX_LINES`].
    pub lines: Vec<EvidenceLine>,
    /// Typed facts.
    pub detail: Option<Detail>,
    /// Later failures of the same attempt, which are fallout: `kind/cause`.
    pub fallout: Vec<String>,
}

impl Evidence {
    /// Whether `text` stands in the summary, in a quoted line or in the fallout.
    pub fn shows(&self, text: &str) -> bool {
        let lines = self.lines.iter().map(|line| &line.text);
        std::iter::once(&self.summary)
            .chain(lines)
            .chain(&self.fallout)
            .any(|shown| shown.contains(text))
    }
}

/// Facts of one kind of outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum Detail {
    /// A runtime resource could not admit more.
    Ring(RingShortage),
    /// Nothing progressed.
    Stall(StallFacts),
    /// Outputs that failed their comparison.
    Tensors(Vec<TensorFacts>),
}

/// Which resource ran out, and by how much.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RingShortage {
    /// Code of the runtime.
    pub code: Option<i64>,
    /// `heap`, `slots`, `dep_pool`, `fanin_pool`, `scope`, `tensormap`, …
    pub resource: String,
    /// Ring, 0 to 3.
    pub ring: Option<u8>,
    /// Bytes or entries that were asked for.
    pub requested: Option<u64>,
    /// Bytes or entries that were free.
    pub free: Option<u64>,
    /// Bytes or entries that there are.
    pub capacity: Option<u64>,
    /// `immediate`, `structural` (proven) or `backstop` (a timer).
    pub proof: Option<String>,
    /// The task that was being submitted.
    pub task: Option<String>,
    /// The oldest live task of the ring.
    pub head_task: Option<String>,
    /// Whether any task had reached a core before.
    pub launched: Option<bool>,
}

/// State of the runtime when the watchdog fired.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StallFacts {
    /// Tasks completed.
    pub completed: Option<u64>,
    /// Tasks submitted.
    pub total: Option<u64>,
    /// Tasks on a core.
    pub running: Option<u64>,
    /// Tasks ready to run.
    pub ready: Option<u64>,
    /// Tasks that wait on others.
    pub waiting: Option<u64>,
    /// The orchestrator had finished.
    pub orch_done: Option<bool>,
    /// The task that doesn't end.
    pub stuck_task: Option<String>,
    /// Its core.
    pub stuck_core: Option<i64>,
}

/// One output that failed its comparison.
///
/// Numbers that may be non-finite are text (`NaN`, `inf`), since they are only shown.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TensorFacts {
    /// Name of the output.
    pub name: String,
    /// `mismatch`, `nan` or `golden-nan`.
    pub verdict: String,
    /// Rule of the comparison.
    pub rule: String,
    /// Elements.
    pub total: u64,
    /// Elements out of tolerance, or non-finite.
    pub mismatched: u64,
    /// Elements that may be out of tolerance.
    pub allowed: u64,
    /// Largest absolute error.
    pub max_abs_err: Option<String>,
    /// Largest relative error.
    pub max_rel_err: Option<String>,
    /// Index of the first bad element.
    pub first_index: Vec<u64>,
    /// Its value.
    pub actual: Option<String>,
    /// The golden's value there.
    pub expected: Option<String>,
    /// First row with a non-finite value.
    pub first_row: Option<u64>,
    /// Rows in which every element is NaN.
    pub all_nan_rows: Option<u64>,
}
