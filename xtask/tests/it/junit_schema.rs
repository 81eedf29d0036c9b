//! JUnit documents against a schema: by a validator of our own everywhere, and by `xmllint` where it is installed.
//!
//! The validator reads the same rules as `schema/junit.xsd` states, and one that no schema can: that
//! counts are those of the cases.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::report::{hostile, rendered, scene};
use crate::sweep::{record, run, with};
use xtask::report::Format;

/// An element with its children, and no text.
#[derive(Debug, Default)]
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    children: Vec<Element>,
}

impl Element {
    fn start(tag: &BytesStart<'_>) -> Result<Self, String> {
        let mut element = Self {
            name: String::from_utf8_lossy(tag.name().as_ref()).into_owned(),
            ..Self::default()
        };
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|error| error.to_string())?;
            let key = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
            let value = String::from_utf8_lossy(&attribute.value).into_owned();
            element.attributes.push((key, value));
        }
        Ok(element)
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        let mut attributes = self.attributes.iter();
        attributes.find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The attribute, which must be there and not be empty.
    fn word(&self, name: &str) -> Result<&str, String> {
        let value = self.attribute(name).filter(|value| !value.is_empty());
        value.ok_or_else(|| format!("`{}` without `{name}`", self.name))
    }

    fn count(&self, name: &str) -> Result<usize, String> {
        let text = self.word(name)?;
        text.parse()
            .map_err(|_| format!("`{name}` of `{}` is `{text}`, no count", self.name))
    }

    fn only(&self, names: &[&str]) -> Result<(), String> {
        let stranger = self.attributes.iter().find(|(key, _)| !names.contains(&key.as_str()));
        match stranger {
            Some((key, _)) => Err(format!("`{}` has an attribute `{key}`", self.name)),
            None => Ok(()),
        }
    }
}

fn tree(text: &str) -> Result<Element, String> {
    let mut reader = Reader::from_str(text);
    let mut open = vec![Element::default()];
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Start(tag) => open.push(Element::start(&tag)?),
            Event::Empty(tag) => {
                let element = Element::start(&tag)?;
                open.last_mut().ok_or("no parent")?.children.push(element);
            }
            Event::End(_) => {
                let element = open.pop().ok_or("an end without a start")?;
                open.last_mut().ok_or("an end without a start")?.children.push(element);
            }
            Event::Eof if open.len() == 1 => break,
            Event::Eof => return Err("the document ends within an element".into()),
            Event::Text(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_)
            | Event::GeneralRef(_) => {}
        }
    }
    let mut roots = open.pop().ok_or("no document")?.children;
    match roots.len() {
        1 => Ok(roots.remove(0)),
        count => Err(format!("{count} root elements")),
    }
}

const COUNTS: [&str; 6] = ["name", "tests", "failures", "errors", "skipped", "time"];

/// What is wrong with a document, if anything is.
fn validate(text: &str) -> Result<(), String> {
    let root = tree(text)?;
    if root.name != "testsuites" {
        return Err(format!("the root is `{}`", root.name));
    }
    root.only(&COUNTS)?;
    root.word("name")?;
    let mut totals = [0; 4];
    for suite in &root.children {
        let counted = validate_suite(suite)?;
        for (total, count) in totals.iter_mut().zip(counted) {
            *total += count;
        }
    }
    same_counts(&root, totals)
}

fn validate_suite(suite: &Element) -> Result<[usize; 4], String> {
    if suite.name != "testsuite" {
        return Err(format!("`{}` among the suites", suite.name));
    }
    suite.only(&COUNTS)?;
    suite.word("name")?;
    let mut counted = [0; 4];
    for (place, child) in suite.children.iter().enumerate() {
        match child.name.as_str() {
            "properties" if place == 0 => validate_properties(child)?,
            "testcase" => {
                counted[0] += 1;
                match validate_case(child)? {
                    Some("failure") => counted[1] += 1,
                    Some("error") => counted[2] += 1,
                    Some(_) => counted[3] += 1,
                    None => {}
                }
            }
            other => return Err(format!("`{other}` in a suite, in place {place}")),
        }
    }
    same_counts(suite, counted)?;
    Ok(counted)
}

fn same_counts(element: &Element, counted: [usize; 4]) -> Result<(), String> {
    for (name, counted) in ["tests", "failures", "errors", "skipped"].into_iter().zip(counted) {
        let told = element.count(name)?;
        if told != counted {
            return Err(format!("`{}` tells {told} {name}, it has {counted}", element.name));
        }
    }
    Ok(())
}

fn validate_properties(properties: &Element) -> Result<(), String> {
    if properties.children.is_empty() {
        return Err("`properties` without one".into());
    }
    for property in &properties.children {
        if property.name != "property" {
            return Err(format!("`{}` among properties", property.name));
        }
        property.only(&["name", "value"])?;
        property.word("name")?;
        property.attribute("value").ok_or("a property without a value")?;
    }
    Ok(())
}

/// How the case ended; `None` for a pass.
fn validate_case(case: &Element) -> Result<Option<&str>, String> {
    case.only(&["name", "classname", "time"])?;
    case.word("name")?;
    if let Some(time) = case.attribute("time") {
        let seconds: f64 = time.parse().map_err(|_| format!("a time of `{time}`"))?;
        if !(seconds >= 0.0 && seconds.is_finite()) {
            return Err(format!("a time of `{time}`"));
        }
    }
    let mut ending = None;
    for (place, child) in case.children.iter().enumerate() {
        match child.name.as_str() {
            "properties" if place == 0 => validate_properties(child)?,
            "failure" | "error" | "skipped" if ending.is_none() => {
                child.only(&["message", "type"])?;
                child.attribute("message").ok_or("an ending without a message")?;
                child.word("type")?;
                ending = Some(child.name.as_str());
            }
            other => return Err(format!("`{other}` in a case, in place {place}")),
        }
    }
    Ok(ending)
}

/// A small document that is right.
const RIGHT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="r" tests="2" failures="1" errors="0" skipped="0">
  <testsuite name="s" tests="2" failures="1" errors="0" skipped="0">
    <properties><property name="p" value=""/></properties>
    <testcase name="a" classname="s" time="0.5"/>
    <testcase name="b"><properties><property name="p" value="v"/></properties><failure message="m" type="t">text</failure></testcase>
  </testsuite>
</testsuites>
"#;

/// The same with one thing wrong each.
fn broken() -> Vec<String> {
    let with = |from: &str, to: &str| {
        assert!(RIGHT.contains(from), "{from}");
        RIGHT.replacen(from, to, 1)
    };
    vec![
        with("<testcase name=\"a\"", "<testcase"),
        with("name=\"a\"", "name=\"\""),
        with("time=\"0.5\"", "time=\"soon\""),
        with("time=\"0.5\"", "time=\"-1\""),
        with("classname", "class"),
        with(" type=\"t\"", ""),
        with("message=\"m\" ", ""),
        with("<failure", "<failed").replace("</failure", "</failed"),
        with("</failure>", "</failure><error message=\"m\" type=\"t\"/>"),
        with("<property name=\"p\" value=\"\"/>", ""),
        with("<property name=\"p\" value=\"v\"/>", "<property name=\"p\"/>"),
        with("<properties><property name=\"p\" value=\"v\"/></properties>", "").replace(
            "</failure>",
            "</failure><properties><property name=\"p\" value=\"v\"/></properties>",
        ),
        with("tests=\"2\"", "tests=\"two\""),
        RIGHT.replace("testsuites", "suites"),
        with("</testsuite>", ""),
    ]
}

/// What `xmllint` says of a document; `None` where it is not installed.
fn xmllint(text: &str) -> Option<bool> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|dir| dir.join("xmllint").is_file()) {
        println!("skipped: no xmllint on this machine, only our own validator looked");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("junit.xml");
    std::fs::write(&file, text).unwrap();
    let schema = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/schema/junit.xsd");
    let shell = xshell::Shell::new().unwrap();
    let command = xshell::cmd!(shell, "xmllint --noout --nonet --schema {schema} {file}");
    Some(command.quiet().ignore_stderr().run().is_ok())
}

#[test]
fn what_the_validators_must_refuse_they_refuse() {
    assert_eq!(validate(RIGHT), Ok(()));
    assert_ne!(xmllint(RIGHT), Some(false));
    for text in broken() {
        assert!(validate(&text).is_err(), "{text}");
        assert_ne!(xmllint(&text), Some(true), "{text}");
    }
    // What no schema can say: counts that are not those of the cases.
    assert!(validate(&RIGHT.replace("failures=\"1\"", "failures=\"0\"")).is_err());
}

#[test]
fn every_document_is_as_the_schema_says() {
    let empty = (with(run("base"), [record("s/k")]), run("now"));
    for (base, now) in [scene(), hostile(), empty] {
        let text = rendered(&base, &now, Format::Junit);
        assert_eq!(validate(&text), Ok(()), "{text}");
        assert_ne!(xmllint(&text), Some(false), "{text}");
    }
}

#[test]
fn a_large_document_is_one_document_too() {
    // More cases than are made at once, in two suites that stand interleaved by severity.
    let names: Vec<String> = (0..9_000)
        .flat_map(|n| [format!("a/case-{n:05}"), format!("b/case-{n:05}")])
        .collect();
    let base = with(run("base"), names.iter().map(|name| record(name)));
    let failing = |(n, name): (usize, &String)| {
        let record = record(name);
        if n % 7 == 0 {
            crate::sweep::With::outcome(record, "mismatch/output")
        } else {
            record
        }
    };
    let now = with(run("now"), names.iter().enumerate().map(failing));
    let text = rendered(&base, &now, Format::Junit);
    assert_eq!(validate(&text), Ok(()));
    for name in [
        "name=\"case-00000\" classname=\"a\"",
        "name=\"case-08999\" classname=\"b\"",
    ] {
        assert_eq!(text.matches(name).count(), 1, "{name}");
    }
}
