//! Streams that a stage writes, with a copy that is kept for the comparison.
//!
//! A composed program hands streams from stage to stage through ring memory, which is written again or gone when the
//! program ends. Who writes them keeps a copy in host memory where one is asked for, so that each stage can be compared
//! with its reference on the very streams that it was given. The copy is no argument of the task: the graph and the ring
//! allocations are the same with and without it.

use std::ops::Deref;

use ring_runtime::Tensor;

use crate::creates::Created;

/// Streams to write: dereferences to the tensor that the program knows.
#[derive(Clone, Debug)]
pub(crate) struct Tapped {
    tensor: Tensor,
    copy: Option<Tensor>,
}

impl Tapped {
    /// `tensor`, of which whatever is written is kept in `copy` as well.
    pub(crate) fn into_copy(tensor: &Tensor, copy: &Tensor) -> Self {
        assert_eq!(tensor.dims(), copy.dims(), "a copy has the shape of what it is of");
        Self {
            tensor: tensor.clone(),
            copy: Some(copy.clone()),
        }
    }

    /// Keeps a part, which the caller has just written and holds no access to any more.
    pub(crate) fn keep(&self, part: impl Fn(&Tensor) -> Tensor) {
        if let Some(copy) = &self.copy {
            part(copy).copy_from(&part(&self.tensor));
        }
    }
}

impl Deref for Tapped {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

impl From<&Tensor> for Tapped {
    fn from(tensor: &Tensor) -> Self {
        Self {
            tensor: tensor.clone(),
            copy: None,
        }
    }
}

impl From<&Created> for Tapped {
    fn from(created: &Created) -> Self {
        Self::from(&**created)
    }
}

impl From<&Self> for Tapped {
    fn from(tapped: &Self) -> Self {
        tapped.clone()
    }
}
