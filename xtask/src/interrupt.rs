//! Signals that ask the harness to stop, as messages.

use std::io;
use std::thread;

use crossbeam_channel::{Receiver, unbounded};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// One message per Ctrl-C, TERM or hang-up. From here on these signals no longer end the process.
pub fn messages() -> io::Result<Receiver<()>> {
    let (sender, receiver) = unbounded();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    // The thread ends with the process: there is no moment at which a sweep may be deaf to Ctrl-C.
    thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            if sender.send(()).is_err() {
                break;
            }
        }
    })?;
    Ok(receiver)
}
