//! Text with named parameters: `--device={device}`.

use std::fmt;

/// A parsed template; `{{` and `}}` stand for braces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    Text(String),
    Parameter(Parameter),
}

macro_rules! parameters {
    ($($(#[$doc:meta])* $variant:ident = $token:literal,)*) => {
        /// What a template may name.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Parameter {
            $($(#[$doc])* $variant,)*
            /// `{param.NAME}`: a declared parameter of the case.
            Param(String),
        }

        impl Parameter {
            /// The names without `param.NAME`.
            pub const TOKENS: &'static [&'static str] = &[$($token),*];

            fn from_token(token: &str) -> Option<Self> {
                match token {
                    $($token => Some(Self::$variant),)*
                    _ => token.strip_prefix("param.").filter(|name| !name.is_empty()).map(|name| Self::Param(name.into())),
                }
            }
        }

        impl fmt::Display for Parameter {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($token),)*
                    Self::Param(name) => write!(f, "param.{name}"),
                }
            }
        }
    };
}

parameters! {
    /// The case id.
    Case = "case",
    /// The name of the suite.
    Suite = "suite",
    /// The name of the case without suite and axes.
    Name = "name",
    /// The kernel that the case names.
    Kernel = "kernel",
    /// The platform of the run.
    Platform = "platform",
    /// The device ids handed to the case, with commas.
    Device = "device",
    /// The number of ranks.
    Ranks = "ranks",
    /// The seed.
    Seed = "seed",
    /// The number of warm-up dispatches.
    Warmup = "warmup",
    /// The number of timed dispatches.
    Rounds = "rounds",
    /// The four heap sizes in bytes, with commas.
    RingHeap = "ring_heap",
    /// The four task windows, with commas.
    RingTaskWindow = "ring_task_window",
    /// The four dependency pools, with commas.
    RingDepPool = "ring_dep_pool",
    /// The ring config as one JSON object.
    RingJson = "ring_json",
    /// The path of a file that holds the ring config as JSON.
    RingFile = "ring_file",
    /// The path of the report file.
    Report = "report",
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A brace that nothing closes or opens.
    #[error("an unmatched brace; write `{{{{` or `}}}}` for a brace")]
    Brace,
    /// A parameter that doesn't exist.
    #[error("unknown parameter `{{{0}}}`")]
    Unknown(String),
}

impl Template {
    /// Parses `text`.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..];
            if brace.starts_with("{{") || brace.starts_with("}}") {
                plain.push_str(&brace[..1]);
                rest = &brace[2..];
                continue;
            }
            let end = brace.find('}').filter(|&end| end > 0).ok_or(TemplateError::Brace)?;
            let token = &brace[1..end];
            let parameter = Parameter::from_token(token).ok_or_else(|| TemplateError::Unknown(token.into()))?;
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(Part::Parameter(parameter));
            rest = &brace[end + 1..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self { parts })
    }

    /// The parameters that it names, in order.
    pub fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.parts.iter().filter_map(|part| match part {
            Part::Parameter(parameter) => Some(parameter),
            Part::Text(_) => None,
        })
    }

    /// The text with each parameter replaced by what `value` gives for it; its first error ends the rendering.
    pub fn render<E>(&self, mut value: impl FnMut(&Parameter) -> Result<String, E>) -> Result<String, E> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Parameter(parameter) => text.push_str(&value(parameter)?),
            }
        }
        Ok(text)
    }
}

impl fmt::Display for Template {
    /// The text that [`Template::parse`] reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Text(plain) => f.write_str(&plain.replace('{', "{{").replace('}', "}}"))?,
                Part::Parameter(parameter) => write!(f, "{{{parameter}}}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_replaced() {
        let template = Template::parse("--rings={ring_heap}{{x}}{param.mode}").unwrap();
        let text = template.render(|p| Ok::<_, ()>(format!("<{p}>"))).unwrap();
        assert_eq!(text, "--rings=<ring_heap>{x}<param.mode>");
        assert_eq!(template.to_string(), "--rings={ring_heap}{{x}}{param.mode}");
        assert_eq!(template.parameters().count(), 2);
    }

    #[test]
    fn unknown_parameters_and_stray_braces_are_errors() {
        assert_eq!(
            Template::parse("{devise}"),
            Err(TemplateError::Unknown("devise".into()))
        );
        for text in ["{", "}", "a{case", "a}b", "{case}}"] {
            assert_eq!(Template::parse(text), Err(TemplateError::Brace), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn printing_and_parsing_round_trip(text in "[a{}]{0,8}(\\{case\\}|\\{param\\.x\\})?[b{}]{0,8}") {
            if let Ok(template) = Template::parse(&text) {
                proptest::prop_assert_eq!(template.to_string(), text);
            }
        }
    }
}
