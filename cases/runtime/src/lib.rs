//! A task-graph runtime with four ring heaps, which runs real work on CPU cores.
//!
//! A *program* opens scopes, allocates tensors and submits tasks. Each task declares what it reads
//! and writes; the runtime finds who must come first, runs the task's blocks on worker threads
//! ("cores"), and takes the memory of its outputs back once nobody needs them. Memory, task slots
//! and dependency entries come from four rings of fixed size, chosen by the depth of the scope, and
//! a program that needs more than a ring can give is stopped with the reason.
//!
//! ```
//! use std::num::NonZeroUsize;
//! use ring_runtime::{DType, RingLimits, RunEnd, Runtime, RuntimeConfig, ScopeMode, Task, Tensor, TensorSpec, Unit};
//!
//! let config = RuntimeConfig::new([RingLimits::DEFAULT; 4], NonZeroUsize::new(2).unwrap());
//! let mut runtime = Runtime::new(config)?;
//! let x = Tensor::from_vec(&[4, 64], vec![1.0f32; 256]);
//! let y = Tensor::zeros(DType::F32, &[4, 64]);
//! let report = runtime.run(|orch| {
//!     orch.scope(ScopeMode::Auto, |orch| {
//!         // One block per row; the output lies in ring 1.
//!         let (source, spec) = (x.clone(), TensorSpec::new("double", DType::F32, &[4, 64]));
//!         let task = Task::new("double", Unit::Vector).blocks(4).input(&x).output(spec).run(move |block| {
//!             let row = block.index()..block.index() + 1;
//!             let input = block.read::<f32>(&source.rows(row.clone()));
//!             let mut output = block.write::<f32>(&block.output(0).rows(row));
//!             for (out, value) in output.iter_mut().zip(&*input) {
//!                 *out = 2.0 * value;
//!             }
//!         });
//!         let doubled = orch.submit(task)?.outputs.remove(0);
//!         let (from, to) = (doubled.clone(), y.clone());
//!         orch.submit(Task::new("store", Unit::Vector).input(&doubled).write(&y).run(move |block| {
//!             block.write::<f32>(&to).copy_from_slice(&block.read::<f32>(&from));
//!         }))?;
//!         Ok(())
//!     })
//! });
//! assert!(matches!(report.end, RunEnd::Passed));
//! assert!(y.read::<f32>().iter().all(|value| *value == 2.0));
//! # Ok::<(), ring_runtime::ConfigError>(())
//! ```
//!
//! # Threads
//!
//! The *program's thread* calls [`Runtime::run`] and alone decides about rings, heaps, pools, scopes
//! and the tensor map: what it decides depends on the program and on which tasks it has seen
//! retired, and no lock is needed for any of it. The *cores* run blocks and complete tasks. The
//! *watchdog* reads counters and touches no task. A *rank* of a multi-rank program is a runtime of
//! its own; ranks share host tensors and [`Signals`].
//!
//! # The life of a task
//!
//! 1. **Begin** (program's thread). The task gets the slot `id & (window - 1)` and its heap block.
//!    The slot's former occupant is consumed, so nobody else touches the slot.
//! 2. **Claim.** Each producer that is not consumed is claimed, which keeps it from being consumed.
//!    Only the program's thread gives slots away, so a producer can't be replaced between the look
//!    at its id and the claim.
//! 3. **Link.** The work is put into the slot; then an entry that names the task is pushed on the
//!    fan-out list of each incomplete producer. A push is refused once the list is closed: then the
//!    producer has completed. `pending` counts the lists plus one for the linking itself, and
//!    whoever takes it to zero makes the task ready, exactly once.
//! 4. **Run** (cores). A ready task has one ticket in the ready queue. A core that takes the ticket
//!    takes a block, and puts the ticket back if there are more. A ticket may outlive its task:
//!    blocks are handed out by id, so a stale ticket gets none, and between two runs the cores
//!    *rest* and all tickets are withdrawn. Tasks whose blocks start together gather as a gang, one
//!    gang at a time.
//! 5. **Complete** (the core that ends the last block, or whoever completed the last producer of a
//!    task without blocks). The task lets go of its producers, drops its closure and tensors, closes
//!    its fan-out list, is marked completed, and tells everybody on the list.
//! 6. **Consumed** is not a step but a fact that can be read off one word: completed, scope ended,
//!    every claim released. Claims are refused from then on.
//! 7. **Retire** (program's thread, when it needs room). The oldest live id of a ring advances over
//!    consumed tasks; their slots, bytes and entries are free.
//!
//! | field | written by | read by | ordered by |
//! | --- | --- | --- | --- |
//! | rings, heaps, pools, scopes, tensor map | program's thread | program's thread | |
//! | `Life` (claims, completion, scope, releases) | all | all | one atomic word; changes acquire and release |
//! | `Fanout` head | program's thread pushes, completing thread closes | | compare-exchange and swap, acquire and release |
//! | `Entry` of the dependency pool | program's thread, before the push | completing thread, after the close | the head of the list |
//! | `pending` | program's thread, completing threads | | acquire and release: the last one sees all producers' work |
//! | `Supply` (id, blocks left) | program's thread begins it, cores take | cores | compare-exchange, acquire and release |
//! | `unfinished` | cores | cores | acquire and release: the last block sees the others' work |
//! | `Work` (closure, arguments, retained producers) | program's thread in the link, completing thread | cores, the watchdog (name only) | reader-writer lock of the slot |
//! | ready queue | who makes a task ready | cores | a turn per cell: release after the value, acquire before |
//! | gangs | who makes a task ready, the core that takes the last block | cores | mutex; the gathering one also as an atomic |
//! | `Tally` counters | one thread each | all | release store, acquire load |
//! | `busy` of a core, `resting` | the core; program's thread | the other | stores with a sequentially consistent fence before the look at the other |
//! | sleepers' bits, signal waiters | the sleeper; the waker | the other | the same fence: of two that miss each other, none can |
//! | bytes of tensors | holder of a write claim | holders of claims | mutex of the memory's claim list |
//!
//! Each row that crosses threads has a loom model in `models/`; `sync` says how to run them.
//!
//! # Tensor memory
//!
//! All heaps and host tensors are mapped memory, and there is one way to their bytes: a guard, which
//! holds a *claim* on exactly the bytes that it gives access to. A claim that would let a write meet
//! another access is refused with a panic that names both sides, which ends the run as
//! [`RunEnd::Panicked`]. So safe code can't race, whatever a program forgets to declare; the price
//! is a lock per guard, well below a microsecond. Windows of one matrix that share no byte don't
//! conflict. A block can only make guards for what its task has declared.
//!
//! The unsafe code of the crate stands in `memory` (system calls), `guard` (a claim becomes a
//! slice or tile) and `tile` (rows of a strided window), and rests on two invariants named there:
//! *claimed access* and *claimed elements*. The scheduler has none.
//!
//! # How a run ends
//!
//! The first reason counts: it is stored under a lock, the stop flag is raised, and all sleepers are
//! woken. The program sees [`Halted`] from every further call, blocks see [`Block::stopping`], and
//! waits for signals return. Then the cores come to rest; one that doesn't within the grace time is
//! abandoned, with all that its block may still touch kept alive, and the runtime refuses further runs.

mod admit;
mod argument;
mod block;
mod claims;
mod config;
mod element;
mod fanin;
mod fanout;
mod fatal;
pub mod faults;
mod gang;
mod guard;
mod halt;
mod heap;
#[cfg(all(test, not(loom)))]
mod heap_model;
mod idle;
mod ids;
mod layout;
mod life;
mod memory;
#[cfg(all(test, loom))]
mod models;
mod orchestrator;
mod overlap;
mod pools;
mod processors;
mod queue;
mod region;
mod report;
mod requests;
mod ring;
mod runtime;
mod scope;
mod segments;
mod shared;
mod signal;
mod slot;
mod spec;
mod stall;
mod submit;
mod sync;
mod task;
mod tensor;
mod tensormap;
mod tile;
mod watchdog;
mod worker;

pub use argument::Direction;
pub use block::Block;
pub use config::{ConfigError, DEFAULT_TENSORMAP_ENTRIES, MIN_COUNT, MIN_HEAP, RingLimits, RuntimeConfig, Timeouts};
pub use element::{DType, Element};
pub use fatal::{Fatal, FatalCode, HeadTask, OpenScope, PoolState, Proof, Resource, RingState, TaskState};
pub use guard::{ReadGuard, TileGuard, TileMutGuard, WriteGuard};
pub use halt::Halted;
pub use ids::{RINGS, RingId, TaskId};
pub use layout::MAX_RANK;
pub use memory::MapError;
pub use orchestrator::Orchestrator;
pub use report::{Panicked, RingUsage, RunEnd, RunReport, ScopePeak, ScopePeaks, TaskCounts};
pub use requests::Requests;
pub use runtime::{Runtime, StopHandle};
pub use scope::{MAX_NESTED_SCOPES, ScopeMode};
pub use signal::{Cmp, Signals};
pub use spec::TensorSpec;
pub use stall::{Stall, StallClass};
pub use task::{MAX_ARGUMENTS, Submitted, Task, TaskBuilder, Unit};
pub use tensor::Tensor;
pub use tile::{Tile, TileMut};
