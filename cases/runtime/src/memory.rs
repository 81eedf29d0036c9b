//! Mapped memory: ring heaps and host tensors.
//!
//! Every memory is an anonymous private mapping: page aligned, zero at first touch, and committed
//! page by page as it is touched, so a ring of 2 GiB costs what the program uses of it. It is
//! unmapped when the last tensor that lies in it is gone.

use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::claims::{Access, Claim, Claimant, Claims, Ticket};
use crate::ids::RingId;
use crate::region::Region;

/// What a memory serves as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// The heap of a ring.
    Ring(RingId),
    /// A tensor outside of the rings.
    Host,
}

/// The operating system refused to map memory.
#[derive(Debug, thiserror::Error)]
#[error("map {bytes} bytes of memory")]
pub struct MapError {
    /// What was asked for, in bytes.
    pub bytes: u64,
    /// The system's reason.
    pub source: io::Error,
}

/// One mapping, with the list of those who access it.
///
/// Invariant *claimed access*: a byte is read only under a granted claim that covers it, and
/// written only under a granted write claim that covers it.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    home: Home,
    claims: Claims,
}

// SAFETY: the mapping belongs to this value alone and may be accessed from any thread; two threads
// never race on a byte, by the invariant *claimed access*.
#[expect(unsafe_code, reason = "raw pointers opt out of Send and Sync")]
unsafe impl Send for Memory {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "raw pointers opt out of Send and Sync")]
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `bytes` bytes, all zero.
    #[expect(unsafe_code, reason = "a mapping is a system call on raw addresses")]
    pub(crate) fn map(bytes: usize, home: Home) -> Result<Self, MapError> {
        let refused = |source: io::Error| MapError {
            bytes: bytes as u64,
            source,
        };
        if bytes > isize::MAX as usize {
            return Err(refused(io::ErrorKind::OutOfMemory.into()));
        }
        // Reserving swap for all of it up front would refuse rings that are larger than what the
        // program will touch.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: no address is asked for, so no existing mapping is replaced.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes.max(1), ProtFlags::READ | ProtFlags::WRITE, flags) }
            .map_err(|errno| refused(errno.into()))?;
        Ok(Self {
            base: NonNull::new(base.cast()).expect("the system never maps the null page unasked"),
            bytes,
            home,
            claims: Claims::new(),
        })
    }

    /// Capacity, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn home(&self) -> Home {
        self.home
    }

    /// Address of the first byte; identifies the memory as long as it lives.
    pub(crate) fn address(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// Pointer to the byte at `offset <= bytes`. Whoever goes through it keeps *claimed access*.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(
            offset <= self.bytes,
            "byte {offset} of a memory of {} bytes",
            self.bytes
        );
        #[expect(unsafe_code, reason = "pointer arithmetic inside the mapping")]
        // SAFETY: `offset` was just checked to lie in the mapping, or one past its end.
        unsafe {
            self.base.add(offset)
        }
    }

    /// Registers an access of `region` until the result is dropped.
    ///
    /// Panics when it conflicts with another access, naming both.
    #[track_caller]
    pub(crate) fn claim(&self, region: Region, access: Access, claimant: Claimant, tensor: &'static str) -> Held<'_> {
        assert!(
            region.end() <= self.bytes,
            "`{tensor}` ({region}) leaves its memory of {} bytes",
            self.bytes
        );
        if region.is_empty() {
            return Held {
                memory: self,
                ticket: None,
            };
        }
        let wanted = Claim {
            region,
            access,
            claimant,
            tensor,
        };
        match self.claims.take(wanted) {
            Ok(ticket) => Held {
                memory: self,
                ticket: Some(ticket),
            },
            Err(conflict) => panic!("{conflict}"),
        }
    }
}

impl Drop for Memory {
    #[expect(unsafe_code, reason = "a mapping is a system call on raw addresses")]
    fn drop(&mut self) {
        // SAFETY: the range is the one that `map` returned; guards borrow the memory, so none is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes.max(1)) };
        debug_assert!(unmapped.is_ok(), "unmapping one's own mapping can't fail");
    }
}

/// A granted claim; gives it back when dropped. Empty regions need none.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    memory: &'a Memory,
    ticket: Option<Ticket>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.memory.claims.release(ticket);
        }
    }
}
