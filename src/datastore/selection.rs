//! Which objects are wanted: a kind, and some of its objects.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::labels::{BadSelector, Labels};
use crate::model::object::{Kind, ObjectId};

/// Objects of one kind: all, or those that meet every restriction. Cheap to clone; equal selections share one watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selection(Arc<Parts>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Parts {
    kind: Kind,
    namespaces: BTreeSet<Arc<str>>,
    labels: Labels,
    folder: Arc<Path>,
}

/// All objects of the kind.
impl From<Kind> for Selection {
    fn from(kind: Kind) -> Self {
        let folder = Arc::from(Path::new(""));
        Self(Arc::new(Parts { kind, namespaces: BTreeSet::new(), labels: Labels::default(), folder }))
    }
}

impl Selection {
    /// Only objects in these namespaces; none: in all. Of no effect where objects of the kind live in no namespace.
    #[must_use]
    pub fn in_namespaces<N: Into<Arc<str>>>(mut self, namespaces: impl IntoIterator<Item = N>) -> Self {
        if self.0.kind.namespaced {
            Arc::make_mut(&mut self.0).namespaces = namespaces.into_iter().map(Into::into).collect();
        }
        self
    }

    /// Only objects with such labels, in Kubernetes' syntax; empty: all.
    ///
    /// # Errors
    /// The text is no label selector.
    pub fn with_labels(mut self, selector: &str) -> Result<Self, BadSelector> {
        Arc::make_mut(&mut self.0).labels = Labels::parse(selector)?;
        Ok(self)
    }

    /// Only objects with labels that meet these requirements.
    #[must_use]
    pub fn with_these_labels(mut self, labels: Labels) -> Self {
        Arc::make_mut(&mut self.0).labels = labels;
        self
    }

    /// The same with any labels.
    #[must_use]
    pub fn without_labels(mut self) -> Self {
        Arc::make_mut(&mut self.0).labels = Labels::default();
        self
    }

    /// Only objects of files below this path, which is below the folder that is the datastore; empty: all. Of no effect in
    /// other datastores, which have no files.
    #[must_use]
    pub fn below(mut self, folder: impl AsRef<Path>) -> Self {
        Arc::make_mut(&mut self.0).folder = Arc::from(folder.as_ref());
        self
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// The only namespace that objects may be in, where there is one only.
    #[must_use]
    pub fn only_namespace(&self) -> Option<&str> {
        match (self.0.namespaces.first(), self.0.namespaces.len()) {
            (Some(only), 1) => Some(only),
            _ => None,
        }
    }

    /// The requirements for labels.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        &self.0.labels
    }

    /// Whether all objects are wanted, as far as names and labels are concerned.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.0.namespaces.is_empty() && self.0.labels.is_empty()
    }

    /// Whether an object of this name may be one of them.
    #[must_use]
    pub fn may_have(&self, id: &ObjectId) -> bool {
        self.0.namespaces.is_empty() || self.0.namespaces.contains(&id.namespace)
    }

    /// Whether it matters in which file of a folder an object is.
    #[must_use]
    pub fn is_by_folder(&self) -> bool {
        !self.0.folder.as_os_str().is_empty()
    }

    /// Whether objects of this file may be among them; the path is below the folder that is the datastore.
    #[must_use]
    pub fn may_be_in(&self, file: &Path) -> bool {
        file.starts_with(&self.0.folder)
    }
}

/// `v1/Pod in a, b with app=web below x`; of all objects only the kind.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { kind, namespaces, labels, folder } = &*self.0;
        write!(f, "{kind}")?;
        if !namespaces.is_empty() {
            let namespaces: Vec<&str> = namespaces.iter().map(|namespace| &**namespace).collect();
            write!(f, " in {}", namespaces.join(", "))?;
        }
        if !labels.is_empty() {
            write!(f, " with {labels}")?;
        }
        if self.is_by_folder() {
            write!(f, " below {}", folder.display())?;
        }
        Ok(())
    }
}
