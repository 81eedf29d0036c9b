//! Commands about a suspect device: reset, then health check.

use super::Work;
use crate::detector::{self, Detector};
use crate::device::Health;
use crate::outcome::SignalName;
use crate::platform::Probe;
use crate::process::{ChildSpec, Control, Environment, ExitState, Placement, TimeLimits};
use crate::suite::template::Parameter;

/// Resets `device` where the platform can, and asks its health check. Without a check nothing vouches for it.
pub(super) fn health(work: &Work<'_>, device: u32) -> Health {
    let platform = &work.plan.platform;
    let Some(check) = &platform.health_check else {
        return Health::Bad;
    };
    if let Some(reset) = &platform.reset {
        // The health check says whether it helped.
        let _ = run(work, reset, device);
    }
    let (answer, contrary) = match run(work, check, device) {
        ExitState::Code(0) => (Health::Well, Health::Bad),
        ExitState::Code(_) | ExitState::Signal(_) => (Health::Bad, Health::Well),
    };
    if detector::sees(&Detector::HealthCheck(answer)) {
        answer
    } else {
        contrary
    }
}

fn run(work: &Work<'_>, probe: &Probe, device: u32) -> ExitState {
    let not_run = ExitState::Signal(SignalName::from_number(9));
    let platform = &work.plan.platform;
    let render = |parameter: &Parameter| match parameter {
        Parameter::Device => Ok(device.to_string()),
        Parameter::Platform => Ok(platform.name.to_string()),
        other => Err(format!("a probe has no `{other}`")),
    };
    let argv: Result<Vec<String>, String> = probe.argv.iter().map(|template| template.render(render)).collect();
    let (Ok(argv), Ok(log), Ok(control)) = (argv, tempfile::NamedTempFile::new(), Control::new()) else {
        return not_run;
    };
    let Some((program, arguments)) = argv.split_first() else {
        return not_run;
    };
    let mut child = ChildSpec::new(program, work.root, log.path()).args(arguments);
    let also: Vec<&str> = platform.env_pass.iter().map(String::as_str).collect();
    child.environment = Environment::from_surroundings(std::env::vars_os(), &also).with_all(platform.env.clone());
    child.placement = Placement::Session;
    child.limits = TimeLimits {
        total: Some(probe.budget),
        ..TimeLimits::default()
    };
    work.supervisor.run(&child, &control).map_or(not_run, |ended| {
        // A probe that ran out of its budget has not answered, whatever its status is.
        if ended.stop.is_some() {
            ExitState::Signal(SignalName::from_number(9))
        } else {
            ended.exit
        }
    })
}
