//! A detail in one sentence, for the table of a run.

use std::fmt::Write as _;

use crate::record::Detail;

// The results of `write!` are dropped throughout: writing to a string can't fail.

/// One sentence about `detail`; `None` where it says no more than the outcome does.
pub(super) fn sentence(detail: &Detail) -> Option<String> {
    match detail {
        Detail::Ring(shortage) => {
            let mut text = match (shortage.resource.as_str(), shortage.ring) {
                ("", None) => return None,
                ("", Some(ring)) => format!("ring {ring}"),
                (resource, None) => resource.to_owned(),
                (resource, Some(ring)) => format!("{resource} of ring {ring}"),
            };
            if let Some(requested) = shortage.requested {
                let _ = write!(text, ": {requested} requested");
            }
            match (shortage.free, shortage.capacity) {
                (Some(free), Some(capacity)) => drop(write!(text, ", {free} of {capacity} free")),
                (None, Some(capacity)) => drop(write!(text, ", capacity {capacity}")),
                (Some(free), None) => drop(write!(text, ", {free} free")),
                (None, None) => {}
            }
            Some(text)
        }
        Detail::Stall(stall) => {
            let (completed, total) = (stall.completed?, stall.total?);
            let mut text = format!("{completed} of {total} tasks completed");
            for (count, word) in [
                (stall.running, "running"),
                (stall.ready, "ready"),
                (stall.waiting, "waiting"),
            ] {
                if let Some(count) = count {
                    let _ = write!(text, ", {count} {word}");
                }
            }
            if let Some(task) = &stall.stuck_task {
                let _ = write!(text, "; {task} is stuck");
                if let Some(core) = stall.stuck_core.filter(|core| *core >= 0) {
                    let _ = write!(text, " on core {core}");
                }
            }
            Some(text)
        }
        Detail::Tensors(tensors) => {
            // Non-finite values are what a report is about where there are any.
            let non_finite = tensors.iter().find(|tensor| tensor.verdict != "mismatch");
            let tensor = non_finite.or(tensors.first())?;
            let mut text = match tensor.name.as_str() {
                "" => String::new(),
                name => format!("`{name}`: "),
            };
            let what = match tensor.verdict.as_str() {
                "golden-nan" => " are non-finite in the golden",
                "nan" => " are non-finite",
                _ => "",
            };
            if tensor.total > 0 {
                let _ = write!(text, "{} of {} elements{what}", tensor.mismatched, tensor.total);
            } else if tensor.mismatched > 0 {
                let _ = write!(text, "{} elements{what}", tensor.mismatched);
            }
            if let Some(error) = &tensor.max_abs_err {
                text += if tensor.mismatched > 0 { ", " } else { "" };
                let _ = write!(text, "largest absolute error {error}");
            }
            (!text.is_empty()).then(|| text.trim_end_matches(": ").to_owned())
        }
    }
}
