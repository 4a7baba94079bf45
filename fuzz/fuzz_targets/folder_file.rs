//! Feeds arbitrary bytes to the reader of a folder's YAML and JSON.
#![no_main]

use std::sync::{Arc, LazyLock};

use bulrush::calico::catalog::catalog;
use bulrush::datastore::catalog::Catalog;

static CATALOG: LazyLock<Arc<Catalog>> = LazyLock::new(|| catalog(None));

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::datastore::file::exercise::file(input, &CATALOG));
