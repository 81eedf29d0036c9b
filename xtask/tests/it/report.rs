//! The same verdicts in every format, escaped for each.

use xtask::baseline;
use xtask::compare;
use xtask::gate;
use xtask::record::{EvidenceLine, Expectation, Run};
use xtask::report::{Format, Report};

use crate::compare::{BASE, accepted, context, scaled};
use crate::gate::committed;
use crate::sweep::{With as _, record, repeats, run, with};

const FORMATS: [Format; 7] = [
    Format::Table,
    Format::Markdown,
    Format::Junit,
    Format::Csv,
    Format::Json,
    Format::Html,
    Format::Github,
];

/// Text that means something to each medium.
const HOSTILE: &str = "::error file=x::owned ##[error]x =cmd|'/C calc'!A0 <script>alert(1)</script> | `x` @team \u{1b}[31m \u{0} \u{fffe} ]]> &amp; https://evil.example $(id)";

pub(crate) fn rendered(base: &Run, now: &Run, format: Format) -> String {
    let baseline: baseline::Baseline = accepted(base);
    let comparison = compare::against_baseline(now, &baseline, &context());
    let verdict = gate::decide(committed().policy("ci").unwrap(), &comparison, now);
    let mut out = Vec::new();
    Report::new(now, &comparison, Some(&verdict))
        .render(format, &mut out)
        .unwrap();
    String::from_utf8(out).unwrap()
}

/// One case of most kinds.
pub(crate) fn scene() -> (Run, Run) {
    let base = [
        repeats("pro/rmsnorm@mode=decode", &BASE),
        repeats("pro/rmsnorm@mode=prefill", &BASE),
        repeats("pro/hc_pre", &BASE[..1]),
        vec![
            record("pro/attention").heap(300 << 20, 512 << 20),
            record("pro/known").outcome("stall/S4"),
            record("pro/gone"),
            record("pro/skipped").outcome("skipped/needs two ranks"),
        ],
    ];
    let mut deadlock = record("pro/attention")
        .outcome("deadlock/heap-ring")
        .heap(256 << 20, 256 << 20);
    deadlock.evidence.summary = "ring 1 heap: 8388608 bytes asked, 4194304 of 268435456 free".into();
    deadlock.evidence.lines = vec![EvidenceLine {
        line: 17,
        text: "FATAL: Deadlock Detected".into(),
    }];
    let now = [
        repeats("pro/rmsnorm@mode=decode", &scaled(1.2)),
        repeats("pro/rmsnorm@mode=prefill", &scaled(1.0)),
        repeats("pro/hc_pre", &[1_150_000]),
        vec![
            deadlock,
            record("pro/known").outcome("stall/S4"),
            record("pro/skipped").outcome("skipped/needs two ranks"),
            record("pro/new").expecting(Expectation::UnexpectedPass),
        ],
    ];
    (
        with(run("base"), base.concat()),
        with(run("20261201-100000-ab12"), now.concat()),
    )
}

#[test]
fn every_format_says_the_same_verdicts() {
    let (base, now) = scene();
    for format in FORMATS {
        let text = rendered(&base, &now, format);
        for word in ["regressed", "missing", "unexpected-pass", "slower"] {
            assert!(text.contains(word), "{format:?} lacks {word}:\n{text}");
        }
        // Annotations tell findings; the others tell every case.
        if format != Format::Github {
            for case in ["attention", "gone", "hc_pre", "known", "skipped"] {
                assert!(text.replace('\\', "").contains(case), "{format:?} lacks {case}");
            }
        }
    }
}

#[test]
fn the_table_reads_worst_first() {
    let (base, now) = scene();
    insta::assert_snapshot!(rendered(&base, &now, Format::Table));
}

#[test]
fn markdown_folds_what_is_quiet() {
    let (base, now) = scene();
    insta::assert_snapshot!(rendered(&base, &now, Format::Markdown));
}

#[test]
fn junit_holds_each_case_once() {
    let (base, now) = scene();
    let text = rendered(&base, &now, Format::Junit);
    insta::assert_snapshot!(text);
    let document = quick_junit::Report::deserialize_from_str(&text).unwrap();
    assert_eq!(document.tests, 8);
    assert_eq!((document.failures, document.errors), (3, 1));
}

#[test]
fn annotations_are_commands_of_ours_only() {
    let (base, now) = scene();
    insta::assert_snapshot!(rendered(&base, &now, Format::Github));
}

#[test]
fn csv_has_one_row_a_case() {
    let (base, now) = scene();
    let text = rendered(&base, &now, Format::Csv);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 8);
    insta::assert_snapshot!(text);
}

#[test]
fn json_holds_both_p_values() {
    let (base, now) = scene();
    let json: serde_json::Value = serde_json::from_str(&rendered(&base, &now, Format::Json)).unwrap();
    assert_eq!(json["format"], "ringsweep-report");
    assert_eq!(json["cases"].as_array().unwrap().len(), 8);
    assert_eq!(json["gate"]["passed"], false);
    let cases = json["cases"].as_array().unwrap();
    let slower = cases
        .iter()
        .find(|case| case["latency"]["verdict"] == "slower")
        .unwrap();
    let (raw, adjusted) = (&slower["latency"]["p_raw"], &slower["latency"]["p_adjusted"]);
    assert!(raw.as_f64().unwrap() < adjusted.as_f64().unwrap());
}

pub(crate) fn hostile() -> (Run, Run) {
    let base = with(run("base"), [record("s/k")]);
    let mut bad = record("s/k").outcome("mismatch/output");
    bad.evidence.summary = HOSTILE.into();
    bad.evidence.lines = vec![EvidenceLine {
        line: 1,
        text: HOSTILE.into(),
    }];
    bad.log = Some("javascript:alert(1)".into());
    let mut skipped = record("s/l");
    skipped.outcome = xtask::outcome::Outcome::Skipped(HOSTILE.into());
    (base, with(run("now"), [bad, skipped]))
}

#[test]
fn hostile_output_is_never_interpreted() {
    let (base, now) = hostile();
    for format in FORMATS {
        let text = rendered(&base, &now, format);
        assert!(
            !text.contains('\u{1b}') && !text.contains('\0'),
            "{format:?} lets control characters through"
        );
        if format == Format::Json {
            serde_json::from_str::<serde_json::Value>(&text).unwrap();
            continue;
        }
        assert!(!text.contains("##["), "{format:?} lets an old workflow command through");
        for line in text.lines().filter(|line| line.trim_start().starts_with("::")) {
            assert!(
                format == Format::Github,
                "{format:?} lets a workflow command through: {line}"
            );
            let ours = ["::error title=", "::warning title=", "::notice title="];
            assert!(ours.iter().any(|start| line.starts_with(start)), "{line}");
        }
    }
    let html = rendered(&base, &now, Format::Html);
    assert!(!html.contains("<script") && !html.contains("href=\"javascript:"));
    let markdown = rendered(&base, &now, Format::Markdown);
    assert!(!markdown.contains("<script") && !markdown.contains("@team") && !markdown.contains("https://"));
    let junit = rendered(&base, &now, Format::Junit);
    assert!(!junit.contains("<script") && !junit.contains('\u{fffe}'));
    quick_junit::Report::deserialize_from_str(&junit).unwrap();
    let csv = rendered(&base, &now, Format::Csv);
    for row in csv::Reader::from_reader(csv.as_bytes()).records() {
        for cell in &row.unwrap() {
            assert!(!cell.starts_with(['=', '+', '-', '@']), "{cell}");
        }
    }
}

#[test]
fn a_formula_as_first_character_is_text_in_a_spreadsheet() {
    let base = with(run("base"), [record("s/k")]);
    let mut bad = record("s/k").outcome("mismatch/output");
    bad.evidence.summary = "=HYPERLINK(\"x\")".into();
    let csv = rendered(&base, &with(run("now"), [bad]), Format::Csv);
    assert!(csv.contains("'=HYPERLINK"), "{csv}");
}

#[test]
fn reports_for_people_are_bounded_and_say_what_they_left_out() {
    let names: Vec<String> = (0..6_000).map(|n| format!("s/case-{n:05}")).collect();
    let base = with(run("base"), names.iter().map(|name| record(name)));
    let failing = names.iter().map(|name| {
        let mut record = record(name).outcome("mismatch/output");
        record.evidence.summary = "x".repeat(400);
        record
    });
    let now = with(run("now"), failing);
    for (format, note) in [
        (Format::Markdown, "Left out for length"),
        (Format::Table, "more cases"),
        (Format::Html, "have no section here"),
        (Format::Github, "more findings"),
    ] {
        let text = rendered(&base, &now, format);
        assert!(text.contains(note), "{format:?}");
        assert!(
            format == Format::Table || text.len() < 1 << 20 || format == Format::Html,
            "{format:?}"
        );
        assert!(text.len() < 4 << 20, "{format:?}: {}", text.len());
    }
    let json = rendered(&base, &now, Format::Json);
    assert!(json.contains("case-05999"));
}

#[test]
fn a_run_without_records_is_red_in_every_format() {
    let base = with(run("base"), [record("s/k")]);
    for format in FORMATS {
        let text = rendered(&base, &run("now"), format);
        // A spreadsheet has rows of cases only.
        let word = if format == Format::Csv {
            "missing"
        } else {
            "holds no record"
        };
        assert!(text.contains(word), "{format:?}:\n{text}");
    }
}

/// The name of a browser, if there is one.
fn browser() -> Option<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<_> = std::env::split_paths(&path).collect();
    let found = |name: &&str| dirs.iter().any(|dir| dir.join(name).is_file());
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(found)
}

/// The page as a browser understands it, and a picture of it. The page has no script, and its policy lets none run.
#[test]
fn a_browser_shows_the_page() {
    let Some(browser) = browser() else {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI must have a browser: install the package `chromium`"
        );
        println!("skipped: no chromium on this machine, so nobody looked at the page");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (base, mut now) = scene();
    let (_, hostile) = hostile();
    now.records.extend(hostile.records);
    let page = dir.path().join("report.html");
    std::fs::write(&page, rendered(&base, &now, Format::Html)).unwrap();
    let shell = xshell::Shell::new().unwrap();
    shell.change_dir(dir.path());
    let profile = format!("--user-data-dir={}", dir.path().join("profile").display());
    let options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        &profile,
    ];
    let url = format!("file://{}", page.display());
    let picture = dir.path().join("page.png");
    let shot = format!("--screenshot={}", picture.display());
    let look = |options: &[&str], what: &str| {
        let command = xshell::cmd!(
            shell,
            "timeout -k 5 120 {browser} {options...} {what} --window-size=1100,2400 {url}"
        );
        command.quiet().ignore_stderr().read().unwrap()
    };
    let dom = look(&options, "--dump-dom");
    // One section and one cell per case: nothing in the hostile text closed an element early.
    assert_eq!(dom.matches("<details class=\"case\"").count(), 10);
    assert_eq!(dom.matches("<a class=\"cell ").count(), 10);
    assert!(dom.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(!dom.contains("<script"));
    assert!(dom.contains("<svg class=\"strip\"") && dom.contains("<svg class=\"rings\""));
    assert!(dom.contains("href=\"logs/pro__attention.log\""));
    look(&options, &shot);
    let png = std::fs::read(&picture).unwrap();
    assert_eq!(png[1..4], *b"PNG");
    assert!(png.len() > 30_000, "a blank page is smaller: {}", png.len());
    if let Some(keep) = std::env::var_os("RINGSWEEP_KEEP_PAGE") {
        std::fs::copy(&page, std::path::Path::new(&keep).join("report.html")).unwrap();
        std::fs::copy(&picture, std::path::Path::new(&keep).join("report.png")).unwrap();
    }
}
