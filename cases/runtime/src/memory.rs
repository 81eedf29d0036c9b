//! Mapped memory: ring heaps and host tensors.
//!
//! Every memory is an anonymous private mapping: page aligned, zero at first touch, and committed
//! page by page as it is touched, so a ring of 2 GiB costs what the program uses of it. It is
//! unmapped when the last tensor that lies in it is gone.
//!
//! Large memories ask for huge pages (2 MiB on x86-64). The first touch of 512 MiB took 70 ms so,
//! and 450 ms with small pages, and random reads took half the time; the price is that memory is
//! committed in larger steps.

use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::claims::{Access, Claim, Claimant, Claims, Ticket};
use crate::ids::RingId;
use crate::region::Region;

/// Size of a huge page, in bytes. A memory of at least four of them asks for huge pages.
const HUGE_PAGE: usize = 2 << 20;

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
        if bytes >= 4 * HUGE_PAGE {
            // SAFETY: the range is the mapping just made; the advice changes no content.
            // It is a wish: where the system has no huge pages, small ones do.
            let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        }
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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::element::DType;
    use crate::ids::TaskId;
    use crate::spec::TensorSpec;
    use crate::tensor::Tensor;

    fn ring(bytes: usize) -> Arc<Memory> {
        Arc::new(Memory::map(bytes, Home::Ring(RingId::ALL[1])).expect("a few pages can be mapped"))
    }

    /// The sum is larger than the address space, so one of these fails if the others stay.
    #[test]
    fn a_dropped_memory_is_unmapped_and_an_untouched_one_costs_nothing() {
        for _ in 0..200 {
            Memory::map(1 << 40, Home::Host).unwrap();
        }
    }

    #[test]
    fn memory_is_zero_and_page_aligned() {
        let memory = ring(10_000);
        let bytes = Tensor::in_ring(&memory, 0, &TensorSpec::bytes(10_000), TaskId::new(RingId::ALL[1], 0));
        assert!(bytes.read::<i8>().iter().all(|byte| *byte == 0));
        assert!(memory.address().is_multiple_of(4096));
        assert_eq!((bytes.ring(), bytes.is_contiguous()), (Some(RingId::ALL[1]), true));
    }

    #[test]
    fn a_refused_mapping_says_how_much_was_asked_for() {
        let error = Memory::map(1 << 60, Home::Host).unwrap_err();
        assert_eq!(error.to_string(), "map 1152921504606846976 bytes of memory");
        assert_eq!(error.bytes, 1 << 60);
    }

    /// The ring gave the bytes of task 0 to task 7; the old handle reads what the new owner put there.
    #[test]
    fn a_stale_handle_reads_the_new_owners_data() {
        let memory = ring(4096);
        let spec = TensorSpec::new("x", DType::F32, &[256]);
        let stale = Tensor::in_ring(&memory, 1024, &spec, TaskId::new(RingId::ALL[1], 0));
        stale.write::<f32>().fill(1.5);
        let spec = TensorSpec::new("y", DType::I32, &[256]);
        let fresh = Tensor::in_ring(&memory, 1024, &spec, TaskId::new(RingId::ALL[1], 7));
        assert_eq!(
            fresh.get::<i32>(0),
            1.5f32.to_bits() as i32,
            "fresh memory holds what was there"
        );
        fresh.write::<i32>().fill(2.5f32.to_bits() as i32);
        assert_eq!(stale.get::<f32>(255).to_bits(), 2.5f32.to_bits());
    }

    #[test]
    #[should_panic(
        expected = "reads `x` (bytes 1024..2048), while code outside of any task writes `y` (bytes 1024..2048)"
    )]
    fn a_stale_handle_can_not_race_with_the_new_owner() {
        let memory = ring(4096);
        let at = |name, local| {
            let spec = TensorSpec::new(name, DType::F32, &[256]);
            Tensor::in_ring(&memory, 1024, &spec, TaskId::new(RingId::ALL[1], local))
        };
        let (stale, fresh) = (at("x", 0), at("y", 7));
        let _writer = fresh.write::<f32>();
        stale.read::<f32>();
    }

    #[test]
    #[should_panic(expected = "`x` leaves its ring heap")]
    fn an_output_beyond_the_heap_panics() {
        let spec = TensorSpec::new("x", DType::F32, &[256]);
        let _ = Tensor::in_ring(&ring(4096), 3584, &spec, TaskId::new(RingId::ALL[1], 0));
    }
}
