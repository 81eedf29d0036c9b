//! Tests of the harness from outside, one module per area.

#[cfg(test)]
mod baseline;
#[cfg(test)]
mod blindness;
#[cfg(test)]
mod cases_side;
#[cfg(test)]
mod classify;
#[cfg(test)]
mod compare;
#[cfg(test)]
mod comparison_laws;
#[cfg(test)]
mod confirming;
#[cfg(test)]
mod dispatching;
#[cfg(test)]
mod foreign;
#[cfg(test)]
mod gate;
#[cfg(test)]
mod import;
#[cfg(test)]
mod junit_schema;
#[cfg(test)]
mod merge;
#[cfg(test)]
mod nothing;
#[cfg(test)]
mod report;
#[cfg(test)]
mod supervision;
#[cfg(test)]
mod sweep;
#[cfg(test)]
mod sweeping;
#[cfg(test)]
mod workflows;
