//! The id of a case: `suite/name` or `suite/name@axis=value,axis=value`.
//!
//! Axes stand in sorted order, so that an id doesn't depend on how the suite's author ordered them,
//! and a value that is added to an axis changes no existing id.

use std::{cmp::Ordering, fmt, hash::Hash, str::FromStr, sync::Arc};

/// A validated case id.
#[derive(Clone)]
pub struct CaseId {
    text: Arc<str>,
    /// Where the `/` stands.
    slash: usize,
    /// Where the `@` stands, or the length.
    at: usize,
}

impl CaseId {
    /// The id of `name` in `suite` at a point of its axes; the axes are sorted here.
    pub fn new(suite: &str, name: &str, axes: &[(String, String)]) -> Result<Self, CaseIdError> {
        let mut axes = axes.to_vec();
        axes.sort();
        let mut text = format!("{suite}/{name}");
        for (i, (axis, value)) in axes.iter().enumerate() {
            text.push(if i == 0 { '@' } else { ',' });
            text.push_str(axis);
            text.push('=');
            text.push_str(value);
        }
        text.parse()
    }

    /// The whole id.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The suite that declares the case.
    pub fn suite(&self) -> &str {
        &self.text[..self.slash]
    }

    /// The name without suite and axes.
    pub fn name(&self) -> &str {
        &self.text[self.slash + 1..self.at]
    }

    /// Name and axes, without the suite.
    pub fn local(&self) -> &str {
        &self.text[self.slash + 1..]
    }

    /// The axes with their values, by axis name.
    pub fn axes(&self) -> impl Iterator<Item = (&str, &str)> {
        let axes = self.text.get(self.at + 1..).unwrap_or_default();
        axes.split(',').filter_map(|pair| pair.split_once('='))
    }

    /// The id as one file name: `/` becomes `__`. Different ids give different names, since no part
    /// of an id holds two underscores in a row.
    pub fn file_stem(&self) -> String {
        self.text.replace('/', "__")
    }
}

/// Why a text is no case id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaseIdError {
    /// Not of the form `suite/name`.
    #[error("`{0}` is not of the form `suite/name` or `suite/name@axis=value,axis=value`")]
    Form(String),
    /// A part with other characters than are allowed.
    #[error(
        "`{part}` in `{id}` is no valid {what}: letters, digits, `_`, `-`, `.` and `+`, starting with a letter or digit, no two `_` in a row"
    )]
    Part {
        /// The id.
        id: String,
        /// The offending part.
        part: String,
        /// What the part is.
        what: &'static str,
    },
    /// Axes out of order or named twice.
    #[error("the axes of `{0}` are not in sorted order, each once")]
    AxisOrder(String),
}

/// True for a word that may stand in an id: letters, digits, `_ - . +`, a letter or digit first, no `__`.
pub fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !text.contains("__")
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+'))
}

impl FromStr for CaseId {
    type Err = CaseIdError;

    fn from_str(text: &str) -> Result<Self, CaseIdError> {
        let form = || CaseIdError::Form(text.into());
        let part = |part: &str, what| {
            if is_word(part) {
                return Ok(());
            }
            Err(CaseIdError::Part {
                id: text.into(),
                part: part.into(),
                what,
            })
        };
        let slash = text.find('/').ok_or_else(form)?;
        let at = text.find('@').unwrap_or(text.len());
        if at < slash {
            return Err(form());
        }
        part(&text[..slash], "suite name")?;
        part(&text[slash + 1..at], "case name")?;
        let mut last = None;
        for pair in text.get(at + 1..).into_iter().flat_map(|axes| axes.split(',')) {
            let (axis, value) = pair.split_once('=').ok_or_else(form)?;
            part(axis, "axis name")?;
            part(value, "axis value")?;
            if last.is_some_and(|last| last >= axis) {
                return Err(CaseIdError::AxisOrder(text.into()));
            }
            last = Some(axis);
        }
        Ok(Self {
            text: text.into(),
            slash,
            at,
        })
    }
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

// Comparisons are those of the text: the two offsets follow from it.
impl PartialEq for CaseId {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for CaseId {}

impl Hash for CaseId {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PartialOrd for CaseId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CaseId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_takes_itself_apart() {
        let id: CaseId = "pro/rmsnorm@heap=1GiB,mode=decode".parse().unwrap();
        assert_eq!((id.suite(), id.name()), ("pro", "rmsnorm"));
        assert_eq!(id.local(), "rmsnorm@heap=1GiB,mode=decode");
        assert_eq!(id.axes().collect::<Vec<_>>(), [("heap", "1GiB"), ("mode", "decode")]);
        assert_eq!(id.file_stem(), "pro__rmsnorm@heap=1GiB,mode=decode");
        let plain: CaseId = "pro/rmsnorm".parse().unwrap();
        assert_eq!((plain.name(), plain.axes().count()), ("rmsnorm", 0));
    }

    #[test]
    fn axes_are_sorted_when_an_id_is_made() {
        let axes = [("mode".into(), "decode".into()), ("heap".into(), "1GiB".into())];
        let id = CaseId::new("pro", "rmsnorm", &axes).unwrap();
        assert_eq!(id.as_str(), "pro/rmsnorm@heap=1GiB,mode=decode");
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in [
            "",
            "rmsnorm",
            "/x",
            "a/",
            "a/b/c",
            "a/b@",
            "a/b@x",
            "a/b@x=",
            "a/b@y=1,x=2",
            "a/b@x=1,x=2",
            "a b/c",
            "a@x=1/b",
            "a/b__c",
            "a/../b",
            "a/-b",
        ] {
            assert!(text.parse::<CaseId>().is_err(), "{text}");
        }
    }
}
