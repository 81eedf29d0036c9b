//! Submission of tasks and allocations.
//!
//! The order of steps is part of the semantics, since each may end the run: arguments, scope, slot
//! and heap, explicit dependencies, fan-in, tensor map, links.

use crate::admit::Pool;
use crate::argument::{Argument, Direction};
use crate::fanin::Edge;
use crate::fanout::EntryRef;
use crate::fatal::{FatalCode, Proof, Resource};
use crate::halt::Halted;
use crate::heap::{self, Block};
use crate::ids::{RingId, TaskId};
use crate::orchestrator::Orchestrator;
use crate::overlap::Window;
use crate::pools::SpillPool;
use crate::scope::ScopeMode;
use crate::slot::UNPOISONED;
use crate::spec::TensorSpec;
use crate::sync::atomic::Ordering;
use crate::task::{MAX_ARGUMENTS, Submitted, Task};
use crate::tensor::Tensor;

/// Outputs of one task must stay below this many bytes in all. The original counts them in a signed
/// 32-bit number that wraps; a program that needs more is rejected here.
const MAX_OUTPUT_BYTES: u64 = i32::MAX as u64;
/// Retired tasks between two clean-ups of the tensor map.
const MAP_INTERVAL: u32 = 64;

impl Orchestrator<'_> {
    /// Allocates 1 to 32 tensors without running anything: a task that is complete at once, and
    /// holds a slot and the bytes until its scope ends and its consumers are done.
    pub fn alloc(&mut self, outputs: &[TensorSpec]) -> Result<Vec<Tensor>, Halted> {
        const NAME: &str = "alloc";
        self.check_running()?;
        if outputs.is_empty() || outputs.len() > MAX_ARGUMENTS {
            return Err(self.invalid(Some(NAME), "an allocation has 1 to 32 outputs"));
        }
        let request = self.layout(outputs, NAME)?;
        let (task, block) = self.enter(request, NAME)?;
        self.shared.slot(task).begin_completed();
        self.shared.program.readied.add_one();
        self.shared.program.completed.add_one();
        self.book.counts.allocations += 1;
        Ok(self.tensors(task, block, outputs).collect())
    }

    /// Submits a task: it runs once all that it depends on has completed. Blocks while there is no room.
    pub fn submit(&mut self, mut task: Task) -> Result<Submitted, Halted> {
        self.check_running()?;
        self.check(&task)?;
        let name = task.name;
        let request = self.layout(&task.outputs, name)?;
        let (id, block) = self.enter(request, name)?;
        let blocks = if task.body.is_some() { task.blocks as u32 } else { 0 };
        self.shared.slot(id).begin(id.local(), blocks);

        self.book.edges.begin();
        for after in &task.after {
            self.claim(id, after.producer, after.retain, name)?;
        }
        let auto = self.book.scopes.innermost().mode == ScopeMode::Auto;
        if auto {
            self.claim_arguments(id, &task.arguments, name)?;
            self.record_writes(id, &task.arguments, name)?;
        }

        let outputs: Vec<Tensor> = self.tensors(id, block, &task.outputs).collect();
        task.arguments.extend(outputs.iter().map(|tensor| Argument {
            tensor: tensor.clone(),
            direction: Direction::Output,
        }));
        self.link(id, task)?;
        Ok(Submitted { id, outputs })
    }

    /// Rejects what no ring could ever make right.
    fn check(&mut self, task: &Task) -> Result<(), Halted> {
        if task.arguments.len() + task.outputs.len() > MAX_ARGUMENTS {
            return Err(self.invalid(Some(task.name), "a task has at most 32 arguments"));
        }
        let unknown =
            |rings: &[crate::ring::Ring], producer: TaskId| producer.local() >= rings[producer.ring().index()].next();
        if task.after.iter().any(|after| unknown(&self.book.rings, after.producer)) {
            return Err(self.invalid(
                Some(task.name),
                "an explicit dependency names a task that was never submitted",
            ));
        }
        let owner = |argument: &Argument| argument.tensor.owner();
        if task
            .arguments
            .iter()
            .filter_map(owner)
            .any(|owner| unknown(&self.book.rings, owner))
        {
            return Err(self.invalid(Some(task.name), "an argument is the output of an earlier run"));
        }
        let cores = self.shared.cores.len();
        if task.together && task.blocks > cores {
            let ring = self.ring();
            let message = format!(
                "`{}` wants {} blocks to start together on {cores} cores",
                task.name, task.blocks
            );
            let resource = Resource::Cores {
                blocks: task.blocks,
                cores,
            };
            return Err(self.fatal(
                FatalCode::RequireSyncStartInvalid,
                ring,
                None,
                resource,
                Some(task.name),
                message,
            ));
        }
        Ok(())
    }

    /// Bytes that the outputs take together, each padded.
    fn layout(&mut self, outputs: &[TensorSpec], name: &'static str) -> Result<u64, Halted> {
        let request = outputs
            .iter()
            .try_fold(0u64, |sum, spec| sum.checked_add(heap::padded(spec.size())?))
            .filter(|sum| *sum <= MAX_OUTPUT_BYTES);
        request.ok_or_else(|| self.invalid(Some(name), "the outputs of one task must stay below 2 GiB"))
    }

    /// Scope check, slot and heap. The task joins the innermost scope.
    fn enter(&mut self, request: u64, name: &'static str) -> Result<(TaskId, Block), Halted> {
        let ring = self.book.scopes.innermost().ring;
        let tasks = self.book.scopes.tasks_in_innermost();
        let window = self.book.rings[ring.index()].window();
        if tasks >= window as usize - 1 {
            return Err(self.scope_full(ring, tasks, window, name));
        }
        if self.book.scopes.held() >= self.book.scope_tasks {
            let capacity = self.book.scope_tasks;
            return Err(self.fatal(
                FatalCode::ScopeTasksOverflow,
                ring,
                None,
                Resource::ScopeTasks { capacity },
                Some(name),
                format!("open scopes hold {capacity} tasks already"),
            ));
        }
        if let Some(requests) = &mut self.book.requests {
            requests.request(ring, request);
        }
        let (task, block) = self.admit(ring, request, name)?;
        self.sync_map(ring);
        let used = self.book.rings[ring.index()].heap.used();
        self.book.scopes.hold(task, used);
        self.book.counts.submitted += 1;
        self.shared.program.submitted.add_one();
        Ok((task, block))
    }

    #[cold]
    fn scope_full(&mut self, ring: RingId, tasks: usize, window: u32, name: &'static str) -> Halted {
        let active = self.book.rings[ring.index()].active();
        let resource = Resource::Scope { tasks, window, active };
        let message = format!("`{name}` is submitted to a scope that holds {tasks} tasks of a window of {window}");
        self.fatal(
            FatalCode::ScopeDeadlock,
            ring,
            Some(Proof::Immediate),
            resource,
            Some(name),
            message,
        )
    }

    /// The outputs at their places.
    fn tensors<'o>(
        &self,
        task: TaskId,
        block: Block,
        outputs: &'o [TensorSpec],
    ) -> impl Iterator<Item = Tensor> + use<'o, '_> {
        let memory = &self.shared.memories[task.ring().index()];
        let mut at = block.start;
        outputs.iter().map(move |spec| {
            let tensor = Tensor::in_ring(memory, at as usize, spec, task);
            at += heap::padded(spec.size()).expect("the layout was checked");
            tensor
        })
    }

    /// Makes `producer` a producer of the task, unless it is consumed or one already.
    fn claim(&mut self, task: TaskId, producer: TaskId, retain: bool, name: &'static str) -> Result<(), Halted> {
        let book = &mut self.book.rings[producer.ring().index()];
        // The slot may belong to a younger task by now. Only this thread gives slots away, so the
        // check and the claim can't be torn apart.
        if producer.local() < book.last_alive() || producer == task {
            return Ok(());
        }
        let submission = self.book.edges.submission();
        let taken = book.taken(producer.local());
        if taken.claimed_by == submission {
            self.book.edges.list[taken.edge as usize].retain |= retain;
            return Ok(());
        }
        if !self.shared.slot(producer).life.claim() {
            return Ok(());
        }
        taken.claimed_by = submission;
        taken.edge = self.book.edges.list.len() as u32;
        if self.book.edges.list.len() >= SpillPool::INLINE {
            self.ensure(task.ring(), Pool::Spill, 1, name)?;
            let book = &mut self.book.rings[task.ring().index()];
            let end = book.spill.take();
            book.taken(task.local()).spill_end = end;
        }
        self.book.edges.list.push(Edge { producer, retain });
        Ok(())
    }

    /// Owners, and those who were told to write what the task reads.
    fn claim_arguments(&mut self, task: TaskId, arguments: &[Argument], name: &'static str) -> Result<(), Halted> {
        for argument in arguments {
            if let Some(owner) = argument.tensor.owner() {
                self.claim(task, owner, true, name)?;
            }
            if argument.direction == Direction::Write || argument.tensor.is_untracked() {
                continue;
            }
            self.book.writers.clear();
            self.find_writers(&argument.tensor, argument.direction == Direction::InOut);
            for index in 0..self.book.writers.len() {
                let writer = self.book.writers[index];
                self.claim(task, writer, false, name)?;
            }
        }
        Ok(())
    }

    /// Appends to `writers` those who were told to write some of `tensor`.
    pub(crate) fn find_writers(&mut self, tensor: &Tensor, supersede: bool) {
        let book = &mut *self.book;
        book.map
            .lookup(tensor.buffer_address(), &window(tensor), supersede, |writer| {
                book.writers.push(writer);
            });
    }

    /// Enters what the task writes into the tensor map.
    fn record_writes(&mut self, task: TaskId, arguments: &[Argument], name: &'static str) -> Result<(), Halted> {
        let writes = |argument: &&Argument| {
            matches!(argument.direction, Direction::InOut | Direction::Write) && !argument.tensor.is_untracked()
        };
        let needed = arguments.iter().filter(writes).count();
        if needed == 0 {
            return Ok(());
        }
        self.ensure_map(task.ring(), needed, name)?;
        for argument in arguments.iter().filter(writes) {
            let tensor = &argument.tensor;
            self.book.map.insert(tensor.buffer_address(), window(tensor), task);
        }
        Ok(())
    }

    /// Tells the tensor map which tasks of `ring` are gone, and cleans up now and then.
    fn sync_map(&mut self, ring: RingId) {
        let last_alive = self.book.rings[ring.index()].last_alive();
        self.book.map.sync(ring.index(), last_alive);
        self.clean_map(ring, false);
    }

    /// Frees the entries of retired tasks: of 64 or more at a time, or when their slots are needed, or if told to.
    pub(crate) fn clean_map(&mut self, ring: RingId, now: bool) {
        let book = &mut self.book.rings[ring.index()];
        let (cleaned, last_alive) = (book.cleaned, book.last_alive());
        let due = last_alive - cleaned >= MAP_INTERVAL || book.next() - cleaned > book.window() || now;
        if !due || cleaned == last_alive {
            return;
        }
        book.cleaned = last_alive;
        if self.book.map.live() > 0 {
            (cleaned..last_alive).for_each(|local| self.book.map.remove_own(TaskId::new(ring, local)));
        }
    }

    /// Puts the task on the lists of its producers, and lets it go once none is left.
    fn link(&mut self, id: TaskId, task: Task) -> Result<(), Halted> {
        let shared = self.shared;
        let incomplete = |edge: &Edge| !shared.slot(edge.producer).life.load().completed();
        if self.book.edges.list.iter().any(incomplete) {
            let needed = self.book.edges.list.len() as u32;
            self.ensure(id.ring(), Pool::Deps, needed, task.name)?;
        }
        let slot = shared.slot(id);
        let kernel = task.body.is_some();
        {
            let mut work = slot.work.write().expect(UNPOISONED);
            work.name = task.name;
            work.body = task.body;
            work.arguments = task.arguments;
            work.together = task.together;
            work.fault = task.fault;
            for edge in &self.book.edges.list {
                if edge.retain {
                    work.producers.push(edge.producer.as_u64());
                }
            }
        }
        let ring = &mut self.book.rings[id.ring().index()];
        for edge in &self.book.edges.list {
            let producer = shared.slot(edge.producer);
            if !producer.life.load().completed() {
                let name = EntryRef::new(id.ring().index(), ring.deps.take());
                slot.pending.fetch_add(1, Ordering::Relaxed);
                if !producer.fanout.push(name, shared.entry(name), id.as_u64()) {
                    // It completed meanwhile.
                    slot.pending.fetch_sub(1, Ordering::Relaxed);
                    ring.deps.put_back();
                }
            }
            if !edge.retain {
                producer.life.release();
            }
        }
        let mark = ring.deps.mark();
        ring.taken(id.local()).mark = Some(mark);
        if kernel {
            self.book.counts.kernels += 1;
        } else {
            self.book.counts.dependency_only += 1;
        }
        if slot.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            let ripple = &mut self.book.ripple;
            shared.ready(id, &shared.program, ripple);
            if let Some(task) = ripple.pop() {
                shared.complete(task, &shared.program, ripple);
            }
        }
        Ok(())
    }
}

/// The tensor as the tensor map sees it.
fn window(tensor: &Tensor) -> Window {
    Window {
        offset: tensor.buffer_offset(),
        element: tensor.dtype().size(),
        layout: *tensor.layout(),
        version: 0,
    }
}
