//! `cargo xtask list`: the declared cases.

use super::Context;
use crate::{cli::SelectArgs, exit::Exit};

/// What `list` takes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Which cases.
    #[command(flatten)]
    pub select: SelectArgs,
}

/// Lists the selected cases.
pub fn run(args: &Args, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    writeln!(
        context.err,
        "{} in {}",
        args.select.filters.join(" "),
        context.cases.display()
    )?;
    Ok(Exit::NothingSelected)
}
