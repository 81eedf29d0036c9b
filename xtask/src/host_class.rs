//! The class of a host: the stable facts that two hosts must share before their latencies may be compared.
//!
//! Facts are bucketed and never measured: a clock rate, a load or a temperature would put the same
//! machine into another class every day. Which facts differ is part of every refusal.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Names of the facts that make the class, in the order in which the class's name takes them.
const FACTS: [&str; 5] = ["cpu", "cores", "memory", "os", "governor"];

/// The class: fact name → bucketed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostClass {
    facts: BTreeMap<String, String>,
}

/// A fact that two classes don't share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactDifference {
    /// Name of the fact.
    pub fact: String,
    /// Value on the reference's side; `None` if it has none.
    pub base: Option<String>,
    /// Value on the run's side; `None` if it has none.
    pub now: Option<String>,
}

impl HostClass {
    /// The class of this host.
    pub fn detect() -> Self {
        let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        Self::from_sources(&read("/proc/cpuinfo"), &read("/proc/meminfo"), cores, governor.trim())
    }

    /// The class of a host that the facts of a run describe; facts that make no class are left out.
    pub fn from_facts(facts: &BTreeMap<String, String>) -> Self {
        let ours = facts.iter().filter(|(name, _)| FACTS.contains(&name.as_str()));
        Self {
            facts: ours.map(|(name, value)| (name.clone(), value.clone())).collect(),
        }
    }

    fn from_sources(cpuinfo: &str, meminfo: &str, cores: usize, governor: &str) -> Self {
        let mut facts = BTreeMap::new();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let cpu = field(cpuinfo, "model name").or_else(|| field(cpuinfo, "CPU part"));
        facts.insert("cpu".into(), cpu_name(cpu.as_deref().unwrap_or(std::env::consts::ARCH)));
        facts.insert("cores".into(), cores.to_string());
        let kib = field(meminfo, "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
            .unwrap_or(0);
        if kib > 0 {
            facts.insert("memory".into(), format!("{}GiB", memory_bucket(kib)));
        }
        facts.insert(
            "os".into(),
            format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
        );
        if !governor.is_empty() {
            facts.insert("governor".into(), governor.to_owned());
        }
        Self { facts }
    }

    /// The facts, for a run's provenance.
    pub fn facts(&self) -> &BTreeMap<String, String> {
        &self.facts
    }

    /// True for a class without any fact: such a host can't be told from another.
    pub fn is_unknown(&self) -> bool {
        self.facts.is_empty()
    }

    /// Every fact in which `now` differs from this class.
    pub fn differences(&self, now: &Self) -> Vec<FactDifference> {
        let differs = FACTS
            .iter()
            .filter(|fact| self.facts.get(**fact) != now.facts.get(**fact));
        differs
            .map(|fact| FactDifference {
                fact: (*fact).to_owned(),
                base: self.facts.get(*fact).cloned(),
                now: now.facts.get(*fact).cloned(),
            })
            .collect()
    }
}

impl fmt::Display for HostClass {
    /// A file name part: lower-case words and dashes, `unknown` without facts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = FACTS
            .iter()
            .filter_map(|fact| {
                let value = slug(self.facts.get(*fact)?);
                Some(match *fact {
                    "cores" => format!("{value}c"),
                    _ => value,
                })
            })
            .collect();
        match words.join("-").as_str() {
            "" => f.pad("unknown"),
            name => f.pad(name),
        }
    }
}

impl fmt::Display for FactDifference {
    /// `cores: 2 → 8`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
        write!(f, "{}: {} → {}", self.fact, or_none(&self.base), or_none(&self.now))
    }
}

/// A processor's name without trademark signs and clock rate.
fn cpu_name(model: &str) -> String {
    let model = model.split('@').next().unwrap_or(model);
    let model = ["(R)", "(TM)", "(r)", "(tm)", "CPU"]
        .iter()
        .fold(model.to_owned(), |text, noise| text.replace(noise, " "));
    model.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The power of two in GiB that is nearest above: what the firmware keeps varies by boot.
fn memory_bucket(kib: u64) -> u64 {
    kib.div_ceil(1024 * 1024).next_power_of_two()
}

fn slug(text: &str) -> String {
    let dashed: String = text
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let words: Vec<&str> = dashed.split('-').filter(|word| !word.is_empty()).collect();
    words.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUINFO: &str =
        "processor\t: 0\nmodel name\t: Example(R) Wide(TM) CPU 9000 @ 2.60GHz\ncpu MHz\t\t: 2599.998\n";

    fn class(cores: usize, kib: u64, governor: &str) -> HostClass {
        HostClass::from_sources(CPUINFO, &format!("MemTotal:       {kib} kB\n"), cores, governor)
    }

    #[test]
    fn clocks_and_small_memory_differences_make_no_class() {
        assert_eq!(class(2, 24_000_000, ""), class(2, 24_600_000, ""));
        let name = class(2, 24_000_000, "").to_string();
        assert!(name.starts_with("example-wide-9000-2c-32gib-"), "{name}");
        assert!(!name.contains('.') && !name.contains("60ghz"));
    }

    #[test]
    fn a_difference_names_its_fact() {
        let (a, b) = (class(2, 24_000_000, "powersave"), class(8, 24_000_000, "performance"));
        let shown: Vec<String> = a.differences(&b).iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["cores: 2 → 8", "governor: powersave → performance"]);
        assert!(a.differences(&a).is_empty());
    }

    #[test]
    fn a_class_reads_back_from_a_runs_facts() {
        let class = class(2, 24_000_000, "performance");
        let mut facts = class.facts().clone();
        facts.insert("load".into(), "0.3".into());
        assert_eq!(HostClass::from_facts(&facts), class);
        let here = HostClass::detect();
        assert!(!here.is_unknown() && here.facts().contains_key("cores"));
        assert_eq!(HostClass::from_facts(&BTreeMap::new()).to_string(), "unknown");
    }
}
