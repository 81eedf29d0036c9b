//! Mistakes in the files that users write: collected, ordered, and shown with file, line and caret.
//!
//! The only module that knows the library that draws the carets.

use std::{fmt, ops::Range, sync::Arc};

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};

use crate::count::counted;

/// A part of a source text, in bytes.
pub type Span = Range<usize>;

/// A file as read.
pub struct Source {
    named: NamedSource<String>,
}

impl Source {
    /// The text of the file that users know as `name`.
    pub fn new(name: impl AsRef<str>, text: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            named: NamedSource::new(name, text.into()),
        })
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        self.named.name()
    }

    /// The text.
    pub fn text(&self) -> &str {
        self.named.inner()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({})", self.name())
    }
}

/// One mistake.
#[derive(Clone, Debug)]
pub struct Problem {
    source: Arc<Source>,
    message: String,
    labels: Vec<(Span, String)>,
    help: Option<String>,
}

impl Problem {
    /// A mistake at `span`; `label` says what stands there.
    pub fn new(source: &Arc<Source>, span: Span, message: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            source: Arc::clone(source),
            message: message.into(),
            labels: vec![(span, label.into())],
            help: None,
        }
    }

    /// Also points at `span`.
    #[must_use]
    pub fn and_at(mut self, span: Span, label: impl Into<String>) -> Self {
        self.labels.push((span, label.into()));
        self
    }

    /// Names the way out.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    fn key(&self) -> (&str, usize, usize, &str) {
        let span = &self.labels[0].0;
        (self.source.name(), span.start, span.end, &self.message)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

impl miette::Diagnostic for Problem {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source.named)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let labels = self.labels.iter().map(|(span, label)| {
            let label = (!label.is_empty()).then(|| label.clone());
            LabeledSpan::new(label, span.start, span.len())
        });
        Some(Box::new(labels))
    }
}

/// All mistakes of all files; never empty.
#[derive(Clone, Debug)]
pub struct Problems(Vec<Problem>);

/// Whether carets are coloured; what is said is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// No escape sequences.
    Plain,
    /// Coloured for a terminal.
    Coloured,
}

impl Problems {
    /// `Ok` when there is none; else all of them in the order of file and place.
    pub fn check(mut problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() {
            return Ok(());
        }
        problems.sort_by(|a, b| a.key().cmp(&b.key()));
        Err(Self(problems))
    }

    /// The mistakes.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// Every mistake with its lines, then a count.
    pub fn render(&self, style: Style) -> String {
        let theme = match style {
            Style::Plain => GraphicalTheme::unicode_nocolor(),
            Style::Coloured => GraphicalTheme::unicode(),
        };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_links(false)
            .with_context_lines(1)
            .with_width(110);
        let mut text = String::new();
        for problem in &self.0 {
            handler
                .render_report(&mut text, problem)
                .expect("writing to a string never fails, and spans come from the same text");
            text.push('\n');
        }
        let mut files: Vec<_> = self.0.iter().map(|problem| problem.source.name()).collect();
        files.dedup();
        text.push_str(&counted(self.0.len(), "problem"));
        text.push_str(" in ");
        text.push_str(&counted(files.len(), "file"));
        text
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(Style::Plain))
    }
}

impl std::error::Error for Problems {}
