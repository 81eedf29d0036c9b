//! What of a directory is a program to be swept.

use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use super::source::{code, integer};

/// A program that calls the harness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// File name without its extension.
    pub name: String,
    /// Its `# ci:` markers, as written, sorted.
    pub markers: Vec<String>,
    /// Devices that it spans, from its `devices=N` marker; 1 without.
    pub ranks: u32,
    /// Modes that its `--mode` offers, without one that stands for all; empty where it has none.
    pub modes: Vec<String>,
    /// Calls of the harness in its source.
    pub calls: usize,
    /// Heap bytes per ring that it asks for in its own source.
    pub heap: Option<[u64; 4]>,
}

impl Program {
    /// Whether `marker` is one of its markers.
    pub fn is_marked(&self, marker: &str) -> bool {
        self.markers.iter().any(|own| own == marker)
    }
}

/// A file that is no program, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// File name.
    pub file: String,
    /// Why.
    pub reason: &'static str,
}

/// What a directory holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Programs, by name.
    pub programs: Vec<Program>,
    /// Files that could be taken for programs, by name.
    pub skipped: Vec<Skipped>,
}

/// Files that drive other programs, or are no program yet.
const EXCLUDED: &[&str] = &["synthetic_token_loop.py"];

struct Patterns {
    main: Regex,
    call: Regex,
    import: Regex,
    marker: Regex,
    mode: Regex,
    word: Regex,
    environment: Regex,
    option: Regex,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let compile = |pattern| Regex::new(pattern).expect("the patterns are constant and tested");
    Patterns {
        main: compile(r#"(?m)^if __name__ == ['"]__main__['"]"#),
        call: compile(r"\brun_jit\s*\("),
        import: compile(r"(?m)^\s*(?:from golden\b|import golden\b)"),
        marker: compile(r"(?m)^#\s*ci:\s*(.*?)\s*$"),
        mode: compile(r#"add_argument\(\s*['"]--mode['"][^)]*?choices\s*=\s*[\[(]([^\])]*)[\])]"#),
        word: compile(r#"['"]([A-Za-z0-9_-]+)['"]"#),
        environment: compile(
            r#"environ(?:\.setdefault\(\s*|\[)['"]PTO2_RING_HEAP['"](?:\s*,|\]\s*=)\s*f?['"]([^'"]*)['"]"#,
        ),
        option: compile(r#"['"]?\bring_heap['"]?\s*[:=]\s*[\[(]([^\])]*)[\])]"#),
    }
});

/// Reads the programs of `directory`, not of directories below it.
pub fn discover(directory: &Path) -> std::io::Result<Discovery> {
    let mut files: Vec<_> = fs_err::read_dir(directory)?.collect::<Result<_, _>>()?;
    files.sort_by_key(fs_err::DirEntry::file_name);
    let mut found = Discovery::default();
    for file in files {
        let name = file.file_name().to_string_lossy().into_owned();
        let Some(stem) = name.strip_suffix(".py").filter(|_| file.path().is_file()) else {
            continue;
        };
        let source = String::from_utf8_lossy(&fs_err::read(file.path())?).into_owned();
        match read(stem, &source) {
            Ok(program) => found.programs.push(program),
            Err(Some(reason)) => found.skipped.push(Skipped { file: name, reason }),
            Err(None) => {}
        }
    }
    Ok(found)
}

/// The program in `source`; else why it is none, where it could be taken for one.
fn read(name: &str, source: &str) -> Result<Program, Option<&'static str>> {
    let patterns = &*PATTERNS;
    let code = code(source);
    if !patterns.main.is_match(&code) {
        return Err(None);
    }
    if name.ends_with("_draft") {
        return Err(Some("a draft"));
    }
    if EXCLUDED.contains(&format!("{name}.py").as_str()) {
        return Err(Some("it drives other programs"));
    }
    let calls = patterns.call.find_iter(&code).count();
    if calls == 0 || !patterns.import.is_match(&code) {
        return Err(Some("it doesn't call the harness"));
    }
    let mut markers: Vec<String> = patterns
        .marker
        .captures_iter(source)
        .flat_map(|line| {
            line[1]
                .split([',', ';'])
                .map(|marker| marker.trim().to_owned())
                .collect::<Vec<_>>()
        })
        .filter(|marker| !marker.is_empty())
        .collect();
    markers.sort();
    markers.dedup();
    let devices = markers.iter().find_map(|marker| marker.strip_prefix("devices="));
    let modes = patterns.mode.captures(&code).map_or(Vec::new(), |found| {
        let words = patterns
            .word
            .captures_iter(found.get(1).map_or("", |list| list.as_str()));
        words
            .map(|word| word[1].to_owned())
            .filter(|mode| mode != "all")
            .collect()
    });
    Ok(Program {
        name: name.to_owned(),
        ranks: devices.and_then(|devices| devices.parse().ok()).unwrap_or(1),
        markers,
        modes,
        calls,
        heap: heap(&code),
    })
}

/// Heap bytes that the source names as literals: a variable it sets, or a `ring_heap` option.
fn heap(code: &str) -> Option<[u64; 4]> {
    let patterns = &*PATTERNS;
    let found = patterns
        .environment
        .captures(code)
        .or_else(|| patterns.option.captures(code))?;
    let entries: Option<Vec<u64>> = found[1]
        .split(',')
        .filter(|entry| !entry.trim().is_empty())
        .map(integer)
        .collect();
    match entries?.as_slice() {
        [all] => Some([*all; 4]),
        [a, b, c, d] => Some([*a, *b, *c, *d]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: &str = "\nfrom golden import run_jit\nif __name__ == \"__main__\":\n    run_jit(x)\n";

    #[test]
    fn markers_are_split_and_sorted() {
        let program = read("a", &format!("# ci: no-sim; devices=2\n# ci: no-dep-gen{TAIL}")).unwrap();
        assert_eq!(program.markers, ["devices=2", "no-dep-gen", "no-sim"]);
        assert_eq!((program.ranks, program.calls, program.modes.len()), (2, 1, 0));
    }

    #[test]
    fn heaps_are_read_where_they_are_plain() {
        let of = |line: &str| read("a", &format!("{line}{TAIL}")).unwrap().heap;
        assert_eq!(
            of("os.environ.setdefault(\"PTO2_RING_HEAP\", \"4294967296,4294967296,4294967296,4294967296\")"),
            Some([4 << 30; 4])
        );
        assert_eq!(
            of("os.environ.setdefault('PTO2_RING_HEAP', '1073741824')"),
            Some([1 << 30; 4])
        );
        assert_eq!(
            of("runtime_cfg = {\"ring_heap\": (0, 0, 2 * 1024 ** 3, 0)}"),
            Some([0, 0, 2 << 30, 0])
        );
        assert_eq!(of("runtime_cfg = dict(ring_heap=(GIB, GIB, GIB, GIB))"), None);
        assert_eq!(of("# ring_heap = (1, 2, 3, 4)"), None);
    }

    #[test]
    fn only_files_that_call_the_harness_are_programs() {
        assert_eq!(read("a_draft", TAIL), Err(Some("a draft")));
        assert_eq!(
            read("synthetic_token_loop", TAIL),
            Err(Some("it drives other programs"))
        );
        assert_eq!(read("config", "HIDDEN = 1\n"), Err(None));
        let cli = "'''calls run_jit( elsewhere'''\nif __name__ == '__main__':\n    main()  # run_jit(\n";
        assert_eq!(read("weights", cli), Err(Some("it doesn't call the harness")));
    }
}
