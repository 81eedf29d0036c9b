//! Whether the bodies of an entry's `for` and `if` statements are scopes.

use ring_runtime::{Halted, Orchestrator, ScopeMode};

/// The entry's switch for automatic scopes. It reaches everything that is spliced into the entry, so
/// every inlinable form with a loop or a branch around its launches takes it as an argument; scopes
/// that such a form opens explicitly are opened either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyScopes {
    /// Each body is a scope, one level deeper than what it stands in.
    Automatic,
    /// Bodies belong to the scope around them; what they create stays until that one closes.
    ExplicitOnly,
}

impl BodyScopes {
    /// Runs the body of a `for` or an `if`. What it creates it allocates itself, at its start, in either case.
    pub(crate) fn body<R>(
        self,
        o: &mut Orchestrator<'_>,
        body: impl FnOnce(&mut Orchestrator<'_>) -> Result<R, Halted>,
    ) -> Result<R, Halted> {
        match self {
            Self::Automatic => o.scope(ScopeMode::Auto, body),
            Self::ExplicitOnly => body(o),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use ring_runtime::{RingLimits, Runtime, RuntimeConfig};

    use super::*;

    #[test]
    fn bodies_are_a_level_only_under_automatic_scopes() {
        let ring = RingLimits::new(1 << 20, 16, 16).expect("valid limits");
        let mut runtime = Runtime::new(RuntimeConfig::new([ring; 4], NonZeroUsize::MIN)).expect("a valid config");
        let report = runtime.run(|o| {
            for (bodies, depth) in [(BodyScopes::Automatic, 2), (BodyScopes::ExplicitOnly, 1)] {
                o.scope(ScopeMode::Auto, |o| {
                    let found = bodies.body(o, |o| Ok(o.depth()))?;
                    assert_eq!(found, depth, "{bodies:?}");
                    Ok(())
                })?;
            }
            Ok(())
        });
        assert!(report.passed(), "{:?}", report.end);
    }
}
