//! The environment of a child: nothing of the surroundings but an allow-list, plus what is declared.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Variables that every child gets from the surroundings when they are set.
///
/// They say where programs, the home and temporary files are and which language and zone to use.
/// Everything else stays out: a ring setting of the surroundings (`PTO2_RING_HEAP`,
/// `SIMPLER_SCHEDULER_TIMEOUT_MS`) that leaks in makes a case run at sizes that nobody declared.
pub const PASSED_ON: &[&str] = &[
    "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER",
];

/// All variables of a child, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// No variable at all.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The variables of [`PASSED_ON`] as they are in the process that calls.
    pub fn allowed() -> Self {
        Self::from_surroundings(std::env::vars_os(), &[])
    }

    /// The variables of [`PASSED_ON`] and of `also` (exact names) among `surroundings`.
    pub fn from_surroundings(surroundings: impl IntoIterator<Item = (OsString, OsString)>, also: &[&str]) -> Self {
        let wanted = |name: &OsStr| PASSED_ON.iter().chain(also).any(|allowed| name == *allowed);
        Self(surroundings.into_iter().filter(|(name, _)| wanted(name)).collect())
    }

    /// The same with `name` set to `value`.
    #[must_use]
    pub fn with(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// The same with all of `pairs` set.
    #[must_use]
    pub fn with_all(mut self, pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        self.0
            .extend(pairs.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_settings_of_the_surroundings_stay_out() {
        let around = [
            ("PATH", "/bin"),
            ("PTO2_RING_HEAP", "1073741824"),
            ("ASCEND_HOME", "/opt/cann"),
            ("SIMPLER_X", "1"),
        ];
        let around = around.map(|(name, value)| (name.into(), value.into()));
        let environment = Environment::from_surroundings(around, &["ASCEND_HOME"]).with("CASE", "a/b");
        let names: Vec<_> = environment.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, ["ASCEND_HOME", "CASE", "PATH"]);
    }
}
