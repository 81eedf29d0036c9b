//! What `sweep` takes.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use crate::cli::{BenchArgs, RingArgs, SelectArgs};
use crate::duration;
use crate::outcome::Budget;
use crate::suite::budget::BudgetLayer;

/// What `sweep` takes.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Which cases.
    #[command(flatten)]
    pub select: SelectArgs,
    /// The strongest tier of ring configuration.
    #[command(flatten)]
    pub rings: RingArgs,
    /// Sizes of the benchmark.
    #[command(flatten)]
    pub bench: BenchArgs,
    /// Run at most this many cases at once: a number, or `cpus`.
    #[arg(long, value_name = "N", default_value_t = Jobs::Cpus, help_heading = "Running")]
    pub jobs: Jobs,
    /// Let cases that benchmark run beside others; their samples suffer.
    #[arg(long, help_heading = "Running")]
    pub overlap_benchmarks: bool,
    /// Run every case in this many processes, the repeats of all cases interleaved.
    #[arg(long, value_name = "K", default_value_t = NonZeroUsize::MIN, help_heading = "Running")]
    pub repeat: NonZeroUsize,
    /// Don't measure suspects of a slowdown again.
    #[arg(long, help_heading = "Running")]
    pub no_confirm: bool,
    /// Begin no further process run of a suspect after this time; those that are left stay unconfirmed. The slowest
    /// come first; where all cases moved together, a few cheap ones before them.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "15m", help_heading = "Running")]
    pub confirm_within: Duration,
    /// Run only part K of N of the selected cases.
    #[arg(long, value_name = "K/N", help_heading = "Running")]
    pub shard: Option<Shard>,
    /// Limit each process altogether (short for `--budget total=…`).
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = "Running")]
    pub timeout: Option<Duration>,
    /// Set one budget of every case: queue, setup, run, silence or total (repeatable).
    #[arg(long, value_name = "NAME=DURATION", value_parser = budget, help_heading = "Running")]
    pub budget: Vec<(Budget, Duration)>,
    /// Start no case after this time; those that are left are missing.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = "Running")]
    pub deadline: Option<Duration>,
    /// Finish an incomplete run with the options that it was started with: its id, its path or `latest`.
    #[arg(long, value_name = "RUN", help_heading = "Running")]
    pub resume: Option<String>,
    /// Show all four rings of every case.
    #[arg(long, help_heading = "Output")]
    pub all_rings: bool,
    /// Judge the run by this policy of `gate.toml`.
    #[arg(long, value_name = "NAME", default_value = "ci", help_heading = "Output")]
    pub policy: String,
}

impl Args {
    /// The budgets of the command line.
    pub fn budget_layer(&self) -> BudgetLayer {
        let mut layer = BudgetLayer {
            total: self.timeout,
            ..BudgetLayer::default()
        };
        for (budget, length) in &self.budget {
            let of = match budget {
                Budget::Queue => &mut layer.queue,
                Budget::Setup => &mut layer.setup,
                Budget::Run => &mut layer.run,
                Budget::Silence => &mut layer.silence,
                Budget::Total => &mut layer.total,
            };
            *of = Some(*length);
        }
        layer
    }
}

fn budget(text: &str) -> Result<(Budget, Duration), String> {
    let (name, length) = text
        .split_once('=')
        .ok_or("write NAME=DURATION, such as `silence=30s`")?;
    let known = || {
        Budget::ALL
            .iter()
            .map(|budget| budget.token())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let budget = Budget::from_token(name).ok_or_else(|| format!("unknown budget `{name}`; budgets are {}", known()))?;
    let length = duration::parse(length).map_err(|error| error.to_string())?;
    Ok((budget, length))
}

/// How many cases at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jobs {
    /// This many.
    Count(NonZeroUsize),
    /// As many as there are processors.
    Cpus,
}

impl fmt::Display for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Cpus => f.write_str("cpus"),
        }
    }
}

impl FromStr for Jobs {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "cpus" {
            return Ok(Self::Cpus);
        }
        text.parse()
            .map(Self::Count)
            .map_err(|_| "write a number from 1 on, or `cpus`")
    }
}

/// Part `index` of `count`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    pub index: u32,
    /// At least `index`.
    pub count: u32,
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl FromStr for Shard {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text
            .split_once('/')
            .and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match parts {
            Some((index, count)) if 1 <= index && index <= count => Ok(Self { index, count }),
            _ => Err("write K/N with 1 ≤ K ≤ N"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_jobs_and_budgets_are_checked() {
        assert_eq!("2/3".parse(), Ok(Shard { index: 2, count: 3 }));
        for bad in ["0/3", "4/3", "1", "a/b", "1/0", ""] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
        assert_eq!("cpus".parse(), Ok(Jobs::Cpus));
        assert!("0".parse::<Jobs>().is_err());
        assert_eq!(budget("silence=30s"), Ok((Budget::Silence, Duration::from_secs(30))));
        assert!(
            budget("quiet=30s")
                .unwrap_err()
                .contains("queue, setup, run, silence, total")
        );
        assert!(budget("30s").is_err());
    }
}
