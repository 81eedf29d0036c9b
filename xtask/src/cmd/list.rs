//! `cargo xtask list`: the declared cases.

use super::{Context, planning::Declared};
use crate::{
    cli::{BenchArgs, RingArgs, SelectArgs},
    exit::Exit,
    kernels::Kernels,
    listing,
    suite::budget::BudgetLayer,
};

/// What `list` takes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print a table or JSON.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Which cases.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Rings to resolve them with.
    #[command(flatten)]
    pub rings: RingArgs,
    /// Sizes to resolve them with.
    #[command(flatten)]
    pub bench: BenchArgs,
}

/// How cases are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// One object with everything that a plan knows.
    Json,
}

/// Lists the selected cases.
pub fn run(args: &Args, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    let declared = Declared::load(context)?;
    if let Kernels::Unknown(reason) = &declared.kernels {
        writeln!(
            context.err,
            "warning: kernels and their parameters go unchecked: {reason}"
        )?;
    }
    let plan = declared.plan(&args.select, &args.rings, &args.bench, BudgetLayer::default())?;
    let text = match args.format {
        Format::Table => listing::table(&plan),
        Format::Json => listing::json(&plan),
    };
    writeln!(context.out, "{text}")?;
    if args.format == Format::Table {
        writeln!(context.err, "{}", listing::summary(&plan))?;
    }
    Ok(Exit::Pass)
}
