//! Time budgets of a case.

use std::time::Duration;

use crate::{duration, outcome::Budget};

/// The five budgets of a case, all in force at once.
///
/// `queue` stands alone: it is spent before the process exists. Of the others,
/// `silence ≤ run ≤ total` and `setup ≤ total` hold by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budgets {
    queue: Duration,
    setup: Duration,
    run: Duration,
    silence: Duration,
    total: Duration,
    queue_is_declared: bool,
}

/// What one layer says of the budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BudgetLayer {
    /// From the submission to a device queue until the process starts.
    pub queue: Option<Duration>,
    /// From the start of the process until its first dispatch begins.
    pub setup: Option<Duration>,
    /// From the beginning of the first dispatch until the process ends.
    pub run: Option<Duration>,
    /// Without a byte of output or a report line.
    pub silence: Option<Duration>,
    /// From the start of the process until it ends.
    pub total: Option<Duration>,
}

/// Two budgets that contradict each other: the smaller one could never run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("budget `{inner}` is {}, more than the {} of budget `{outer}`, so it could never run out", duration::show(*.inner_value), duration::show(*.outer_value), inner = .inner.token(), outer = .outer.token())]
pub struct BudgetOrder {
    /// The budget that must be the smaller one.
    pub inner: Budget,
    /// Its value.
    pub inner_value: Duration,
    /// The budget that must be the larger one.
    pub outer: Budget,
    /// Its value.
    pub outer_value: Duration,
}

impl BudgetLayer {
    /// One of the five.
    pub fn get(&self, budget: Budget) -> Option<Duration> {
        match budget {
            Budget::Queue => self.queue,
            Budget::Setup => self.setup,
            Budget::Run => self.run,
            Budget::Silence => self.silence,
            Budget::Total => self.total,
        }
    }

    /// `self`, with `weaker` where it is silent.
    #[must_use]
    pub fn over(self, weaker: Self) -> Self {
        Self {
            queue: self.queue.or(weaker.queue),
            setup: self.setup.or(weaker.setup),
            run: self.run.or(weaker.run),
            silence: self.silence.or(weaker.silence),
            total: self.total.or(weaker.total),
        }
    }

    /// The budgets with the defaults filled in. What is not set gives way to what is:
    /// `total = "60s"` alone also bounds `setup`, `run` and `silence`, and `run = "1h"` alone raises `total`.
    pub fn resolve(self) -> Result<Budgets, BudgetOrder> {
        let minutes = |n: u64| Duration::from_mins(n);
        let inner_max = [self.setup, self.run, self.silence]
            .into_iter()
            .flatten()
            .max()
            .unwrap_or_default();
        let total = self.total.unwrap_or(minutes(15).max(inner_max));
        let run = self
            .run
            .unwrap_or(minutes(10).max(self.silence.unwrap_or_default()).min(total));
        let budgets = Budgets {
            queue: self.queue.unwrap_or(minutes(60)),
            setup: self.setup.unwrap_or(minutes(5).min(total)),
            run,
            silence: self.silence.unwrap_or(minutes(5).min(run)),
            total,
            queue_is_declared: self.queue.is_some(),
        };
        let pairs = [
            (Budget::Silence, Budget::Run),
            (Budget::Run, Budget::Total),
            (Budget::Setup, Budget::Total),
            (Budget::Silence, Budget::Total),
        ];
        for (inner, outer) in pairs {
            let (inner_value, outer_value) = (budgets.get(inner), budgets.get(outer));
            if inner_value > outer_value {
                return Err(BudgetOrder {
                    inner,
                    inner_value,
                    outer,
                    outer_value,
                });
            }
        }
        Ok(budgets)
    }
}

impl Budgets {
    /// How long the case may wait, once it is the next one, for a slot or a device of this machine.
    ///
    /// Only where `queue` is declared: what holds the device is a case that this harness started, with budgets of its
    /// own, and those may be longer than any default.
    pub fn local_queue(&self) -> Option<Duration> {
        self.queue_is_declared.then_some(self.queue)
    }

    /// One of the five.
    pub fn get(&self, budget: Budget) -> Duration {
        match budget {
            Budget::Queue => self.queue,
            Budget::Setup => self.setup,
            Budget::Run => self.run,
            Budget::Silence => self.silence,
            Budget::Total => self.total,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_gives_way() {
        let layer = BudgetLayer {
            total: Some(Duration::from_mins(1)),
            ..BudgetLayer::default()
        };
        let budgets = layer.resolve().unwrap();
        for budget in [Budget::Setup, Budget::Run, Budget::Silence, Budget::Total] {
            assert_eq!(budgets.get(budget), Duration::from_mins(1));
        }
        let layer = BudgetLayer {
            run: Some(Duration::from_hours(1)),
            ..BudgetLayer::default()
        };
        assert_eq!(layer.resolve().unwrap().get(Budget::Total), Duration::from_hours(1));
        let layer = BudgetLayer {
            silence: Some(Duration::from_mins(20)),
            ..BudgetLayer::default()
        };
        assert_eq!(layer.resolve().unwrap().get(Budget::Run), Duration::from_mins(20));
    }

    #[test]
    fn budgets_that_could_never_run_out_are_refused() {
        let layer = BudgetLayer {
            run: Some(Duration::from_secs(30)),
            silence: Some(Duration::from_mins(1)),
            ..BudgetLayer::default()
        };
        assert_eq!(
            layer.resolve().unwrap_err().to_string(),
            "budget `silence` is 1m, more than the 30s of budget `run`, so it could never run out"
        );
        let layer = BudgetLayer {
            total: Some(Duration::from_secs(30)),
            setup: Some(Duration::from_mins(1)),
            ..BudgetLayer::default()
        };
        assert!(layer.resolve().is_err());
    }
}
