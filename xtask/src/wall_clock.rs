//! The wall clock. Nothing else reads it (clippy enforces that), and nobody subtracts two of its readings.
//!
//! It may step back at any time, by hand or by a time server. So it only names: a run, a second in a report, a day for
//! expectations. How long something took is [`std::time::Instant`]'s matter.

use jiff::civil::Date;

/// This moment.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// The day, in the zone of this machine.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn today() -> Date {
    jiff::ZonedDateTime::now().date()
}
