//! Tensors that a scope body creates.
//!
//! The compiler pulls every `create` of a body to the scope's entry and issues them as kernel-less
//! allocation tasks of at most 16 tensors, in source order. The batches decide when a ring that is
//! too small stops a program, so bodies declare first and allocate once:
//!
//! ```ignore
//! let mut creates = Creates::new();
//! let scratch = Scratch::declare(&mut creates);   // fields are `Created`
//! creates.alloc(o)?;                              // from here on they deref to `Tensor`
//! ```

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use ring_runtime::{DType, Halted, Orchestrator, Tensor, TensorSpec};

/// Most tensors of one allocation task.
pub const BATCH: usize = 16;

/// A declared tensor. Dereferences to the [`Tensor`] once its scope has allocated it.
#[derive(Clone, Debug)]
pub struct Created(Arc<OnceLock<Tensor>>);

impl Deref for Created {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        self.0.get().expect("a created tensor is used after `Creates::alloc`")
    }
}

impl Created {
    /// The tensor, to keep beside the declaration (a cheap handle).
    pub fn tensor(&self) -> Tensor {
        Tensor::clone(self)
    }
}

/// The tensors of one scope body, in source order.
#[derive(Debug, Default)]
pub struct Creates {
    specs: Vec<TensorSpec>,
    cells: Vec<Created>,
}

impl Creates {
    /// Nothing declared yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a tensor.
    pub fn tensor(&mut self, name: &'static str, dtype: DType, dims: &[usize]) -> Created {
        let cell = Created(Arc::new(OnceLock::new()));
        self.specs.push(TensorSpec::new(name, dtype, dims));
        self.cells.push(cell.clone());
        cell
    }

    /// Number of tensors declared.
    pub fn len(&self) -> usize {
        self.specs.len()
    }

    /// Whether nothing was declared.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// Issues the allocation tasks in the current scope.
    pub fn alloc(self, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        for (specs, cells) in self.specs.chunks(BATCH).zip(self.cells.chunks(BATCH)) {
            for (cell, tensor) in cells.iter().zip(o.alloc(specs)?) {
                cell.0
                    .set(tensor)
                    .expect("a declaration is allocated once: `alloc` takes it");
            }
        }
        Ok(())
    }
}
