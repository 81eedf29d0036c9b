//! Which cases: filters by glob, tags, suites.

use globset::{Glob, GlobMatcher};

use crate::{
    case_id::CaseId,
    suggest,
    suite::file::{Scope, Suite},
};

/// A selection, compiled.
#[derive(Clone, Debug)]
pub struct Selection {
    take: Vec<Filter>,
    skip: Vec<Filter>,
    tags: Vec<String>,
    suites: Vec<String>,
}

/// One glob on ids.
#[derive(Clone, Debug)]
struct Filter {
    text: String,
    glob: GlobMatcher,
}

/// A glob that is none.
#[derive(Debug, thiserror::Error)]
#[error("invalid filter `{filter}`")]
pub struct FilterError {
    /// The filter as typed.
    filter: String,
    /// Why.
    source: globset::Error,
}

impl Filter {
    fn new(text: &str) -> Result<Self, FilterError> {
        let glob = Glob::new(text).map_err(|source| FilterError {
            filter: text.into(),
            source,
        })?;
        Ok(Self {
            text: text.into(),
            glob: glob.compile_matcher(),
        })
    }

    /// A filter may match the whole id, or the id without its suite, its axes, or both.
    fn matches(&self, id: &CaseId) -> bool {
        let without_axes = id.as_str().split('@').next().unwrap_or_default();
        [id.as_str(), id.local(), without_axes, id.name()]
            .into_iter()
            .any(|text| self.glob.is_match(text))
    }

    /// The suite that the filter starts with, if it names one.
    fn suite(&self) -> Option<&str> {
        self.text.split_once('/').map(|(suite, _)| suite)
    }
}

impl Selection {
    /// Compiles what was typed: globs to take (none: all) and to skip, tags that must all hold, suites (none: the default ones).
    pub fn new(take: &[String], skip: &[String], tags: &[String], suites: &[String]) -> Result<Self, FilterError> {
        let compile = |texts: &[String]| -> Result<Vec<_>, _> { texts.iter().map(|text| Filter::new(text)).collect() };
        Ok(Self {
            take: compile(take)?,
            skip: compile(skip)?,
            tags: tags.to_vec(),
            suites: suites.to_vec(),
        })
    }

    /// The suites that were named.
    pub fn suites(&self) -> &[String] {
        &self.suites
    }

    /// True when `suite` is in scope: named, or one of the default ones where none is named.
    pub fn in_scope(&self, suite: &Suite) -> bool {
        let by_filter = || {
            self.take
                .iter()
                .any(|filter| filter.suite() == Some(suite.name.as_str()))
        };
        if self.suites.is_empty() {
            suite.scope == Scope::Default || by_filter()
        } else {
            self.suites.contains(&suite.name)
        }
    }

    /// True when a case with these tags is taken.
    pub fn takes(&self, id: &CaseId, tags: &[&str]) -> bool {
        (self.take.is_empty() || self.take.iter().any(|filter| filter.matches(id)))
            && !self.skip.iter().any(|filter| filter.matches(id))
            && self.tags.iter().all(|tag| tags.contains(&tag.as_str()))
    }

    /// The filters that match none of `ids`: most likely typing mistakes.
    pub fn idle<'s>(&'s self, ids: &[&CaseId]) -> Vec<&'s str> {
        let idle = |filter: &&Filter| !ids.iter().any(|id| filter.matches(id));
        self.take
            .iter()
            .filter(idle)
            .map(|filter| filter.text.as_str())
            .collect()
    }

    /// Ids like `filter`, nearest first: those that hold it as a part, else one that is a few letters away.
    pub fn near(filter: &str, ids: &[&CaseId]) -> Vec<String> {
        let word = filter.trim_matches(['*', '?']);
        let part = word.rsplit('/').next().unwrap_or(word);
        let holding = ids.iter().filter(|id| !part.is_empty() && id.local().contains(part));
        let mut near: Vec<_> = holding.map(|id| id.as_str().to_owned()).collect();
        if near.is_empty() {
            let name = suggest::nearest(part, ids.iter().map(|id| id.name()));
            near.extend(
                ids.iter()
                    .filter(|id| Some(id.name()) == name)
                    .map(|id| id.as_str().to_owned()),
            );
        }
        near.truncate(8);
        near
    }

    /// What was typed, for provenance: filters, then `--skip`, `--tag` and `--suite` with their values.
    pub fn typed(&self) -> Vec<String> {
        let mut typed: Vec<String> = self.take.iter().map(|filter| filter.text.clone()).collect();
        typed.extend(self.skip.iter().map(|filter| format!("--skip={}", filter.text)));
        typed.extend(self.tags.iter().map(|tag| format!("--tag={tag}")));
        typed.extend(self.suites.iter().map(|suite| format!("--suite={suite}")));
        typed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(filter: &str, id: &str, expected: bool) {
        let selection = Selection::new(&[filter.into()], &[], &[], &[]).unwrap();
        assert_eq!(selection.takes(&id.parse().unwrap(), &[]), expected, "{filter} on {id}");
    }

    #[test]
    fn a_filter_matches_an_id_with_or_without_suite_and_axes() {
        check("prefill_attention_swa", "pro/prefill_attention_swa", true);
        check("prefill_attention", "pro/prefill_attention_swa", false);
        check("prefill_*", "pro/prefill_attention_swa", true);
        check("pro/*", "pro/rmsnorm@mode=decode", true);
        check("pro/rmsnorm", "pro/rmsnorm@mode=decode", true);
        check("rmsnorm", "pro/rmsnorm@mode=decode", true);
        check("*@mode=decode", "pro/rmsnorm@mode=decode", true);
        check("{hc_pre,hc_post}", "pro/hc_post", true);
    }

    #[test]
    fn skips_and_tags_narrow() {
        let text = |texts: &[&str]| texts.iter().map(|&t| t.to_owned()).collect::<Vec<_>>();
        let selection = Selection::new(&[], &text(&["hc_*"]), &text(&["a", "b"]), &[]).unwrap();
        assert!(selection.takes(&"s/x".parse().unwrap(), &["a", "b", "c"]));
        assert!(!selection.takes(&"s/x".parse().unwrap(), &["a"]));
        assert!(!selection.takes(&"s/hc_pre".parse().unwrap(), &["a", "b"]));
        assert!(Selection::new(&text(&["[a"]), &[], &[], &[]).is_err());
    }

    #[test]
    fn near_matches_hold_the_word_or_are_close_to_it() {
        let ids: Vec<CaseId> = ["s/rmsnorm_decode", "s/rmsnorm_prefill", "s/hc_pre"]
            .map(|id| id.parse().unwrap())
            .into();
        let ids: Vec<_> = ids.iter().collect();
        assert_eq!(
            Selection::near("rmsnorm", &ids),
            ["s/rmsnorm_decode", "s/rmsnorm_prefill"]
        );
        assert_eq!(Selection::near("hc_per", &ids), ["s/hc_pre"]);
        assert!(Selection::near("lm_head", &ids).is_empty());
    }
}
