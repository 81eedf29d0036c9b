//! A suite for discovered programs, to be reviewed and committed.

use std::fmt::Write as _;

use super::program::{Discovery, Program};
use crate::size::Bytes;

/// The simulators, which a `no-sim` program is not run on.
const SIMULATORS: &str = "\"a2a3sim\", \"a5sim\"";

/// The text of suite `name` for the programs that stand in `directory` of the checkout.
///
/// Writing to a string can't fail, so the results of `write!` are dropped.
pub fn suite(name: &str, directory: &str, found: &Discovery) -> String {
    let mut text = format!(
        "# Written by `cargo xtask import` from `{directory}` of a pypto-lib checkout, then reviewed by hand.\n\
         # Run the same command again to see what has drifted.\n\n\
         [suite]\nname = \"{name}\"\ndescription = \"Programs of {directory}.\"\n\n\
         [defaults]\nplatforms = [{SIMULATORS}, \"a2a3\", \"a5\"]\nbench = {{ warmup = 5, rounds = 100 }}\n"
    );
    for program in &found.programs {
        if program.calls > 1 && program.modes.is_empty() {
            let _ = write!(
                text,
                "\n# {} calls of the harness and no `--mode` to choose one: its benchmarks can't be told apart.",
                program.calls
            );
        }
        if program.modes.is_empty() {
            case(&mut text, &program.name, directory, program, None);
        }
        for mode in &program.modes {
            case(
                &mut text,
                &format!("{}_{mode}", program.name),
                directory,
                program,
                Some(mode),
            );
        }
    }
    text
}

fn case(text: &mut String, name: &str, directory: &str, program: &Program, mode: Option<&str>) {
    let args = mode
        .map(|mode| format!(", args = [\"--mode\", \"{mode}\"]"))
        .unwrap_or_default();
    let quoted: Vec<_> = program.markers.iter().map(|marker| format!("{marker:?}")).collect();
    let markers = if quoted.is_empty() {
        String::new()
    } else {
        format!(", markers = [{}]", quoted.join(", "))
    };
    let path = format!("{directory}/{}.py", program.name);
    let _ = write!(
        text,
        "\n[[case]]\nname = \"{name}\"\npypto = {{ program = \"{path}\"{args}{markers} }}\n"
    );
    let _ = if program.ranks > 1 {
        writeln!(text, "level = \"L3\"\nranks = {}", program.ranks)
    } else {
        writeln!(text, "level = \"L2\"")
    };
    if let Some(heap) = program.heap {
        let sizes = heap.map(|bytes| {
            if bytes == 0 {
                "0".into()
            } else {
                format!("\"{}\"", Bytes::new(bytes))
            }
        });
        let _ = writeln!(text, "ring.heap = [{}]", sizes.join(", "));
    }
    if program.is_marked("no-sim") {
        let _ = writeln!(text, "skip = {{ on = [{SIMULATORS}], reason = \"marked no-sim\" }}");
    }
}
