//! `cargo xtask diff`: what changed from one run to another, case by case.

use super::{Context, comparing};
use crate::{
    compare::{Comparison, LatencyVerdict, OutcomeChange, Standing},
    exit::Exit,
    report::{Format, Report},
};

/// What `diff` takes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The reference: a run (id, directory or `latest`), `baseline` or `release`.
    #[arg(value_name = "A")]
    pub base: String,
    /// The run: id, directory or `latest`.
    #[arg(value_name = "B", default_value = "latest")]
    pub now: String,
    /// How it is shown.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// Shows what changed; ends with 1 if something became worse, 5 if nothing could be compared.
pub fn run(args: &Args, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    let gates = comparing::gate_file(context)?;
    let with = comparing::compare_context(context, &gates)?;
    let (_, run) = comparing::read_run(context, &args.now)?;
    let comparison = comparing::against(context, &run, &args.base, &with)?;
    Report::new(&run, &comparison, None).render(args.format, context.out)?;
    Ok(exit(&comparison))
}

fn exit(comparison: &Comparison) -> Exit {
    match comparison.standing {
        Standing::Compared(_) => {}
        Standing::EmptyRun => return Exit::NothingSelected,
        Standing::NoBaseline | Standing::NothingInCommon | Standing::OtherPlatform | Standing::SameRun => {
            return Exit::NotComparable;
        }
    }
    let worse = comparison.cases.iter().any(|diff| {
        let slower = matches!(diff.final_latency(), LatencyVerdict::Slower(_));
        let worse = matches!(
            diff.change,
            OutcomeChange::Regressed
                | OutcomeChange::Missing
                | OutcomeChange::ChangedCause
                | OutcomeChange::NewFailing
                | OutcomeChange::NewlySkipped
        );
        slower || worse
    });
    if worse { Exit::GateFailed } else { Exit::Pass }
}
