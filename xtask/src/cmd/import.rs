//! `cargo xtask import`: the suite of a directory of pypto-lib programs.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{Context, Failure};
use crate::{
    case_id::is_word,
    exit::Exit,
    import::{self, Discovery},
};

/// What `import` takes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Read the programs of this directory of a checkout, not of those below it.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Name the suite [default: the directory's name].
    #[arg(long, value_name = "NAME")]
    pub suite: Option<String>,
    /// Write the suite anew where there is one, instead of telling what has drifted.
    #[arg(long)]
    pub force: bool,
}

/// Writes the suite, or, where it is there, tells the drift and ends with [`Exit::GateFailed`] if there is any.
pub fn run(args: &Args, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    let path = fs_err::canonicalize(&args.path).map_err(|error| Failure::usage(error.to_string()))?;
    let Some(checkout) = path.ancestors().find(|directory| directory.join("golden").is_dir()) else {
        let message = format!(
            "`{}` is in no pypto-lib checkout: no directory above it has `golden`",
            args.path.display()
        );
        return Err(Failure::usage(message));
    };
    let directory = path.strip_prefix(checkout).unwrap_or(&path).display().to_string();
    let name = match &args.suite {
        Some(name) => name.clone(),
        None => path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
    };
    if !is_word(&name) {
        return Err(Failure::usage(format!(
            "`{name}` is no name for a suite; give one with `--suite`"
        )));
    }
    let found = import::discover(&path)?;
    if found.programs.is_empty() {
        return Err(Failure::ending(
            Exit::NothingSelected,
            format!("no program in `{}` calls the harness", args.path.display()),
        ));
    }
    for skipped in &found.skipped {
        writeln!(context.err, "left out {}: {}", skipped.file, skipped.reason)?;
    }
    let file = context.cases.join(format!("{name}.toml"));
    if file.is_file() && !args.force {
        return tell_drift(&file, &directory, &found, context);
    }
    write(&file, &import::suite(&name, &directory, &found))?;
    writeln!(context.err, "{} programs in {}", found.programs.len(), file.display())?;
    Ok(Exit::Pass)
}

fn tell_drift(file: &Path, directory: &str, found: &Discovery, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    let text = fs_err::read_to_string(file)?;
    let drifts = import::drift(&text, directory, found)
        .map_err(|error| Failure::usage(format!("`{}`: {:#}", file.display(), anyhow::Error::from(error))))?;
    for drift in &drifts {
        writeln!(context.out, "{drift}")?;
    }
    writeln!(
        context.err,
        "{}: {} differences from the checkout",
        file.display(),
        drifts.len()
    )?;
    Ok(if drifts.is_empty() {
        Exit::Pass
    } else {
        Exit::GateFailed
    })
}

/// Writes beside the target first, so that an interrupted import leaves the suite as it was.
fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    let directory = file.parent().unwrap_or(file);
    let mut temporary = tempfile::NamedTempFile::new_in(directory)?;
    std::io::Write::write_all(&mut temporary, text.as_bytes())?;
    temporary
        .persist(file)
        .with_context(|| format!("failed to write `{}`", file.display()))?;
    Ok(())
}
