//! Stopping a child from another thread: politely once, or at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// What the supervisor of a child is asked to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Request {
    /// Let it run.
    Continue = 0,
    /// TERM, and KILL after the grace.
    Stop = 1,
    /// KILL now.
    Kill = 2,
}

/// The handle through which one thread asks the thread that supervises a child to stop it.
///
/// A request only ever grows: a stop that follows a kill changes nothing.
#[derive(Clone, Debug)]
pub struct Control(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    request: AtomicU8,
    /// Readable once a request was made, so that the supervisor can poll it beside the pipe.
    wake: OwnedFd,
}

impl Control {
    /// A handle without a request.
    pub fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Inner {
            request: AtomicU8::new(Request::Continue as u8),
            wake,
        })))
    }

    /// Makes a request and wakes the supervisor.
    pub fn ask(&self, request: Request) {
        self.0.request.fetch_max(request as u8, Ordering::SeqCst);
        // The counter can only fail to grow when it is already readable, which is all that is wanted.
        let _ = rustix::io::write(&self.0.wake, &1_u64.to_ne_bytes());
    }

    /// The strongest request made so far.
    pub fn request(&self) -> Request {
        match self.0.request.load(Ordering::SeqCst) {
            0 => Request::Continue,
            1 => Request::Stop,
            _ => Request::Kill,
        }
    }

    /// Empties the wake-up counter, so that polling waits for the next request.
    pub(super) fn clear_wake(&self) {
        let mut count = [0; 8];
        // Empty is fine: someone else's wake-up was merged with the one that was read.
        let _ = rustix::io::read(&self.0.wake, &mut count);
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}
