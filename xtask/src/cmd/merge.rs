//! `cargo xtask merge`: the shards of one sweep as one run.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{Context, Failure, comparing};
use crate::{
    count::counted,
    exit::Exit,
    format::{RecordWire, RunWire, read::RecordsHeader},
    merge,
    record::Run,
};

/// What `merge` takes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shards: ids or directories.
    #[arg(value_name = "SHARD", required = true)]
    pub shards: Vec<String>,
    /// Id of the merged run.
    #[arg(long, value_name = "ID")]
    pub id: String,
}

/// Merges, or names everything that keeps the shards from being one run.
pub fn run(args: &Args, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if args.id.is_empty() || !args.id.chars().all(plain) {
        return Err(Failure::usage("an id holds letters, digits, `-` and `_`"));
    }
    let mut shards = Vec::new();
    let mut dirs = Vec::new();
    for shard in &args.shards {
        let (dir, run) = comparing::read_run(context, shard)?;
        dirs.push(dir);
        shards.push(run);
    }
    let merged = merge::merge(&shards, &args.id).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Failure::ending(
            Exit::NotComparable,
            format!("the shards are not one run:\n{}", errors.join("\n")),
        )
    })?;
    let target = context.results.join(crate::run_dir::RUNS).join(&args.id);
    write(&target, &merged, &dirs).with_context(|| format!("failed to write `{}`", target.display()))?;
    writeln!(
        context.err,
        "{}, {}, {}: run {}",
        counted(shards.len(), "shard"),
        counted(merged.provenance.planned.len(), "case"),
        counted(merged.records.len(), "record"),
        args.id
    )?;
    Ok(Exit::Pass)
}

/// Writes the run into a directory that doesn't exist yet; `run.json` last, since it is what makes a run of a directory.
fn write(target: &Path, run: &Run, shards: &[PathBuf]) -> anyhow::Result<()> {
    if let Some(parent) = target.parent() {
        fs_err::create_dir_all(parent)?;
    }
    fs_err::create_dir(target)?;
    fs_err::create_dir(target.join("logs"))?;
    for shard in shards {
        copy_tree(&shard.join("logs"), &target.join("logs"))?;
    }
    let mut file = std::io::BufWriter::new(fs_err::File::create(target.join("records.jsonl"))?);
    serde_json::to_writer(&mut file, &RecordsHeader::new(&run.provenance.run_id))?;
    writeln!(file)?;
    for record in &run.records {
        serde_json::to_writer(&mut file, &RecordWire::new(record))?;
        writeln!(file)?;
    }
    file.flush()?;
    file.get_ref().sync_all()?;
    let text = serde_json::to_string_pretty(&RunWire::new(&run.provenance))?;
    let mut file = tempfile::NamedTempFile::new_in(target)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(target.join("run.json"))?;
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    if !from.is_dir() {
        return Ok(());
    }
    fs_err::create_dir_all(to)?;
    for entry in fs_err::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs_err::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
